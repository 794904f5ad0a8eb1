package blackbox

import (
	"errors"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// gate is a place in the broker where the n-th request of a kind is held.
type gate struct {
	mu   sync.Mutex
	seen map[kmsg.Key]int // since armed
	trap *trap
	slow time.Duration // of every commit
}

// trap holds one request.
type trap struct {
	key kmsg.Key
	nth int
	// txn is the transactional id whose requests count, "" all.
	txn string
	// pass lets the request through and only reports it.
	pass bool
	// hit is closed when the request is there, and has not been looked at by the broker.
	hit chan struct{}

	release chan struct{}
	lose    bool
	once    sync.Once
}

var errLost = errors.New("lost on the way")

func newGate(w *world) *gate {
	g := &gate{seen: map[kmsg.Key]int{}}
	if w.proxy != nil {
		w.proxy.Hook(func(key kmsg.Key, id string) bool {
			wait := g.look(key, id)
			return wait == nil || !wait()
		})
		return g
	}
	for _, key := range []kmsg.Key{kmsg.EndTxn, kmsg.Produce} {
		w.broker.ControlKey(int16(key), func(r kmsg.Request) (kmsg.Response, error, bool) {
			w.broker.KeepControl()
			var id string
			switch r := r.(type) {
			case *kmsg.EndTxnRequest:
				id = r.TransactionalID
			case *kmsg.ProduceRequest:
				if r.TransactionID != nil {
					id = *r.TransactionID
				}
			}
			lost := false
			if wait := g.look(key, id); wait != nil {
				w.broker.SleepControl(func() { lost = wait() })
			}
			if lost {
				return nil, errLost, true
			}
			return nil, nil, false
		})
	}
	return g
}

// look counts a request. It returns how to wait before the request goes on, and whether
// it is lost then; nil when it goes on at once.
func (g *gate) look(key kmsg.Key, id string) (wait func() (lost bool)) {
	g.mu.Lock()
	t := g.trap
	slow := g.slow
	hit := false
	if t != nil && (t.txn == "" || t.txn == id) {
		g.seen[key]++
		hit = t.key == key && g.seen[key] == t.nth
	}
	g.mu.Unlock()
	if !hit {
		if key != kmsg.EndTxn || slow == 0 {
			return nil
		}
		return func() bool {
			<-time.After(slow)
			return false
		}
	}
	close(t.hit)
	if t.pass {
		return nil
	}
	return func() bool {
		<-t.release
		return t.lose
	}
}

// arm sets the trap and begins to count.
func (g *gate) arm(key kmsg.Key, nth int, change ...func(*trap)) *trap {
	t := &trap{key: key, nth: nth, hit: make(chan struct{}), release: make(chan struct{})}
	for _, f := range change {
		f(t)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.trap, g.seen = t, map[kmsg.Key]int{}
	return t
}

// open lets a held request go on, or loses it.
func (t *trap) open(lose bool) {
	t.once.Do(func() {
		t.lose = lose
		close(t.release)
	})
}

// reached waits until a process has sent the request that a trap is for.
func (w *world) reached(p *child, t *trap) {
	w.t.Helper()
	select {
	case <-t.hit:
	case <-p.Done():
		w.t.Fatalf("%s ended by itself", p.Name)
	case <-w.ctx().Done():
		w.t.Fatalf("%s did not send request %d of kind %d", p.Name, t.nth, t.key)
	}
}
