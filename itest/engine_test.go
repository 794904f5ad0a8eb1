package itest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"snowmelt/itest/fakesnow"
	"snowmelt/itest/harness"
)

func stopped(t *testing.T, p *process) {
	t.Helper()
	if err := p.stop(); err != nil {
		t.Error(err)
	}
}

// TestBackfillThenStream reads a table, then follows its changes.
func TestBackfillThenStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.inst.Generate("incident", 2000, fakesnow.GenOptions{})
		tab := harness.Table("incident", topic)
		tab.BatchSize = 300
		e := must[*process](t)(w.start(w.source(tab)))
		time.Sleep(20 * time.Second)
		w.inst.Generate("incident", 50, fakesnow.GenOptions{Start: w.inst.Now(), OneSecond: true, Seed: 2, IDPrefix: "b"})
		time.Sleep(time.Minute)
		st := e.Status()
		stopped(t, e)
		tally := must[harness.Tally](t)(w.tally("incident", topic, nil))
		if !tally.OK() || tally.Rows != 2050 {
			t.Errorf("%+v\n%+v", tally, st)
		}
	})
}

// TestHiddenRows: 60 % of the rows are hidden by an ACL, in runs longer than a
// page and inside one second too; every visible row arrives, and an idle table
// costs one request per poll.
func TestHiddenRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.inst.Generate("incident", 3000, fakesnow.GenOptions{})
		w.inst.Generate("incident", 2000, fakesnow.GenOptions{Start: w.inst.Now().Add(-time.Hour), OneSecond: true, Seed: 2, IDPrefix: "b"})
		hidden := map[string]bool{}
		for i, r := range w.inst.Rows("incident", nil) {
			if i%1000 < 600 { // runs of 600 in the order of ids
				hidden[r["sys_id"]] = true
			}
		}
		w.inst.HideRows("incident", func(id string, _ map[string]string) bool { return hidden[id] })
		tab := harness.Table("incident", topic)
		tab.BatchSize = 100
		e := must[*process](t)(w.start(w.source(tab)))
		time.Sleep(5 * time.Minute)
		before := w.inst.Journal()
		time.Sleep(100 * time.Second)
		requests := len(w.inst.Journal()) - len(before)
		stopped(t, e)
		if tally := must[harness.Tally](t)(w.tally("incident", topic, func(id string) bool { return hidden[id] })); !tally.OK() || tally.Records != 5000-len(hidden) {
			t.Errorf("%+v, %d hidden", tally, len(hidden))
		}
		if requests > 21 { // both ends of the window may hold one
			t.Errorf("an idle table cost %d requests in 20 poll intervals", requests)
		}
	})
}

// TestOneSecond: more rows in one second than a page holds, with a restart after every page that is published.
func TestOneSecond(t *testing.T) {
	for _, rows := range []int{12_000, 100_000} {
		if rows > 50_000 && raceEnabled {
			continue // the same code with more rows
		}
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.inst.Generate("incident", rows, fakesnow.GenOptions{Start: w.inst.Now().Add(-time.Hour), OneSecond: true, MinimalFields: true})
			committed := make(chan struct{}, 1000)
			w.broker.ControlKey(int16(kmsg.EndTxn), func(kmsg.Request) (kmsg.Response, error, bool) {
				w.broker.KeepControl()
				committed <- struct{}{}
				return nil, nil, false
			})
			restarts := 0
			for quiet := false; !quiet; restarts++ {
				e := must[*process](t)(w.start(w.source(harness.Table("incident", topic))))
				select {
				case <-committed:
				case <-time.After(time.Minute):
					quiet = true
				}
				stopped(t, e)
			}
			if tally := must[harness.Tally](t)(w.tally("incident", topic, nil)); !tally.OK() || tally.Records != rows {
				t.Errorf("%+v", tally)
			}
			if restarts < rows/5000/2 {
				t.Errorf("only %d restarts for %d rows", restarts, rows)
			}
		})
	}
}

// TestLateRows: rows that become visible up to 55 s after their timestamp, in
// backfill and in stream, across restarts.
func TestLateRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.inst.Generate("incident", 500, fakesnow.GenOptions{})
		tab := harness.Table("incident", topic)
		tab.BatchSize = 50
		e := must[*process](t)(w.start(w.source(tab)))
		for i := range 40 {
			time.Sleep(7 * time.Second)
			age := time.Duration(i*13%56) * time.Second
			w.inst.Generate("incident", 3, fakesnow.GenOptions{Start: w.inst.Now().Add(-age), OneSecond: true, Seed: int64(i + 10), IDPrefix: string(rune('a' + i%6))})
			if i%8 == 7 {
				stopped(t, e)
				e = must[*process](t)(w.start(w.source(tab)))
			}
		}
		time.Sleep(2 * time.Minute)
		stopped(t, e)
		if tally := must[harness.Tally](t)(w.tally("incident", topic, nil)); !tally.OK() || tally.Records != 620 {
			t.Errorf("%+v", tally)
		}
	})
}
