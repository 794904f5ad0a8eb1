package limiter

import (
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/goleak"

	"snowmelt/actors/kit"
	"snowmelt/actors/msg"
	"snowmelt/core/limit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// clients collects grants and hands out references to itself.
type clients struct {
	mu      sync.Mutex
	granted []string
}

type clientRef struct {
	c    *clients
	name string
}

func (r clientRef) Tell(m *msg.Granted) {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	r.c.granted = append(r.c.granted, fmt.Sprint(r.name, m.Token))
}

func (c *clients) got() []string {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.granted
	c.granted = nil
	return out
}

type seen struct {
	msg.Observer
	mu    sync.Mutex
	facts msg.InstanceFacts
}

func (s *seen) Instance(_ string, f msg.InstanceFacts) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.facts = f
}

// bench starts a limiter in a bubble.
func bench(t *testing.T, set limit.Settings, f func(tell func(msg.Limiter), c *clients, s *seen)) {
	synctest.Test(t, func(t *testing.T) {
		system := actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.DiscardHandler) }))
		s := &seen{}
		pid := system.Root.Spawn(Props(Config{Host: "h", Settings: set, Observer: s, Kept: NewKept(set)}))
		ref := kit.NewRef[msg.Limiter](system, pid)
		f(ref.Tell, &clients{}, s)
		if err := system.Root.StopFuture(pid).Wait(); err != nil {
			t.Error(err)
		}
		system.Shutdown()
	})
}

func (c *clients) acquire(name string, token uint64) *msg.Acquire {
	return &msg.Acquire{Client: name, Token: token, Reply: clientRef{c, name}}
}

func want(t *testing.T, got []string, names ...string) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(names) {
		t.Errorf("granted %v, want %v", got, names)
	}
}

func TestFirstComeFirstServed(t *testing.T) {
	bench(t, limit.Settings{Max: 2}, func(tell func(msg.Limiter), c *clients, s *seen) {
		for i, name := range []string{"a", "b", "c", "d"} {
			tell(c.acquire(name, uint64(i)))
		}
		want(t, c.got(), "a0", "b1")
		tell(&msg.Release{Client: "b", Token: 1})
		want(t, c.got(), "c2")
		tell(&msg.Release{Client: "b", Token: 1}) // given back twice: counts once
		want(t, c.got())
		tell(&msg.Release{Client: "d", Token: 3}) // withdrawn
		tell(&msg.Release{Client: "a", Token: 0})
		want(t, c.got())
		if s.facts.InFlight != 1 || s.facts.Waiting != 0 {
			t.Errorf("%+v", s.facts)
		}
	})
}

// TestRestartedClient: a client that died with a permit, or in the queue, costs none.
func TestRestartedClient(t *testing.T) {
	bench(t, limit.Settings{Max: 1}, func(tell func(msg.Limiter), c *clients, s *seen) {
		tell(c.acquire("a", 1))
		tell(c.acquire("b", 1))
		want(t, c.got(), "a1")
		tell(c.acquire("b", 2))
		tell(c.acquire("a", 2)) // its predecessor held the permit and never gave it back
		tell(&msg.Release{Client: "a", Token: 1})
		want(t, c.got(), "b2")
		tell(&msg.Release{Client: "b", Token: 2})
		want(t, c.got(), "a2")
		tell(c.acquire("a", 3))
		want(t, c.got(), "a3")
		if s.facts.InFlight != 1 {
			t.Errorf("%+v", s.facts)
		}
	})
}

func TestPauseEndsByItself(t *testing.T) {
	bench(t, limit.Settings{Max: 2}, func(tell func(msg.Limiter), c *clients, s *seen) {
		tell(c.acquire("a", 1))
		want(t, c.got(), "a1")
		tell(&msg.Release{Client: "a", Token: 1, Outcome: limit.Limited, RetryAfter: 1742 * time.Second})
		tell(c.acquire("b", 1))
		time.Sleep(1741 * time.Second)
		want(t, c.got())
		time.Sleep(2 * time.Second)
		want(t, c.got(), "b1")
	})
}
