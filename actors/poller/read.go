package poller

import (
	"context"
	"time"

	"snowmelt/actors/kit"
	"snowmelt/actors/msg"
	"snowmelt/core/cursor"
	"snowmelt/core/failure"
	"snowmelt/core/limit"
)

// readNext asks for the next page, unless one is already read ahead.
func (p *pollerActor) readNext() {
	if p.mode != sweeping || p.reading || p.stopTimer != nil || len(p.queue) > 1 {
		return
	}
	now := time.Now()
	step := p.sweep.Next(now)
	if step.Request == nil {
		p.wait(max(0, step.Until.Sub(now)))
		return
	}
	p.request = *step.Request
	p.acquire()
}

// read sends the request under the permit that was granted.
func (p *pollerActor) read() {
	r := p.cfg.List
	r.Query, r.Limit, r.Count = p.request.Query, p.request.Limit, p.request.Count
	if p.request.Kind == cursor.LateScan {
		r.Fields, r.DisplayValue = []string{p.cfg.Fields.ID, p.cfg.Fields.Timestamp, p.cfg.Fields.ModCount}, "false"
	}
	gen, instance, fields := p.gen, p.cfg.Instance, p.cfg.Fields
	if p.attempt == 0 {
		p.first = time.Now()
	}
	kit.Run[msg.Poller](p.reader, p.self, 0, func(ctx context.Context) msg.Poller {
		began := time.Now()
		page, err := instance.List(ctx, r, fields)
		return &msg.PageRead{Gen: gen, Page: page, Took: time.Since(began), Err: err}
	}, func(err error) msg.Poller { return &msg.PageRead{Gen: gen, Err: err} })
}

// pageRead takes a page, or says what its failure means.
func (p *pollerActor) pageRead(m *msg.PageRead) {
	if m.Gen != p.gen || p.mode != sweeping || !p.reading {
		if m.Page != nil {
			m.Page.Release()
		}
		return
	}
	p.reading = false
	if m.Err != nil {
		p.readFailed(m.Err)
		return
	}
	p.release(limit.Success, 0)
	p.attempt, p.limited = 0, 0
	draft, err := p.sweep.Read(cursor.Page{
		Rows: m.Page.Rows, Total: m.Page.Total, Date: m.Page.Date, Received: m.Page.Received,
	}, time.Now())
	if err != nil {
		m.Page.Release()
		p.halt(err)
		return
	}
	p.state(msg.Running, nil)
	p.cfg.Observer.PageRead(p.cfg.Pipeline, p.cfg.Alias, msg.PageFacts{
		Rows: len(m.Page.Rows), Suppressed: draft.Suppressed, Bad: draft.Bad, Hidden: draft.Hidden,
		Bytes: m.Page.Bytes, Took: m.Took, Limit: p.sweep.Limit(), FilterLen: p.sweep.FilterLen(),
	})
	if draft.Breach != "" {
		p.cfg.Log.Warn("a page contradicts its query and is read again", "pipeline", p.cfg.Pipeline, "table", p.cfg.Alias,
			"problem", draft.Breach, "query", p.request.Query, "request_id", m.Page.RequestID)
	}
	p.queue = append(p.queue, queued{draft, m.Page})
	p.publishNext()
	p.readNext()
}

// readFailed tries again, smaller or later, or leaves the failure to the parent.
func (p *pollerActor) readFailed(err error) {
	class := failure.ClassOf(err)
	e := detail(err)
	if class == failure.RateLimited {
		p.rateLimited(e)
		return
	}
	outcome := limit.Neutral
	if e.Status != 0 && e.Status < 500 {
		outcome = limit.Success
	}
	p.release(outcome, 0)
	switch {
	case class == failure.TooLarge || e.Shrink:
		p.tooLarge(err, e, class)
	case class == failure.Transient || class == failure.Ambiguous || class == failure.Unavailable:
		p.tryAgain(err, err, e)
	default:
		p.halt(err)
	}
}

// tooLarge asks for a smaller page, which is not an attempt. At size 1 it is one
// like any other: a quota may have run out by chance. What is still too large
// after the last attempt fails the table; a time-out stays retriable.
func (p *pollerActor) tooLarge(err error, e *failure.Error, class failure.Class) {
	if p.sweep == nil { // the probe asks for one row only
		e.Class = failure.Transient
		p.tryAgain(err, e, e)
		return
	}
	small := p.sweep.TooBig()
	switch {
	case small == nil && class == failure.TooLarge:
		p.cfg.Observer.TableRetry(p.cfg.Pipeline, p.cfg.Alias, p.attempt, time.Now(), err)
		p.goOn()
	case small == nil:
		p.attempt = max(0, p.attempt-1)
		p.tryAgain(err, err, e)
	case class == failure.TooLarge:
		p.tryAgain(err, small, e)
	default:
		p.tryAgain(err, err, e)
	}
}

// tryAgain waits and asks again; exhausted is what the parent is told when the attempts are used up.
func (p *pollerActor) tryAgain(err, exhausted error, e *failure.Error) {
	p.attempt++
	wait, ok := p.cfg.Retry.Next(p.attempt, time.Since(p.first), e.RetryAfter, p.cfg.Jitter())
	if !ok {
		p.halt(exhausted)
		return
	}
	p.state(msg.Retrying, err)
	p.cfg.Log.Warn("a request is tried again", "pipeline", p.cfg.Pipeline, "table", p.cfg.Alias, "attempt", p.attempt,
		"wait", wait.Round(time.Millisecond), "error", err.Error(), "request_id", e.RequestID)
	p.cfg.Observer.TableRetry(p.cfg.Pipeline, p.cfg.Alias, p.attempt, time.Now().Add(wait), err)
	p.wait(wait)
}

// rateLimited waits as long as the instance says. Neither an attempt nor elapsed time.
func (p *pollerActor) rateLimited(e *failure.Error) {
	p.release(limit.Limited, e.RetryAfter)
	wait := e.RetryAfter
	if wait == 0 {
		p.limited++
		wait = p.cfg.Retry.Backoff(p.limited, p.cfg.Jitter())
	}
	p.first = p.first.Add(wait)
	p.state(msg.Throttled, e)
	p.cfg.Log.Warn("the instance limits the rate", "pipeline", p.cfg.Pipeline, "table", p.cfg.Alias, "wait", wait.Round(time.Millisecond),
		"retry_after", e.RetryAfter, "request_id", e.RequestID)
	p.cfg.Observer.TableRetry(p.cfg.Pipeline, p.cfg.Alias, p.attempt, time.Now().Add(wait), e)
	p.wait(wait)
}
