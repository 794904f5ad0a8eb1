// Package lane is the actor that writes one partition in order, one record at a
// time: mark, permit, request, outcome, report, offset. What it knows lives in
// Kept, which belongs to its sink: a restarted lane takes over the request that
// its predecessor has in flight.
package lane

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"snowmelt/actors/kit"
	"snowmelt/actors/msg"
	"snowmelt/core/failure"
	"snowmelt/core/kafka"
	"snowmelt/core/lane"
	"snowmelt/core/limit"
	"snowmelt/core/mapping"
	"snowmelt/core/record"
	"snowmelt/core/servicenow"
)

// Instance is the side that rows go to.
type Instance interface {
	Write(context.Context, servicenow.WriteRequest) (servicenow.Written, error)
}

// Policy says what a lane does with answers.
type Policy struct {
	// CreateAmbiguous is retry or fail_ambiguous; Statuses are answers to a create after which the row may exist.
	CreateAmbiguous string
	Statuses        []int
	// NotFound is fail, ignore or create; OnErrors is fail, log or ignore.
	NotFound, OnErrors string
	// Redelivered is what a create in doubt does: ambiguous, send or skip.
	Redelivered string
	// Settle is how long a request without an answer may still be running.
	Settle time.Duration
	// HasPath says that a dead letter or error topic takes permanent errors.
	HasPath bool
}

// Config is what a lane needs.
type Config struct {
	Pipeline string
	Part     kafka.Partition
	Mapping  mapping.Settings
	Policy   Policy
	Retry    failure.Retry
	// PoolMax is snow.sink.max.in.flight.
	PoolMax  int
	Instance Instance
	Limiter  msg.Ref[msg.Limiter]
	Reporter msg.Ref[msg.Reporter]
	Parent   msg.Ref[msg.Sink]
	Observer msg.Observer
	Group    *kit.Group
	Log      *slog.Logger
	// Jitter returns a random number in [0, 1).
	Jitter func() float64
	Kept   *Kept
	// Planted is called before each message, for tests that make a lane panic.
	Planted func(any)
}

// Kept is the partition's state and its request in flight. It belongs to the
// sink; the lane that runs works on it.
type Kept struct {
	mu       sync.Mutex // guards inbox and outcomes, which others fill
	inbox    []delivery
	outcomes []*msg.Written

	core   *lane.Lane
	items  map[int64]*item
	ending bool
	ended  bool
	// abandon ends the lane without the reports of its last record.
	abandon bool
	permit  uint64 // token of the permit asked for or held, 0 = none
	tokens  uint64
	began   time.Time
	settle  map[string]settling // by id
}

// settling says until when a request of the process before, for the record at
// offset, may still be running.
type settling struct {
	until  time.Time
	offset int64
}

// NewKept begins at a committed position.
func NewKept(core *lane.Lane) *Kept {
	return &Kept{core: core, items: map[int64]*item{}, settle: map[string]settling{}, began: time.Now()}
}

// delivery is what one poll brought.
type delivery struct {
	records []record.Consumed
	fields  map[string]bool
}

// Deliver puts records, in the order of the partition, where the lane finds them;
// fields are the table's columns, nil under policy passthrough. Tell it Deliver afterwards.
func (k *Kept) Deliver(records []record.Consumed, fields map[string]bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.inbox = append(k.inbox, delivery{records, fields})
}

// Undelivered counts the records that the lane has not looked at yet.
func (k *Kept) Undelivered() int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := 0
	for _, d := range k.inbox {
		n += len(d.records)
	}
	return int64(n)
}

// wrote keeps the outcome of a request until a lane has taken it.
func (k *Kept) wrote(m *msg.Written) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.outcomes = append(k.outcomes, m)
}

func (k *Kept) nextDelivery() (delivery, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.inbox) == 0 {
		return delivery{}, false
	}
	return k.inbox[0], true
}

func (k *Kept) nextOutcome() (*msg.Written, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.outcomes) == 0 {
		return nil, false
	}
	return k.outcomes[0], true
}

// taken forgets what was handled, once that is complete.
func (k *Kept) taken(inbox, outcomes int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.inbox, k.outcomes = k.inbox[inbox:], k.outcomes[outcomes:]
}

// item is one record that is not finished.
type item struct {
	record  record.Consumed
	target  mapping.Target
	invalid error // why it has no target
	fields  map[string]bool
	write   mapping.Write
	mapped  bool
	attempt int // requests sent
	flying  bool
	applied bool // a request without an answer may have had its effect
	tries   int  // failed attempts of this episode
	limited int
	first   time.Time
	final   *msg.Report // its outcome, once it is with the reporter
}

type laneActor struct {
	cfg       Config
	id        string
	self      kit.Ref[msg.Lane]
	worker    *kit.Worker
	asked     time.Time
	stopTimer func()
	marking   bool
	halted    bool
}

// Props returns how to make the actor; each restart makes a new one from cfg.
func Props(cfg Config, opts ...actor.PropsOption) *actor.Props {
	return actor.PropsFromProducer(func() actor.Actor { return &laneActor{cfg: cfg} }, opts...)
}

// Receive takes one message. It never blocks.
func (l *laneActor) Receive(ctx actor.Context) {
	if l.cfg.Planted != nil {
		l.cfg.Planted(ctx.Message())
	}
	switch m := ctx.Message().(type) {
	case *actor.Started:
		l.self, l.id = kit.Self[msg.Lane](ctx), ctx.Self().GetId()
		l.worker = kit.NewWorker(l.cfg.Group)
		l.cfg.Kept.tokens++ // a timer of the predecessor no longer counts
		l.resume()
	case *actor.Stopping, *actor.Restarting:
		l.clearTimer()
		if !l.flying() { // a permit in use goes with its request
			l.release(limit.Neutral, 0)
		}
	case *msg.Deliver:
		l.deliver()
	case *msg.Marked:
		l.cfg.Kept.core.Committed(m.Mark)
		l.marking = false
		l.step()
	case *msg.Granted:
		l.granted(m)
	case *msg.LaneTick:
		if m.Token == l.cfg.Kept.tokens {
			l.stopTimer = nil
			l.step()
		}
	case *msg.Wrote:
		l.takeOutcomes()
	case *msg.Reported:
		l.reported(m)
	case *msg.EndLane:
		l.cfg.Kept.ending = true
		l.cfg.Kept.abandon = l.cfg.Kept.abandon || ctx.Message().(*msg.EndLane).Abandon
		l.clearTimer()
		l.end()
	}
}

// resume goes on where the predecessor stood.
func (l *laneActor) resume() {
	l.halted = false
	k := l.cfg.Kept
	for _, it := range k.items {
		it.tries = 0
	}
	if it := l.head(); it != nil && it.final != nil {
		l.cfg.Reporter.Tell(it.final) // its answer may have been lost with the predecessor
	}
	l.takeOutcomes()
	l.deliver()
}

// takeOutcomes handles what requests brought. An outcome is forgotten only when
// it was handled to the end.
func (l *laneActor) takeOutcomes() {
	for m, ok := l.cfg.Kept.nextOutcome(); ok; m, ok = l.cfg.Kept.nextOutcome() {
		l.written(m)
		l.cfg.Kept.taken(0, 1)
	}
	l.step()
}

func (l *laneActor) flying() bool {
	for _, it := range l.cfg.Kept.items {
		if it.flying {
			return true
		}
	}
	return false
}

// deliver takes the records that lie in Kept.
func (l *laneActor) deliver() {
	k := l.cfg.Kept
	for d, ok := k.nextDelivery(); ok && !k.ending; d, ok = k.nextDelivery() {
		for i := range d.records {
			it := &item{record: d.records[i], fields: d.fields}
			it.target, it.invalid = l.cfg.Mapping.Resolve(&it.record)
			if k.core.Add(it.record.Offset, it.invalid == nil && it.target.Operation == mapping.Create) {
				k.items[it.record.Offset] = it
			}
		}
		k.taken(1, 0)
		l.moved(false)
	}
	l.step()
}

// moved tells the sink where the lane stands.
func (l *laneActor) moved(wanted bool) {
	offset, mark := l.cfg.Kept.core.Commit(false)
	l.cfg.Parent.Tell(&msg.LaneMoved{Part: l.cfg.Part, Offset: offset, Mark: mark, Pending: l.cfg.Kept.core.Len(), Wanted: wanted})
}

// step does the next thing for the oldest record, if nothing is under way.
func (l *laneActor) step() {
	k := l.cfg.Kept
	if k.ending {
		l.end()
		return
	}
	if l.halted || l.marking || l.cfg.Kept.permit != 0 || l.stopTimer != nil {
		return
	}
	offset, doubt, covered, ok := k.core.Next()
	if !ok {
		return
	}
	it := k.items[offset]
	if it.final != nil {
		return
	}
	if !it.mapped {
		if it.invalid == nil {
			it.write, it.invalid = l.cfg.Mapping.Map(&it.record, it.target, it.fields)
		}
		it.mapped = true
	}
	if it.invalid != nil {
		l.giveUp(it, it.invalid)
		return
	}
	if s, ok := k.settle[it.write.SysID]; ok && it.write.SysID != "" && s.offset != offset {
		if wait := time.Until(s.until); wait > 0 { // a later write must not be overtaken by it
			l.wait(wait)
			return
		}
		delete(k.settle, it.write.SysID)
	}
	if doubt == lane.InDoubt && it.attempt == 0 && !it.applied {
		it.applied = true
		k.settle[it.write.SysID] = settling{k.began.Add(l.cfg.Policy.Settle), offset}
		if it.write.Operation == mapping.Create && l.settled(it) {
			return
		}
	}
	if !covered {
		l.marking = true
		l.moved(true)
		return
	}
	l.cfg.Kept.tokens++
	l.cfg.Kept.permit, l.asked = l.cfg.Kept.tokens, time.Now()
	l.cfg.Limiter.Tell(&msg.Acquire{Client: l.id, Token: l.cfg.Kept.permit, Reply: grants{l.self}, Pool: l.cfg.Pipeline, PoolMax: l.cfg.PoolMax})
}

// settled decides about a create that the process before may have sent; false = send it.
func (l *laneActor) settled(it *item) bool {
	if l.cfg.Policy.CreateAmbiguous == "retry" || l.cfg.Policy.Redelivered == "send" {
		return false
	}
	if l.cfg.Policy.Redelivered == "skip" {
		l.finish(it, "skipped")
		return true
	}
	l.giveUp(it, &failure.Error{
		Class: failure.Ambiguous, Op: "creating a row from " + it.record.Place(),
		Detail: "the process before may have created the row: it was in flight when that process died",
		Hint:   "look for the row in the instance, then settle the record by hand, or set snow.sink.redelivered.create.behavior",
	})
	return true
}

type grants struct{ kit.Ref[msg.Lane] }

func (g grants) Tell(m *msg.Granted) { g.Ref.Tell(m) }

func (l *laneActor) release(o limit.Outcome, retryAfter time.Duration) {
	if l.cfg.Kept.permit != 0 {
		l.cfg.Limiter.Tell(&msg.Release{Client: l.id, Token: l.cfg.Kept.permit, Outcome: o, RetryAfter: retryAfter})
		l.cfg.Kept.permit = 0
	}
}

func (l *laneActor) granted(m *msg.Granted) {
	k := l.cfg.Kept
	it := l.head()
	if m.Token != l.cfg.Kept.permit || k.ending || it == nil || it.flying || l.halted {
		if m.Token == l.cfg.Kept.permit {
			l.cfg.Kept.permit = 0
		}
		l.cfg.Limiter.Tell(&msg.Release{Client: l.id, Token: m.Token, Outcome: limit.Neutral})
		if k.ending {
			l.end()
		}
		return
	}
	l.send(it)
}

// head returns the oldest item that is not finished.
func (l *laneActor) head() *item {
	var oldest *item
	for _, it := range l.cfg.Kept.items {
		if oldest == nil || it.record.Offset < oldest.record.Offset {
			oldest = it
		}
	}
	return oldest
}

var methods = map[mapping.Operation]string{mapping.Create: "POST", mapping.Patch: "PATCH", mapping.Put: "PUT", mapping.Delete: "DELETE"}

// send lets the request leave. From here on its outcome is never dropped.
func (l *laneActor) send(it *item) {
	if it.tries == 0 && it.limited == 0 {
		it.first = time.Now()
	} else {
		it.first = it.first.Add(time.Since(l.asked)) // waiting for a permit is no elapsed time
	}
	it.attempt++
	it.flying = true
	offset, attempt, instance, kept := it.record.Offset, it.attempt, l.cfg.Instance, l.cfg.Kept
	l.cfg.Kept.core.Sent(offset)
	r := servicenow.WriteRequest{Method: methods[it.write.Operation], Table: it.write.Table, SysID: it.write.SysID, Body: it.write.Body}
	kit.Run[msg.Lane](l.worker, l.self, 0, func(ctx context.Context) msg.Lane {
		w, err := instance.Write(ctx, r)
		kept.wrote(&msg.Written{Offset: offset, Attempt: attempt, Result: w, Err: err})
		return &msg.Wrote{}
	}, func(err error) msg.Lane {
		kept.wrote(&msg.Written{Offset: offset, Attempt: attempt, Err: err})
		return &msg.Wrote{}
	})
}

func (l *laneActor) wait(d time.Duration) {
	l.clearTimer()
	l.cfg.Kept.tokens++
	l.stopTimer = kit.Timer[msg.Lane](l.self, d, &msg.LaneTick{Token: l.cfg.Kept.tokens})
}

func (l *laneActor) clearTimer() {
	if l.stopTimer != nil {
		l.stopTimer()
		l.stopTimer = nil
		l.cfg.Kept.tokens++
	}
}

// end tells the sink that nothing is in flight any more, once that is so.
func (l *laneActor) end() {
	k := l.cfg.Kept
	if k.ended || l.flying() {
		return
	}
	if it := l.head(); it != nil && it.final != nil && !l.halted && !k.abandon {
		return // its reports are on their way
	}
	k.ended = true
	l.release(limit.Neutral, 0)
	offset, mark := k.core.Commit(true)
	l.cfg.Parent.Tell(&msg.LaneEnded{Part: l.cfg.Part, Offset: offset, Mark: mark})
}
