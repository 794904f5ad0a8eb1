package poller

import (
	"context"
	"errors"
	"time"

	"snowmelt/actors/kit"
	"snowmelt/actors/msg"
	"snowmelt/core/cursor"
	"snowmelt/core/failure"
	"snowmelt/core/kafka"
	"snowmelt/core/record"
)

// publishTime bounds the publishing of one page beyond what Kafka's own timeouts do.
const publishTime = time.Minute

// publishNext publishes the oldest draft; drafts with nothing to publish pass at once.
func (p *pollerActor) publishNext() {
	for len(p.queue) > 0 && !p.publish {
		q := p.queue[0]
		due := q.draft.Ended && time.Since(p.recorded) >= p.cfg.VerifiedEvery
		if len(q.draft.Rows) == 0 && !due {
			p.settle(0, 0)
			continue
		}
		p.begin(q)
	}
}

// begin starts one transaction with the draft's records and the cursor that covers them (Invariant 1).
func (p *pollerActor) begin(q queued) {
	p.publish = true
	p.tail.Cut(q.draft.Horizon)
	if len(q.draft.Rows) > 0 {
		p.tail.Add(q.draft.Newest, p.next)
	}
	state := q.draft.State
	state.Fingerprint, state.Tail = p.cfg.Fingerprint, p.tail.Begin(p.next)
	gen, publisher, shape, alias := p.gen, p.cfg.Publisher, p.cfg.Shape, p.cfg.Alias
	extracted, skip := q.page.Received.UnixMilli(), p.cfg.Sweep.SkipBadRows
	kit.Run[msg.Poller](p.writer, p.self, publishTime, func(ctx context.Context) msg.Poller {
		made := shape.Page(extracted)
		records := make([]record.Record, len(q.draft.Rows))
		for i, a := range q.draft.Rows {
			records[i] = made.Record(a.Row, cursor.VersionHeader(alias, a.Version), a.Version.Time.Millis())
		}
		done, err := publisher.Publish(ctx, kafka.Page{Records: records, Cursor: state.Offset(), SkipOversized: skip})
		if err != nil {
			return &msg.PageFailed{Gen: gen, Err: err}
		}
		return &msg.PagePublished{Gen: gen, Published: done}
	}, func(err error) msg.Poller { return &msg.PageFailed{Gen: gen, Err: err} })
}

// published moves state and metrics on: only now does the page count.
func (p *pollerActor) published(m *msg.PagePublished) {
	if !p.publish || len(p.queue) == 0 {
		return
	}
	p.publish = false
	p.recorded = time.Now()
	next := make(map[int32]int64, len(p.next))
	for _, offsets := range []map[int32]int64{p.next, m.Published.Next} {
		for partition, offset := range offsets {
			next[partition] = max(next[partition], offset)
		}
	}
	p.next = next
	for _, name := range m.Published.Oversized {
		p.cfg.Log.Warn("a row is larger than its topic takes and was skipped", "pipeline", p.cfg.Pipeline, "table", p.cfg.Alias, "topic", p.cfg.Shape.Topic, "row", name)
	}
	p.settle(len(p.queue[0].draft.Rows)-len(m.Published.Oversized), len(m.Published.Oversized))
	switch p.mode {
	case draining:
		p.close()
	case halted:
		p.halt(p.failing)
	default:
		p.publishNext()
		p.readNext()
	}
}

// settle takes the oldest draft as durable.
func (p *pollerActor) settle(rows, skipped int) {
	q := p.queue[0]
	p.queue = p.queue[1:]
	p.sweep.Published(q.draft.Seq)
	q.page.Release()
	facts := msg.PublishedFacts{Rows: rows, Skipped: skipped, State: p.sweep.State(), Ended: q.draft.Ended}
	if proven := max(facts.State.Verified, facts.State.Cursor.Time); proven != cursor.None {
		facts.Lag = max(0, p.sweep.InstanceNow(time.Now()).Sub(proven.Time()))
	}
	if facts.State.Phase != p.phase {
		p.phase = facts.State.Phase
		p.cfg.Log.Info("the table's phase", "pipeline", p.cfg.Pipeline, "table", p.cfg.Alias, "phase", p.phase,
			"cursor", facts.State.Cursor.Time, "verified", facts.State.Verified)
	}
	p.cfg.Observer.PagePublished(p.cfg.Pipeline, p.cfg.Alias, facts)
	if !p.progress {
		p.progress = true
		p.cfg.Parent.Tell(&msg.TableProgressed{Alias: p.cfg.Alias})
	}
}

// pageFailed drops every draft: nothing of them counts. The parent restarts the
// actor, which claims the table anew and goes on from the committed cursor.
func (p *pollerActor) pageFailed(m *msg.PageFailed) {
	if !p.publish {
		return
	}
	p.publish = false
	p.sweep.Dropped()
	switch p.mode {
	case draining:
		p.close()
	case halted:
		p.halt(p.failing)
	default:
		p.halt(m.Err)
	}
}

// detail returns the classified failure in err's chain, an empty one if there is none.
func detail(err error) *failure.Error {
	if e, ok := errors.AsType[*failure.Error](err); ok {
		return e
	}
	return &failure.Error{Class: failure.Bug, Err: err}
}
