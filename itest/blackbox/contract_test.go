package blackbox

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"snowmelt/itest/fakesnow"
)

// demoResult is what contract.md promises of `demo --output json`.
type demoResult struct {
	Source *struct {
		Rows, Records, Duplicates, Missing, Stale *int
		Versions                                  *int `json:"distinct_versions"`
	}
	Sink *struct {
		Records, Written, Failed *int
		Rows                     *int `json:"rows_in_instance"`
	}
	Faults  *int     `json:"faults_injected"`
	Elapsed *float64 `json:"elapsed_seconds"`
	Verdict string
}

func (c *child) demoPassed() demoResult {
	t := c.w.t
	t.Helper()
	c.exits(0)
	var r demoResult
	if err := json.Unmarshal([]byte(c.Stdout()), &r); err != nil {
		t.Fatalf("%v: %s", err, c.Stdout())
	}
	s := r.Source
	if s == nil || s.Rows == nil || s.Records == nil || s.Versions == nil || s.Duplicates == nil || s.Missing == nil || s.Stale == nil ||
		r.Sink == nil || r.Sink.Records == nil || r.Sink.Written == nil || r.Sink.Failed == nil || r.Sink.Rows == nil ||
		r.Faults == nil || r.Elapsed == nil {
		t.Fatalf("a field of the contract is missing: %s", c.Stdout())
	}
	t.Logf("demo: %d rows, %d records, %d duplicates, %d missing, %d stale, %s after %.1f s",
		*s.Rows, *s.Records, *s.Duplicates, *s.Missing, *s.Stale, r.Verdict, *r.Elapsed)
	if r.Verdict != "PASS" || *s.Missing != 0 || *s.Duplicates != 0 || *s.Stale != 0 || *s.Records != *s.Versions {
		t.Errorf("%s", c.Stdout())
	}
	return r
}

func TestDemo(t *testing.T) {
	t.Parallel()
	w := newWorldWithoutBroker(t)
	p := w.start("demo", "--rows", "3000", "--for", "45s", "--output", "json")
	if r := p.demoPassed(); *r.Source.Rows != 3000 || *r.Source.Records < 3000 {
		t.Errorf("%s", p.Stdout())
	}
	if !strings.Contains(p.Stderr(), "/api/v1/status") {
		t.Error("the admin address is not shown")
	}
}

// TestChaos runs the demo under its repeatable mix of faults, a seed each.
func TestChaos(t *testing.T) {
	seeds, _ := strconv.Atoi(os.Getenv("SNOWMELT_CHAOS_SEEDS"))
	if seeds = cmp.Or(seeds, 5); testing.Short() {
		seeds = 1
	}
	for seed := 1; seed <= seeds; seed++ {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			w := newWorldWithoutBroker(t)
			p := w.start("demo", "--chaos", "--seed", fmt.Sprint(seed), "--rows", "5000", "--for", "50s", "--output", "json")
			r := p.demoPassed()
			if *r.Faults <= 20 || *r.Sink.Written != *r.Sink.Records || *r.Sink.Failed != 0 {
				t.Errorf("%s", p.Stdout())
			}
		})
	}
}

// TestEventLog replays 141,712 real updates of 24,918 incidents.
func TestEventLog(t *testing.T) {
	t.Parallel()
	file := find("shared/data/uci498_incident_event_log_full.csv.gz")
	if file == "" {
		t.Skip("there is no shared/data/uci498_incident_event_log_full.csv.gz above this folder")
	}
	w := newWorldWithoutBroker(t)
	p := w.start("demo", "--events", file, "--for", "120s", "--output", "json")
	if r := p.demoPassed(); *r.Source.Rows != 24918 {
		t.Errorf("%d rows, want 24918", *r.Source.Rows)
	}
}

// find looks for a file in the working directory and in those above it.
func find(name string) string {
	dir, err := os.Getwd()
	if err != nil {
		return ""
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return filepath.Join(dir, name)
		}
		up := filepath.Dir(dir)
		if up == dir {
			return ""
		}
		dir = up
	}
}

// TestQuickstart: the fake instance with its broker in one process, the engine in
// another, and what the commands and the admin server print.
func TestQuickstart(t *testing.T) {
	const table = "incident"
	w := newWorldWithoutBroker(t)
	fake := w.start("fake", "--listen", "127.0.0.1:0", "--broker", w.bootstrap, "--rows", table+"=1000", "--user", "snowmelt:"+password)
	var address string
	w.until("the fake prints its address", func() (bool, error) {
		first, _, ok := strings.Cut(fake.Stdout(), "\n")
		address = first
		return ok, nil
	})
	resp, err := w.http.Get("http://" + address + "/__fake/journal")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("the fake answers %s", resp.Status)
	}
	config := w.configure(w.source(table).with(settings{"snow.url": "http://" + address}), nil)
	p := w.run(config)
	w.until("all rows are published", func() (bool, error) {
		s, err := p.table(table)
		return s.Rows == 1000 && s.Phase == "stream", err
	})
	s, err := p.status()
	if err != nil || s.Version == "" || len(s.Pipelines) != 1 || len(s.Instances) != 1 {
		t.Fatalf("%+v (%v)", s, err)
	}
	if pipe := s.Pipelines[0]; pipe.Name != "itsm" || pipe.Kind != "source" || pipe.State != "RUNNING" || pipe.Children[0].Kind != "table" || pipe.Children[0].Cursor == "" {
		t.Errorf("%+v", pipe)
	}
	_, text, err := p.get("/metrics")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		`snowmelt_source_rows_total{pipeline="itsm",table="incident"} 1000`, `snowmelt_source_lag_seconds{pipeline="itsm",table="incident"} `,
		`snowmelt_source_duplicates_total{pipeline="itsm",table="incident"} `,
	} {
		if !strings.Contains(text, line) {
			t.Errorf("/metrics does not have %s:\n%s", line, text)
		}
	}
	list := w.start("offsets", "list", "-c", config, "--output", "json")
	list.exits(0)
	var offsets []struct {
		Pipeline  string
		Partition map[string]string
		Offset    map[string]string
	}
	if err := json.Unmarshal([]byte(list.Stdout()), &offsets); err != nil || len(offsets) != 1 {
		t.Fatalf("%s (%v)", list.Stdout(), err)
	}
	o := offsets[0]
	host, _, _ := strings.Cut(address, ":")
	if o.Pipeline != "itsm" || o.Partition["table"] != table || !strings.HasPrefix(o.Partition["instance"], host) ||
		!strings.HasPrefix(o.Partition["query_fingerprint"], "sha256:") || o.Partition["timestamp_field"] != "sys_updated_on" {
		t.Errorf("partition %v", o.Partition)
	}
	for _, field := range []string{"version", "timestamp", "sys_id", "phase", "fingerprint"} {
		if o.Offset[field] == "" {
			t.Errorf("the offset has no %s: %v", field, o.Offset)
		}
	}
	for _, c := range []*child{p, fake} {
		c.signal(syscall.SIGTERM)
		c.exits(0)
	}
}

// TestReadiness: one failed table is named and harms no other; a process whose
// tables have all failed is not ready, and ends if it is to.
func TestReadiness(t *testing.T) {
	const good, bad = "incident", "change_request"
	w := newWorld(t)
	for _, table := range []string{good, bad} {
		w.inst.Generate(table, 300, fakesnow.GenOptions{MinimalFields: true})
	}
	w.inst.AddFault(fakesnow.Fault{Kind: fakesnow.FaultStatus, Table: bad, Params: fakesnow.FaultParams{Status: 403}})
	p := w.run(w.configure(w.source(good, bad), nil))
	w.until("the table has failed", func() (bool, error) {
		s, err := p.table(bad)
		return s.State == "FAILED" && s.Error != "", err
	})
	w.arrived(good)
	code, body, err := p.get("/readyz")
	if err != nil || code != http.StatusOK || !strings.Contains(body, bad) {
		t.Errorf("/readyz: %d %s (%v)", code, body, err)
	}
	if s, err := p.status(); err != nil || s.Pipelines[0].State != "DEGRADED" {
		t.Errorf("%+v (%v)", s, err)
	}
	p.signal(syscall.SIGTERM)
	p.exits(0)
	w.counts(good)

	alone := w.source(bad)
	holding := w.run(w.configure(alone, settings{"engine.on.failure": "hold"}))
	w.until("the process is not ready", func() (bool, error) {
		code, body, err := holding.get("/readyz")
		return code == http.StatusServiceUnavailable && strings.Contains(body, bad), err
	})
	if s, err := holding.status(); err != nil || s.Pipelines[0].State != "FAILED" || s.Pipelines[0].Error == "" {
		t.Errorf("%+v (%v)", s, err)
	}
	holding.signal(syscall.SIGTERM)
	holding.exits(1)

	exiting := w.run(w.configure(alone, settings{"engine.on.failure": "exit"}))
	exiting.exits(1)
	if !strings.Contains(exiting.Stderr(), "403") || !strings.Contains(exiting.Stderr(), bad) {
		t.Error("it does not say why it ended")
	}
}
