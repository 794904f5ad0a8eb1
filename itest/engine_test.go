package itest

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"testing"
	"testing/synctest"
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

// world is an instance, a broker and an engine on a virtual network, under a
// clock that jumps when everything waits.
type world struct {
	t      *testing.T
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
	w := &world{t: t, broker: broker, net: vn, log: slog.New(slog.DiscardHandler)}
	if testing.Verbose() {
		w.log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))
	}
	w.inst = fakesnow.New(fakesnow.Options{Seed: 1, Users: map[string]string{"snowmelt": "secret-of-tests"}})
	return w
}

func (w *world) opts() []kgo.Opt {
	return []kgo.Opt{kgo.Dialer(w.net.DialContext)}
}

func (w *world) source(tables ...config.Table) config.Source {
	s := harness.Source("itsm", "https://fake.service-now.test", w.broker.ListenAddrs()[0], tables...)
	return s
}

func (w *world) start(s config.Source) *supervisor.Engine {
	w.t.Helper()
	e, err := supervisor.New(config.Config{Sources: []config.Source{s}}, supervisor.WithLogger(w.log),
		supervisor.WithHTTPTransport(func(string) http.RoundTripper { return w.inst.Transport() }),
		supervisor.WithKafkaOptions(w.opts()...))
	if err != nil {
		w.t.Fatal(err)
	}
	if err := e.Start(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	return e
}

func (w *world) stop(e *supervisor.Engine) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := e.Stop(ctx); err != nil {
		w.t.Errorf("stopping: %v", err)
	}
}

func (w *world) tally(table, topic string, hidden func(string) bool) harness.Tally {
	w.t.Helper()
	opts := append(w.opts(), kgo.SeedBrokers(w.broker.ListenAddrs()...))
	records, err := harness.ReadTopic(w.t.Context(), topic, false, opts...)
	if err != nil {
		w.t.Fatal(err)
	}
	var tally harness.Tally
	tally.Compare(w.inst, table, records, hidden)
	return tally
}

// TestBackfillThenStream reads a table, then follows its changes.
func TestBackfillThenStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.inst.Generate("incident", 2000, fakesnow.GenOptions{})
		tab := harness.Table("incident", "servicenow.incident")
		tab.BatchSize = 300
		e := w.start(w.source(tab))
		time.Sleep(20 * time.Second)
		w.inst.Generate("incident", 50, fakesnow.GenOptions{Start: w.inst.Now(), OneSecond: true, Seed: 2, IDPrefix: "b"})
		time.Sleep(time.Minute)
		st := e.Status()
		w.stop(e)
		tally := w.tally("incident", "servicenow.incident", nil)
		if !tally.OK() || tally.Rows != 2050 {
			t.Errorf("%+v\n%+v", tally, st)
		}
	})
}
