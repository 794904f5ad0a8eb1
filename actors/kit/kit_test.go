package kit

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func system(t *testing.T) *actor.ActorSystem {
	t.Helper()
	s := actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.DiscardHandler) }))
	t.Cleanup(s.Shutdown)
	return s
}

// inbox is an actor that passes on what it is told.
func inbox(t *testing.T, s *actor.ActorSystem, opts ...actor.PropsOption) (Ref[any], chan any) {
	t.Helper()
	got := make(chan any, 10)
	pid := s.Root.Spawn(actor.PropsFromFunc(func(c actor.Context) {
		switch m := c.Message().(type) {
		case *actor.Started, *actor.Stopping, *actor.Stopped, *actor.Restarting:
		case error:
			if m.Error() == "panic now" {
				panic(m)
			}
			got <- m
		default:
			got <- m
		}
	}, opts...))
	t.Cleanup(func() { _ = s.Root.StopFuture(pid).Wait() })
	return NewRef[any](s, pid), got
}

func TestWorkIsTold(t *testing.T) {
	ref, got := inbox(t, system(t))
	var g Group
	w := NewWorker(&g)
	Run(w, ref, 0, func(context.Context) any { return 7 }, func(err error) any { return err })
	if v := <-got; v != 7 {
		t.Errorf("%v", v)
	}
	Run(w, ref, 0, func(context.Context) any { panic("boom") }, func(err error) any { return err })
	p, ok := (<-got).(*Panic)
	if !ok || p.Value != "boom" || !strings.Contains(string(p.Stack), "TestWorkIsTold") {
		t.Errorf("%+v", p)
	}
	cause := errors.New("cause")
	if !errors.Is(&Panic{Value: cause}, cause) {
		t.Error("the cause of a panic is lost")
	}
}

func TestCancelEndsWork(t *testing.T) {
	ref, got := inbox(t, system(t))
	var g Group
	w := NewWorker(&g)
	Run(w, ref, time.Hour, func(ctx context.Context) any { <-ctx.Done(); return ctx.Err() }, func(err error) any { return err })
	short, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.Wait(short); err == nil {
		t.Error("work in flight was not waited for")
	}
	w.Cancel()
	if err, _ := (<-got).(error); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if err := g.Wait(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestTimer(t *testing.T) {
	ref, got := inbox(t, system(t))
	stop := Timer[any](ref, time.Hour, "never")
	stop()
	Timer[any](ref, time.Millisecond, "soon")
	if v := <-got; v != "soon" {
		t.Errorf("%v", v)
	}
}

// TestPanicsAreLogged: the stack and the message's type reach the log, and the supervisor still decides.
func TestPanicsAreLogged(t *testing.T) {
	var log strings.Builder
	s := system(t)
	ref, got := inbox(t, s, actor.WithReceiverMiddleware(LogPanics(slog.New(slog.NewTextHandler(&log, nil)))))
	ref.Tell(errors.New("panic now"))
	ref.Tell("after the restart")
	if v := <-got; v != "after the restart" {
		t.Errorf("%v", v)
	}
	for _, part := range []string{"panic now", "errorString", "kit_test.go"} {
		if !strings.Contains(log.String(), part) {
			t.Errorf("%q lacks %q", log.String(), part)
		}
	}
}
