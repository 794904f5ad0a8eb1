package cursor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"snowmelt/core/record"
)

// table is an instance's table as these tests see it: just enough of the Table
// API to answer the queries that a Sweep builds.
type table struct {
	rows     map[string]*tableRow
	now      Timestamp
	requests []Request
	fold     bool // ids collate case-insensitively
}

type tableRow struct {
	id      string
	ts      Timestamp
	mod     int
	hidden  bool
	visible Timestamp // committed at; invisible before
}

func (t *table) collate(a, b string) int {
	if t.fold {
		a, b = strings.ToLower(a), strings.ToLower(b)
	}
	return strings.Compare(a, b)
}

func (t *table) matches(r *tableRow, terms []string) bool {
	for _, term := range terms {
		var ok bool
		switch {
		case strings.HasPrefix(term, "ts>"):
			ok = r.ts.String() > term[3:]
		case strings.HasPrefix(term, "ts<="):
			ok = r.ts.String() <= term[4:]
		case strings.HasPrefix(term, "ts="):
			ok = r.ts.String() == term[3:]
		case strings.HasPrefix(term, "id>"):
			ok = t.collate(r.id, term[3:]) > 0
		case strings.HasPrefix(term, "id<="):
			ok = t.collate(r.id, term[4:]) <= 0
		case strings.HasPrefix(term, "idIN"):
			ok = slices.Contains(strings.Split(term[4:], ","), r.id)
		case strings.HasPrefix(term, "ORDERBY"):
			ok = true
		default:
			panic("unknown term " + term)
		}
		if !ok {
			return false
		}
	}
	return true
}

func (t *table) answer(r Request) Page {
	t.requests = append(t.requests, r)
	terms := strings.Split(r.Query, "^")
	var found []*tableRow
	for _, row := range t.rows {
		if row.visible <= t.now && t.matches(row, terms) {
			found = append(found, row)
		}
	}
	slices.SortFunc(found, func(a, b *tableRow) int {
		if strings.Contains(r.Query, "ORDERBYts") && a.ts != b.ts {
			return cmp.Compare(a.ts, b.ts)
		}
		return t.collate(a.id, b.id)
	})
	p := Page{Total: -1, Date: t.now.Time(), Received: t.now.Time()}
	if r.Count {
		p.Total = len(found)
	}
	for _, row := range found[:min(len(found), r.Limit)] {
		if !row.hidden {
			p.Rows = append(p.Rows, record.Row{
				Raw: []byte("{}"), SysID: row.id, Timestamp: row.ts.String(), ModCount: fmt.Sprint(row.mod),
			})
		}
	}
	return p
}

var t0 = func() Timestamp { t, _ := ParseTimestamp("2024-03-01 00:00:00"); return t }()

func settings(limit int) Settings {
	return Settings{
		Table: "incident", TimestampField: "ts", IDField: "id", Limit: limit, Start: 0, Overlap: 2, SafetyLag: 1,
		LateWindow: 60, LateInterval: 30 * time.Second, PollInterval: 5 * time.Second, Prove: true, Window: 50000,
	}
}

// world runs a Sweep against a table and keeps what was published.
type world struct {
	t       *rapid.T
	tab     *table
	set     Settings
	sweep   *Sweep
	durable Durable
	found   bool
	log     []Version
	queued  []Draft
}

func (w *world) restart() {
	f := NewFilter()
	h := None
	if w.found {
		h = w.set.Horizon(w.durable)
	}
	for _, v := range w.log {
		if v.Time > h {
			f.Add(v)
		}
	}
	w.queued = nil
	w.sweep = NewSweep(w.set, w.durable, w.found, f)
	w.sweep.Observe(w.tab.now.Time(), w.tab.now.Time())
}

func (w *world) publish() {
	d := w.queued[0]
	w.queued = w.queued[1:]
	for _, r := range d.Rows {
		w.log = append(w.log, r.Version)
	}
	if len(d.Rows) > 0 {
		w.durable, w.found = d.State, true
	}
	w.sweep.Published(d.Seq)
}

// step does one request, or lets the clock run to the next poll. It returns true when the sweep is idle.
func (w *world) step() bool {
	st := w.sweep.Next(w.tab.now.Time())
	if st.Request == nil {
		w.tab.now = max(w.tab.now+1, TimestampOf(st.Until))
		return true
	}
	d, err := w.sweep.Read(w.tab.answer(*st.Request), w.tab.now.Time())
	if err != nil {
		w.t.Fatalf("reading: %v", err)
	}
	w.queued = append(w.queued, d)
	return false
}

func hexID(n int) string { return fmt.Sprintf("%032x", uint64(n)*0x9E3779B97F4A7C15) }

// TestSweepDeliversEveryVersionOnce is the model of rules 1, 5, 10 and 11:
// whatever is hidden, late, updated, dropped or restarted, each row version that
// stays is published, and none is published twice.
func TestSweepDeliversEveryVersionOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 7).Draw(t, "limit")
		tab := &table{rows: map[string]*tableRow{}, now: t0}
		w := &world{t: t, tab: tab, set: settings(limit)}
		if rapid.Bool().Draw(t, "noOverlap") {
			w.set.Overlap = 0
		}
		hiddenShare := rapid.SampledFrom([]int{0, 3, 9}).Draw(t, "hidden")
		hex := rapid.Bool().Draw(t, "hex")
		tab.fold = !hex
		next := 0
		insert := func(ts, visible Timestamp) {
			next++
			id := hexID(next)
			if !hex {
				id = fmt.Sprintf("%c-%d", "aBcD"[next%4], next)
			}
			hidden := rapid.IntRange(0, 10).Draw(t, "h") < hiddenShare
			tab.rows[id] = &tableRow{id: id, ts: ts, mod: 0, hidden: hidden, visible: visible}
		}
		for range rapid.IntRange(0, 40).Draw(t, "old") {
			ts := t0 - Timestamp(rapid.SampledFrom([]int{1, 2, 3, 10, 3600, 86400 * 300}).Draw(t, "age"))
			insert(ts, ts)
		}
		w.restart()
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			switch rapid.IntRange(0, 11).Draw(t, "do") {
			case 0:
				insert(tab.now, tab.now)
			case 1: // commits late
				insert(tab.now, tab.now+Timestamp(rapid.IntRange(1, 55).Draw(t, "late")))
			case 2: // an update
				for _, id := range slices.Sorted(mapsKeys(tab.rows)) {
					r := tab.rows[id]
					if r.visible <= tab.now && rapid.IntRange(0, 3).Draw(t, "u") == 0 {
						r.mod++
						r.ts = tab.now
						break
					}
				}
			case 3:
				tab.now += Timestamp(rapid.IntRange(0, 20).Draw(t, "wait"))
			case 4:
				w.sweep.Dropped()
				w.queued = nil
			case 5:
				w.restart()
			case 6, 7:
				if len(w.queued) > 0 {
					w.publish()
				}
			default:
				if len(w.queued) < 2 {
					w.step()
				}
			}
		}
		// Quiet: everything that is there must arrive within the late window and a few polls.
		end := tab.now + 200
		for n := 0; tab.now < end; n++ {
			if n > 20000 {
				t.Fatalf("no progress: %v of %v, last request %+v", tab.now, end, tab.requests[len(tab.requests)-1])
			}
			w.step()
			for len(w.queued) > 0 {
				w.publish()
			}
		}
		seen := map[Version]int{}
		for _, v := range w.log {
			if seen[v]++; seen[v] > 1 {
				t.Fatalf("version %v published twice", v)
			}
		}
		for _, r := range tab.rows {
			v := Version{Time: r.ts, SysID: r.id, Mod: fmt.Sprint(r.mod)}
			if r.hidden && seen[v] > 0 {
				t.Fatalf("hidden row %v published", v)
			}
			if !r.hidden && seen[v] == 0 {
				t.Fatalf("row %v (visible at %v) never published; now %v", v, r.visible, tab.now)
			}
		}
	})
}

func mapsKeys(m map[string]*tableRow) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}
