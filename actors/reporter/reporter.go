// Package reporter is the actor that makes outcomes durable: success and error
// reports, dead letters. A record's offset waits for its answer (Invariant 2).
package reporter

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"snowmelt/actors/kit"
	"snowmelt/actors/msg"
	"snowmelt/core/failure"
	"snowmelt/core/record"
)

// Config is what a reporter needs.
type Config struct {
	Pipeline string
	// SuccessTopic, ErrorTopic and DeadLetterTopic are empty when not wanted.
	SuccessTopic, ErrorTopic, DeadLetterTopic string
	// ContextHeaders adds Connect's headers to dead letters, Body the request body to reports.
	ContextHeaders, Body bool
	// Produce returns when every record is acknowledged.
	Produce  func(context.Context, []record.Record) error
	Backoff  failure.Retry
	Parent   msg.Ref[msg.Sink]
	Observer msg.Observer
	Group    *kit.Group
	Log      *slog.Logger
	// Jitter returns a random number in [0, 1).
	Jitter func() float64
	Kept   *Kept
}

// Kept is what outlives a restart: reports that are not durable yet.
type Kept struct {
	waiting []*msg.Report // not being produced
	flying  []*msg.Report
	// result is what producing brought, until it is handled to the end.
	result atomic.Pointer[msg.Produced]
}

type reporterActor struct {
	cfg       Config
	self      kit.Ref[msg.Reporter]
	worker    *kit.Worker
	failures  int
	stopTimer func()
}

// Props returns how to make the actor.
func Props(cfg Config, opts ...actor.PropsOption) *actor.Props {
	return actor.PropsFromProducer(func() actor.Actor { return &reporterActor{cfg: cfg} }, opts...)
}

// Receive takes one message. It never blocks.
func (r *reporterActor) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *actor.Started:
		r.self, r.worker = kit.Self[msg.Reporter](ctx), kit.NewWorker(r.cfg.Group)
		if len(r.cfg.Kept.flying) == 0 {
			r.flush()
		} else {
			r.produced() // or it comes: it is told to this mailbox
		}
	case *actor.Stopping, *actor.Restarting:
		if r.stopTimer != nil {
			r.stopTimer()
		}
	case *msg.Report:
		r.cfg.Kept.waiting = append(r.cfg.Kept.waiting, m)
		r.flush()
	case *msg.Produced:
		r.produced()
	case *msg.ReportTick:
		r.stopTimer = nil
		r.flush()
	}
}

// produceTime bounds one batch.
const produceTime = 2 * time.Minute

// flush produces everything that waits, one batch at a time. Reports that go
// nowhere are answered at once.
func (r *reporterActor) flush() {
	k := r.cfg.Kept
	if len(k.flying) > 0 || len(k.waiting) == 0 || r.stopTimer != nil {
		return
	}
	var records []record.Record
	for _, rep := range k.waiting {
		records = append(records, r.cfg.records(rep)...)
	}
	k.flying, k.waiting = k.waiting, nil
	if len(records) == 0 {
		r.answer()
		return
	}
	produce := r.cfg.Produce
	kit.Run[msg.Reporter](r.worker, r.self, produceTime, func(ctx context.Context) msg.Reporter {
		m := &msg.Produced{Err: produce(ctx, records)}
		k.result.Store(m)
		return m
	}, func(err error) msg.Reporter {
		m := &msg.Produced{Err: err}
		k.result.Store(m)
		return m
	})
}

// answer tells the lanes that their reports are durable.
func (r *reporterActor) answer() {
	k := r.cfg.Kept
	done := k.flying
	k.flying = nil
	for _, rep := range done {
		if rep.Reply != nil {
			rep.Reply.Tell(&msg.Reported{Offset: rep.Record.Offset})
		}
	}
}

func (r *reporterActor) produced() {
	k := r.cfg.Kept
	m := k.result.Load()
	if m == nil {
		return
	}
	if m.Err == nil {
		r.failures = 0
		for _, rep := range k.flying {
			r.cfg.count(rep)
		}
		r.answer()
		k.result.CompareAndSwap(m, nil)
		r.flush()
		return
	}
	k.waiting, k.flying = append(k.flying, k.waiting...), nil
	k.result.CompareAndSwap(m, nil)
	switch failure.ClassOf(m.Err) {
	case failure.Transient, failure.OutcomeUnknown, failure.Aborted:
		r.failures++
		wait := r.cfg.Backoff.Backoff(r.failures, r.cfg.Jitter())
		r.cfg.Log.Warn("reports wait for Kafka; their offsets wait with them", "pipeline", r.cfg.Pipeline, "reports", len(k.waiting),
			"wait", wait.Round(time.Millisecond), "error", m.Err.Error())
		r.stopTimer = kit.Timer[msg.Reporter](r.self, wait, &msg.ReportTick{})
	default:
		r.cfg.Parent.Tell(&msg.LaneFailed{Err: m.Err})
	}
}
