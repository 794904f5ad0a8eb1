package itest

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"snowmelt/actors/msg"
	"snowmelt/config"
	"snowmelt/itest/fakesnow"
	"snowmelt/supervisor"
)

// ends fails the test if a task that has failed goes on.
func ends(t *testing.T, p *process) {
	t.Helper()
	select {
	case <-p.Ended():
	case <-time.After(time.Hour):
		t.Errorf("an hour later the task has not ended: %+v", p.Status().Pipelines[0])
	}
	stopped(t, p)
}

// TestReportsRefused: a report topic that refuses for good stops the task; the offset stays (K4).
func TestReportsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.topics(1, input, "ok")
		w.broker.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "ok", Err: kerr.TopicAuthorizationFailed, Count: 1 << 30})
		s := w.sink("incident", input)
		s.SuccessTopic = "ok"
		p := w.runSink(t, s)
		w.produce(&kgo.Record{Topic: input, Value: []byte(`{"short_description":"a"}`)})
		ends(t, p)
		if o := w.committed("connect-updates")[input+"-0"]; o.At > 0 {
			t.Errorf("offset %d committed without its report", o.At)
		}
	})
}

// TestPanicBudget: a lane that panics over and over uses up its budget and fails the task, which ends.
func TestPanicBudget(t *testing.T) {
	for name, over := range map[string]func(any) bool{
		"deliveries": func(m any) bool { _, ok := m.(*msg.Deliver); return ok },
		"its end":    func(m any) bool { _, a := m.(*msg.Deliver); _, b := m.(*msg.EndLane); return a || b },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.topics(1, input)
				plant := func(m any) {
					if over(m) {
						panic("planted")
					}
				}
				p := must[*process](t)(w.run(config.Config{Sinks: []config.Sink{w.sink("incident", input)}}, supervisor.WithPlanted(plant)))
				for i := range 20 {
					w.produce(&kgo.Record{Topic: input, Value: fmt.Appendf(nil, `{"short_description":"%d"}`, i)})
					time.Sleep(time.Second)
				}
				ends(t, p)
			})
		})
	}
}

// TestLostMark: a mark whose news is lost in a panic is told again.
func TestLostMark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.topics(1, input)
		panics := 0
		plant := func(m any) {
			if _, ok := m.(*msg.Marked); ok && panics == 0 {
				panics++
				panic("planted")
			}
		}
		p := must[*process](t)(w.run(config.Config{Sinks: []config.Sink{w.sink("incident", input)}}, supervisor.WithPlanted(plant)))
		w.produce(&kgo.Record{Topic: input, Value: []byte(`{"short_description":"a"}`)})
		time.Sleep(10 * time.Minute)
		if n := w.inst.Count("incident"); n != 1 || panics != 1 {
			t.Errorf("%d rows after %d panics; %+v", n, panics, p.Status().Pipelines[0])
		}
		stopped(t, p)
	})
}

// TestDoubtAcrossAStop: a delete whose answer was lost stays in doubt when the
// sink is stopped during its retries: the 404 after the start is success (W3).
func TestDoubtAcrossAStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.topics(1, input)
		w.inst.Generate("incident", 1, fakesnow.GenOptions{})
		id := w.inst.Rows("incident", nil)[0]["sys_id"]
		w.inst.AddFault(fakesnow.Fault{Kind: fakesnow.FaultAppliedNoAnswer, Table: "incident", Method: "DELETE", Times: 1})
		w.inst.AddFault(fakesnow.Fault{Kind: fakesnow.FaultStatus, Table: "incident", Method: "DELETE", After: 1, Params: fakesnow.FaultParams{Status: 503}})
		p := w.runSink(t, w.sink("incident", input))
		w.produce(&kgo.Record{Topic: input, Key: []byte(id)})
		time.Sleep(3 * time.Minute)
		stopped(t, p)
		if n := w.inst.Count("incident"); n != 0 {
			t.Fatalf("%d rows: the delete was not applied", n)
		}
		w.inst.ClearFaults()
		p = w.runSink(t, w.sink("incident", input))
		time.Sleep(10 * time.Minute)
		if st := p.Status().Pipelines[0]; st.State != "RUNNING" {
			t.Errorf("%+v", st)
		}
		stopped(t, p)
		if o := w.committed("connect-updates")[input+"-0"]; o.At != 1 {
			t.Errorf("committed %+v", o)
		}
	})
}

// TestLostWhileDraining: a sink that loses its group while it stops still stops.
func TestLostWhileDraining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.topics(1, input)
		w.inst.AddFault(fakesnow.Fault{Kind: fakesnow.FaultLatency, Table: "incident", Params: fakesnow.FaultParams{MS: 25000}})
		s := w.sink("incident", input)
		s.SessionTimeout = 6 * time.Second
		p := w.runSink(t, s)
		w.produce(&kgo.Record{Topic: input, Value: []byte(`{"short_description":"a"}`)})
		time.Sleep(30 * time.Second)
		w.broker.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat}, Err: kerr.UnknownMemberID, Count: 3})
		stopped(t, p)
	})
}

// TestStateAfterALateStart: a sink that could not start at once is RUNNING once it can.
func TestStateAfterALateStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.topics(1, input)
		down := w.inst.AddFault(fakesnow.Fault{Kind: fakesnow.FaultStatus, Params: fakesnow.FaultParams{Status: 503}})
		p := w.runSink(t, w.sink("incident", input))
		time.Sleep(time.Minute)
		if st := p.Status().Pipelines[0]; st.State != "RETRYING" {
			t.Errorf("without an instance: %+v", st)
		}
		w.inst.RemoveFault(down)
		w.produce(&kgo.Record{Topic: input, Value: []byte(`{"short_description":"a"}`)})
		time.Sleep(5 * time.Minute)
		if st := p.Status().Pipelines[0]; st.State != "RUNNING" || w.inst.Count("incident") != 1 {
			t.Errorf("%d rows; %+v", w.inst.Count("incident"), st)
		}
		stopped(t, p)
	})
}
