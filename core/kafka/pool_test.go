package kafka

import (
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"snowmelt/core/failure"
)

func (r *rig) table(pool *Pool, name string) *Publisher {
	return r.publisher(func(cfg *PublisherConfig) { cfg.Key, cfg.Pool = key(name), pool })
}

func TestPoolClosesTheClientIdleLongest(t *testing.T) {
	r := newRig(t)
	pool := NewPool(2)
	a, b, c := r.table(pool, "a"), r.table(pool, "b"), r.table(pool, "c")
	for i, p := range []*Publisher{a, b, c} {
		r.open(p)
		if pool.Open() != 0 {
			t.Fatal("opening a table needs no client of its own")
		}
		_ = i
	}
	r.publish(a, page("a", 1, 1))
	r.publish(b, page("b", 1, 1))
	r.publish(a, page("a", 1, 2)) // b is idle longest now
	r.publish(c, page("c", 1, 1))
	if pool.Open() != 2 || a.session.elem == nil || b.session.elem != nil {
		t.Fatalf("%d open, a idle %v, b idle %v", pool.Open(), a.session.elem != nil, b.session.elem != nil)
	}
	// b comes back without reading the cursor: the epoch proves that nobody came
	fetches := r.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Observe: true, Count: -1})
	r.publish(b, page("b", 1, 2))
	if fetches.Hits() != 0 {
		t.Fatal("the cursor was read")
	}
	for name, p := range map[string]*Publisher{"a": a, "b": b} {
		if o := r.open(p); !maps.Equal(o.Offset, cursorAt(2)) {
			t.Fatalf("%s: cursor %v", name, o.Offset)
		}
	}
	for _, p := range []*Publisher{a, b, c} {
		p.Close(ctx(t))
	}
	if pool.Open() != 0 {
		t.Fatalf("%d clients are left", pool.Open())
	}
}

func TestEvictedClientWhoseEpochJumpedReadsTheCursor(t *testing.T) {
	r := newRig(t)
	p := r.publisher()
	r.open(p)
	r.publish(p, page("a", 1, 1))
	p.cfg.Pool.evict(p.session)
	r.repeatInit(p)
	fetches := r.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Observe: true, Count: -1})
	r.publish(p, page("b", 1, 2))
	if fetches.Hits() == 0 {
		t.Fatal("the cursor was not read")
	}
	// and another process is seen before it would be fenced
	p.cfg.Pool.evict(p.session)
	other := r.publisher(r.elsewhere)
	r.open(other)
	r.publish(other, page("o", 1, 3))
	_, err := p.Publish(ctx(t), page("z", 1, 4))
	wantClass(t, err, failure.Fenced)
	r.publish(other, page("o", 1, 5))
	wantKeys(t, r.keys(rows), "a0", "b0", "o0", "o0")
}

func TestFullPoolWaitsWithinTheContext(t *testing.T) {
	r := newRig(t)
	pool := NewPool(1)
	a, b := r.table(pool, "a"), r.table(pool, "b")
	r.open(a)
	r.open(b)
	busy, free := make(chan struct{}), make(chan struct{})
	var once sync.Once
	r.tap.set(func() {
		r.tap.before = map[kmsg.Key]func(){kmsg.EndTxn: func() { once.Do(func() { close(busy); <-free }) }}
	})
	result := make(chan error, 1)
	slow := page("a", 1, 1)
	background := ctx(t)
	go func() {
		_, err := a.Publish(background, slow)
		result <- err
	}()
	<-busy
	_, err := b.Publish(within(t, 50*time.Millisecond), page("b", 1, 1))
	wantClass(t, err, failure.Transient)
	wantText(t, err, "snow.source.publishers.max")
	_, err = a.Publish(within(t, 50*time.Millisecond), page("x", 1, 2)) // one call at a time
	wantClass(t, err, failure.Transient)
	close(free)
	if err := <-result; err != nil {
		t.Fatal(err)
	}
	r.publish(b, page("b", 1, 1))
	wantKeys(t, r.keys(rows), "a0", "b0")
}

func TestManyTablesInASmallPool(t *testing.T) {
	r := newRig(t)
	pool := NewPool(3)
	var wait sync.WaitGroup
	for i := range 12 {
		p := r.table(pool, fmt.Sprint("t", i))
		wait.Go(func() {
			if _, err := p.Open(ctx(t)); err != nil {
				t.Error(err)
				return
			}
			for s := range 5 {
				if _, err := p.Publish(ctx(t), page(fmt.Sprintf("t%d-%d-", i, s), 2, s)); err != nil {
					t.Error(err)
				}
				if n := pool.Open(); n > 3 {
					t.Errorf("%d clients are open", n)
				}
			}
		})
	}
	wait.Wait()
	if n := len(r.keys(rows)); n != 12*5*2 {
		t.Fatalf("%d records", n)
	}
	all, err := r.c.Cursors(ctx(t), cursors)
	if err != nil || len(all) != 12 {
		t.Fatalf("%d cursors, %v", len(all), err)
	}
}

// kgo initialises again by itself after some errors; what it produced before is
// then gone, and a commit would be of the rest.
func TestChangedProducerIsNotCommittedWith(t *testing.T) {
	r := newRig(t)
	p := r.publisher()
	r.open(p)
	r.publish(p, page("a", 1, 1))
	p.epoch--
	_, err := p.Publish(ctx(t), page("b", 1, 2))
	wantClass(t, err, failure.Aborted)
	wantKeys(t, r.keys(rows), "a0")
	r.publish(p, page("b", 1, 2))
	wantKeys(t, r.keys(rows), "a0", "b0")
}
