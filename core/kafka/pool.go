package kafka

import (
	"container/list"
	"context"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Pool bounds the transactional clients that are open at once
// (snow.source.publishers.max), since each has connections of its own
// (Invariant 6). When it is full, the idle client that was used longest ago is
// closed; when none is idle, Publish waits until its context ends. A Pool is
// shared by publishers and safe for concurrent use.
type Pool struct {
	max int

	mu    sync.Mutex
	open  int
	idle  list.List     // of *session, least recently used first
	freed chan struct{} // closed and replaced whenever a session became idle or was closed
}

// NewPool returns a Pool of at most n clients, at least one.
func NewPool(n int) *Pool {
	return &Pool{max: max(n, 1), freed: make(chan struct{})}
}

// Open returns the number of transactional clients that are open now.
func (p *Pool) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open
}

// session is one transactional client. While elem is set it is idle and may be
// closed by the pool at any time; otherwise its publisher is using it, or it is
// closed.
type session struct {
	client *kgo.Client
	elem   *list.Element
}

// take gives the caller a place in the pool: that of s if it is still open (true),
// else a free one for a new client (false).
func (p *Pool) take(ctx context.Context, s *session) (bool, error) {
	for {
		p.mu.Lock()
		if s != nil && s.elem != nil {
			p.idle.Remove(s.elem)
			s.elem = nil
			p.mu.Unlock()
			return true, nil
		}
		if p.open < p.max {
			p.open++
			p.mu.Unlock()
			return false, nil
		}
		if front := p.idle.Front(); front != nil {
			victim := p.idle.Remove(front).(*session)
			victim.elem = nil
			p.mu.Unlock()
			victim.client.Close() // its place is ours now
			return false, nil
		}
		freed := p.freed
		p.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// put makes a session idle after its use.
func (p *Pool) put(s *session) {
	p.mu.Lock()
	s.elem = p.idle.PushBack(s)
	p.notify()
	p.mu.Unlock()
}

// release gives a place back whose session, if any, is not idle.
func (p *Pool) release(s *session) {
	if s != nil {
		s.client.Close()
	}
	p.mu.Lock()
	p.open--
	p.notify()
	p.mu.Unlock()
}

// evict closes s if it is idle and gives its place back.
func (p *Pool) evict(s *session) {
	if s == nil {
		return
	}
	p.mu.Lock()
	idle := s.elem != nil
	if idle {
		p.idle.Remove(s.elem)
		s.elem = nil
	}
	p.mu.Unlock()
	if idle {
		p.release(s)
	}
}

func (p *Pool) notify() {
	close(p.freed)
	p.freed = make(chan struct{})
}
