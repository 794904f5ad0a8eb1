package demo

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"snowmelt/config"
	"snowmelt/core/cursor"
	"snowmelt/itest/fakesnow"
	"snowmelt/itest/harness"
	"snowmelt/supervisor"
	"snowmelt/supervisor/admin"
)

// Options say what the demo does.
type Options struct {
	// Rows is the number of rows of all tables together.
	Rows int
	// For bounds the whole run.
	For time.Duration
	// Events is a log of real incident updates that is replayed instead of generated rows, "" for none.
	Events string
	// Seed makes rows and updates repeatable.
	Seed int64
	// AdminAddress is tried first; a free port is taken when it is in use.
	AdminAddress string
	// Progress is told what is going on, about four times a second.
	Progress func(Progress)
	Log      *slog.Logger
	// Chaos spoils requests and broker answers by a schedule that Seed makes repeatable.
	Chaos bool
	// Notes takes the few lines that a person wants to see: addresses.
	Notes io.Writer
}

// Progress is how far the demo is.
type Progress struct {
	Elapsed     time.Duration
	Rows        int // in the instance
	Published   uint64
	Phase, Note string
}

// Result is the summary, in the shape that `snowmelt demo --output json` promises.
// It is counted from the broker's log and the instance's store, never from the engine.
type Result struct {
	Source struct {
		Rows             int `json:"rows"`
		Records          int `json:"records"`
		DistinctVersions int `json:"distinct_versions"`
		Duplicates       int `json:"duplicates"`
		Missing          int `json:"missing"`
		Stale            int `json:"stale"`
		Backwards        int `json:"backwards"`
	} `json:"source"`
	Sink struct {
		Records        int `json:"records"`
		Written        int `json:"written"`
		Failed         int `json:"failed"`
		RowsInInstance int `json:"rows_in_instance"`
	} `json:"sink"`
	FaultsInjected int      `json:"faults_injected"`
	ElapsedSeconds float64  `json:"elapsed_seconds"`
	Verdict        string   `json:"verdict"`
	Examples       []string `json:"examples,omitempty"`
	Problem        string   `json:"problem,omitempty"`
}

const (
	user     = "demo"
	password = "demo-password"
	pipeline = "itsm"
)

// demo is one run.
type demo struct {
	opts   Options
	inst   *fakesnow.Instance
	broker *Broker
	engine *supervisor.Engine
	tables []config.Table
	began  time.Time
	rng    *rand.Rand
	// wanted maps the rows that the sink is to touch to the mark that it is to leave there.
	wanted map[string]string
	faults []*kfake.FaultHandle
	hits   int // of the instance's faults, once they are switched off
}

// Run runs the demo to its end.
func Run(ctx context.Context, opts Options) (Result, error) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, opts.For)
	defer cancel()
	d := &demo{opts: opts, began: began, wanted: map[string]string{}, rng: rand.New(rand.NewPCG(uint64(opts.Seed), 1))} //nolint:gosec // repeatable on purpose
	var err error
	if d.broker, err = StartBroker("127.0.0.1:0", ""); err != nil {
		return Result{}, err
	}
	defer d.broker.Close()
	d.inst = fakesnow.New(fakesnow.Options{Seed: opts.Seed, Users: map[string]string{user: password}})
	server, err := d.inst.Listen("127.0.0.1:0")
	if err != nil {
		return Result{}, fmt.Errorf("starting the fake instance: %w", err)
	}
	defer func() { _ = server.Close() }()
	events, err := d.fill()
	if err != nil {
		return Result{}, err
	}
	src := harness.Source(pipeline, server.URL(), d.broker.Addr(), d.tables...)
	src.Instance.Username, src.Instance.Password = user, password
	src.LateInterval = 2 * time.Second
	cfg := config.Config{Sources: []config.Source{src}, Sinks: []config.Sink{d.sink(server.URL())}}
	if opts.Chaos {
		src.Instance = impatient(src.Instance)
		cfg.Sources[0].Instance, cfg.Sinks[0].Instance = src.Instance, src.Instance
		d.spoil()
	}
	if err := d.createTopics(ctx); err != nil {
		return Result{}, err
	}
	if d.engine, err = supervisor.New(cfg, supervisor.WithLogger(opts.Log)); err != nil {
		return Result{}, fmt.Errorf("preparing the engine: %w", err)
	}
	web, err := listenAdmin(opts.AdminAddress, d.engine)
	if err != nil {
		return Result{}, err
	}
	fmt.Fprintf(opts.Notes, "instance %s (user %s), broker %s, status http://%s/api/v1/status\n", server.URL(), user, d.broker.Addr(), web.Addr())
	if err := d.engine.Start(ctx); err != nil {
		return Result{}, fmt.Errorf("starting the engine: %w", err)
	}
	if events != nil {
		d.replay(ctx, events)
	} else {
		d.update(ctx)
	}
	if err := d.writeBack(ctx); err != nil {
		return Result{}, err
	}
	d.calm() // a fault that changes rows would go on after the last write
	d.settle(ctx)
	stop, done := context.WithTimeout(context.Background(), 30*time.Second)
	defer done()
	stopErr := d.engine.Stop(stop)
	_ = web.Close(stop)
	result, err := d.count(stop)
	if err == nil && stopErr != nil {
		result.Problem, result.Verdict = stopErr.Error(), "FAIL"
	}
	result.ElapsedSeconds = time.Since(began).Seconds()
	return result, err
}

func listenAdmin(address string, e *supervisor.Engine) (*admin.Server, error) {
	s, err := admin.Start(address, e)
	if err != nil {
		host, _, _ := net.SplitHostPort(address)
		return admin.Start(net.JoinHostPort(host, "0"), e)
	}
	return s, nil
}

// fill puts the rows into the instance, or loads the log of events.
func (d *demo) fill() (*fakesnow.EventLog, error) {
	table := func(name string) {
		t := harness.Table(name, "servicenow."+name)
		t.PollInterval = 100 * time.Millisecond
		t.Start, _ = cursor.ParseTimestamp("2010-01-01 00:00:00")
		d.tables = append(d.tables, t)
	}
	table("incident")
	if d.opts.Events != "" {
		log, err := fakesnow.LoadEvents(d.opts.Events)
		if err != nil {
			return nil, fmt.Errorf("loading the events: %w", err)
		}
		if at, ok := log.Peek(); ok {
			d.inst.SetClock(at)
		}
		return log, nil
	}
	table("change_request")
	d.inst.Generate("incident", d.opts.Rows-d.opts.Rows/2, fakesnow.GenOptions{})
	d.inst.Generate("change_request", d.opts.Rows/2, fakesnow.GenOptions{})
	return nil, nil
}

// update changes rows while the tables are read, as users do, until it has changed a twentieth of them.
func (d *demo) update(ctx context.Context) {
	var ids [2][]string
	for i, t := range d.tables {
		for _, r := range d.inst.Rows(t.Name, nil) {
			ids[i] = append(ids[i], r["sys_id"])
		}
	}
	for n := range d.opts.Rows / 20 {
		i := d.rng.IntN(len(d.tables))
		if len(ids[i]) == 0 {
			continue
		}
		d.inst.Touch(d.tables[i].Name, ids[i][d.rng.IntN(len(ids[i]))], map[string]string{"short_description": fmt.Sprintf("changed %d", n)})
		if n%20 == 0 && !d.pause(ctx, 50*time.Millisecond, "users change rows") {
			return
		}
	}
}

// replay applies the events in order, moving the instance's clock along with them.
func (d *demo) replay(ctx context.Context, events *fakesnow.EventLog) {
	step := max(1, events.Len()/60)
	for events.Apply(d.inst, step) > 0 {
		if at, ok := events.Peek(); ok {
			d.inst.SetClock(at)
		} else {
			d.inst.SetClock(d.newest().Add(time.Minute))
		}
		if !d.pause(ctx, 400*time.Millisecond, fmt.Sprintf("event %d of %d", events.Applied(), events.Len())) {
			return
		}
	}
}

// newest returns the time of the row that was updated last.
func (d *demo) newest() time.Time {
	newest := cursor.None
	d.inst.Rows(d.tables[0].Name, func(r map[string]string) bool {
		if t, err := cursor.ParseTimestamp(r["sys_updated_on"]); err == nil {
			newest = max(newest, t)
		}
		return false
	})
	return newest.Time()
}

// pause lets d pass while showing progress; false when the time is up.
func (d *demo) pause(ctx context.Context, wait time.Duration, note string) bool {
	d.show(note)
	select {
	case <-ctx.Done():
		return false
	case <-time.After(wait):
		return true
	}
}

func (d *demo) show(note string) {
	if d.opts.Progress == nil {
		return
	}
	p := Progress{Elapsed: time.Since(d.began), Note: note}
	for _, t := range d.tables {
		p.Rows += d.inst.Count(t.Name)
	}
	for _, c := range d.source().Children {
		p.Published += c.Rows
		p.Phase = c.Phase
	}
	d.opts.Progress(p)
}

// settle waits until every table is proven complete up to now, or the time is up.
func (d *demo) settle(ctx context.Context) {
	until := cursor.TimestampOf(d.inst.Now()).String()
	for {
		behind := 0
		for _, c := range d.source().Children {
			if c.Verified < until {
				behind++
			}
		}
		if behind == 0 || !d.pause(ctx, 200*time.Millisecond, "waiting for the last rows") {
			return
		}
	}
}

func (d *demo) count(ctx context.Context) (Result, error) {
	var tally harness.Tally
	var err error
	for _, t := range d.tables {
		records, err := harness.ReadTopic(ctx, t.Topic, false, kgo.SeedBrokers(d.broker.Addr()))
		if err != nil {
			return Result{}, err
		}
		tally.Compare(d.inst, t.Name, records, nil)
	}
	var r Result
	s := &r.Source
	s.Rows, s.Records, s.DistinctVersions, s.Duplicates = tally.Rows, tally.Records, tally.Versions, tally.Duplicates
	s.Missing, s.Stale, s.Backwards = tally.Missing, tally.Stale, tally.Backwards
	r.Examples, r.Verdict = tally.Examples, "FAIL"
	d.countSink(&r)
	if r.Sink.Failed, err = d.countErrors(ctx); err != nil {
		return Result{}, err
	}
	r.FaultsInjected = d.injected()
	if tally.OK() && tally.Rows > 0 && r.Sink.Written == r.Sink.Records && r.Sink.Failed == 0 {
		r.Verdict = "PASS"
	}
	return r, nil
}
