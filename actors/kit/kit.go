// Package kit is the glue to protoactor: typed references, workers and the
// middleware that every actor runs under.
package kit

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"snowmelt/actors/msg"
)

// Ref tells an actor messages of type M.
type Ref[M any] struct {
	system *actor.ActorSystem
	pid    *actor.PID
}

var _ msg.Ref[int] = Ref[int]{}

// NewRef returns a typed reference to pid.
func NewRef[M any](system *actor.ActorSystem, pid *actor.PID) Ref[M] {
	return Ref[M]{system, pid}
}

// Self returns a typed reference to the actor that runs in ctx.
func Self[M any](ctx actor.Context) Ref[M] { return Ref[M]{ctx.ActorSystem(), ctx.Self()} }

// Tell sends m.
func (r Ref[M]) Tell(m M) { r.system.Root.Send(r.pid, m) }

// PID returns the untyped reference.
func (r Ref[M]) PID() *actor.PID { return r.pid }

// Group counts the workers of one engine, so that its end can be waited for.
type Group struct {
	wg sync.WaitGroup
}

// Wait returns when no worker runs, or when ctx ends.
func (g *Group) Wait(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		g.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for work in flight: %w", ctx.Err())
	}
}

// Worker does an actor's blocking work, one piece at a time, outside its
// Receive. It holds the only go statement that actors use.
type Worker struct {
	group  *Group
	cancel context.CancelFunc
}

// NewWorker returns an idle worker whose work is counted in g.
func NewWorker(g *Group) *Worker { return &Worker{group: g} }

// Run starts f in a goroutine; what f returns is told to ref. A panic in f is
// told as failed(err), with its stack. The work before must have been told or cancelled.
func Run[M any](w *Worker, ref Ref[M], timeout time.Duration, f func(context.Context) M, failed func(error) M) {
	ctx, cancel := context.WithCancel(context.Background())
	if timeout > 0 {
		ctx, cancel = context.WithTimeout(context.Background(), timeout)
	}
	w.cancel = cancel
	w.group.wg.Add(1)
	go func() {
		defer w.group.wg.Done()
		defer cancel()
		defer func() {
			if r := recover(); r != nil {
				ref.Tell(failed(&Panic{Value: r, Stack: debug.Stack()}))
			}
		}()
		ref.Tell(f(ctx))
	}()
}

// Cancel ends the work in flight; its result still arrives.
func (w *Worker) Cancel() {
	if w.cancel != nil {
		w.cancel()
	}
}

// Panic is a bug that was caught: the value and the stack of a panic.
type Panic struct {
	Value any
	Stack []byte
}

// Error returns the panic's value.
func (p *Panic) Error() string { return fmt.Sprintf("panic: %v", p.Value) }

// Unwrap returns the value if it is an error.
func (p *Panic) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// Budget bounds the restarts of one actor after bugs.
type Budget struct {
	// Restarts is how many are allowed within Window.
	Restarts int
	Window   time.Duration

	spent []time.Time
}

// Spend takes one restart out of the budget; false when it is used up.
func (b *Budget) Spend(now time.Time) bool {
	b.spent = slices.DeleteFunc(b.spent, func(t time.Time) bool { return now.Sub(t) >= b.Window })
	if len(b.spent) >= b.Restarts {
		return false
	}
	b.spent = append(b.spent, now)
	return true
}

// Timer tells ref m after d; the returned function stops it.
func Timer[M any](ref Ref[M], d time.Duration, m M) (stop func()) {
	t := time.AfterFunc(d, func() { ref.Tell(m) })
	return func() { t.Stop() }
}

// LogPanics is the middleware that every actor runs under: protoactor loses the
// stack of a panic and the message that caused it, so both are logged here
// before the panic goes on to the supervisor.
func LogPanics(log *slog.Logger) actor.ReceiverMiddleware {
	return func(next actor.ReceiverFunc) actor.ReceiverFunc {
		return func(ctx actor.ReceiverContext, env *actor.MessageEnvelope) {
			defer func() {
				if r := recover(); r != nil {
					p, ok := r.(*Panic)
					if !ok {
						p = &Panic{Value: r, Stack: debug.Stack()}
					}
					log.Error("an actor panicked", "actor", ctx.Self().GetId(), "message", fmt.Sprintf("%T", env.Message),
						"panic", fmt.Sprint(p.Value), "stack", string(p.Stack))
					panic(p)
				}
			}()
			next(ctx, env)
		}
	}
}
