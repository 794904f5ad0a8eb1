package itest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"snowmelt/actors/msg"
	"snowmelt/config"
	"snowmelt/itest/fakesnow"
	"snowmelt/itest/harness"
	"snowmelt/supervisor"
)

const input = "incident-updates"

// produce puts records into a topic, each key into the partition of its hash.
func (w *world) produce(records ...*kgo.Record) {
	c, err := kgo.NewClient(w.clientOpts()...)
	if err != nil {
		panic(err)
	}
	defer c.Close()
	if err := c.ProduceSync(context.Background(), records...).FirstErr(); err != nil {
		panic(err)
	}
}

func (w *world) topics(partitions int32, names ...string) {
	c, err := kgo.NewClient(w.clientOpts()...)
	if err != nil {
		panic(err)
	}
	defer c.Close()
	if _, err := kadm.NewClient(c).CreateTopics(context.Background(), partitions, 1, nil, names...); err != nil {
		panic(err)
	}
}

func (w *world) committed(group string) map[string]kadm.Offset {
	c, err := kgo.NewClient(w.clientOpts()...)
	if err != nil {
		panic(err)
	}
	defer c.Close()
	offsets, err := kadm.NewClient(c).FetchOffsets(context.Background(), group)
	if err != nil {
		panic(err)
	}
	out := map[string]kadm.Offset{}
	offsets.Each(func(o kadm.OffsetResponse) { out[fmt.Sprintf("%s-%d", o.Topic, o.Partition)] = o.Offset })
	return out
}

func (w *world) runSink(t *testing.T, s config.Sink) *process {
	t.Helper()
	return must[*process](t)(w.run(config.Config{Sinks: []config.Sink{s}}))
}

// TestSinkWrites: creates, updates and deletes arrive, in order per key, and the offsets follow.
func TestSinkWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.topics(3, input)
		w.inst.Generate("incident", 20, fakesnow.GenOptions{})
		var ids []string
		for _, r := range w.inst.Rows("incident", nil) {
			ids = append(ids, r["sys_id"])
		}
		p := w.runSink(t, w.sink("incident", input))
		var records []*kgo.Record
		for round := range 5 {
			for i, id := range ids {
				records = append(records, &kgo.Record{Topic: input, Key: []byte(id), Value: fmt.Appendf(nil, `{"short_description":"round %d of %d","urgency":"%d"}`, round, i, round%3+1)})
			}
		}
		for i := range 10 {
			records = append(records, &kgo.Record{Topic: input, Value: fmt.Appendf(nil, `{"short_description":"new %d"}`, i)})
		}
		records = append(records, &kgo.Record{Topic: input, Key: []byte(ids[0])}, &kgo.Record{Topic: input, Key: []byte(ids[1])})
		w.produce(records...)
		time.Sleep(time.Minute)
		st := p.Status()
		stopped(t, p)
		if n := w.inst.Count("incident"); n != 28 {
			t.Errorf("%d rows, want 20 + 10 - 2; %+v", n, st)
		}
		for i, id := range ids[2:] {
			r, _ := w.inst.Get("incident", id)
			if want := fmt.Sprintf("round 4 of %d", i+2); r["short_description"] != want {
				t.Errorf("row %d says %q, want %q", i+2, r["short_description"], want)
			}
		}
		total := int64(0)
		for part, o := range w.committed("connect-updates") {
			total += o.At
			if want := fmt.Sprintf(`{"v":1,"mark":%d}`, o.At); o.Metadata != want {
				t.Errorf("%s was left with %s, want %s", part, o.Metadata, want)
			}
		}
		if total != int64(len(records)) {
			t.Errorf("%d offsets committed of %d records", total, len(records))
		}
	})
}

// outcomes reads a report topic: classification by source offset, "" for successes.
func (w *world) outcomes(t *testing.T, topic string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, r := range must[[]harness.Record](t)(harness.ReadTopic(t.Context(), topic, true, w.clientOpts()...)) {
		var rep struct {
			Classification string
			Source         struct {
				Topic     string
				Partition int
				Offset    int
			}
		}
		if err := json.Unmarshal(r.Value, &rep); err != nil {
			t.Fatal(err)
		}
		out[fmt.Sprintf("%d/%d", rep.Source.Partition, rep.Source.Offset)] = rep.Classification
	}
	return out
}

// TestRecordErrors: each bad record is offered to every path and passed over
// under log; the good ones between them are written; successes are reported.
func TestRecordErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.topics(1, input, "ok", "errors")
		w.inst.Generate("incident", 3, fakesnow.GenOptions{})
		id := w.inst.Rows("incident", nil)[0]["sys_id"]
		nobody := "00000000000000000000000000000bad"
		w.produce(
			&kgo.Record{Topic: input, Value: []byte(`[1]`)},
			&kgo.Record{Topic: input, Value: []byte(`{"short_description":"a"}`)},
			&kgo.Record{Topic: input, Value: []byte(``)},
			&kgo.Record{Topic: input, Value: []byte(`null`)},
			&kgo.Record{Topic: input, Key: []byte("order-42"), Value: []byte(`{}`)},
			&kgo.Record{Topic: input, Value: []byte(`{"no_such_field":1}`)},
			&kgo.Record{Topic: input, Key: []byte(nobody), Value: []byte(`{"urgency":"1"}`)},
			&kgo.Record{Topic: input, Key: []byte(id), Value: []byte(`{"urgency":"1"}`)},
			&kgo.Record{Topic: input, Key: []byte(nobody)},
		)
		s := w.sink("incident", input)
		s.OnErrors, s.SuccessTopic, s.ErrorTopic, s.DeadLetterTopic, s.ContextHeaders = "log", "ok", "errors", "dead", true
		p := w.runSink(t, s)
		time.Sleep(time.Minute)
		if st := p.Status().Pipelines[0]; st.State != "RUNNING" {
			t.Errorf("%+v", st)
		}
		stopped(t, p)
		want := map[string]string{
			"0/0": "RECORD_ERROR", "0/2": "RECORD_ERROR", "0/3": "RECORD_ERROR", "0/4": "RECORD_ERROR", "0/5": "RECORD_ERROR", "0/6": "NOT_FOUND", "0/8": "NOT_FOUND",
		}
		if got := w.outcomes(t, "errors"); !maps.Equal(got, want) {
			t.Errorf("errors %v, want %v", got, want)
		}
		if got := w.outcomes(t, "ok"); !maps.Equal(got, map[string]string{"0/1": "", "0/7": ""}) {
			t.Errorf("successes %v", got)
		}
		dead := must[[]harness.Record](t)(harness.ReadTopic(t.Context(), "dead", true, w.clientOpts()...))
		if len(dead) != len(want) || string(dead[0].Value) != `[1]` || dead[0].Headers["__connect.errors.offset"] != "0" || dead[0].Headers["__connect.errors.topic"] != input {
			t.Errorf("dead letters %+v", dead)
		}
		if at := w.committed("connect-updates")[input+"-0"].At; at != 9 {
			t.Errorf("committed %d", at)
		}
	})
}

// TestRecordErrorStopsTheTask: under behavior.on.api.errors=fail the record is
// named, not committed, and met again after a restart.
func TestRecordErrorStopsTheTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.topics(1, input)
		w.produce(&kgo.Record{Topic: input, Value: []byte(`{"short_description":"a"}`)}, &kgo.Record{Topic: input, Value: []byte(`[1]`)})
		for range 2 {
			p := w.runSink(t, w.sink("incident", input))
			<-p.Ended()
			if st := p.Status().Pipelines[0]; st.State != "FAILED" || !strings.Contains(st.Error, input+"-0@1") {
				t.Errorf("%+v", st)
			}
			stopped(t, p)
			if o := w.committed("connect-updates")[input+"-0"]; o.At != 1 {
				t.Errorf("committed %+v", o)
			}
		}
		if n := w.inst.Count("incident"); n != 1 {
			t.Errorf("%d rows", n)
		}
	})
}

// TestWritesUnderFaults: whatever happens to requests, updates end as the last
// record says and deletes are done; creates are never doubled, and every one
// that is possibly applied is reported (W1, W3, W10).
func TestWritesUnderFaults(t *testing.T) {
	for _, f := range []fakesnow.Fault{
		{Kind: fakesnow.FaultStatus, Params: fakesnow.FaultParams{Status: 503}},
		{Kind: fakesnow.FaultStatus, Params: fakesnow.FaultParams{Status: 429, RetryAfter: "30"}},
		{Kind: fakesnow.FaultStatus, Params: fakesnow.FaultParams{Status: 500}},
		{Kind: fakesnow.FaultStatus, Params: fakesnow.FaultParams{Status: 502, Applied: true}},
		{Kind: fakesnow.FaultResetBefore},
		{Kind: fakesnow.FaultResetAfter},
		{Kind: fakesnow.FaultAppliedNoAnswer},
		{Kind: fakesnow.FaultHTML200},
		{Kind: fakesnow.FaultStallHeaders},
		{Kind: fakesnow.FaultTruncated},
		{Kind: fakesnow.FaultResetBody, Params: fakesnow.FaultParams{AtByte: 5}},
	} {
		t.Run(fmt.Sprint(f.Kind, f.Params.Status), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.topics(2, input, "errors")
				w.inst.Generate("incident", 10, fakesnow.GenOptions{})
				rows := w.inst.Rows("incident", nil)
				var records []*kgo.Record
				for i := range 30 {
					records = append(records,
						&kgo.Record{Topic: input, Key: []byte(rows[i%8]["sys_id"]), Value: fmt.Appendf(nil, `{"short_description":"v%d"}`, i)},
						&kgo.Record{Topic: input, Value: fmt.Appendf(nil, `{"short_description":"new %d"}`, i)})
				}
				records = append(records, &kgo.Record{Topic: input, Key: []byte(rows[8]["sys_id"])}, &kgo.Record{Topic: input, Key: []byte(rows[9]["sys_id"])})
				f.Table, f.Probability = "incident", 0.25
				w.inst.AddFault(f)
				s := w.sink("incident", input)
				s.OnErrors, s.ErrorTopic = "log", "errors"
				p := w.runSink(t, s)
				w.produce(records...)
				time.Sleep(40 * time.Minute)
				w.inst.ClearFaults()
				time.Sleep(10 * time.Minute)
				st := p.Status()
				stopped(t, p)
				ambiguous := 0
				for _, class := range w.outcomes(t, "errors") {
					switch class {
					case "AMBIGUOUS":
						ambiguous++
					case "RETRIES_EXHAUSTED":
					default:
						t.Errorf("a record was given up as %s", class)
					}
				}
				count := map[string]int{}
				for _, r := range w.inst.Rows("incident", nil) {
					count[r["short_description"]]++
				}
				created := 0
				for i := range 30 {
					n := count[fmt.Sprint("new ", i)]
					if created += n; n > 1 {
						t.Errorf("create %d made %d rows", i, n)
					}
				}
				if created+ambiguous < 30 {
					t.Errorf("%d rows created, %d reported as ambiguous, of 30; %+v", created, ambiguous, st.Pipelines)
				}
				for i := 22; i < 30; i++ {
					if r, _ := w.inst.Get("incident", rows[i%8]["sys_id"]); r["short_description"] != fmt.Sprint("v", i) {
						t.Errorf("row %d says %q", i%8, r["short_description"])
					}
				}
				for _, gone := range rows[8:] {
					if _, ok := w.inst.Get("incident", gone["sys_id"]); ok {
						t.Errorf("%s is not deleted", gone["sys_id"])
					}
				}
				total := int64(0)
				for _, o := range w.committed("connect-updates") {
					total += o.At
				}
				if total != int64(len(records)) {
					t.Errorf("%d of %d committed; %+v", total, len(records), st.Pipelines)
				}
			})
		})
	}
}

// TestPlantedPanic: a lane that panics with a POST in flight takes over its outcome; there is no second row.
func TestPlantedPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.topics(1, input)
		w.inst.AddFault(fakesnow.Fault{Kind: fakesnow.FaultLatency, Table: "incident", Method: "POST", Params: fakesnow.FaultParams{MS: 20000}})
		panics := 0
		plant := func(m any) {
			_, delivered := m.(*msg.Deliver)
			_, wrote := m.(*msg.Wrote)
			if (delivered && panics == 0 || wrote && panics == 1) && w.inst.InFlightHighWater("snowmelt") > 0 && panics < 2 {
				panics++
				panic("planted")
			}
		}
		cfg := config.Config{Sinks: []config.Sink{w.sink("incident", input)}}
		p := must[*process](t)(w.run(cfg, supervisor.WithPlanted(plant)))
		for i := range 6 {
			w.produce(&kgo.Record{Topic: input, Value: fmt.Appendf(nil, `{"short_description":"new %d"}`, i)})
			time.Sleep(7 * time.Second)
		}
		time.Sleep(5 * time.Minute)
		st := p.Status()
		stopped(t, p)
		count := map[string]int{}
		for _, r := range w.inst.Rows("incident", nil) {
			count[r["short_description"]]++
		}
		for what, n := range count {
			if n != 1 {
				t.Errorf("%q stands %d times", what, n)
			}
		}
		if panics != 2 || count["new 0"] != 1 {
			t.Errorf("%d panics, %v, %+v", panics, count, st.Pipelines)
		}
	})
}

// TestReportsBeforeOffsets: while the report topic refuses, no offset moves (K4, Invariant 2).
func TestReportsBeforeOffsets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.topics(1, input, "ok")
		fault := w.broker.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "ok", Err: kerr.NotLeaderForPartition, Count: 1 << 30})
		s := w.sink("incident", input)
		s.SuccessTopic = "ok"
		p := w.runSink(t, s)
		w.produce(&kgo.Record{Topic: input, Value: []byte(`{"short_description":"a"}`)}, &kgo.Record{Topic: input, Value: []byte(`{"short_description":"b"}`)})
		time.Sleep(10 * time.Minute)
		if o := w.committed("connect-updates")[input+"-0"]; o.At > 0 {
			t.Errorf("offset %d committed without its report", o.At)
		}
		fault.Remove()
		time.Sleep(5 * time.Minute)
		stopped(t, p)
		if o := w.committed("connect-updates")[input+"-0"]; o.At != 2 || w.inst.Count("incident") != 2 {
			t.Errorf("committed %+v, %d rows", o, w.inst.Count("incident"))
		}
	})
}
