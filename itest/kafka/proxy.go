package kafka

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Proxy stands in front of a broker and passes its traffic on, request by request, so
// that a test can hold one or lose it. It speaks no TLS.
type Proxy struct {
	listener net.Listener
	backend  string
	wg       sync.WaitGroup

	mu    sync.Mutex
	hook  func(key kmsg.Key, txn string) (pass bool)
	conns map[net.Conn]bool
	ended bool
}

// Listen begins to pass on what comes to address.
func Listen(address, backend string) (*Proxy, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: l, backend: backend, conns: map[net.Conn]bool{}}
	p.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.wg.Go(func() { p.serve(c) })
		}
	})
	return p, nil
}

// Hook is asked about every Produce and EndTxn, with its transactional id: it may take
// its time, and false cuts the connection instead. The requests behind it on the same
// connection wait, as they do in a broker; those of other connections do not.
func (p *Proxy) Hook(fn func(key kmsg.Key, txn string) (pass bool)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hook = fn
}

// Close cuts every connection. Requests that a hook holds must have been let go.
func (p *Proxy) Close() {
	_ = p.listener.Close()
	p.mu.Lock()
	p.ended = true
	for c := range p.conns {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.wg.Wait()
}

func (p *Proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ended {
		p.conns[c] = true
	}
	return !p.ended
}

func (p *Proxy) drop(c net.Conn) {
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
	_ = c.Close()
}

func (p *Proxy) serve(client net.Conn) {
	defer p.drop(client)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	broker, err := (&net.Dialer{}).DialContext(ctx, "tcp", p.backend)
	cancel()
	if err != nil {
		return
	}
	defer p.drop(broker)
	if !p.keep(client) || !p.keep(broker) {
		return
	}
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		_, err := io.Copy(client, broker)
		_ = client.Close()
		if err != nil { // the client is gone; the broker may still work on what it sent
			_, _ = io.Copy(io.Discard, broker)
		}
	}()
	if err := p.requests(broker, client); errors.Is(err, errCut) {
		_ = broker.Close()
	} else if half, ok := broker.(*net.TCPConn); ok { // what was sent is to be read before the end
		_ = broker.SetReadDeadline(time.Now().Add(2 * time.Second))
		_ = half.CloseWrite()
	}
	<-answered
}

var errCut = errors.New("cut by a test")

// requests passes requests on until one side is gone.
func (p *Proxy) requests(broker io.Writer, client io.Reader) error {
	head := make([]byte, 4)
	for {
		if _, err := io.ReadFull(client, head); err != nil {
			return err
		}
		frame := make([]byte, 4+binary.BigEndian.Uint32(head))
		copy(frame, head)
		if _, err := io.ReadFull(client, frame[4:]); err != nil {
			return err
		}
		p.mu.Lock()
		hook := p.hook
		p.mu.Unlock()
		if key, txn, ok := transactional(frame[4:]); ok && hook != nil && !hook(key, txn) {
			return errCut
		}
		if _, err := broker.Write(frame); err != nil {
			return err
		}
	}
}

// transactional reads the id out of a Produce or EndTxn request.
func transactional(frame []byte) (kmsg.Key, string, bool) {
	if len(frame) < 10 {
		return 0, "", false
	}
	key := kmsg.Key(binary.BigEndian.Uint16(frame))
	if key != kmsg.Produce && key != kmsg.EndTxn {
		return 0, "", false
	}
	req := kmsg.RequestForKey(key.Int16())
	req.SetVersion(int16(binary.BigEndian.Uint16(frame[2:])))
	at := 10 + max(0, int(int16(binary.BigEndian.Uint16(frame[8:])))) // behind the client id
	if req.IsFlexible() {
		at++ // no tags
	}
	if at > len(frame) || req.ReadFrom(frame[at:]) != nil {
		return 0, "", false
	}
	switch r := req.(type) {
	case *kmsg.EndTxnRequest:
		return key, r.TransactionalID, true
	case *kmsg.ProduceRequest:
		if r.TransactionID != nil {
			return key, *r.TransactionID, true
		}
	}
	return key, "", true
}
