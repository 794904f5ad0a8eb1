// Package limiter is the actor that shares an instance's permits among all
// pipelines of the process: first come, first served, within core/limit.
package limiter

import (
	"container/list"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"snowmelt/actors/kit"
	"snowmelt/actors/msg"
	"snowmelt/core/limit"
)

// Config is what a limiter needs.
type Config struct {
	// Host names the instance.
	Host     string
	Settings limit.Settings
	Observer msg.Observer
	Kept     *Kept
}

// Kept is what outlives a restart: who waits and who holds what. A client asks
// once, so a queue that was forgotten would leave it waiting for ever.
type Kept struct {
	permits *limit.Limiter
	queue   *list.List               // of *msg.Acquire, oldest first
	waiting map[string]*list.Element // by client
	granted map[string]grant         // by client
	pools   map[string]int           // permits held, by pool
}

// NewKept returns a limiter's memory with every permit free.
func NewKept(set limit.Settings) *Kept {
	return &Kept{
		permits: limit.New(set), queue: list.New(), waiting: map[string]*list.Element{}, granted: map[string]grant{}, pools: map[string]int{},
	}
}

type limiterActor struct {
	*Kept
	cfg    Config
	stop   func() // the timer that ends a pause
	wakeAt time.Time
}

// grant is a permit that a client holds.
type grant struct {
	token uint64
	pool  string
}

// Props returns how to make the actor; each restart goes on with cfg.Kept.
func Props(cfg Config, opts ...actor.PropsOption) *actor.Props {
	return actor.PropsFromProducer(func() actor.Actor { return &limiterActor{Kept: cfg.Kept, cfg: cfg} }, opts...)
}

// Receive takes one message.
func (l *limiterActor) Receive(ctx actor.Context) {
	now := time.Now()
	limited := false
	switch m := ctx.Message().(type) {
	case *actor.Started: // after a restart, whoever waited still does
	case *actor.Stopping, *actor.Restarting:
		l.stopTimer()
		return
	case *msg.Acquire:
		if e := l.waiting[m.Client]; e != nil {
			l.queue.Remove(e) // a restarted client asks again; its old request is void
		}
		l.waiting[m.Client] = l.queue.PushBack(m)
	case *msg.Release:
		if e := l.waiting[m.Client]; e != nil && e.Value.(*msg.Acquire).Token == m.Token {
			l.queue.Remove(e)
			delete(l.waiting, m.Client)
			break
		}
		if g, ok := l.granted[m.Client]; ok && g.token == m.Token {
			l.takeBack(m.Client)
			limited = m.Outcome == limit.Limited
			l.permits.Give(m.Outcome, m.RetryAfter, now)
		}
	case *msg.Wake:
		l.wakeAt = time.Time{}
	default:
		return
	}
	l.serve(ctx, now)
	l.cfg.Observer.Instance(l.cfg.Host, msg.InstanceFacts{
		Permits: l.permits.Permits(), InFlight: l.permits.InFlight(), Waiting: l.queue.Len(),
		PausedUntil: l.permits.PausedUntil(), Limited: limited,
	})
}

// serve grants permits while there are any, and otherwise waits for the pause to end.
func (l *limiterActor) serve(ctx actor.Context, now time.Time) {
	for e := l.queue.Front(); e != nil; {
		m, next := e.Value.(*msg.Acquire), e.Next()
		if _, holds := l.granted[m.Client]; holds {
			// The client's predecessor died without giving its permit back.
			l.takeBack(m.Client)
			l.permits.Give(limit.Neutral, 0, now)
		}
		if m.Pool != "" && l.pools[m.Pool] >= m.PoolMax {
			e = next // its own bound is reached: those behind it may go first
			continue
		}
		ok, at := l.permits.Take(now)
		if !ok {
			if !at.IsZero() && !at.Equal(l.wakeAt) {
				l.stopTimer()
				l.wakeAt = at
				l.stop = kit.Timer(kit.Self[msg.Limiter](ctx), at.Sub(now), msg.Limiter(&msg.Wake{}))
			}
			return
		}
		l.queue.Remove(e)
		delete(l.waiting, m.Client)
		l.granted[m.Client] = grant{m.Token, m.Pool}
		l.pools[m.Pool]++
		m.Reply.Tell(&msg.Granted{Token: m.Token})
		e = next
	}
}

// takeBack forgets the permit that a client holds.
func (l *limiterActor) takeBack(client string) {
	pool := l.granted[client].pool
	delete(l.granted, client)
	if l.pools[pool]--; l.pools[pool] <= 0 {
		delete(l.pools, pool)
	}
}

func (l *limiterActor) stopTimer() {
	if l.stop != nil {
		l.stop()
		l.stop = nil
	}
	l.wakeAt = time.Time{}
}
