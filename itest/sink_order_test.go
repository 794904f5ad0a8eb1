package itest

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/twmb/franz-go/pkg/kgo"

	"snowmelt/itest/fakesnow"
)

// TestOrderUnderConcurrency: with latencies and failures at random, the writes
// of a key reach the instance in the order of its records, and never more are in
// flight than snow.sink.max.in.flight.
func TestOrderUnderConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.topics(8, input)
		w.inst.Generate("incident", 40, fakesnow.GenOptions{})
		rows := w.inst.Rows("incident", nil)
		w.inst.AddFault(fakesnow.Fault{Kind: fakesnow.FaultLatency, Table: "incident", Params: fakesnow.FaultParams{MinMS: 10, MaxMS: 900}})
		w.inst.AddFault(fakesnow.Fault{Kind: fakesnow.FaultStatus, Table: "incident", Probability: 0.1, Params: fakesnow.FaultParams{Status: 503}})
		w.inst.AddFault(fakesnow.Fault{Kind: fakesnow.FaultResetBefore, Table: "incident", Probability: 0.05})
		var records []*kgo.Record
		for i := range 400 {
			records = append(records, &kgo.Record{Topic: input, Key: []byte(rows[i*7%40]["sys_id"]), Value: fmt.Appendf(nil, `{"short_description":"%04d"}`, i)})
		}
		w.produce(records...)
		s := w.sink("incident", input)
		s.MaxInFlight = 3
		p := w.runSink(t, s)
		time.Sleep(30 * time.Minute)
		stopped(t, p)
		last := map[string]string{}
		writes := 0
		for _, e := range w.inst.Journal() {
			if e.Method != "PATCH" || e.Body == "" { // reset before it was read
				continue
			}
			var body struct {
				Text string `json:"short_description"`
			}
			if err := json.Unmarshal([]byte(e.Body), &body); err != nil {
				t.Fatal(err)
			}
			writes++
			if body.Text < last[e.SysID] {
				t.Errorf("%s was written to %s after %s", body.Text, e.SysID, last[e.SysID])
			}
			last[e.SysID] = body.Text
		}
		if writes < len(records) || len(last) != 40 {
			t.Errorf("%d writes of %d rows in the journal", writes, len(last))
		}
		if high := w.inst.InFlightHighWater("snowmelt"); high > 3 || high < 2 {
			t.Errorf("%d requests were in flight at once, the bound is 3", high)
		}
	})
}

// TestEventLogThroughTheSink: the whole log of a real instance, taken as updates
// into an empty one, ends with exactly its final rows.
func TestEventLogThroughTheSink(t *testing.T) {
	if raceEnabled || testing.Short() {
		t.Skip("141,712 writes take too long under the race detector")
	}
	f, err := os.Open(filepath.Join("..", "..", "shared", "data", "uci498_incident_event_log_full.csv.gz"))
	if err != nil {
		t.Skip("the event log is not beside this checkout: ", err)
	}
	t.Parallel()
	defer f.Close()
	z := must[*gzip.Reader](t)(gzip.NewReader(f))
	rows := must[[][]string](t)(csv.NewReader(z).ReadAll())
	columns := map[string]int{}
	for i, name := range rows[0] {
		columns[name] = i
	}
	fields := []string{"number", "incident_state", "impact", "urgency", "priority", "category", "subcategory", "reassignment_count", "contact_type"}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.topics(16, input)
		final := map[string]map[string]string{}
		var batch []*kgo.Record
		for i, row := range rows[1:] {
			number := row[columns["number"]]
			id := fmt.Sprintf("%032x", strings.TrimPrefix(number, "INC"))
			id = id[len(id)-32:]
			values := map[string]string{}
			for _, name := range fields {
				if values[name] = row[columns[name]]; values[name] == "?" {
					values[name] = ""
				}
			}
			final[id] = values
			body, _ := json.Marshal(values)
			batch = append(batch, &kgo.Record{Topic: input, Key: []byte(id), Value: body})
			if len(batch) == 10000 || i == len(rows)-2 {
				w.produce(batch...)
				batch = nil
			}
		}
		s := w.sink("incident", input)
		s.NotFound, s.Mapping.Unknown = "create", "passthrough"
		p := w.runSink(t, s)
		done := func() (n int64) {
			for _, o := range w.committed("connect-updates") {
				n += o.At
			}
			return n
		}
		for range 2000 {
			if time.Sleep(10 * time.Second); done() == int64(len(rows)-1) {
				break
			}
		}
		stopped(t, p)
		if n := done(); n != int64(len(rows)-1) {
			t.Fatalf("%d of %d committed; %+v", n, len(rows)-1, p.Status().Pipelines)
		}
		if n := w.inst.Count("incident"); n != len(final) || n != 24918 {
			t.Errorf("%d rows, want %d", n, len(final))
		}
		wrong := 0
		for id, want := range final {
			got, ok := w.inst.Get("incident", id)
			for _, name := range fields {
				if v, known := got[name]; !ok || known && v != want[name] {
					if wrong++; wrong < 5 {
						t.Errorf("row %s: %s is %q, want %q", id, name, v, want[name])
					}
				}
			}
		}
	})
}
