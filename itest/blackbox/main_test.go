// Package blackbox runs the built binary against a fake instance and a broker,
// kills it, stops it and wakes it up, and counts what arrived. The broker is the
// embedded one, or with -kafka=real Apache Kafka, one for every test.
package blackbox

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"snowmelt/itest/fakesnow"
	"snowmelt/itest/harness"
	"snowmelt/itest/kafka"
)

// binary is the program under test, built once.
var binary string

var kafkaFlag = flag.String("kafka", "fake", "the broker: fake or real")

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "snowmelt-blackbox-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "snowmelt")
	build := exec.Command("go", "build", "-o", binary, "snowmelt")
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "building snowmelt:", err)
		return 1
	}
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}

const (
	patience = 2 * time.Minute // of any one wait, generous: nothing is measured
	password = "secret-of-tests"
)

// world is an instance and a broker on real ports, for children to talk to.
type world struct {
	t      *testing.T
	inst   *fakesnow.Instance
	server *fakesnow.Server
	broker *kfake.Cluster // nil with a real one
	proxy  *kafka.Proxy   // in front of a real one
	real   *kafka.Cluster
	// options are those of a real one.
	options kafka.Options
	// bootstrap is where the broker is, or will be.
	bootstrap string
	client    *kgo.Client
	admin     *kadm.Client
	http      *http.Client
	children  int
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := newWorldWithoutBroker(t)
	w.startBroker()
	return w
}

func newWorldWithoutBroker(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, bootstrap: freeAddress(t), http: &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}}
	w.inst = fakesnow.New(fakesnow.Options{Seed: 1, Users: map[string]string{"snowmelt": password}})
	server, err := w.inst.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.server = server
	t.Cleanup(func() { _ = server.Close() })
	return w
}

func (w *world) startBroker() {
	w.t.Helper()
	if *kafkaFlag == "real" {
		w.startKafka()
	} else {
		w.startFake()
	}
	var err error
	if w.client, err = kgo.NewClient(w.kafka()...); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(w.client.Close)
	w.admin = kadm.NewClient(w.client)
}

func (w *world) startKafka() {
	w.t.Helper()
	if why := kafka.Missing(); why != "" {
		w.t.Skip(why)
	}
	opts := w.options
	opts.Dir = w.t.ArtifactDir()
	if opts.Brokers < 2 {
		opts.Front = func(backend string) (string, error) {
			var err error
			w.proxy, err = kafka.Listen(w.bootstrap, backend)
			return w.bootstrap, err
		}
	}
	var err error
	if w.real, err = kafka.Start(w.ctx(), opts); err != nil {
		w.t.Fatal(err)
	}
	w.bootstrap = strings.Join(w.real.Bootstrap(), ",")
	w.t.Cleanup(func() {
		w.real.Close()
		if w.proxy != nil {
			w.proxy.Close()
		}
	})
}

func (w *world) startFake() {
	w.t.Helper()
	host, port, _ := net.SplitHostPort(w.bootstrap)
	var n int
	_, _ = fmt.Sscan(port, &n)
	broker, err := kfake.NewCluster(kfake.Ports(n), kfake.DefaultNumPartitions(3),
		kfake.ListenFn(func(network, _ string) (net.Listener, error) {
			return net.Listen(network, net.JoinHostPort(host, port))
		}))
	if err != nil {
		w.t.Fatal(err)
	}
	w.broker = broker
	w.t.Cleanup(broker.Close)
}

func (w *world) kafka() []kgo.Opt {
	return []kgo.Opt{kgo.SeedBrokers(strings.Split(w.bootstrap, ",")...), kgo.DisableClientMetrics()}
}

// freeAddress returns an address that is free to be listened on.
func freeAddress(t *testing.T) string {
	t.Helper()
	address := harness.FreeAddress()
	if address == "" {
		t.Fatal("no port is free")
	}
	return address
}

func (w *world) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	w.t.Cleanup(cancel)
	return ctx
}

// until waits for a condition; a child that ends meanwhile does not hold it up.
func (w *world) until(what string, come func() (bool, error)) {
	w.t.Helper()
	if err := harness.Until(w.ctx(), what, come); err != nil {
		w.t.Fatal(err)
	}
}

// settings of a pipeline; tables are aliases.
type settings map[string]any

// source returns the settings of a pipeline with small pages and short waits.
func (w *world) source(tables ...string) settings {
	s := settings{
		"snow.url": w.server.URL(), "snow.auth.username": "snowmelt", "snow.auth.password": password,
		"snow.tables": strings.Join(tables, ","), "kafka.bootstrap.servers": w.bootstrap,
		"snow.source.poll.interval.ms": 100, "snow.source.batch.size": 200, "snow.source.late.check.interval.ms": 1000,
		"snow.retry.initial.backoff.ms": 50, "snow.retry.max.backoff.ms": 500, "snow.retry.max.attempts": 2,
	}
	for _, alias := range tables {
		s["snow.table."+alias+".name"] = alias
		s["snow.table."+alias+".topic"] = topicOf(alias)
	}
	return s
}

func topicOf(table string) string { return "servicenow." + table }

func (s settings) with(more settings) settings {
	all := settings{}
	for _, m := range []settings{s, more} {
		for k, v := range m {
			all[k] = v
		}
	}
	return all
}

// configure writes a configuration of one pipeline, itsm.
func (w *world) configure(source, process settings) string {
	w.t.Helper()
	all := settings{"admin.address": "127.0.0.1:0", "log.format": "json", "sources": settings{"itsm": source}}.with(process)
	raw, err := json.Marshal(all)
	if err != nil {
		w.t.Fatal(err)
	}
	w.children++
	file := filepath.Join(w.t.ArtifactDir(), fmt.Sprintf("config-%d.json", w.children))
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		w.t.Fatal(err)
	}
	return file
}

// child is a snowmelt process.
type child struct {
	*harness.Process
	w    *world
	addr string // of its admin server, once it was asked for
}

// start starts a snowmelt command; it is killed at the end, and its log is shown if the test fails.
func (w *world) start(args ...string) *child {
	w.t.Helper()
	w.children++
	p, err := harness.StartProcess(w.t.ArtifactDir(), fmt.Sprintf("%03d-%s", w.children, args[0]), binary, args...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		p.Kill()
		if w.t.Failed() {
			w.t.Logf("%s, last of its log:\n%s", p.Name, tail(p.Stderr(), 40))
		}
	})
	return &child{Process: p, w: w}
}

func (w *world) run(config string) *child {
	w.t.Helper()
	return w.start("run", "-c", config)
}

func tail(text string, lines int) string {
	all := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// logged returns the first line of a child's log with a message.
func (c *child) logged(msg string) map[string]any {
	for line := range strings.Lines(c.Stderr()) {
		var m map[string]any
		if json.Unmarshal([]byte(line), &m) == nil && m["msg"] == msg {
			return m
		}
	}
	return nil
}

// admin returns the address of the admin server.
func (c *child) admin() string {
	c.w.t.Helper()
	if c.addr == "" {
		c.w.until(c.Name+" has an admin server", func() (bool, error) {
			if m := c.logged("snowmelt runs"); m != nil {
				c.addr, _ = m["admin"].(string)
			}
			return c.addr != "", nil
		})
	}
	return c.addr
}

// get asks the admin server.
func (c *child) get(path string) (int, string, error) {
	resp, err := c.w.http.Get(c.admin() + path)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

// status is what /api/v1/status promises, as far as tests look.
type status struct {
	Version   string
	Pipelines []struct {
		Name, Kind, State, Error string
		Children                 []tableStatus
	}
	Instances []struct{ Host, Breaker string }
}

type tableStatus struct {
	Name, Kind, State, Error, Since, Cursor, Phase string
	Rows                                           int
}

func (c *child) status() (status, error) {
	var s status
	code, body, err := c.get("/api/v1/status")
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("status %d: %s", code, body)
	}
	if err == nil {
		err = json.Unmarshal([]byte(body), &s)
	}
	return s, err
}

func (c *child) table(alias string) (tableStatus, error) {
	s, err := c.status()
	if err != nil {
		return tableStatus{}, err
	}
	for _, t := range s.Pipelines[0].Children {
		if t.Name == alias {
			return t, nil
		}
	}
	return tableStatus{}, fmt.Errorf("no table %s in %+v", alias, s)
}

func (c *child) signal(s syscall.Signal) {
	c.w.t.Helper()
	if err := c.Signal(s); err != nil {
		c.w.t.Fatal(err)
	}
}

// exits waits for the end of a child and checks its code.
func (c *child) exits(want int) {
	c.w.t.Helper()
	code, err := c.Wait(c.w.ctx())
	if err != nil || code != want {
		c.w.t.Errorf("%s: exit code %d, want %d (%v)", c.Name, code, want, err)
	}
}

func (w *world) tally(table string) (harness.Tally, error) {
	var t harness.Tally
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	records, err := harness.ReadTopic(ctx, topicOf(table), false, w.kafka()...)
	if err == nil {
		t.Compare(w.inst, table, records, nil)
	}
	return t, err
}

// arrived waits until the newest version of every row of a table is in its topic.
func (w *world) arrived(table string) {
	w.t.Helper()
	w.until("every row of "+table+" has arrived", func() (bool, error) {
		t, err := w.tally(table)
		if err == nil && (t.Missing > 0 || t.Stale > 0 || t.Rows == 0) {
			err = fmt.Errorf("%+v", t)
		}
		return err == nil, err
	})
}

// counts checks that everything has arrived, once and in order.
func (w *world) counts(table string) harness.Tally {
	w.t.Helper()
	t, err := w.tally(table)
	if err != nil || !t.OK() || t.Rows == 0 {
		w.t.Errorf("%s: %+v (%v)", table, t, err)
	}
	w.t.Logf("%s: %d rows, %d records, %d duplicates, %d missing, %d stale, %d backwards", table, t.Rows, t.Records, t.Duplicates, t.Missing, t.Stale, t.Backwards)
	return t
}

// records returns the number of committed records of a table's topic.
func (w *world) records(table string) int {
	t, _ := w.tally(table) // there may be no topic yet
	return t.Records
}

// transactions returns what the coordinator says of the transactional ids in a state, "" for all.
func (w *world) transactions(state string) []kadm.DescribedTransaction {
	w.t.Helper()
	all, err := w.admin.DescribeTransactions(w.ctx())
	if err != nil {
		w.t.Fatal(err)
	}
	var found []kadm.DescribedTransaction
	for _, d := range all {
		if state == "" || d.State == state {
			found = append(found, d)
		}
	}
	return found
}

// ongoing returns the open transactions with records of a table.
func (w *world) ongoing(table string) []kadm.DescribedTransaction {
	w.t.Helper()
	return slices.DeleteFunc(w.transactions("Ongoing"), func(d kadm.DescribedTransaction) bool {
		_, ok := d.Topics[topicOf(table)]
		return !ok
	})
}
