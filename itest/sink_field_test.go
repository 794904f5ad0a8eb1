package itest

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"snowmelt/itest/fakesnow"
)

// TestRefusedRecords: a 403 of a business rule, a data policy or a row ACL, and a
// unique key violation concern one record: it is reported, the others are written (W5).
func TestRefusedRecords(t *testing.T) {
	for variant, want := range map[string]string{
		"business_rule": "PERMISSION", "data_policy": "PERMISSION", "acl_insert": "PERMISSION",
	} {
		t.Run(variant, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.topics(1, input, "errors")
				w.inst.AddFault(fakesnow.Fault{
					Kind: fakesnow.FaultStatus, Method: "POST", Contains: "refuse me", Params: fakesnow.FaultParams{Status: 403, Variant: variant},
				})
				s := w.sink("incident", input)
				s.OnErrors, s.ErrorTopic = "log", "errors"
				p := w.runSink(t, s)
				for _, text := range []string{"a", "refuse me", "b"} {
					w.produce(&kgo.Record{Topic: input, Value: fmt.Appendf(nil, `{"short_description":%q}`, text)})
				}
				time.Sleep(time.Minute)
				stopped(t, p)
				if got := w.outcomes(t, "errors"); len(got) != 1 || got["0/1"] != want {
					t.Errorf("%v, want %s for record 1", got, want)
				}
				if n := w.inst.Count("incident"); n != 2 {
					t.Errorf("%d rows", n)
				}
			})
		})
	}
}

// TestOneRecordAlwaysFails: a record that is answered 500 for ever blocks its
// partition and no other; it is never dropped, and reported once an episode (W11).
func TestOneRecordAlwaysFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.topics(2, input, "errors")
		poison := w.inst.AddFault(fakesnow.Fault{Kind: fakesnow.FaultStatus, Method: "POST", Contains: "poison", Params: fakesnow.FaultParams{Status: 500}})
		s := w.sink("incident", input)
		s.OnErrors, s.ErrorTopic = "log", "errors"
		p := w.runSink(t, s)
		c := must[*kgo.Client](t)(kgo.NewClient(append(w.clientOpts(), kgo.RecordPartitioner(kgo.ManualPartitioner()))...))
		defer c.Close()
		for i, text := range []string{"poison", "behind it", "elsewhere", "there too"} {
			r := &kgo.Record{Topic: input, Partition: int32(i / 2), Value: fmt.Appendf(nil, `{"short_description":%q}`, text)}
			if err := c.ProduceSync(t.Context(), r).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(30 * time.Minute)
		if n := w.inst.Count("incident"); n != 2 {
			t.Errorf("%d rows while the record fails, want those of the other partition", n)
		}
		if o := w.committed("connect-updates"); o[input+"-0"].At != 0 || o[input+"-1"].At != 2 {
			t.Errorf("committed %+v", o)
		}
		if got := w.outcomes(t, "errors"); got["0/0"] != "RETRIES_EXHAUSTED" || len(got) != 1 {
			t.Errorf("reports %v", got)
		}
		if st := p.Status().Pipelines[0]; st.State != "RETRYING" {
			t.Errorf("%+v", st)
		}
		w.inst.RemoveFault(poison)
		time.Sleep(5 * time.Minute)
		stopped(t, p)
		if n := w.inst.Count("incident"); n != 4 {
			t.Errorf("%d rows of 4 after it is mended", n)
		}
	})
}

// TestInputIsReadCommitted: compressed and transactional input is read, what was aborted is not (K6).
func TestInputIsReadCommitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.topics(1, input)
		c := must[*kgo.Client](t)(kgo.NewClient(append(w.clientOpts(), kgo.TransactionalID("upstream"), kgo.ProducerBatchCompression(kgo.ZstdCompression()))...))
		defer c.Close()
		for i, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort, kgo.TryCommit} {
			if err := c.BeginTransaction(); err != nil {
				t.Fatal(err)
			}
			c.ProduceSync(t.Context(), &kgo.Record{Topic: input, Value: fmt.Appendf(nil, `{"short_description":"%d"}`, i)})
			if err := c.EndTransaction(t.Context(), end); err != nil {
				t.Fatal(err)
			}
		}
		p := w.runSink(t, w.sink("incident", input))
		time.Sleep(time.Minute)
		stopped(t, p)
		var got []string
		for _, r := range w.inst.Rows("incident", nil) {
			got = append(got, r["short_description"])
		}
		if len(got) != 2 || got[0] == "1" || got[1] == "1" {
			t.Errorf("rows %v, want those of the committed transactions", got)
		}
		if o := w.committed("connect-updates")[input+"-0"]; o.At < 5 {
			t.Errorf("committed %+v", o)
		}
	})
}

// TestThrottledStart: a 429 at the dictionary pauses the whole instance for as
// long as it asks; the sink starts by itself afterwards (R10).
func TestThrottledStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.topics(1, input)
		w.inst.AddFault(fakesnow.Fault{Kind: fakesnow.FaultStatus, Times: 1, Params: fakesnow.FaultParams{Status: 429, RetryAfter: "1742"}})
		p := w.runSink(t, w.sink("incident", input))
		w.produce(&kgo.Record{Topic: input, Value: []byte(`{"short_description":"a"}`)})
		time.Sleep(28 * time.Minute)
		if n := len(w.inst.Journal()); n != 1 {
			t.Errorf("%d requests within the pause", n)
		}
		time.Sleep(5 * time.Minute)
		stopped(t, p)
		if n := w.inst.Count("incident"); n != 1 {
			t.Errorf("%d rows after the pause", n)
		}
	})
}
