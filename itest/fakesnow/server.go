package fakesnow

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// ServeHTTP serves the Table API and its neighbours, the token endpoint, and the fake's own API under
// /__fake/. Faults that break connections take over the connection; where the ResponseWriter cannot
// do that, they abort the handler.
func (in *Instance) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/__fake/") {
		in.control(w, r)
		return
	}
	rep := in.serve(r, func() ([]byte, error) { return readAll(r.Body) }, false)
	defer rep.done()
	switch rep.end {
	case refused, resetEarly:
		reset(w)
		return
	}
	if pauseFor(r.Context(), rep.wait) != nil {
		panic(http.ErrAbortHandler) // to return would be an empty 200
	}
	switch rep.end {
	case stalled:
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	case resetLate:
		reset(w)
		return
	}
	h := w.Header()
	for k, v := range rep.header {
		h[k] = v
	}
	if rep.status != http.StatusNoContent {
		h.Set("Content-Length", strconv.Itoa(rep.size()))
	}
	w.WriteHeader(rep.status)
	rep.write(r.Context(), w)
}

// write sends the body, as far as the fault lets it.
func (r *reply) write(ctx context.Context, w http.ResponseWriter) {
	flush := func() { _ = http.NewResponseController(w).Flush() }
	switch r.end {
	case resetInBody, stalledBody:
		b := r.body()
		_, _ = w.Write(b[:min(r.cut, len(b))])
		flush()
		if r.end == resetInBody {
			reset(w)
			return
		}
		<-ctx.Done()
		panic(http.ErrAbortHandler)
	case dripping:
		for b := r.body(); len(b) > 0; {
			n := min(r.chunk, len(b))
			if pauseFor(ctx, r.pause) != nil {
				panic(http.ErrAbortHandler)
			}
			if _, err := w.Write(b[:n]); err != nil {
				return
			}
			flush()
			b = b[n:]
		}
	default:
		for _, p := range r.parts {
			if _, err := w.Write(p); err != nil {
				return // the client has left
			}
		}
	}
}

// reset ends the connection with an RST instead of a proper end.
func reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	inner := conn
	if t, ok := conn.(*tls.Conn); ok {
		inner = t.NetConn()
	}
	if tcp, ok := inner.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = inner.Close()
}

// Server is an instance that listens on a socket.
type Server struct {
	in     *Instance
	addr   net.Addr
	tls    *tls.Config
	ctx    context.Context //nolint:containedctx // base of all requests, ended by Close
	cancel context.CancelFunc
	http   *http.Server
	loops  sync.WaitGroup
	busy   sync.WaitGroup // requests in progress

	mu     sync.Mutex
	lis    net.Listener // nil while connections are refused
	conns  map[net.Conn]struct{}
	timer  *time.Timer
	closed bool
}

// Listen serves the instance on an address such as "127.0.0.1:0"; requests are accepted when it
// returns.
func (in *Instance) Listen(addr string) (*Server, error) { return in.ListenTLS(addr, nil) }

// ListenTLS is Listen with TLS. With ClientAuth in the configuration, a verified certificate whose
// common name is a user's name signs that user in.
func (in *Instance) ListenTLS(addr string, cfg *tls.Config) (*Server, error) {
	lis, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", addr, err)
	}
	s := &Server{in: in, addr: lis.Addr(), tls: cfg, conns: map[net.Conn]struct{}{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.http = &http.Server{
		Handler:           http.HandlerFunc(s.handle),
		BaseContext:       func(net.Listener) context.Context { return s.ctx },
		ReadHeaderTimeout: time.Minute,
		ConnState:         s.track,
		ErrorLog:          log.New(io.Discard, "", 0),
	}
	in.srvMu.Lock()
	in.servers[s] = struct{}{}
	in.srvMu.Unlock()
	s.start(lis)
	return s, nil
}

func (s *Server) handle(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		panic(http.ErrAbortHandler)
	}
	s.busy.Add(1)
	s.mu.Unlock()
	defer s.busy.Done()
	s.in.ServeHTTP(w, r)
}

func (s *Server) start(lis net.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = lis.Close()
		return
	}
	s.lis = lis
	if s.tls != nil {
		lis = tls.NewListener(lis, s.tls)
	}
	s.loops.Go(func() { _ = s.http.Serve(lis) }) // ends when the listener is closed
}

func (s *Server) track(c net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch state {
	case http.StateNew:
		s.conns[c] = struct{}{}
	case http.StateClosed, http.StateHijacked:
		delete(s.conns, c)
	}
}

// Addr is the address that clients connect to, as host:port.
func (s *Server) Addr() string { return s.addr.String() }

// URL is the base URL of the instance.
func (s *Server) URL() string {
	if s.tls != nil {
		return "https://" + s.Addr()
	}
	return "http://" + s.Addr()
}

// Refuse closes the listener and all connections; Accept opens it again at the same address.
func (s *Server) Refuse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lis != nil {
		_ = s.lis.Close()
		s.lis = nil
	}
	for c := range s.conns {
		_ = c.Close()
	}
}

// Accept ends Refuse. An address taken meanwhile by someone else is an error.
func (s *Server) Accept() error {
	s.mu.Lock()
	idle := s.lis == nil && !s.closed
	s.mu.Unlock()
	if !idle {
		return nil
	}
	lis, err := net.Listen("tcp", s.Addr())
	if err != nil {
		return fmt.Errorf("listening again on %s: %w", s.Addr(), err)
	}
	s.start(lis)
	return nil
}

// Close ends the server and every request in progress, stalled ones too, and waits for them.
func (s *Server) Close() error {
	s.in.srvMu.Lock()
	delete(s.in.servers, s)
	s.in.srvMu.Unlock()
	s.mu.Lock()
	s.closed = true
	if s.timer != nil {
		s.timer.Stop()
	}
	lis := s.lis
	s.lis = nil
	s.mu.Unlock()
	s.cancel()
	if lis != nil {
		_ = lis.Close()
	}
	err := s.http.Close()
	s.loops.Wait()
	s.busy.Wait()
	if errors.Is(err, net.ErrClosed) || errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func (in *Instance) allServers() []*Server {
	in.srvMu.Lock()
	defer in.srvMu.Unlock()
	out := make([]*Server, 0, len(in.servers))
	for s := range in.servers {
		out = append(out, s)
	}
	return out
}

// refuse closes the listeners, for a while (0: until accept).
func (in *Instance) refuse(d time.Duration) {
	for _, s := range in.allServers() {
		s.Refuse()
		in.faults.count(FaultRefuse)
		if d > 0 {
			s.mu.Lock()
			s.timer = time.AfterFunc(d, func() { _ = s.Accept() })
			s.mu.Unlock()
		}
	}
}

func (in *Instance) accept() {
	for _, s := range in.allServers() {
		_ = s.Accept()
	}
}
