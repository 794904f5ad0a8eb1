// Package supervisor wires the house and judges failures: the supervision tree
// as data, the policy as a table, and the engine that programs embed.
package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"runtime"
	"sync"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"github.com/asynkron/protoactor-go/actor"
	"github.com/twmb/franz-go/pkg/kgo"

	"snowmelt/actors/kit"
	"snowmelt/actors/msg"
	"snowmelt/config"
	"snowmelt/core/failure"
	"snowmelt/core/kafka"
	"snowmelt/core/servicenow"
)

// Version is the program's version; releases set it when linking.
var Version = "dev"

// Engine runs the pipelines of one configuration. Several may live in one
// process; nothing of an engine is global.
type Engine struct {
	cfg       config.Config
	opts      options
	log       *slog.Logger
	system    *actor.ActorSystem
	ownSystem bool
	set       *metrics.Set
	board     *board
	group     kit.Group
	clusters  []*kafka.Cluster
	clients   map[string]*servicenow.Client
	root      *actor.PID
	rootCfg   rootConfig

	mu      sync.Mutex
	started bool
	left    int
	first   error
	ended   chan struct{} // closed when no pipeline is left
	stopped chan struct{} // closed when the engine actor has stopped
	closing sync.Once
}

type options struct {
	log       *slog.Logger
	system    *actor.ActorSystem
	set       *metrics.Set
	transport func(host string) http.RoundTripper
	kafka     []kgo.Opt
	watch     func(Event)
	jitter    func() float64
	planted   func(message any)
}

// Option changes how an engine is made.
type Option func(*options)

// WithLogger logs to l; without it nothing is logged.
func WithLogger(l *slog.Logger) Option { return func(o *options) { o.log = l } }

// WithActorSystem runs the actors in s, which the engine then does not shut down.
func WithActorSystem(s *actor.ActorSystem) Option { return func(o *options) { o.system = s } }

// WithMetrics registers the engine's metrics in s.
func WithMetrics(s *metrics.Set) Option { return func(o *options) { o.set = s } }

// WithHTTPTransport reaches instances through what f returns for their host.
func WithHTTPTransport(f func(host string) http.RoundTripper) Option {
	return func(o *options) { o.transport = f }
}

// WithKafkaOptions adds client options to those of the configuration.
func WithKafkaOptions(opts ...kgo.Opt) Option {
	return func(o *options) { o.kafka = append(o.kafka, opts...) }
}

// WithEvents tells f every change of state. It is called from actors: it must not block.
func WithEvents(f func(Event)) Option { return func(o *options) { o.watch = f } }

// WithJitter replaces the random numbers in [0, 1) that spread retries, for tests.
func WithJitter(f func() float64) Option { return func(o *options) { o.jitter = f } }

// WithPlanted calls f before a lane takes a message, so that a test can make it panic.
func WithPlanted(f func(message any)) Option { return func(o *options) { o.planted = f } }

// Event is a change of state of a pipeline, or of one of its tables.
type Event struct {
	Pipeline string
	// Table is the alias, "" when the pipeline itself changed.
	Table string
	State string
	// Err is the reason, nil when it is well.
	Err error
}

// New prepares an engine for a valid configuration. It opens no connection.
func New(cfg config.Config, opts ...Option) (*Engine, error) {
	o := options{log: slog.New(slog.DiscardHandler), set: metrics.NewSet(), jitter: rand.Float64}
	for _, opt := range opts {
		opt(&o)
	}
	if len(cfg.Sources)+len(cfg.Sinks) == 0 {
		return nil, errors.New("starting an engine without a pipeline: configure sources or sinks")
	}
	e := &Engine{
		cfg: cfg, opts: o, log: o.log, system: o.system, set: o.set, board: newBoard(o.set),
		clients: map[string]*servicenow.Client{}, left: len(cfg.Sources) + len(cfg.Sinks),
		ended: make(chan struct{}), stopped: make(chan struct{}),
	}
	if o.watch != nil {
		e.board.watch = func(pipeline, alias string, s msg.State, err error) { o.watch(Event{pipeline, alias, string(s), err}) }
	}
	e.rootCfg = rootConfig{
		observer: e.board, log: o.log, opts: []actor.PropsOption{actor.WithReceiverMiddleware(kit.LogPanics(o.log))},
		ended: e.pipelineEnded, stopped: sync.OnceFunc(e.rootStopped),
	}
	for _, s := range cfg.Sources {
		if err := e.addSource(s); err != nil {
			e.closeClients()
			return nil, fmt.Errorf("preparing source %s: %w", s.Name, err)
		}
	}
	for _, s := range cfg.Sinks {
		if err := e.addSink(s); err != nil {
			e.closeClients()
			return nil, fmt.Errorf("preparing sink %s: %w", s.Name, err)
		}
	}
	return e, nil
}

// Start spawns the actors and returns at once; the pipelines connect by
// themselves and keep trying. ctx is not kept.
func (e *Engine) Start(context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.started {
		return errors.New("starting an engine twice: make a new one")
	}
	e.started = true
	if e.system == nil {
		e.system = actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger {
			return e.log.With("component", "actors")
		}))
		e.ownSystem = true
	}
	props := actor.PropsFromProducer(func() actor.Actor {
		return &root{cfg: e.rootCfg, running: map[string]*actor.PID{}, failed: map[string]error{}}
	}, e.rootCfg.opts...)
	e.root = e.system.Root.SpawnPrefix(props, "engine")
	return nil
}

// Ended is closed when no pipeline is left running, stopped on request or failed.
func (e *Engine) Ended() <-chan struct{} { return e.ended }

// Err returns the first failure that ended a pipeline, nil when there was none.
func (e *Engine) Err() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.first
}

func (e *Engine) pipelineEnded(_ string, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil && e.first == nil {
		e.first = err
	}
	if e.left == 0 {
		return
	}
	if e.left--; e.left == 0 {
		close(e.ended)
	}
}

// rootStopped is told when the engine actor is gone, on request or not.
func (e *Engine) rootStopped() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.left > 0 { // it went before its pipelines: nothing runs any more
		if e.first == nil {
			e.first = errors.New("running the engine: its actor stopped before its pipelines")
		}
		e.left = 0
		close(e.ended)
	}
	close(e.stopped)
}

// IsInputFailure says whether a pipeline ended because its input cannot be read
// and will not heal (failures.md section 6): exit code 4.
func IsInputFailure(err error) bool {
	e, ok := errors.AsType[*failure.Error](err)
	return ok && e.Input
}

// Status returns what the engine is doing. It never blocks on an actor.
func (e *Engine) Status() Status { return e.board.status(Version) }

// WriteMetrics writes the engine's metrics in Prometheus text format.
func (e *Engine) WriteMetrics(w io.Writer) { e.set.WritePrometheus(w) }

// Stop ends every pipeline in order: no new page is asked for, pages being
// published are finished, publishers are closed. Nine tenths of ctx's time
// are for that, by default longer than a write can take; then what is left is cut off, the goroutines are logged, and an
// error says so. Nothing is lost either way: what was not committed is read again.
func (e *Engine) Stop(ctx context.Context) error {
	e.mu.Lock()
	started := e.started
	e.started = true
	e.mu.Unlock()
	if !started {
		e.closeClients()
		return nil
	}
	graceful, cancel := ctx, context.CancelFunc(func() {})
	if deadline, ok := ctx.Deadline(); ok {
		graceful, cancel = context.WithTimeout(ctx, time.Until(deadline)*9/10)
	}
	defer cancel()
	e.system.Root.Send(e.root, &msg.StopEngine{})
	err := e.await(graceful)
	if err != nil {
		e.log.Error("the engine did not stop in order and is cut off", "goroutines", goroutines())
		e.system.Root.Stop(e.root)
		_ = e.await(ctx)
	}
	e.closing.Do(func() {
		e.closeClients()
		if e.ownSystem {
			e.system.Shutdown()
		}
	})
	return err
}

func (e *Engine) await(ctx context.Context) error {
	select {
	case <-e.stopped:
		return e.group.Wait(ctx)
	case <-ctx.Done():
		return fmt.Errorf("stopping the engine: %w", ctx.Err())
	}
}

func (e *Engine) closeClients() {
	for _, c := range e.clusters {
		c.Close()
	}
	for _, c := range e.clients {
		c.Close()
	}
}

func goroutines() string {
	buf := make([]byte, 1<<20)
	return string(buf[:runtime.Stack(buf, true)])
}
