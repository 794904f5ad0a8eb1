package blackbox

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"snowmelt/itest/fakesnow"
	"snowmelt/itest/harness"
)

const (
	updates     = "incident-updates"
	updateFails = "incident-update-errors"
)

// configureSink writes a configuration of one sink, updates, in the way in which
// a process that may be killed is to be run: static membership, short sessions.
func (w *world) configureSink(more settings) string {
	w.t.Helper()
	sink := settings{
		"snow.url": w.server.URL(), "snow.auth.username": "snowmelt", "snow.auth.password": password, "kafka.bootstrap.servers": w.bootstrap,
		"topics": updates, "snow.sink.table": "incident", "group.instance.id": "one", "group.session.timeout.ms": 6000,
		"snow.sink.reporter.error.topic": updateFails, "behavior.on.api.errors": "log", "snow.sink.settle.ms": 100,
		"snow.sink.commit.interval.ms": 100, "snow.retry.initial.backoff.ms": 20, "snow.retry.max.backoff.ms": 200,
	}.with(more)
	raw, err := json.Marshal(settings{"admin.address": "127.0.0.1:0", "log.format": "json", "sinks": settings{"updates": sink}})
	if err != nil {
		w.t.Fatal(err)
	}
	w.children++
	file := filepath.Join(w.t.ArtifactDir(), fmt.Sprintf("sink-%d.json", w.children))
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		w.t.Fatal(err)
	}
	return file
}

// committed adds up the offsets of the sink's group.
func (w *world) committed() (int64, error) {
	offsets, err := w.admin.FetchOffsets(w.ctx(), "connect-updates")
	if err != nil {
		return 0, err
	}
	n := int64(0)
	for _, parts := range offsets {
		for _, o := range parts {
			n += o.At
		}
	}
	return n, nil
}

// writes counts what reached the instance, whether or not anybody was told.
type writes struct {
	mu    sync.Mutex
	posts int
	more  chan struct{} // one more, if somebody waits
}

// TestSinkKill kills the process while creates, updates and deletes are under
// way, creates under fail_ambiguous: no row twice, every possibly applied create
// reported, at most as many as were in flight called so, offsets never ahead of
// unfinished writes.
func TestSinkKill(t *testing.T) {
	n, _ := strconv.Atoi(os.Getenv("SNOWMELT_SINK_KILLS"))
	n = cmp.Or(n, 25)
	if testing.Short() {
		n = 5
	}
	const parts, each = 4, 60 // per kill
	w := newWorld(t)
	if _, err := w.admin.CreateTopics(w.ctx(), parts, 1, nil, updates, updateFails); err != nil {
		t.Fatal(err)
	}
	w.inst.AddFault(fakesnow.Fault{Kind: fakesnow.FaultLatency, Table: "incident", Params: fakesnow.FaultParams{MinMS: 1, MaxMS: 25}})
	arrived := &writes{more: make(chan struct{}, 1)}
	w.inst.OnRequest(func(e fakesnow.Entry) {
		arrived.mu.Lock()
		defer arrived.mu.Unlock()
		if e.Method != "GET" {
			arrived.posts++
			select {
			case arrived.more <- struct{}{}:
			default:
			}
		}
	})
	config := w.configureSink(nil)
	rng := rand.New(rand.NewPCG(7, 7))
	produced := 0
	victims := map[string]bool{}
	for i := range n {
		var records []*kgo.Record
		id := fmt.Sprintf("%032x", i+1)
		w.inst.Insert("incident", map[string]string{"sys_id": id, "short_description": "to be deleted"})
		victims[id] = true
		for range each {
			records = append(records, &kgo.Record{
				Topic: updates, Partition: int32(produced % parts), Key: fmt.Appendf(nil, "order-%d", produced),
				Value:   fmt.Appendf(nil, `{"correlation_id":"create-%d"}`, produced),
				Headers: []kgo.RecordHeader{{Key: "snow.operation", Value: []byte("CREATE")}},
			})
			produced++
		}
		records = append(records, &kgo.Record{Topic: updates, Key: []byte(id)})
		if err := w.client.ProduceSync(w.ctx(), records...).FirstErr(); err != nil {
			t.Fatal(err)
		}
		p := w.run(config)
		for range 1 + rng.IntN(40) { // kill after some requests of this process have come
			select {
			case <-arrived.more:
			case <-p.Done():
				t.Fatal("the process ended by itself")
			case <-w.ctx().Done():
				t.Fatal("no write came")
			}
		}
		<-time.After(time.Duration(rng.IntN(15)) * time.Millisecond)
		p.Kill()
		w.neverAhead()
	}
	p := w.run(config)
	total := int64(produced + n)
	w.until("every record to be settled", func() (bool, error) {
		got, err := w.committed()
		return got == total || p.Ended(), err
	})
	p.signal(syscall.SIGTERM)
	p.exits(0)
	w.neverAhead() // now of every record: each create without a row is itself reported
	count := map[string]int{}
	for _, r := range w.inst.Rows("incident", nil) {
		count[r["correlation_id"]]++
		if victims[r["sys_id"]] {
			t.Errorf("row %s is not deleted", r["sys_id"])
		}
	}
	reports, err := harness.ReadTopic(w.ctx(), updateFails, true, w.kafka()...)
	if err != nil {
		t.Fatal(err)
	}
	ambiguous := 0
	for _, r := range reports {
		var rep struct{ Classification string }
		if err := json.Unmarshal(r.Value, &rep); err != nil {
			t.Fatal(err)
		}
		switch rep.Classification {
		case "AMBIGUOUS":
			ambiguous++
		case "RETRIES_EXHAUSTED":
		default:
			t.Errorf("a record was given up: %s", r.Value)
		}
	}
	missing := 0
	for i := range produced {
		switch c := count[fmt.Sprint("create-", i)]; {
		case c == 0:
			missing++
		case c > 1:
			t.Errorf("create %d made %d rows", i, c)
		}
	}
	t.Logf("%d kills, %d creates: %d rows missing, %d reported as ambiguous", n, produced, missing, ambiguous)
	if missing > ambiguous {
		t.Errorf("%d creates have no row, %d were reported", missing, ambiguous)
	}
	if most := n * parts; ambiguous > most {
		t.Errorf("%d creates are called ambiguous, at most %d were in flight at the kills", ambiguous, most)
	}
}

// neverAhead holds the committed offsets against the instance's rows: what lies
// before an offset is written, or reported.
func (w *world) neverAhead() {
	w.t.Helper()
	offsets, err := w.admin.FetchOffsets(w.ctx(), "connect-updates")
	if err != nil {
		w.t.Fatal(err)
	}
	have := map[string]bool{}
	for _, r := range w.inst.Rows("incident", nil) {
		have[r["correlation_id"]] = true
	}
	reported := map[string]bool{}
	reports, err := harness.ReadTopic(w.ctx(), updateFails, true, w.kafka()...)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, r := range reports {
		var rep struct {
			Source struct{ Partition, Offset int }
		}
		_ = json.Unmarshal(r.Value, &rep)
		reported[fmt.Sprint(rep.Source.Partition, "/", rep.Source.Offset)] = true
	}
	records, err := harness.ReadTopic(w.ctx(), updates, true, w.kafka()...)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, r := range records {
		o, ok := offsets.Lookup(updates, r.Partition)
		if !ok || r.Offset >= o.At || r.Value == nil {
			continue
		}
		var row struct {
			ID string `json:"correlation_id"`
		}
		_ = json.Unmarshal(r.Value, &row)
		if !have[row.ID] && !reported[fmt.Sprint(r.Partition, "/", r.Offset)] {
			w.t.Errorf("offset %d of partition %d is committed, record %d (%s) is neither written nor reported", o.At, r.Partition, r.Offset, row.ID)
		}
	}
}
