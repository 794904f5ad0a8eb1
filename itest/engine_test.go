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
	"github.com/twmb/franz-go/pkg/kmsg"
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

// TestHiddenRows: 60 % of the rows are hidden by an ACL, in runs longer than a
// page and inside one second too; every visible row arrives, and an idle table
// costs one request per poll.
func TestHiddenRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.inst.Generate("incident", 3000, fakesnow.GenOptions{})
		w.inst.Generate("incident", 2000, fakesnow.GenOptions{Start: w.inst.Now().Add(-time.Hour), OneSecond: true, Seed: 2, IDPrefix: "b"})
		hidden := map[string]bool{}
		for i, r := range w.inst.Rows("incident", nil) {
			if i%1000 < 600 { // runs of 600 in the order of ids
				hidden[r["sys_id"]] = true
			}
		}
		w.inst.HideRows("incident", func(id string, _ map[string]string) bool { return hidden[id] })
		tab := harness.Table("incident", "servicenow.incident")
		tab.BatchSize = 100
		e := w.start(w.source(tab))
		time.Sleep(5 * time.Minute)
		before := w.inst.Journal()
		time.Sleep(100 * time.Second)
		requests := len(w.inst.Journal()) - len(before)
		w.stop(e)
		if tally := w.tally("incident", "servicenow.incident", func(id string) bool { return hidden[id] }); !tally.OK() || tally.Records != 5000-len(hidden) {
			t.Errorf("%+v, %d hidden", tally, len(hidden))
		}
		if requests > 20 {
			t.Errorf("an idle table cost %d requests in 20 polls", requests)
		}
	})
}

// TestOneSecond: more rows in one second than a page holds, with a restart after every page that is published.
func TestOneSecond(t *testing.T) {
	for _, rows := range []int{12_000, 100_000} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.inst.Generate("incident", rows, fakesnow.GenOptions{Start: w.inst.Now().Add(-time.Hour), OneSecond: true, MinimalFields: true})
			committed := make(chan struct{}, 1000)
			w.broker.ControlKey(int16(kmsg.EndTxn), func(kmsg.Request) (kmsg.Response, error, bool) {
				w.broker.KeepControl()
				committed <- struct{}{}
				return nil, nil, false
			})
			restarts := 0
			for quiet := false; !quiet; restarts++ {
				e := w.start(w.source(harness.Table("incident", "servicenow.incident")))
				select {
				case <-committed:
				case <-time.After(time.Minute):
					quiet = true
				}
				w.stop(e)
			}
			if tally := w.tally("incident", "servicenow.incident", nil); !tally.OK() || tally.Records != rows {
				t.Errorf("%+v", tally)
			}
			if restarts < rows/5000/2 {
				t.Errorf("only %d restarts for %d rows", restarts, rows)
			}
		})
	}
}

// TestLateRows: rows that become visible up to 55 s after their timestamp, in
// backfill and in stream, across restarts.
func TestLateRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.inst.Generate("incident", 500, fakesnow.GenOptions{})
		tab := harness.Table("incident", "servicenow.incident")
		tab.BatchSize = 50
		e := w.start(w.source(tab))
		for i := range 40 {
			time.Sleep(7 * time.Second)
			age := time.Duration(i*13%56) * time.Second
			w.inst.Generate("incident", 3, fakesnow.GenOptions{Start: w.inst.Now().Add(-age), OneSecond: true, Seed: int64(i + 10), IDPrefix: string(rune('a' + i%6))})
			if i%8 == 7 {
				w.stop(e)
				e = w.start(w.source(tab))
			}
		}
		time.Sleep(2 * time.Minute)
		w.stop(e)
		if tally := w.tally("incident", "servicenow.incident", nil); !tally.OK() || tally.Records != 620 {
			t.Errorf("%+v", tally)
		}
	})
}
