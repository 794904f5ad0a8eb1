package itest

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"snowmelt/config"
	"snowmelt/itest/fakesnow"
	"snowmelt/itest/harness"
	"snowmelt/supervisor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	topic    = "servicenow.incident"
	password = "secret-of-tests"
)

// world is an instance, a broker and engines on a virtual network, under a
// clock that jumps when everything waits.
type world struct {
	inst   *fakesnow.Instance
	broker *kfake.Cluster
	net    *kfake.VirtualNetwork
	log    *slog.Logger
}

func newWorld(t *testing.T) *world {
	t.Helper()
	vn := &kfake.VirtualNetwork{}
	broker, err := kfake.NewCluster(kfake.Ports(9092), kfake.ListenFn(vn.Listen), kfake.DefaultNumPartitions(3))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Close)
	w := &world{broker: broker, net: vn, log: slog.New(slog.DiscardHandler)}
	if testing.Verbose() {
		w.log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))
	}
	w.inst = fakesnow.New(fakesnow.Options{Seed: 1, Users: map[string]string{"snowmelt": password}, JournalEntries: 5000})
	return w
}

func (w *world) source(tables ...config.Table) config.Source {
	return harness.Source("itsm", "https://fake.service-now.test", w.broker.ListenAddrs()[0], tables...)
}

func (w *world) sink(table string, topics ...string) config.Sink {
	return harness.Sink("updates", "https://fake.service-now.test", w.broker.ListenAddrs()[0], table, topics...)
}

func (w *world) clientOpts() []kgo.Opt {
	return []kgo.Opt{kgo.Dialer(w.net.DialContext), kgo.SeedBrokers(w.broker.ListenAddrs()...)}
}

// process is an engine with its own lines to the world, which can be cut: what
// is left of it then is what a killed process leaves.
type process struct {
	*supervisor.Engine
	w *world

	mu             sync.Mutex
	dead, lineless bool
	conns          []net.Conn
}

// errKilled is what a host without a listener answers.
var errKilled = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}

func (w *world) start(s config.Source) (*process, error) {
	return w.run(config.Config{Sources: []config.Source{s}})
}

func (w *world) run(cfg config.Config, opts ...supervisor.Option) (*process, error) {
	p := &process{w: w}
	e, err := supervisor.New(cfg, append([]supervisor.Option{
		supervisor.WithLogger(w.log), supervisor.WithHTTPTransport(func(string) http.RoundTripper { return p }),
		supervisor.WithKafkaOptions(kgo.Dialer(p.dial)),
	}, opts...)...)
	if err != nil {
		return nil, err
	}
	p.Engine = e
	return p, e.Start(context.Background())
}

func (p *process) dial(ctx context.Context, network, host string) (net.Conn, error) {
	c, err := p.w.net.DialContext(ctx, network, host)
	p.mu.Lock()
	defer p.mu.Unlock()
	if (p.dead || p.lineless) && err == nil {
		_ = c.Close()
		return nil, errKilled
	}
	p.conns = append(p.conns, c)
	return c, err
}

// RoundTrip reaches the instance, as long as the process lives.
func (p *process) RoundTrip(r *http.Request) (*http.Response, error) {
	p.mu.Lock()
	dead := p.dead
	p.mu.Unlock()
	if dead {
		return nil, errKilled
	}
	return p.w.inst.Transport().RoundTrip(r)
}

// cut takes the lines to the broker away, or lets new ones be made.
func (p *process) cut(away bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lineless = away
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
}

// kill cuts every line at once. The engine itself is stopped later, for the leak check only.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dead = true
	for _, c := range p.conns {
		_ = c.Close()
	}
}

func (p *process) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := p.Stop(ctx)
	<-time.After(2 * time.Second) // protoactor's throttle of dead letters outlives its system by a second
	if p.dead {
		return nil
	}
	return err
}

func (w *world) tally(table, topic string, hidden func(string) bool) (harness.Tally, error) {
	var tally harness.Tally
	records, err := harness.ReadTopic(context.Background(), topic, false, w.clientOpts()...)
	if err == nil {
		tally.Compare(w.inst, table, records, hidden)
	}
	return tally, err
}

// must fails the test on errors of the world itself.
func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
