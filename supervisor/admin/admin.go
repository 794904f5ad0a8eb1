// Package admin serves metrics, health, readiness and status over HTTP. It only
// reads: nothing here changes what the engine does.
package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"snowmelt/supervisor"
)

// Engine is what the server shows.
type Engine interface {
	Status() supervisor.Status
	WriteMetrics(w io.Writer)
}

// Server is a running admin server.
type Server struct {
	http     *http.Server
	listener net.Listener
	done     chan error
}

// Start listens on address and serves until Close.
func Start(address string, e Engine) (*Server, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening on admin.address %s: %w", address, err)
	}
	s := &Server{
		listener: l, done: make(chan error, 1),
		http: &http.Server{
			Handler: Handler(e), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second,
			WriteTimeout: time.Minute, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		},
	}
	go func() { s.done <- s.http.Serve(l) }()
	return s, nil
}

// Addr returns the address that the server listens on.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Close ends the server within ctx.
func (s *Server) Close(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil {
		_ = s.http.Close()
	}
	if served := <-s.done; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	if err != nil {
		return fmt.Errorf("closing the admin server: %w", err)
	}
	return nil
}

// Handler returns the routes.
func Handler(e Engine) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		e.WriteMetrics(w)
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, "ok\n")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		ready, body := readiness(e.Status())
		code := http.StatusOK
		if !ready {
			code = http.StatusServiceUnavailable
		}
		writeJSON(w, code, body)
	})
	mux.HandleFunc("GET /api/v1/status", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, e.Status())
	})
	return mux
}

// readyPipeline is one pipeline's line of /readyz.
type readyPipeline struct {
	Name         string   `json:"name"`
	State        string   `json:"state"`
	Error        string   `json:"error,omitempty"`
	FailedTables []string `json:"failed_tables"`
}

// readiness is 503 only when a pipeline has FAILED; failed tables are named.
func readiness(s supervisor.Status) (bool, any) {
	ready := true
	out := []readyPipeline{}
	for _, p := range s.Pipelines {
		r := readyPipeline{Name: p.Name, State: p.State, Error: p.Error, FailedTables: []string{}}
		for _, c := range p.Children {
			if c.State == "FAILED" {
				r.FailedTables = append(r.FailedTables, c.Name)
			}
		}
		if p.State == "FAILED" {
			ready = false
		}
		out = append(out, r)
	}
	return ready, map[string]any{"ready": ready, "pipelines": out}
}

func writeJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(v)
}
