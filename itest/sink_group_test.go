package itest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"snowmelt/config"
	"snowmelt/itest/fakesnow"
)

// TestSinkFailsTask: what concerns every record stops the task at once, says
// why and where, and commits nothing that is not written (W5, K4, K5).
func TestSinkFailsTask(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(w *world, s *config.Sink)
		say     []string
	}{
		"refused credentials": {func(_ *world, s *config.Sink) { s.Instance.Password = "wrong-password" }, []string{"401"}},
		"no such table":       {func(_ *world, s *config.Sink) { s.Mapping.Table = "no_such_table" }, []string{"no_such_table", "snow.sink.table"}},
		"dictionary refused":  {func(w *world, _ *config.Sink) { w.inst.DenyTable("snowmelt", "sys_dictionary") }, []string{"sys_dictionary"}},
		"dictionary incomplete": {func(w *world, _ *config.Sink) {
			w.inst.HideRows("sys_dictionary", func(id string, _ map[string]string) bool { return id[0] < '8' })
		}, []string{"passthrough", "rows"}},
		"table refused": {func(w *world, _ *config.Sink) {
			w.inst.AddFault(fakesnow.Fault{Kind: fakesnow.FaultStatus, Method: "POST", Params: fakesnow.FaultParams{Status: 403, Variant: "api_acl"}})
		}, []string{"403", "API level ACL"}},
		"input topic missing":  {func(_ *world, s *config.Sink) { s.Topics = []string{"nowhere"} }, []string{"nowhere"}},
		"report topic missing": {func(_ *world, s *config.Sink) { s.ErrorTopic = "no-reports" }, []string{"no-reports"}},
		"offset out of range": {func(w *world, s *config.Sink) {
			c, err := kgo.NewClient(w.clientOpts()...)
			if err != nil {
				panic(err)
			}
			defer c.Close()
			for range 9 {
				w.produce(&kgo.Record{Topic: input, Value: []byte(`{"short_description":"a"}`)})
			}
			var committed, kept kadm.Offsets
			committed.Add(kadm.Offset{Topic: input, Partition: 0, At: 2})
			kept.Add(kadm.Offset{Topic: input, Partition: 0, At: 5})
			admin := kadm.NewClient(c)
			if err := admin.CommitAllOffsets(context.Background(), s.Group, committed); err != nil {
				panic(err)
			}
			if _, err := admin.DeleteRecords(context.Background(), kept); err != nil {
				panic(err)
			}
		}, []string{input + "-0", "offset", "connect-updates"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.topics(1, input)
				w.produce(&kgo.Record{Topic: input, Value: []byte(`{"short_description":"a"}`)})
				s := w.sink("incident", input)
				c.prepare(w, &s)
				p := w.runSink(t, s)
				select {
				case <-p.Ended():
				case <-time.After(10 * time.Minute):
					t.Errorf("the task goes on: %+v", p.Status().Pipelines[0])
				}
				st := p.Status().Pipelines[0]
				for _, part := range c.say {
					if !strings.Contains(st.Error, part) {
						t.Errorf("%q does not say %q", st.Error, part)
					}
				}
				if st.State != "FAILED" || strings.Contains(st.Error, "wrong-password") {
					t.Errorf("%+v", st)
				}
				stopped(t, p)
				if n := w.inst.Count("incident"); n != 0 {
					t.Errorf("%d rows were written", n)
				}
			})
		})
	}
}

// TestLongOutage: twenty minutes of 503 cost no membership, no record and no
// dead letter; the sink goes on by itself (W10, K1).
func TestLongOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.topics(2, input, "errors")
		s := w.sink("incident", input)
		s.ErrorTopic, s.DeadLetterTopic = "errors", "dead"
		p := w.runSink(t, s)
		for i := range 20 {
			w.produce(&kgo.Record{Topic: input, Value: fmt.Appendf(nil, `{"short_description":"%d"}`, i)})
		}
		time.Sleep(time.Minute)
		before := w.broker.GroupInfo("connect-updates")
		down := w.inst.AddFault(fakesnow.Fault{Kind: fakesnow.FaultStatus, Table: "incident", Params: fakesnow.FaultParams{Status: 503}})
		for i := 20; i < 60; i++ {
			w.produce(&kgo.Record{Topic: input, Value: fmt.Appendf(nil, `{"short_description":"%d"}`, i)})
		}
		time.Sleep(20 * time.Minute)
		if st := p.Status().Pipelines[0]; st.State != "RETRYING" {
			t.Errorf("during the outage: %+v", st)
		}
		w.inst.RemoveFault(down)
		time.Sleep(5 * time.Minute)
		after := w.broker.GroupInfo("connect-updates")
		stopped(t, p)
		if before.Epoch != after.Epoch {
			t.Errorf("the group rebalanced: generation %d, then %d", before.Epoch, after.Epoch)
		}
		if n := w.inst.Count("incident"); n != 60 {
			t.Errorf("%d rows of 60", n)
		}
		for place, class := range w.outcomes(t, "errors") {
			if class != "RETRIES_EXHAUSTED" {
				t.Errorf("%s was given up as %s", place, class)
			}
		}
	})
}

// TestBackpressure: a slow instance pauses partitions instead of filling memory.
func TestBackpressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.topics(1, input)
		w.inst.AddFault(fakesnow.Fault{Kind: fakesnow.FaultLatency, Table: "incident", Params: fakesnow.FaultParams{MS: 500}})
		var records []*kgo.Record
		for i := range 5000 {
			records = append(records, &kgo.Record{Topic: input, Value: fmt.Appendf(nil, `{"short_description":"%d"}`, i)})
		}
		w.produce(records...)
		s := w.sink("incident", input)
		s.MaxPending = 100
		p := w.runSink(t, s)
		most := 0
		for range 100 {
			time.Sleep(10 * time.Second)
			for _, c := range p.Status().Pipelines[0].Children {
				most = max(most, c.Pending)
			}
		}
		stopped(t, p)
		if most == 0 || most > 100+2*500 { // what was fetched before the pause is still delivered
			t.Errorf("%d records waited, the bound is 100 and what one poll brings", most)
		}
	})
}
