package kafka

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"snowmelt/core/failure"
)

const (
	defaultTransactionTimeout = 30 * time.Second
	// fenceBackoff is the wait after CONCURRENT_TRANSACTIONS: the coordinator is
	// still ending the transaction of the owner before.
	fenceBackoff = 50 * time.Millisecond
	// unknownEpoch matches no epoch, so that the next session reads the cursor.
	unknownEpoch int16 = -2
)

// PublisherConfig says for which table a Publisher publishes, and where.
type PublisherConfig struct {
	Cluster  *Cluster
	Pipeline string
	// Key is the table's cursor; its Pipeline may be empty and is then Pipeline.
	Key CursorKey
	// CursorTopic is the compacted topic of the cursors (offset.storage.topic).
	CursorTopic string
	// Topic is the table's topic; records without a topic go there.
	Topic string
	// TransactionalIDPrefix is transactional.id.prefix.
	TransactionalIDPrefix string
	// TransactionTimeout is snow.source.transaction.timeout.ms; 30 s when zero.
	TransactionTimeout time.Duration
	// ExactlyOnce publishes each page in one transaction; otherwise the cursor
	// follows the acknowledgement of its records (snow.source.delivery).
	ExactlyOnce bool
	// Pool bounds the open transactional clients; nil is a Pool of its own.
	Pool *Pool
}

// Publisher publishes the pages of one table and moves its cursor. Its methods
// may be called from any goroutine, but only one works at a time: the others
// wait within their context.
type Publisher struct {
	cfg   PublisherConfig
	txnID string
	lock  chan struct{}

	opened  bool
	session *session
	// id and epoch are those of the newest producer that this publisher
	// initialised; the proof that nobody came after it (see session.go).
	id    int64
	epoch int16
	// standing tells a takeover from an accident, see standing.go.
	standing standing
	// last is the own cursor record as it was read or written last.
	last     *CursorRecord
	variants [][]byte
}

// NewPublisher returns a publisher. It does nothing until Open.
func NewPublisher(cfg PublisherConfig) *Publisher {
	if cfg.TransactionTimeout <= 0 {
		cfg.TransactionTimeout = defaultTransactionTimeout
	}
	if cfg.Key.Pipeline == "" {
		cfg.Key.Pipeline = cfg.Pipeline
	}
	if cfg.Pool == nil {
		cfg.Pool = NewPool(1)
	}
	return &Publisher{
		cfg:      cfg,
		txnID:    cfg.Key.TransactionalID(cfg.TransactionalIDPrefix),
		lock:     make(chan struct{}, 1),
		epoch:    unknownEpoch,
		standing: unknownStanding,
	}
}

// TransactionalID returns the id under which the table is owned.
func (p *Publisher) TransactionalID() string { return p.txnID }

// Opened is what a new owner must know before it reads the first page.
type Opened struct {
	// Offset is the committed cursor; meaningful when Found.
	Offset map[string]string
	Found  bool
	// Siblings are the cursors of the same pipeline, instance, table and
	// timestamp field under other fingerprints: the query was changed.
	Siblings []CursorRecord
	// Ends are the high watermarks of the partitions of Topic after the fence,
	// Starts their first offsets: where rebuilding the filter ends and may begin.
	Ends   map[int32]int64
	Starts map[int32]int64
}

// Open takes the table over: under exactly_once it initialises the transactional
// id first, which aborts the open transaction of the owner before and fences it
// (Invariant 5), and only then reads the cursor and the ends of the topic.
// at_least_once has no fence. Open may be called again at any time; it must be
// called after a Publish that failed with OutcomeUnknown or Fenced.
//
// An Open that is not the first fails with Fenced if another process took the
// table since: the newest owner keeps it. If the failure before was Fenced already,
// the table is claimed whoever has it, unless its owner has published since then.
//
// Errors: BrokerRefused, TopicRefused, Misconfigured, Transient, Fenced.
func (p *Publisher) Open(ctx context.Context) (Opened, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	if err := p.acquire(ctx, "opening"); err != nil {
		return Opened{}, err
	}
	defer p.unlock()
	p.forget()
	if p.cfg.ExactlyOnce {
		if err := p.owned(ctx, "opening the publisher of "+p.txnID); err != nil {
			return Opened{}, err
		}
		if err := p.fence(ctx); err != nil {
			return Opened{}, err
		}
	}
	c := p.cfg.Cluster
	for _, topic := range []string{p.cfg.Topic, p.cfg.CursorTopic} {
		if err := c.learnLimit(ctx, topic); err != nil {
			return Opened{}, err
		}
	}
	f, err := c.cursor(ctx, p.cfg.CursorTopic, p.cfg.Key)
	if err != nil {
		return Opened{}, err
	}
	o := Opened{Siblings: f.siblings}
	if o.Ends, err = c.ends(ctx, p.cfg.Topic); err != nil {
		return Opened{}, err
	}
	if o.Starts, err = c.starts(ctx, p.cfg.Topic); err != nil {
		return Opened{}, err
	}
	p.last, p.variants, p.opened = f.own, f.variants, true
	if f.own != nil {
		o.Offset, o.Found = f.own.clone(), true
	}
	return o, nil
}

// fence initialises the transactional id with one raw request over the shared
// client, so that a thousand idle tables need no thousand clients. Producer id
// and epoch -1 claim the id whoever had it; the coordinator answers when the
// open transaction, if there was one, is aborted and its markers are written.
func (p *Publisher) fence(ctx context.Context) error {
	op := "fencing transactional id " + p.txnID
	p.standing = unknownStanding // an answer that is lost may have raised the epoch
	for {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.TransactionalID = &p.txnID
		req.TransactionTimeoutMillis = int32(p.cfg.TransactionTimeout / time.Millisecond)
		req.ProducerID, req.ProducerEpoch = -1, -1
		resp, err := req.RequestWith(ctx, p.cfg.Cluster.client)
		if err == nil {
			err = kerr.ErrorForCode(resp.ErrorCode)
		}
		if err == nil {
			p.id, p.epoch = resp.ProducerID, resp.ProducerEpoch
			p.standing = standing{id: p.id, epoch: p.epoch}
			return nil
		}
		if !isAny(err, kerr.ConcurrentTransactions) {
			f := classify(op, err, resource{txnID: p.txnID})
			if failure.ClassOf(f) == failure.OutcomeUnknown { // nothing was published: a race of two fences
				return &failure.Error{Class: failure.Transient, Op: op, Err: err}
			}
			return f
		}
		if wait := pause(ctx, fenceBackoff); wait != nil {
			return classify(op, err, resource{txnID: p.txnID})
		}
	}
}

// Close ends the publisher's client, if one is open. A page that is being
// published is waited for until ctx ends; then Close returns without effect.
// The publisher can be opened again.
func (p *Publisher) Close(ctx context.Context) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	if p.acquire(ctx, "closing") != nil {
		return
	}
	defer p.unlock()
	p.forget()
	p.standing = unknownStanding // given up on purpose: whoever opens it again claims it
}

// forget drops everything that was known of the cursor, and the client.
func (p *Publisher) forget() {
	p.cfg.Pool.evict(p.session)
	p.session, p.opened, p.last, p.variants, p.epoch = nil, false, nil, nil, unknownEpoch
}

func (p *Publisher) acquire(ctx context.Context, doing string) error {
	select {
	case p.lock <- struct{}{}:
		return nil
	case <-ctx.Done():
		return &failure.Error{
			Class: failure.Transient, Op: doing + " the publisher of " + p.txnID,
			Detail: "another call did not end in time", Err: ctx.Err(),
		}
	}
}

func (p *Publisher) unlock() { <-p.lock }
