// Package source is the actor of a source pipeline: it owns the assignment of
// tables to pollers and is their supervisor. It has one strategy, written down
// in supervisor/policy.go and passed in: fail the table, fail the task, or retry.
package source

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"snowmelt/actors/kit"
	"snowmelt/actors/msg"
	"snowmelt/core/failure"
)

// Table is one table of the pipeline.
type Table struct {
	Alias string
	// Props makes the table's poller, which reports to parent.
	Props func(parent msg.Ref[msg.Source]) *actor.Props
}

// Config is what a source actor needs.
type Config struct {
	Pipeline string
	Tables   []Table
	// Decide is the policy: what a failure does.
	Decide func(error) msg.Directive
	// Backoff is the arithmetic of waits before a table is tried again.
	Backoff failure.Retry
	// Budget bounds the restarts of a table after bugs before the task fails.
	Budget kit.Budget
	// RestartFailed is after how long a failed table is tried again, 0 = never.
	RestartFailed time.Duration
	Observer      msg.Observer
	Log           *slog.Logger
	// Jitter returns a random number in [0, 1).
	Jitter func() float64
}

// child is one table's supervision state.
type child struct {
	alias   string
	pid     *actor.PID
	retries int // failures in a row
	budget  kit.Budget
	token   uint64 // of the timer that is running
	stop    func()
	failed  error // why it was stopped for good
}

type sourceActor struct {
	cfg      Config
	self     kit.Ref[msg.Source]
	byAlias  map[string]*child
	live     int
	draining bool
	tokens   uint64
}

// Props returns how to make the actor.
func Props(cfg Config, opts ...actor.PropsOption) *actor.Props {
	return actor.PropsFromProducer(func() actor.Actor {
		return &sourceActor{cfg: cfg, byAlias: map[string]*child{}}
	}, opts...)
}

// Receive takes one message. It never blocks.
func (s *sourceActor) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *actor.Started:
		s.start(ctx)
	case *actor.Stopping, *actor.Restarting:
		for _, c := range s.byAlias {
			s.stopTimer(c)
		}
	case *msg.TableFailed:
		if c := s.byAlias[m.Alias]; c != nil && c.failed == nil {
			s.apply(ctx, c, m.Err)
		}
	case *msg.TableProgressed:
		if c := s.byAlias[m.Alias]; c != nil {
			c.retries = 0
		}
	case *msg.RetryTable:
		s.retry(ctx, m)
	case *msg.DrainSource:
		s.drain(ctx)
	case *actor.Terminated:
		s.terminated(ctx, m.Who)
	}
}

func (s *sourceActor) start(ctx actor.Context) {
	s.self = kit.Self[msg.Source](ctx)
	s.cfg.Observer.PipelineState(s.cfg.Pipeline, msg.Running, nil)
	for _, t := range s.cfg.Tables {
		pid, err := ctx.SpawnNamed(t.Props(s.self), "table/"+t.Alias)
		if err != nil {
			panic(fmt.Errorf("spawning the poller of %s: %w", t.Alias, err))
		}
		s.byAlias[t.Alias] = &child{alias: t.Alias, pid: pid, budget: s.cfg.Budget}
		s.live++
	}
}

// HandleFailure is the strategy for panics of pollers. It runs in this actor's goroutine.
func (s *sourceActor) HandleFailure(_ *actor.ActorSystem, sup actor.Supervisor, pid *actor.PID, _ *actor.RestartStatistics, reason, _ any) {
	err, ok := reason.(error)
	if !ok {
		err = fmt.Errorf("panic: %v", reason)
	}
	for _, c := range s.byAlias {
		if c.pid.Equal(pid) {
			s.apply(sup, c, err)
			return
		}
	}
	sup.StopChildren(pid)
}

// apply carries out what the policy says about a failure of one table.
func (s *sourceActor) apply(sup any, c *child, err error) {
	supervisor := sup.(actor.Supervisor)
	s.stopTimer(c)
	directive := s.cfg.Decide(err)
	if s.draining && directive != msg.FailTask {
		directive = msg.FailChild // nothing is tried again while stopping
	}
	if directive == msg.Restart && !c.budget.Spend(time.Now()) {
		directive = msg.FailTask
		err = fmt.Errorf("table %s was restarted %d times within %v: %w", c.alias, s.cfg.Budget.Restarts, s.cfg.Budget.Window, err)
	}
	log := s.cfg.Log.With("pipeline", s.cfg.Pipeline, "table", c.alias, "class", failure.ClassOf(err).String(), "error", err.Error())
	switch directive {
	case msg.Retry, msg.Restart:
		c.retries++
		wait := s.cfg.Backoff.Backoff(c.retries, s.cfg.Jitter())
		log.Warn("the table is tried again", "failures_in_a_row", c.retries, "wait", wait)
		s.cfg.Observer.TableState(s.cfg.Pipeline, c.alias, msg.Retrying, err)
		s.retryAfter(c, wait)
	case msg.FailChild:
		log.Error("the table failed and stands still; the others go on")
		s.cfg.Observer.TableState(s.cfg.Pipeline, c.alias, msg.Failed, err)
		if s.cfg.RestartFailed > 0 && !s.draining {
			s.retryAfter(c, s.cfg.RestartFailed)
			return
		}
		c.failed = err
		supervisor.StopChildren(c.pid)
	case msg.FailTask:
		log.Error("the pipeline failed")
		c.failed = err
		s.cfg.Observer.TableState(s.cfg.Pipeline, c.alias, msg.Failed, err)
		supervisor.EscalateFailure(err, nil)
	}
}

// retryAfter sends a message to self, never restarts from the timer.
func (s *sourceActor) retryAfter(c *child, wait time.Duration) {
	s.tokens++
	c.token = s.tokens
	c.stop = kit.Timer[msg.Source](s.self, wait, &msg.RetryTable{Alias: c.alias, Token: c.token})
}

// retry restarts a child, if it still is one: a restart from the timer itself
// could bring a stopping child back to life.
func (s *sourceActor) retry(ctx actor.Context, m *msg.RetryTable) {
	c := s.byAlias[m.Alias]
	if c == nil || c.token != m.Token || c.failed != nil || s.draining {
		return
	}
	for _, pid := range ctx.Children() {
		if pid.Equal(c.pid) {
			s.cfg.Observer.Restarted("table")
			ctx.(actor.Supervisor).RestartChildren(pid)
			return
		}
	}
}

func (s *sourceActor) stopTimer(c *child) {
	if c.stop != nil {
		c.stop()
		c.stop, c.token = nil, 0
	}
}

// drain asks every poller to finish; the actor stops when the last one has.
func (s *sourceActor) drain(ctx actor.Context) {
	if s.draining {
		return
	}
	s.draining = true
	s.cfg.Observer.PipelineState(s.cfg.Pipeline, msg.Stopping, nil)
	for _, c := range s.byAlias {
		waiting := c.stop != nil
		s.stopTimer(c)
		switch {
		case c.failed != nil:
		case waiting: // suspended after a panic, or halted: it would not see a message
			ctx.Stop(c.pid)
		default:
			ctx.Send(c.pid, &msg.Drain{})
		}
	}
	if s.live == 0 {
		ctx.Stop(ctx.Self())
	}
}

// errAllFailed is why a pipeline without a working table is FAILED.
var errAllFailed = errors.New("every table failed")

func (s *sourceActor) terminated(ctx actor.Context, who *actor.PID) {
	for _, c := range s.byAlias {
		if !c.pid.Equal(who) {
			continue
		}
		s.live--
		switch {
		case s.draining:
			if c.failed == nil {
				s.cfg.Observer.TableState(s.cfg.Pipeline, c.alias, msg.Stopped, nil)
			}
			if s.live == 0 {
				ctx.Stop(ctx.Self())
			}
		case s.live == 0:
			supervisor := ctx.(actor.Supervisor)
			supervisor.EscalateFailure(&failure.Error{
				Class: failure.Misconfigured, Op: "running source " + s.cfg.Pipeline, Err: errors.Join(errAllFailed, c.failed),
			}, nil)
		}
		return
	}
}
