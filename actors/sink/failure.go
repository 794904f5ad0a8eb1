package sink

import (
	"fmt"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"snowmelt/actors/kit"
	"snowmelt/actors/msg"
	"snowmelt/core/failure"
)

// HandleFailure is the strategy for panics of lanes and of the reporter. It runs in this actor's goroutine.
func (s *sinkActor) HandleFailure(_ *actor.ActorSystem, sup actor.Supervisor, pid *actor.PID, _ *actor.RestartStatistics, reason, _ any) {
	err, ok := reason.(error)
	if !ok {
		err = fmt.Errorf("panic: %v", reason)
	}
	ctx := sup.(actor.Context)
	if s.reporter != nil && s.reporter.pid.Equal(pid) {
		s.reporter.down = true
		s.apply(ctx, s.reporter, err)
		return
	}
	for _, c := range s.lanes {
		if c.pid.Equal(pid) {
			c.down = true
			s.apply(ctx, c, err)
			return
		}
	}
	sup.StopChildren(pid)
}

func (s *sinkActor) laneFailed(ctx actor.Context, m *msg.LaneFailed) {
	c := s.reporter
	if m.Part.Topic != "" {
		c = s.lanes[m.Part]
	}
	if c != nil {
		s.apply(ctx, c, m.Err)
	}
}

// apply carries out what the policy says about a failure of one child.
func (s *sinkActor) apply(ctx actor.Context, c *child, err error) {
	stopTimer(c)
	directive := s.cfg.Decide(err)
	if directive == msg.Restart && !c.budget.Spend(time.Now()) {
		directive = msg.FailTask
		err = fmt.Errorf("%s was restarted %d times within %v: %w", c.pid.GetId(), s.cfg.Budget.Restarts, s.cfg.Budget.Window, err)
	}
	if directive == msg.FailTask || directive == msg.FailChild {
		if c == s.reporter {
			s.abandon = true
		}
		if c.ending && c.part.Topic != "" { // it failed over its own end: go on without it
			s.drop(ctx, c.part)
			s.settleRevoked()
			s.leaveIfDone()
		}
		s.fail(ctx, err)
		return
	}
	c.retries++
	wait := s.cfg.Backoff.Backoff(c.retries, s.cfg.Jitter())
	if s.draining || c.ending { // it must still say that it has ended
		wait = 0
	}
	s.cfg.Log.Warn("a lane goes on after a pause", "pipeline", s.cfg.Pipeline, "actor", c.pid.GetId(), "class", failure.ClassOf(err).String(),
		"failures_in_a_row", c.retries, "wait", wait.Round(time.Millisecond), "error", err.Error())
	if c.part.Topic != "" {
		s.cfg.Observer.LaneState(s.cfg.Pipeline, c.part, msg.Retrying, err)
	}
	s.tokens++
	c.token = s.tokens
	c.stop = kit.Timer[msg.Sink](s.self, wait, &msg.RetryChild{Part: c.part, Token: c.token})
}

// retry restarts a child, if it still is one, or tries the start again.
func (s *sinkActor) retry(ctx actor.Context, m *msg.RetryChild) {
	if m.Part.Topic == "" {
		if s.reporter.token != m.Token {
			return
		}
		s.reporter.stop = nil
		if s.consumer == nil && !s.draining {
			s.readFields()
			return
		}
		s.restart(ctx, s.reporter, "reporter")
		return
	}
	c := s.lanes[m.Part]
	if c == nil || c.token != m.Token {
		return
	}
	c.stop = nil
	s.restart(ctx, c, "lane")
	if c.ending {
		c.ref.Tell(&msg.EndLane{Abandon: s.abandon})
	}
}

func (s *sinkActor) restart(ctx actor.Context, c *child, kind string) {
	for _, pid := range ctx.Children() {
		if pid.Equal(c.pid) {
			s.cfg.Observer.Restarted(kind)
			c.down = false
			ctx.(actor.Supervisor).RestartChildren(pid)
			return
		}
	}
}

// fail stops the task in order: no intake, writes in flight are finished, their
// reports and positions made durable, then the failure goes to the engine.
func (s *sinkActor) fail(ctx actor.Context, err error) {
	if s.failing != nil {
		if s.abandon { // lanes that wait for their reports wait in vain
			for p := range s.lanes {
				s.endLane(ctx, p)
			}
		}
		return
	}
	s.failing = err
	s.cfg.Log.Error("the pipeline failed", "pipeline", s.cfg.Pipeline, "class", failure.ClassOf(err).String(), "error", err.Error())
	s.cfg.Observer.PipelineState(s.cfg.Pipeline, msg.Failed, err)
	s.drain(ctx)
}
