package itest

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"snowmelt/config"
	"snowmelt/itest/fakesnow"
	"snowmelt/itest/harness"
	"snowmelt/supervisor"
)

// tables returns two tables of one source: the first is to fail, the second to go on.
func tables() []config.Table {
	return []config.Table{harness.Table("incident", topic), harness.Table("change_request", "servicenow.change_request")}
}

func child(st supervisor.Status, name string) supervisor.ChildStatus {
	for _, c := range st.Pipelines[0].Children {
		if c.Name == name {
			return c
		}
	}
	return supervisor.ChildStatus{}
}

// TestFailTable: what concerns one table stops that table only, at once, with a
// message that names table and reason; the other goes on (Invariant 7).
func TestFailTable(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(w *world, tabs []config.Table)
		say     []string
	}{
		"table ACL":   {func(w *world, _ []config.Table) { w.inst.DenyTable("snowmelt", "incident") }, []string{"403", "incident"}},
		"no table":    {func(_ *world, tabs []config.Table) { tabs[0].Name = "no_such_table" }, []string{"no_such_table"}},
		"hidden time": {func(w *world, _ []config.Table) { w.inst.HideField("snowmelt", "incident", "sys_updated_on") }, []string{"sys_updated_on", "incident"}},
		"hidden id":   {func(w *world, _ []config.Table) { w.inst.HideField("snowmelt", "incident", "sys_id") }, []string{"sys_id", "incident"}},
		"terms ignored": {func(w *world, _ []config.Table) {
			w.inst.AddFault(fakesnow.Fault{Kind: fakesnow.FaultExtraRows, Table: "incident", After: 2})
		}, []string{"below the bound", "query"}},
		"permanent refusal": {func(w *world, _ []config.Table) {
			w.inst.AddFault(fakesnow.Fault{Kind: fakesnow.FaultStatus, Table: "incident", After: 3, Params: fakesnow.FaultParams{Status: 400}})
		}, []string{"400"}},
		"topic stamped by the broker": {func(w *world, _ []config.Table) {
			w.createTopic(topic, map[string]string{"message.timestamp.type": "LogAppendTime"})
		}, []string{"LogAppendTime", topic}},
		"topic that expires": {func(w *world, _ []config.Table) {
			w.createTopic(topic, map[string]string{"retention.ms": "604800000"})
		}, []string{"retention", "snow.source.allow.expiring.topics"}},
		"row larger than the topic takes": {func(w *world, _ []config.Table) {
			w.createTopic(topic, map[string]string{"retention.ms": "-1", "max.message.bytes": "20000"})
			w.inst.Insert("incident", bigRow(w))
		}, []string{"0000000000000000000000000000b16b", "max.message.bytes"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.inst.Generate("incident", 300, fakesnow.GenOptions{})
				w.inst.Generate("change_request", 300, fakesnow.GenOptions{})
				tabs := tables()
				tabs[0].BatchSize = 100
				c.prepare(w, tabs)
				p := must[*process](t)(w.start(w.source(tabs...)))
				time.Sleep(2 * time.Minute)
				st := p.Status()
				failed, other := child(st, "incident"), child(st, "change_request")
				if failed.State != "FAILED" || other.State != "RUNNING" || st.Pipelines[0].State != "DEGRADED" {
					t.Errorf("%+v", st.Pipelines[0])
				}
				for _, part := range c.say {
					if !strings.Contains(failed.Error, part) {
						t.Errorf("%q does not say %q", failed.Error, part)
					}
				}
				w.inst.Generate("change_request", 5, fakesnow.GenOptions{Start: w.inst.Now(), OneSecond: true, Seed: 3, IDPrefix: "c"})
				time.Sleep(time.Minute)
				stopped(t, p)
				if tally := must[harness.Tally](t)(w.tally("change_request", "servicenow.change_request", nil)); !tally.OK() || tally.Rows != 305 {
					t.Errorf("the other table: %+v", tally)
				}
			})
		})
	}
}

func (w *world) createTopic(name string, settings map[string]string) {
	c, err := kgo.NewClient(w.clientOpts()...)
	if err != nil {
		panic(err)
	}
	defer c.Close()
	configs := map[string]*string{}
	for k, v := range settings {
		configs[k] = &v
	}
	if _, err := kadm.NewClient(c).CreateTopic(context.Background(), 1, 1, configs, name); err != nil {
		panic(err)
	}
}

func bigRow(w *world) map[string]string {
	return map[string]string{
		"sys_id": "0000000000000000000000000000b16b", "sys_updated_on": w.inst.Now().Add(-time.Hour).UTC().Format(fakesnow.Stamp),
		"sys_mod_count": "0", "description": strings.Repeat("x", 50_000),
	}
}

// TestSkipOversized: with bad.row.behavior=skip a row that its topic cannot take is passed over and counted.
func TestSkipOversized(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.inst.Generate("incident", 300, fakesnow.GenOptions{})
		w.createTopic(topic, map[string]string{"retention.ms": "-1", "max.message.bytes": "20000"})
		w.inst.Insert("incident", bigRow(w))
		src := w.source(tables()[0])
		src.SkipBadRows = true
		p := must[*process](t)(w.start(src))
		time.Sleep(time.Minute)
		c := child(p.Status(), "incident")
		stopped(t, p)
		tally := must[harness.Tally](t)(w.tally("incident", topic, nil))
		if tally.Missing != 1 || tally.Records != 300 || tally.Duplicates != 0 || c.State != "RUNNING" || c.Rows != 300 {
			t.Errorf("%+v %+v", tally, c)
		}
	})
}

// TestFailTask: refused credentials stop the whole pipeline after one attempt a
// table, so that the account is not locked.
func TestFailTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		src := w.source(tables()...)
		src.Instance.Password = "wrong-password"
		p := must[*process](t)(w.start(src))
		<-p.Ended()
		time.Sleep(10 * time.Minute)
		st := p.Status()
		if st.Pipelines[0].State != "FAILED" || p.Err() == nil || !strings.Contains(st.Pipelines[0].Error, "401") {
			t.Errorf("%+v, %v", st.Pipelines[0], p.Err())
		}
		if strings.Contains(st.Pipelines[0].Error, "wrong-password") {
			t.Errorf("the error shows the password: %s", st.Pipelines[0].Error)
		}
		if n := len(w.inst.Journal()); n > 2 {
			t.Errorf("%d requests with a refused credential", n)
		}
		stopped(t, p)
	})
}

// TestEveryTableFailed: a pipeline without a working table has failed.
func TestEveryTableFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.inst.DenyTable("snowmelt", "incident")
		w.inst.DenyTable("snowmelt", "change_request")
		p := must[*process](t)(w.start(w.source(tables()...)))
		<-p.Ended()
		if st := p.Status().Pipelines[0]; st.State != "FAILED" || !strings.Contains(st.Error, "every table failed") {
			t.Errorf("%+v", st)
		}
		stopped(t, p)
	})
}

// TestOutages: the instance, then the broker, are away for twenty minutes, at
// start and later: shown as RETRYING with the reason, never given up, nothing lost.
func TestOutages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.inst.Generate("incident", 300, fakesnow.GenOptions{})
		down := w.inst.AddFault(fakesnow.Fault{Kind: fakesnow.FaultResetBefore})
		tab := harness.Table("incident", topic)
		tab.BatchSize = 50
		p := must[*process](t)(w.start(w.source(tab)))
		look := func(when string) {
			time.Sleep(20 * time.Minute)
			if c := child(p.Status(), "incident"); c.State != "RETRYING" || c.Error == "" {
				t.Errorf("%s: %+v", when, c)
			}
		}
		look("no instance at start")
		w.inst.RemoveFault(down)
		time.Sleep(2 * time.Minute)
		if c := child(p.Status(), "incident"); c.State != "RUNNING" {
			t.Errorf("after the outage: %+v", c)
		}
		down = w.inst.AddFault(fakesnow.Fault{Kind: fakesnow.FaultHTML200})
		w.inst.Generate("incident", 30, fakesnow.GenOptions{Start: w.inst.Now(), OneSecond: true, Seed: 3, IDPrefix: "c"})
		look("hibernating")
		w.inst.RemoveFault(down)
		time.Sleep(2 * time.Minute)
		p.cut(true)
		w.inst.Generate("incident", 30, fakesnow.GenOptions{Start: w.inst.Now(), OneSecond: true, Seed: 4, IDPrefix: "d"})
		look("no broker")
		p.cut(false)
		time.Sleep(3 * time.Minute)
		stopped(t, p)
		if tally := must[harness.Tally](t)(w.tally("incident", topic, nil)); !tally.OK() || tally.Rows != 360 {
			t.Errorf("%+v", tally)
		}
	})
}

// TestThrottled: a Retry-After of half an hour pauses the instance until then:
// nothing spins, nothing fails, nothing is lost (rule 14).
func TestThrottled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.inst.Generate("incident", 300, fakesnow.GenOptions{})
		w.inst.AddFault(fakesnow.Fault{Kind: fakesnow.FaultStatus, Table: "incident", After: 4, Times: 1, Params: fakesnow.FaultParams{Status: 429, RetryAfter: "1742"}})
		tab := harness.Table("incident", topic)
		tab.BatchSize = 50
		p := must[*process](t)(w.start(w.source(tab)))
		time.Sleep(time.Minute)
		before := len(w.inst.Journal())
		if st := p.Status(); child(st, "incident").State != "THROTTLED" || st.Instances[0].PausedUntil == nil {
			t.Errorf("%+v", st)
		}
		time.Sleep(25 * time.Minute)
		if n := len(w.inst.Journal()) - before; n != 0 {
			t.Errorf("%d requests during the pause", n)
		}
		time.Sleep(10 * time.Minute)
		stopped(t, p)
		if tally := must[harness.Tally](t)(w.tally("incident", topic, nil)); !tally.OK() {
			t.Errorf("%+v", tally)
		}
	})
}

// TestSpoiledAnswers: answers that are cut, malformed, HTML, broken gzip, too
// large or contradict the query: nothing is emitted from them, nothing is lost.
func TestSpoiledAnswers(t *testing.T) {
	for _, kind := range []string{
		fakesnow.FaultResetBody, fakesnow.FaultTruncated, fakesnow.FaultMalformed, fakesnow.FaultHTML200, fakesnow.FaultErrorIn200,
		fakesnow.FaultMaxExecution, fakesnow.FaultBadGzip, fakesnow.FaultStallHeaders, fakesnow.FaultStallBody,
		fakesnow.FaultDuplicateRows, fakesnow.FaultReorderRows, fakesnow.FaultTouchRows, fakesnow.FaultResetAfter,
	} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.inst.Generate("incident", 400, fakesnow.GenOptions{})
				for after := range 3 {
					w.inst.AddFault(fakesnow.Fault{Kind: kind, Table: "incident", After: 3 + 4*after, Times: 1 + after%2, Params: fakesnow.FaultParams{AtByte: 5000}})
				}
				tab := harness.Table("incident", topic)
				tab.BatchSize = 50
				p := must[*process](t)(w.start(w.source(tab)))
				time.Sleep(30 * time.Minute)
				c := child(p.Status(), "incident")
				stopped(t, p)
				if tally := must[harness.Tally](t)(w.tally("incident", topic, nil)); !tally.OK() || tally.Rows != 400 {
					t.Errorf("%+v %+v", tally, c)
				}
				hits := 0
				for _, n := range w.inst.FaultCounts() {
					hits += n
				}
				if hits < 3 {
					t.Errorf("only %d faults hit", hits)
				}
			})
		})
	}
}
