package sink

import (
	"context"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"snowmelt/actors/kit"
	"snowmelt/actors/msg"
	"snowmelt/core/failure"
	"snowmelt/core/kafka"
	corelane "snowmelt/core/lane"
)

// moved notes where a lane stands, and commits at once if the lane waits for its mark.
func (s *sinkActor) moved(m *msg.LaneMoved) {
	c := s.lanes[m.Part]
	if c == nil || c.ended {
		return
	}
	if m.Offset > c.commit.Offset {
		c.retries = 0
	}
	c.commit, c.mark = kafka.Commit{Offset: m.Offset, Metadata: m.Mark.Encode(m.Offset)}, m.Mark
	c.pending = int64(m.Pending) + c.kept.Undelivered()
	s.cfg.Observer.LaneMoved(s.cfg.Pipeline, m.Part, m.Offset, m.Pending)
	if s.consumer != nil && !s.draining {
		s.pause(c)
	}
	switch {
	case m.Wanted && c.commit == c.committed: // durable already; a restarted lane did not hear of it
		c.ref.Tell(&msg.Marked{Mark: m.Mark})
	case m.Wanted:
		s.wanted = true
		s.commit()
	}
}

// commitTime bounds one commit.
const commitTime = 30 * time.Second

// commit commits what changed, one commit at a time.
func (s *sinkActor) commit() {
	if s.committing || !s.wanted || s.consumer == nil || s.leaving {
		return
	}
	s.wanted = false
	commits, marks := map[kafka.Partition]kafka.Commit{}, map[kafka.Partition]corelane.Mark{}
	for p, c := range s.lanes {
		if c.commit != c.committed && c.commit.Metadata != "" {
			commits[p], marks[p] = c.commit, c.mark
		}
	}
	if len(commits) == 0 {
		return
	}
	s.committing = true
	consumer := s.consumer
	kit.Run[msg.Sink](s.writer, s.self, commitTime, func(ctx context.Context) msg.Sink {
		return &msg.CommitDone{Commits: commits, Marks: marks, Err: consumer.Commit(ctx, commits)}
	}, func(err error) msg.Sink { return &msg.CommitDone{Err: err} })
}

// commitDone tells the lanes that their marks are durable.
func (s *sinkActor) commitDone(ctx actor.Context, m *msg.CommitDone) {
	s.committing = false
	if m.Err != nil {
		if s.cfg.Decide(m.Err) == msg.FailTask {
			s.fail(ctx, m.Err)
		} else {
			s.cfg.Log.Warn("a commit is made again", "pipeline", s.cfg.Pipeline, "error", m.Err.Error())
			if failure.ClassOf(m.Err) != failure.Fenced {
				s.wanted = true
			}
		}
		// Lanes that wait for a mark are told by the commit of the next tick at the latest.
		if len(s.revoked) == 0 && !s.draining {
			return
		}
	}
	for p, commit := range m.Commits {
		c := s.lanes[p]
		if c == nil {
			continue
		}
		if m.Err == nil {
			c.committed = commit
			c.ref.Tell(&msg.Marked{Mark: m.Marks[p]})
		}
		if c.ended && (m.Err != nil || c.commit == commit) {
			s.drop(ctx, p)
		}
	}
	s.settleRevoked()
	s.commit()
	s.leaveIfDone()
}

// revoke ends the lanes of partitions that the group wants back.
func (s *sinkActor) revoke(ctx actor.Context, m *msg.Revoked) {
	s.revoked = append(s.revoked, m)
	for _, p := range m.Parts {
		delete(s.known, p)
		s.endLane(ctx, p)
	}
	s.settleRevoked()
}

func (s *sinkActor) endLane(ctx actor.Context, p kafka.Partition) {
	c := s.lanes[p]
	if c == nil || c.ending && !s.abandon {
		return
	}
	c.ending = true
	if c.stop != nil || c.down { // it sees no message before it is restarted
		stopTimer(c)
		s.restart(ctx, c, "lane")
	}
	c.ref.Tell(&msg.EndLane{Abandon: s.abandon})
}

// ended commits the last position of a lane; the lane is dropped once that is done.
func (s *sinkActor) ended(ctx actor.Context, m *msg.LaneEnded) {
	c := s.lanes[m.Part]
	if c == nil {
		return
	}
	c.ended = true
	c.commit, c.mark = kafka.Commit{Offset: m.Offset, Metadata: m.Mark.Encode(m.Offset)}, m.Mark
	if c.commit == c.committed {
		s.drop(ctx, m.Part)
		s.settleRevoked()
		s.leaveIfDone()
		return
	}
	s.wanted = true
	s.commit()
}

// drop stops a lane's actor and forgets the partition.
func (s *sinkActor) drop(ctx actor.Context, p kafka.Partition) {
	delete(s.known, p)
	c := s.lanes[p]
	if c == nil {
		return
	}
	stopTimer(c)
	delete(s.lanes, p)
	ctx.Stop(c.pid)
	s.cfg.Observer.LaneGone(s.cfg.Pipeline, p)
}

// settleRevoked lets the group go on once nothing of the partitions is left.
func (s *sinkActor) settleRevoked() {
	open := s.revoked[:0]
	for _, r := range s.revoked {
		left := false
		for _, p := range r.Parts {
			left = left || s.lanes[p] != nil
		}
		if left {
			open = append(open, r)
		} else {
			close(r.Done)
		}
	}
	s.revoked = open
}

// drain ends every lane; the consumer leaves the group when the last is done.
func (s *sinkActor) drain(ctx actor.Context) {
	if s.draining {
		return
	}
	s.draining = true
	if s.failing == nil {
		s.cfg.Observer.PipelineState(s.cfg.Pipeline, msg.Stopping, nil)
	}
	s.poller.Cancel()
	for p := range s.lanes {
		s.endLane(ctx, p)
	}
	if s.consumer == nil {
		s.starter.Cancel()
		if !s.joining { // else Joined decides
			s.left(ctx)
		}
		return
	}
	s.leaveIfDone()
}

func (s *sinkActor) leaveIfDone() {
	if s.draining && len(s.lanes) == 0 && !s.leaving && s.consumer != nil && !s.committing {
		s.leave()
	}
}

func (s *sinkActor) leave() {
	s.leaving = true
	consumer := s.consumer
	kit.Run[msg.Sink](s.writer, s.self, 0, func(context.Context) msg.Sink {
		consumer.Close()
		return &msg.Left{}
	}, func(error) msg.Sink { return &msg.Left{} })
}

// left ends the pipeline, well or with the failure that stopped it.
func (s *sinkActor) left(ctx actor.Context) {
	if s.failing != nil {
		ctx.(actor.Supervisor).EscalateFailure(s.failing, nil)
		return
	}
	ctx.Stop(ctx.Self())
}
