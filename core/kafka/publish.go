package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"snowmelt/core/failure"
	"snowmelt/core/record"
)

// abortWait bounds the abort of a transaction whose page failed. An abort that
// is lost costs readers the transaction time-out, nothing else: without a commit
// nothing of it can become visible.
const abortWait = 3 * time.Second

// Page is what is published at once: records, and the cursor that covers them.
type Page struct {
	// Records go out in their order. Their bytes may be used again when Publish returns.
	Records []record.Record
	// Cursor is the table's new cursor; nil leaves it.
	Cursor map[string]string
	// Rewind allows the cursor to move back, as only `offsets set` and `offsets
	// reset` may; it also removes other spellings of the key that Connect wrote.
	Rewind bool
	// Forget removes the cursor, with all its spellings; Cursor is then ignored.
	Forget bool
	// SkipOversized leaves records out that are larger than their topic takes,
	// instead of failing the page (snow.source.bad.row.behavior=skip).
	SkipOversized bool
}

// Published is what is known after a page was published.
type Published struct {
	// Next is, for each partition of Topic that the page wrote to, the largest
	// acknowledged offset + 1.
	Next map[int32]int64
	// Bytes are those of the page's records with their framing, uncompressed.
	Bytes int
	// Oversized names the records that Page.SkipOversized left out: key, size and limit.
	Oversized []string
}

// Publish publishes a page. Under exactly_once records and cursor are one
// transaction; under at_least_once the cursor is sent when every record is
// acknowledged, and Publish returns when the cursor is, too. Either way the
// cursor is durable only together with, or after, its records, and never moves
// back (Invariant 1). A page without records and cursor does nothing.
//
// The classes of its errors:
//
//   - Aborted: nothing of the page is or will become visible; publish it again.
//   - OutcomeUnknown: the commit may have gone through, or the transaction timed out;
//     call Open, which tells by the cursor.
//   - Fenced: another process took the table; call Open only if it is to be ours.
//   - Oversized, TopicRefused, BrokerRefused, Misconfigured: nothing is visible, and
//     it takes somebody to change that.
//   - Transient: no transaction was begun; under at_least_once, records may be in
//     the topic, their cursor is not known to be.
func (p *Publisher) Publish(ctx context.Context, page Page) (Published, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	if err := p.acquire(ctx, "publishing with"); err != nil {
		return Published{}, err
	}
	defer p.unlock()
	op := "publishing to topic " + p.cfg.Topic + " with " + p.txnID
	if !p.opened {
		return Published{}, &failure.Error{
			Class: failure.OutcomeUnknown, Op: op, Detail: "the publisher is not open: open it, which reads the cursor",
		}
	}
	if len(page.Records) == 0 && page.Cursor == nil && !page.Forget {
		return Published{Next: map[int32]int64{}}, nil
	}
	if err := p.forward(op, page); err != nil {
		return Published{}, err
	}
	var oversized []string
	if page.SkipOversized {
		page.Records, oversized = p.withoutOversized(page.Records)
	}
	cursor := p.cursorRecords(page)
	size, err := p.measure(op, page, cursor)
	if err != nil {
		return Published{}, err
	}
	send := p.deliver
	if p.cfg.ExactlyOnce {
		send = p.transact
	}
	done, err := send(ctx, op, page, cursor, size)
	done.Oversized = oversized
	return done, err
}

// withoutOversized returns the records that fit, and names the others.
func (p *Publisher) withoutOversized(records []record.Record) ([]record.Record, []string) {
	kept := make([]record.Record, 0, len(records))
	var names []string
	for _, r := range records {
		limit := p.cfg.Cluster.limit(or(r.Topic, p.cfg.Topic)) - clientFraming
		if size := RecordSize(r); size > limit {
			names = append(names, fmt.Sprintf("%s (%d bytes, the limit is %d)", r.Key, size, limit))
			continue
		}
		kept = append(kept, r)
	}
	return kept, names
}

// forward refuses a cursor that lies before the durable one: a bug of the caller.
func (p *Publisher) forward(op string, page Page) error {
	if page.Cursor == nil || page.Rewind || page.Forget || p.last == nil {
		return nil
	}
	from, to := p.last.Offset[offsetTimestamp], page.Cursor[offsetTimestamp]
	if to >= from { // "yyyy-MM-dd HH:mm:ss" sorts as time; ids do not sort (spec: source, rule 15)
		return nil
	}
	return &failure.Error{
		Class: failure.Bug, Op: op, Detail: fmt.Sprintf("the cursor would move back from %q to %q", from, to),
	}
}

// cursorRecords returns what the page writes to the cursor topic. A page that
// leaves the cursor writes it again as it is, so that the place of the newest
// cursor record names the newest transaction (see session.go).
func (p *Publisher) cursorRecords(page Page) []record.Record {
	now := time.Now().UnixMilli()
	if p.last != nil {
		now = max(now, p.last.Time+1) // clocks differ; ours must be the later record
	}
	own := record.Record{Topic: p.cfg.CursorTopic, Key: p.cfg.Key.Encode(), Timestamp: now}
	var all []record.Record
	if page.Forget || page.Rewind {
		for _, raw := range p.variants {
			all = append(all, record.Record{Topic: p.cfg.CursorTopic, Key: raw, Timestamp: now})
		}
	}
	switch {
	case page.Forget:
	case page.Cursor != nil:
		own.Value = encodeOffset(page.Cursor)
	case p.cfg.ExactlyOnce && p.last != nil:
		own.Value = encodeOffset(p.last.Offset)
	default:
		return all
	}
	return append(all, own)
}

// measure adds the sizes of the page's records and refuses what is too large
// before anything is sent.
func (p *Publisher) measure(op string, page Page, cursor []record.Record) (int, error) {
	limits := map[string]int{}
	check := func(r record.Record) error {
		r.Topic = or(r.Topic, p.cfg.Topic)
		limit, ok := limits[r.Topic]
		if !ok {
			limit = p.cfg.Cluster.limit(r.Topic) - clientFraming
			limits[r.Topic] = limit
		}
		return fits(op, r, limit)
	}
	size := 0
	for _, r := range page.Records {
		if err := check(r); err != nil {
			return 0, err
		}
		size += RecordSize(r) - batchOverhead
	}
	for _, r := range cursor {
		if err := check(r); err != nil {
			return 0, err
		}
	}
	return size, nil
}

// transact publishes a page as one transaction.
func (p *Publisher) transact(ctx context.Context, op string, page Page, cursor []record.Record, size int) (Published, error) {
	s, err := p.transactional(ctx)
	if err != nil {
		return Published{}, err
	}
	if err := p.unchanged(ctx, s); err != nil {
		return Published{}, p.abandon(ctx, s, op, err, nil)
	}
	if err := s.client.BeginTransaction(); err != nil {
		return Published{}, p.abandon(ctx, s, op, err, nil)
	}
	p.standing.began, p.standing.ending = time.Now(), false
	out := newOutcome(p.cfg.Topic, p.cfg.CursorTopic)
	out.produce(ctx, s.client, p.cfg.Topic, page.Records)
	out.produce(ctx, s.client, p.cfg.CursorTopic, cursor)
	out.seal()
	// A commit does not wait for records, and kgo commits what it has: so flush,
	// and look at every promise, or a page would be committed without a record.
	if err = s.client.Flush(ctx); err == nil {
		err = out.wait(ctx)
	}
	if err == nil {
		err = settleTopics(ctx, s.client)
	}
	if failed := out.failure(); failed != nil {
		err = failed // says more than a flush that ran out of time
	}
	if err == nil {
		err = p.unchanged(ctx, s)
	}
	if err != nil {
		return Published{}, p.abandon(ctx, s, op, err, out)
	}
	p.standing.ending = true
	if err := s.client.EndTransaction(ctx, kgo.TryCommit); err != nil {
		return Published{}, p.doubt(ctx, s, op, err, out)
	}
	p.moved(page, out)
	if p.id, p.epoch, err = s.client.ProducerID(ctx); err != nil {
		p.epoch = unknownEpoch // transaction.version 2 raises the epoch at each end
	}
	p.standing = standing{id: p.id, epoch: p.epoch}
	p.cfg.Pool.put(s)
	return Published{Next: out.next, Bytes: size}, nil
}

// settleTopics waits until kgo shows the partitions of every topic of the page to
// EndTransaction. Of a topic that the client has just learnt it first produces the
// waiting records and only then stores the partitions, both under one lock; an
// EndTransaction between the two overlooks the topic. If it was the only one, kgo
// aborts and reports success; if not, its sequence numbers are not reset and the
// next page fails with OUT_OF_ORDER_SEQUENCE_NUMBER (v1.22.3, storePartitionsUpdate).
// AbortBufferedRecords takes that lock, and aborts nothing: all records are back.
func settleTopics(ctx context.Context, client *kgo.Client) error {
	return client.AbortBufferedRecords(ctx)
}

// unchanged makes sure that the client still has the producer that was proven.
// kgo initialises again by itself after some errors; what was produced before
// is then gone, while a commit would succeed.
func (p *Publisher) unchanged(ctx context.Context, s *session) error {
	id, epoch, err := s.client.ProducerID(ctx)
	if err != nil {
		return err
	}
	if p.epoch != unknownEpoch && (id != p.id || epoch != p.epoch) {
		return fmt.Errorf("the producer changed from %d/%d to %d/%d", p.id, p.epoch, id, epoch)
	}
	p.id, p.epoch = id, epoch
	return nil
}

// abandon ends a transaction whose commit was not sent, closes its client and
// returns the error of the page. Errors of a fence close the publisher as well.
func (p *Publisher) abandon(ctx context.Context, s *session, op string, cause error, out *outcome) error {
	err := classify(op, cause, resource{topic: out.topicOf(p.cfg.Topic), txnID: p.txnID, need: "Write"})
	class := failure.ClassOf(err)
	if class != failure.OutcomeUnknown {
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortWait)
		if s.client.AbortBufferedRecords(grace) == nil {
			p.standing.ending = true
			if s.client.EndTransaction(grace, kgo.TryAbort) == nil { // its failure changes nothing, see abortWait
				p.standing.settled(grace, s.client)
			}
		}
		cancel()
	}
	p.drop(s, out)
	f, _ := errors.AsType[*failure.Error](err)
	switch class {
	case failure.Transient, failure.Aborted:
		f.Class = failure.Aborted
	case failure.OutcomeUnknown:
		p.opened = false
		return p.fenced(ctx, op, f)
	default: // stays what it was
	}
	return f
}

// fenced tells a takeover from a transaction that timed out, which give the same
// errors. What cannot be told now, Open tells.
func (p *Publisher) fenced(ctx context.Context, op string, f *failure.Error) error {
	ctx, cancel := context.WithTimeout(ctx, abortWait)
	defer cancel()
	if err := p.owned(ctx, op); failure.ClassOf(err) == failure.Fenced {
		return err
	}
	if isFence(f.Err) {
		f.Hint = or(f.Hint, "the transaction timed out, or another process took the table: see snow.source.transaction.timeout.ms")
	}
	return f
}

// doubt judges a commit that was not acknowledged. Whatever it was, the table is
// fenced and its cursor read before the next page.
func (p *Publisher) doubt(ctx context.Context, s *session, op string, cause error, out *outcome) error {
	if isAny(cause, kerr.TransactionAbortable) { // the coordinator says that it was not committed
		return p.abandon(ctx, s, op, &failure.Error{Class: failure.Aborted, Op: op, Err: cause}, out)
	}
	p.drop(s, out)
	p.opened = false
	err := classify("committing: "+op, cause, resource{txnID: p.txnID})
	f, _ := errors.AsType[*failure.Error](err)
	if f.Class == failure.BrokerRefused {
		return f
	}
	f.Class = failure.OutcomeUnknown
	return p.fenced(ctx, op, f)
}

// drop closes a client for good and waits until kgo has let go of the records,
// whose bytes belong to the caller.
func (p *Publisher) drop(s *session, out *outcome) {
	p.session, p.epoch = nil, unknownEpoch
	p.cfg.Pool.release(s)
	if out != nil {
		out.settle(abortWait)
	}
}

// moved takes over the cursor record that a page has made durable.
func (p *Publisher) moved(page Page, out *outcome) {
	switch {
	case page.Forget:
		p.last = nil
	case out.cursor != nil:
		p.last = &CursorRecord{
			Key: p.cfg.Key, Offset: parseOffset(out.cursor.Value), At: out.cursor.Offset,
			LogPartition: out.cursor.Partition, Time: out.cursor.Timestamp.UnixMilli(),
		}
	}
	if page.Forget || page.Rewind {
		p.variants = nil
	}
}

// deliver publishes a page without a transaction: records, their
// acknowledgements, cursor, its acknowledgement (Invariant 1).
func (p *Publisher) deliver(ctx context.Context, op string, page Page, cursor []record.Record, size int) (Published, error) {
	client, err := p.cfg.Cluster.shared()
	if err != nil {
		return Published{}, err
	}
	out := newOutcome(p.cfg.Topic, p.cfg.CursorTopic)
	for _, step := range []struct {
		topic   string
		records []record.Record
	}{{p.cfg.Topic, page.Records}, {p.cfg.CursorTopic, cursor}} {
		out.produce(ctx, client, step.topic, step.records)
		out.seal()
		if err := out.wait(ctx); err != nil {
			return Published{}, p.undelivered(client, op, err, out)
		}
	}
	p.moved(page, out)
	return Published{Next: out.next, Bytes: size}, nil
}

func (p *Publisher) undelivered(client *kgo.Client, op string, cause error, out *outcome) error {
	// Another producer's error, or records that do not come back: both end with
	// the client. Other tables' pages then fail too, and are sent again.
	if isFence(cause) || !out.settle(abortWait) {
		p.cfg.Cluster.discard(client)
		out.settle(abortWait)
	}
	err := classify(op, cause, resource{topic: out.topicOf(p.cfg.Topic), need: "Write"})
	f, _ := errors.AsType[*failure.Error](err)
	if f.Class == failure.OutcomeUnknown { // without a transaction there is no outcome to learn
		f.Class = failure.Transient
	}
	return f
}
