package lane

import (
	"errors"
	"slices"
	"time"

	"snowmelt/actors/msg"
	"snowmelt/core/failure"
	"snowmelt/core/limit"
	"snowmelt/core/mapping"
	"snowmelt/core/servicenow"
)

// written takes the outcome of a request: final, or to be tried again.
func (l *laneActor) written(m *msg.Written) {
	k := l.cfg.Kept
	it := k.items[m.Offset]
	if it == nil || it.final != nil || it.attempt != m.Attempt {
		return
	}
	it.flying = false
	if m.Err == nil {
		l.release(limit.Success, 0)
		l.cfg.Observer.Wrote(l.cfg.Pipeline, l.cfg.Part, string(it.write.Operation), "success")
		l.report(it, m.Result, nil, "")
		return
	}
	e := detail(m.Err)
	class := failure.ClassOf(m.Err)
	switch {
	case class == failure.RateLimited:
		l.release(limit.Limited, e.RetryAfter)
	case e.Status != 0 && e.Status < 500:
		l.release(limit.Success, 0)
	default:
		l.release(limit.Neutral, 0)
	}
	l.judge(it, m.Err, e, class)
}

// judge decides what a failed write means (failures.md section 1, sink.md section 3).
func (l *laneActor) judge(it *item, err error, e *failure.Error, class failure.Class) {
	create := it.write.Operation == mapping.Create
	if create && (class == failure.Ambiguous || class == failure.Bug || slices.Contains(l.cfg.Policy.Statuses, e.Status)) {
		it.applied = true
		if l.cfg.Policy.CreateAmbiguous != "retry" {
			l.giveUp(it, &failure.Error{
				Class: failure.Ambiguous, Op: "creating a row from " + it.record.Place(), Status: e.Status, RequestID: e.RequestID,
				Detail: "the row may exist: " + err.Error(), Hint: "look for it in the instance before the record is sent again",
			})
			return
		}
	}
	switch class {
	case failure.RateLimited:
		l.cfg.Kept.core.Unsent(it.record.Offset, it.applied)
		wait := e.RetryAfter
		if wait == 0 {
			it.limited++
			wait = l.cfg.Retry.Backoff(it.limited, l.cfg.Jitter())
		}
		it.first = it.first.Add(wait)
		l.cfg.Observer.LaneState(l.cfg.Pipeline, l.cfg.Part, msg.Throttled, err)
		l.pause(wait)
	case failure.Ambiguous, failure.Transient, failure.Unavailable, failure.TooLarge:
		if class == failure.Ambiguous {
			it.applied = true
		}
		l.tryAgain(it, err, e)
	case failure.NotFound:
		if e.TableWide {
			l.cfg.Kept.core.Unsent(it.record.Offset, it.applied)
			l.fail(err)
			return
		}
		l.notFound(it, err)
	case failure.Auth, failure.Misconfigured, failure.Bug:
		l.cfg.Kept.core.Unsent(it.record.Offset, it.applied)
		l.fail(err)
	default:
		if e.TableWide {
			l.cfg.Kept.core.Unsent(it.record.Offset, it.applied)
			l.fail(err)
			return
		}
		l.giveUp(it, err)
	}
}

// notFound applies snow.sink.not.found.behavior to a row that is not there.
func (l *laneActor) notFound(it *item, err error) {
	switch {
	case it.write.Operation == mapping.Delete && (it.applied || it.attempt > 1):
		// What a request before it did is what was wanted.
		l.cfg.Observer.Wrote(l.cfg.Pipeline, l.cfg.Part, string(it.write.Operation), "success")
		l.report(it, servicenow.Written{Status: 404, SysID: it.write.SysID}, nil, "")
	case l.cfg.Policy.NotFound == "ignore", l.cfg.Policy.NotFound == "create" && it.write.Operation == mapping.Delete:
		l.finish(it, "ignored")
	case l.cfg.Policy.NotFound == "create" && it.write.Operation != mapping.Create:
		body, berr := mapping.WithID(it.write.Body, it.write.SysID)
		if berr != nil {
			l.giveUp(it, berr)
			return
		}
		it.write.Operation, it.write.Body, it.write.SysID = mapping.Create, body, ""
		it.applied = false
		l.cfg.Kept.core.Unsent(it.record.Offset, it.applied)
		l.step()
	default:
		l.giveUp(it, err)
	}
}

// tryAgain waits and sends again; exhausted attempts are left to the sink, which
// lets the lane begin another episode. The record is never dropped.
func (l *laneActor) tryAgain(it *item, err error, e *failure.Error) {
	l.cfg.Kept.core.Unsent(it.record.Offset, it.applied)
	it.tries++
	wait, ok := l.cfg.Retry.Next(it.tries, time.Since(it.first), e.RetryAfter, l.cfg.Jitter())
	if !ok {
		l.cfg.Reporter.Tell(&msg.Report{
			Record: it.record, Write: it.write, Err: err, Classification: "RETRIES_EXHAUSTED", Retries: it.tries,
		})
		it.tries = 0
		l.fail(err)
		return
	}
	l.cfg.Observer.LaneState(l.cfg.Pipeline, l.cfg.Part, msg.Retrying, err)
	l.cfg.Log.Warn("a write is tried again", "pipeline", l.cfg.Pipeline, "record", it.record.Place(), "attempt", it.attempt,
		"wait", wait.Round(time.Millisecond), "error", err.Error(), "request_id", e.RequestID)
	l.pause(wait)
}

func (l *laneActor) pause(d time.Duration) {
	if l.cfg.Kept.ending {
		l.end()
		return
	}
	l.wait(d)
}

// fail leaves the decision to the sink and waits for it.
func (l *laneActor) fail(err error) {
	l.halted = true
	l.clearTimer()
	if l.cfg.Kept.ending {
		l.end()
		return
	}
	l.cfg.Parent.Tell(&msg.LaneFailed{Part: l.cfg.Part, Err: err})
}

// giveUp offers a permanent error to every configured path.
func (l *laneActor) giveUp(it *item, err error) {
	if failure.ClassOf(err) != failure.Ambiguous && !it.applied {
		l.cfg.Kept.core.Unsent(it.record.Offset, false) // it certainly had no effect
	}
	l.cfg.Observer.Wrote(l.cfg.Pipeline, l.cfg.Part, operationOf(it), classification(err))
	l.report(it, servicenow.Written{}, err, classification(err))
}

func operationOf(it *item) string {
	if it.target.Operation == "" {
		return "UNKNOWN"
	}
	return string(it.target.Operation)
}

// report hands the final outcome to the reporter; the offset waits for its answer.
func (l *laneActor) report(it *item, w servicenow.Written, err error, class string) {
	it.final = &msg.Report{
		Record: it.record, Write: it.write, Result: w, Err: err, Classification: class, Retries: max(0, it.attempt-1), Reply: reports{l},
	}
	l.cfg.Reporter.Tell(it.final)
}

// reports narrows the inbox to what the reporter may tell.
type reports struct{ l *laneActor }

func (r reports) Tell(m *msg.Reported) { r.l.self.Tell(m) }

// reported lets the offset pass, unless the record stops the task.
func (l *laneActor) reported(m *msg.Reported) {
	it := l.cfg.Kept.items[m.Offset]
	if it == nil || it.final == nil || l.halted {
		return
	}
	if gave := it.final.Err; gave != nil {
		possible := it.applied && failure.ClassOf(gave) == failure.Ambiguous
		if l.cfg.Policy.OnErrors == "fail" || possible && !l.cfg.Policy.HasPath {
			l.fail(&failure.Error{
				Class: failure.RecordStops, Op: "writing " + it.record.Place(), Err: gave,
				Hint: "repair the cause and restart; the record is met again. behavior.on.api.errors=log passes over such records",
			})
			return
		}
		if l.cfg.Policy.OnErrors == "log" {
			l.cfg.Log.Error("a record was given up", "pipeline", l.cfg.Pipeline, "record", it.record.Place(), "classification", it.final.Classification, "error", gave.Error())
		}
	}
	l.finish(it, "")
}

// finish takes a record as done and goes on with the next.
func (l *laneActor) finish(it *item, how string) {
	if how != "" {
		l.cfg.Observer.Wrote(l.cfg.Pipeline, l.cfg.Part, operationOf(it), how)
	}
	k := l.cfg.Kept
	delete(k.items, it.record.Offset)
	k.core.Finish(it.record.Offset)
	l.cfg.Observer.LaneState(l.cfg.Pipeline, l.cfg.Part, msg.Running, nil)
	l.moved(false)
	l.step()
}

// classification is the name of a permanent error in reports.
func classification(err error) string {
	switch failure.ClassOf(err) {
	case failure.Ambiguous:
		return "AMBIGUOUS"
	case failure.Permission:
		return "PERMISSION"
	case failure.NotFound:
		return "NOT_FOUND"
	case failure.Conflict:
		return "CONFLICT"
	default:
		return "RECORD_ERROR"
	}
}

func detail(err error) *failure.Error {
	if e, ok := errors.AsType[*failure.Error](err); ok {
		return e
	}
	return &failure.Error{Class: failure.Bug, Err: err}
}
