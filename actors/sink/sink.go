// Package sink is the actor of a sink pipeline: it owns the consumer, the
// assignment of partitions to lanes, pausing, and the one way to commit. It
// supervises its lanes and the reporter by the policy that is passed in.
package sink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"snowmelt/actors/kit"
	"snowmelt/actors/msg"
	"snowmelt/core/failure"
	"snowmelt/core/kafka"
	corelane "snowmelt/core/lane"
	"snowmelt/core/limit"
	"snowmelt/core/record"
)

// Config is what a sink actor needs.
type Config struct {
	Pipeline string
	// Fields reads the table's dictionary, nil under policy passthrough; it is read again every FieldsEvery.
	Fields      func(context.Context) (map[string]bool, error)
	FieldsEvery time.Duration
	Limiter     msg.Ref[msg.Limiter]
	// Join makes the consumer, which tells self what the group decides.
	// gone is closed when the actor has stopped and answers no more.
	Join func(self msg.Ref[msg.Sink], gone <-chan struct{}) (*kafka.Consumer, error)
	// Lane and Reporter make the children; a lane's state is what outlives its restarts.
	Lane     func(part kafka.Partition, core *corelane.Lane, self msg.Ref[msg.Sink], reporter msg.Ref[msg.Reporter]) (*actor.Props, LaneState)
	Reporter func(self msg.Ref[msg.Sink]) *actor.Props
	// MaxPending pauses a partition with that many unfinished records.
	MaxPending     int
	CommitInterval time.Duration
	// Decide is the policy: what a failure does.
	Decide  func(error) msg.Directive
	Backoff failure.Retry
	// Budget bounds the restarts of a child after bugs before the task fails.
	Budget   kit.Budget
	Observer msg.Observer
	Group    *kit.Group
	Log      *slog.Logger
	// Jitter returns a random number in [0, 1).
	Jitter func() float64
}

// LaneState is where records wait for their lane.
type LaneState interface {
	// Deliver puts records there, in the order of the partition, with the table's columns.
	Deliver(records []record.Consumed, fields map[string]bool)
	// Undelivered counts those that the lane has not looked at yet.
	Undelivered() int64
}

// child is the supervision state of a lane or of the reporter.
type child struct {
	part    kafka.Partition
	pid     *actor.PID
	ref     kit.Ref[msg.Lane]
	kept    LaneState
	retries int
	budget  kit.Budget
	token   uint64
	stop    func()

	commit    kafka.Commit // where the lane stands
	mark      corelane.Mark
	committed kafka.Commit // what is durable
	pending   int64        // records that it has not finished, delivered ones included
	paused    bool
	down      bool // panicked, and not restarted yet: it sees no message
	ending    bool
	ended     bool
}

type sinkActor struct {
	cfg      Config
	self     kit.Ref[msg.Sink]
	consumer *kafka.Consumer
	poller   *kit.Worker
	starter  *kit.Worker
	writer   *kit.Worker
	fields   map[string]bool
	read     time.Time

	reporter   *child
	reporterIn kit.Ref[msg.Reporter]
	lanes      map[kafka.Partition]*child
	known      map[kafka.Partition]kafka.Commit // fetched positions of partitions without a lane
	revoked    []*msg.Revoked
	committing bool
	wanted     bool // a commit is to be made at once
	stopTick   func()
	starts     int // failed attempts to start, in a row
	tokens     uint64
	id         string
	permit     uint64 // token of the permit for the dictionary, 0 = none
	joining    bool
	draining   bool
	abandon    bool // reports can no longer be made durable: lanes end without them
	leaving    bool
	failing    error
	gone       chan struct{}
}

// Props returns how to make the actor.
func Props(cfg Config, opts ...actor.PropsOption) *actor.Props {
	return actor.PropsFromProducer(func() actor.Actor {
		return &sinkActor{cfg: cfg, lanes: map[kafka.Partition]*child{}, known: map[kafka.Partition]kafka.Commit{}, gone: make(chan struct{})}
	}, opts...)
}

// Receive takes one message. It never blocks.
func (s *sinkActor) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *actor.Started:
		s.start(ctx)
	case *actor.Stopping, *actor.Restarting:
		s.cleanUp()
	case *msg.Granted:
		s.granted(m)
	case *msg.FieldsRead:
		s.fieldsRead(ctx, m)
	case *msg.Joined:
		s.joined(ctx, m)
	case *msg.Polled:
		s.polled(ctx, m)
	case *msg.Fetched:
		for p, c := range m.Commits {
			s.known[p] = c
		}
	case *msg.Revoked:
		s.revoke(ctx, m)
	case *msg.Lost:
		for _, p := range m.Parts {
			s.drop(ctx, p)
		}
		s.settleRevoked()
		s.leaveIfDone()
	case *msg.LaneMoved:
		s.moved(m)
	case *msg.LaneEnded:
		s.ended(ctx, m)
	case *msg.LaneFailed:
		s.laneFailed(ctx, m)
	case *msg.CommitTick:
		s.stopTick = nil
		s.wanted = true
		s.commit()
		s.tick()
	case *msg.CommitDone:
		s.commitDone(ctx, m)
	case *msg.RetryChild:
		s.retry(ctx, m)
	case *msg.DrainSink:
		s.drain(ctx)
	case *msg.Left:
		s.left(ctx)
	}
}

func (s *sinkActor) start(ctx actor.Context) {
	s.self, s.id = kit.Self[msg.Sink](ctx), ctx.Self().GetId()
	s.poller, s.starter, s.writer = kit.NewWorker(s.cfg.Group), kit.NewWorker(s.cfg.Group), kit.NewWorker(s.cfg.Group)
	s.cfg.Observer.PipelineState(s.cfg.Pipeline, msg.Running, nil)
	pid, err := ctx.SpawnNamed(s.cfg.Reporter(s.self), "reporter")
	if err != nil {
		panic(fmt.Errorf("spawning the reporter: %w", err))
	}
	s.reporter = &child{pid: pid, budget: s.cfg.Budget}
	s.reporterIn = kit.NewRef[msg.Reporter](ctx.ActorSystem(), pid)
	s.tick()
	s.readFields()
}

func (s *sinkActor) tick() {
	if !s.leaving {
		s.stopTick = kit.Timer[msg.Sink](s.self, s.cfg.CommitInterval, &msg.CommitTick{})
	}
}

// fieldsTime bounds the reading of a dictionary.
const fieldsTime = 5 * time.Minute

// readFields reads the dictionary; a look-up that fails is never a record error.
func (s *sinkActor) readFields() {
	if s.cfg.Fields == nil {
		s.join()
		return
	}
	s.tokens++
	s.permit = s.tokens
	s.cfg.Limiter.Tell(&msg.Acquire{Client: s.id, Token: s.permit, Reply: grants{s.self}})
}

// grants narrows the inbox to what the limiter may tell.
type grants struct{ kit.Ref[msg.Sink] }

func (g grants) Tell(m *msg.Granted) { g.Ref.Tell(m) }

// granted reads the dictionary under the instance's permit.
func (s *sinkActor) granted(m *msg.Granted) {
	if m.Token != s.permit || s.draining || s.leaving {
		s.cfg.Limiter.Tell(&msg.Release{Client: s.id, Token: m.Token, Outcome: limit.Neutral})
		return
	}
	fields := s.cfg.Fields
	kit.Run[msg.Sink](s.starter, s.self, fieldsTime, func(ctx context.Context) msg.Sink {
		f, err := fields(ctx)
		return &msg.FieldsRead{Fields: f, Err: err}
	}, func(err error) msg.Sink { return &msg.FieldsRead{Err: err} })
}

func (s *sinkActor) fieldsRead(ctx actor.Context, m *msg.FieldsRead) {
	s.read = time.Now()
	s.release(m.Err)
	if s.draining || s.leaving {
		return
	}
	if m.Err != nil && s.fields != nil && s.cfg.Decide(m.Err) == msg.Retry {
		s.cfg.Log.Warn("the dictionary cannot be read again; the old one is kept", "pipeline", s.cfg.Pipeline, "error", m.Err.Error())
		return
	}
	if m.Err != nil {
		s.startFailed(ctx, m.Err)
		return
	}
	s.fields = m.Fields
	if s.consumer == nil {
		s.join()
	}
}

// release gives the dictionary's permit back, with what its answer says about load.
func (s *sinkActor) release(err error) {
	r := &msg.Release{Client: s.id, Token: s.permit, Outcome: limit.Success}
	s.permit = 0
	if e, ok := errors.AsType[*failure.Error](err); ok {
		if r.Outcome = limit.Neutral; e.Class == failure.RateLimited {
			r.Outcome, r.RetryAfter = limit.Limited, e.RetryAfter
		}
	}
	s.cfg.Limiter.Tell(r)
}

func (s *sinkActor) join() {
	s.joining = true
	join, self, gone := s.cfg.Join, s.self, s.gone
	kit.Run[msg.Sink](s.starter, s.self, 0, func(context.Context) msg.Sink {
		c, err := join(self, gone)
		return &msg.Joined{Consumer: c, Err: err}
	}, func(err error) msg.Sink { return &msg.Joined{Err: err} })
}

func (s *sinkActor) joined(ctx actor.Context, m *msg.Joined) {
	s.joining = false
	if m.Err != nil && s.draining {
		s.left(ctx)
		return
	}
	if m.Err != nil {
		s.startFailed(ctx, m.Err)
		return
	}
	s.consumer, s.starts = m.Consumer, 0
	if s.draining {
		s.leave()
		return
	}
	s.cfg.Observer.PipelineState(s.cfg.Pipeline, msg.Running, nil)
	s.poll()
}

// startFailed tries the start again, or fails the task.
func (s *sinkActor) startFailed(ctx actor.Context, err error) {
	if s.cfg.Decide(err) != msg.Retry {
		s.fail(ctx, err)
		return
	}
	s.starts++
	wait := s.cfg.Backoff.Backoff(s.starts, s.cfg.Jitter())
	if e, ok := errors.AsType[*failure.Error](err); ok {
		wait = max(wait, e.RetryAfter) // what a 429 asks for is kept
	}
	s.cfg.Log.Warn("the sink cannot start yet", "pipeline", s.cfg.Pipeline, "wait", wait.Round(time.Millisecond), "error", err.Error())
	s.cfg.Observer.PipelineState(s.cfg.Pipeline, msg.Retrying, err)
	s.tokens++
	s.reporter.token = s.tokens
	s.reporter.stop = kit.Timer[msg.Sink](s.self, wait, &msg.RetryChild{Token: s.tokens})
}

// pollLimit bounds the records of one poll.
const pollLimit = 500

func (s *sinkActor) poll() {
	c := s.consumer
	kit.Run[msg.Sink](s.poller, s.self, 0, func(ctx context.Context) msg.Sink {
		records, err := c.Poll(ctx, pollLimit)
		return &msg.Polled{Records: records, Err: err}
	}, func(err error) msg.Sink { return &msg.Polled{Err: err} })
}

// polled hands records to their lanes and polls again at once: backpressure is
// by pausing partitions, the loop never waits for a lane.
func (s *sinkActor) polled(ctx actor.Context, m *msg.Polled) {
	if m.Err != nil {
		s.fail(ctx, m.Err)
	}
	if s.draining || s.leaving {
		s.consumer.Allow()
		return
	}
	byPart := map[kafka.Partition][]record.Consumed{}
	for _, r := range m.Records {
		p := kafka.Partition{Topic: r.Topic, Number: r.Partition}
		byPart[p] = append(byPart[p], r)
	}
	for p, records := range byPart {
		c := s.lane(ctx, p, records[0].Offset)
		if s.draining {
			break
		}
		if c == nil || c.ending {
			continue
		}
		c.kept.Deliver(records, s.fields)
		c.ref.Tell(&msg.Deliver{})
		c.pending += int64(len(records))
		s.pause(c)
	}
	if s.cfg.Fields != nil && time.Since(s.read) > s.cfg.FieldsEvery {
		s.read = time.Now()
		s.readFields()
	}
	s.consumer.Allow()
	if !s.draining {
		s.poll()
	}
}

// pause stops a partition with too many unfinished records, and lets it go on at half of that.
func (s *sinkActor) pause(c *child) {
	switch {
	case c.pending >= int64(s.cfg.MaxPending) && !c.paused:
		c.paused = true
		s.consumer.Pause(c.part)
	case c.pending <= int64(s.cfg.MaxPending/2) && c.paused:
		c.paused = false
		s.consumer.Resume(c.part)
	}
}

// lane returns the lane of a partition, which begins with its first record.
func (s *sinkActor) lane(ctx actor.Context, p kafka.Partition, first int64) *child {
	if c := s.lanes[p]; c != nil {
		return c
	}
	at := first
	mark := corelane.Mark{At: first}
	if known, ok := s.known[p]; ok && known.Offset >= 0 {
		var err error
		at = known.Offset
		if mark, err = corelane.ParseMark(at, known.Metadata); err != nil {
			s.fail(ctx, &failure.Error{Class: failure.Misconfigured, Op: "taking over partition " + p.String(), Err: err, Hint: "another version of snowmelt committed it"})
			return nil
		}
	}
	props, kept := s.cfg.Lane(p, corelane.New(at, mark), s.self, s.reporterIn)
	c := &child{part: p, kept: kept, budget: s.cfg.Budget, commit: kafka.Commit{Offset: at}, mark: mark, committed: kafka.Commit{Offset: at}}
	pid, err := ctx.SpawnNamed(props, "lane/"+p.String())
	if errors.Is(err, actor.ErrNameExists) { // the partition comes back while its last lane is still stopping
		s.tokens++
		pid, err = ctx.SpawnNamed(props, fmt.Sprintf("lane/%s#%d", p, s.tokens))
	}
	if err != nil {
		s.fail(ctx, fmt.Errorf("spawning the lane of %s: %w", p, err))
		return nil
	}
	c.pid, c.ref = pid, kit.NewRef[msg.Lane](ctx.ActorSystem(), pid)
	s.lanes[p] = c
	s.cfg.Observer.LaneState(s.cfg.Pipeline, p, msg.Running, nil)
	return c
}

func (s *sinkActor) cleanUp() {
	if s.stopTick != nil {
		s.stopTick()
	}
	for _, c := range s.lanes {
		stopTimer(c)
	}
	if s.reporter != nil {
		stopTimer(s.reporter)
	}
	if s.permit != 0 {
		s.release(nil)
	}
	if s.poller != nil {
		s.poller.Cancel()
		s.starter.Cancel()
	}
	if s.consumer != nil && !s.leaving {
		s.leave()
	}
	for _, r := range s.revoked {
		close(r.Done)
	}
	s.revoked = nil
	close(s.gone)
}

func stopTimer(c *child) {
	if c.stop != nil {
		c.stop()
		c.stop, c.token = nil, 0
	}
}
