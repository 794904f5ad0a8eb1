package cursor

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"snowmelt/core/failure"
	"snowmelt/core/record"
)

func row(ts Timestamp, id string) record.Row {
	return record.Row{Raw: []byte(`{}`), SysID: id, Timestamp: ts.String(), ModCount: "0"}
}

func begin(t *testing.T, set Settings) (*Sweep, Request) {
	t.Helper()
	set.LateWindow = 0 // no late scans in between
	s := NewSweep(set, Durable{Cursor: Cursor{Time: t0 - 1000}, Phase: Backfill, Verified: None, Late: t0 - 1000}, true, NewFilter())
	s.Observe(t0.Time(), t0.Time())
	return s, *s.Next(t0.Time()).Request
}

func page(total int, rows ...record.Row) Page {
	return Page{Rows: rows, Total: total, Date: t0.Time(), Received: t0.Time()}
}

// TestBreaches: rows outside the bounds or out of order are read again, three
// times at most, and then fail the table with both values (rule 3, R4).
func TestBreaches(t *testing.T) {
	a, b := hexID(1), hexID(2)
	if a > b {
		a, b = b, a
	}
	for name, rows := range map[string][]record.Row{
		"below the bound":  {row(t0-5000, a)},
		"times descend":    {row(t0-10, a), row(t0-20, b)},
		"ids descend":      {row(t0-10, b), row(t0-10, a)},
		"twice":            {row(t0-10, a), row(t0-10, a)},
		"twice, not hex":   {row(t0-10, "x"), row(t0-10, "x")},
		"behind good rows": {row(t0-30, a), row(t0-20, b), row(t0-5000, a)},
	} {
		set := settings(10)
		s, first := begin(t, set)
		for try := 1; ; try++ {
			d, err := s.Read(page(-1, rows...), t0.Time())
			if err != nil {
				if try != maxBreaches || failure.ClassOf(err) != failure.Breach {
					t.Errorf("%s: try %d: %v", name, try, err)
				}
				break
			}
			if len(d.Rows) > 0 || !d.Again || d.Breach == "" {
				t.Errorf("%s: %+v", name, d)
			}
			if again := s.Next(t0.Time()).Request; again.Query != first.Query {
				t.Errorf("%s: asked %q again as %q", name, first.Query, again.Query)
			}
		}
	}
}

// TestBreachHeals: one good answer and the count of breaches begins anew.
func TestBreachHeals(t *testing.T) {
	s, _ := begin(t, settings(2))
	for i := range 5 {
		if _, err := s.Read(page(-1, row(t0-5000, "x")), t0.Time()); err != nil {
			t.Fatal(err)
		}
		s.Next(t0.Time())
		at := t0 - Timestamp(100-10*i)
		if _, err := s.Read(page(-1, row(at, "x"), row(at+1, "y")), t0.Time()); err != nil {
			t.Fatal(err)
		}
		s.Next(t0.Time())
	}
}

// TestMovedRows: rows above HI are left out and give no position (rule 5).
func TestMovedRows(t *testing.T) {
	s, first := begin(t, settings(3))
	d, err := s.Read(page(-1, row(t0-50, "a"), row(t0-40, "b"), row(t0+5, "c")), t0.Time())
	if err != nil || len(d.Rows) != 1 || d.State.Cursor.SysID != "a" {
		t.Fatalf("%+v, %v", d, err)
	}
	if q := s.Next(t0.Time()).Request.Query; !strings.HasPrefix(q, "ts>"+(t0-50).String()) {
		t.Errorf("the moved row moved the query to %q", q)
	}
	s, first = begin(t, settings(2))
	for i := 1; ; i++ {
		d, err := s.Read(page(-1, row(t0+5, "a"), row(t0+6, "b")), t0.Time())
		if err != nil {
			if i != maxMoved {
				t.Errorf("after %d pages of moved rows: %v", i, err)
			}
			break
		}
		if !d.Again || s.Next(t0.Time()).Request.Query != first.Query {
			t.Fatal("a page of moved rows only is not read again")
		}
	}
}

// TestBadRows: skip needs a position; a full page of them fails instead of looping (rule 6).
func TestBadRows(t *testing.T) {
	bad := record.Row{Raw: []byte(`{}`), SysID: "q", Timestamp: ""}
	s, _ := begin(t, settings(3))
	if _, err := s.Read(page(1, bad), t0.Time()); failure.ClassOf(err) != failure.BadRow {
		t.Errorf("bad.row.behavior=fail: %v", err)
	}
	set := settings(3)
	set.SkipBadRows = true
	s, _ = begin(t, set)
	d, err := s.Read(page(-1, bad, row(t0-50, "a"), row(t0-40, "b")), t0.Time())
	if err != nil || d.Bad != 1 || len(d.Rows) != 1 {
		t.Errorf("%+v, %v", d, err)
	}
	s, _ = begin(t, set)
	if _, err = s.Read(page(-1, bad, bad, bad), t0.Time()); failure.ClassOf(err) != failure.Breach {
		t.Errorf("a full page of unusable rows: %v", err)
	}
}

// TestTooBig: the page size halves, survives, fails at 1 with the place, and grows back (rule 7).
func TestTooBig(t *testing.T) {
	set := settings(40)
	s, _ := begin(t, set)
	for _, want := range []int{20, 10, 5, 2, 1} {
		if err := s.TooBig(); err != nil || s.Limit() != want {
			t.Fatalf("%d, %v; want %d", s.Limit(), err, want)
		}
		if got := s.Next(t0.Time()).Request.Limit; got != want {
			t.Fatalf("asked for %d, want %d", got, want)
		}
	}
	if err := s.TooBig(); failure.ClassOf(err) != failure.Permanent || !strings.Contains(err.Error(), (t0-1000).String()) {
		t.Errorf("at size 1: %v", err)
	}
	now := t0.Time()
	for range 6 * growAfter {
		if _, err := s.Read(page(0), now); err != nil {
			t.Fatal(err)
		}
		now = now.Add(time.Minute)
		s.Next(now)
	}
	if s.Limit() != 40 {
		t.Errorf("grew back to %d", s.Limit())
	}
}

// TestNoCount: an answer without the count that was asked for proves nothing; the table fails instead of ending a sweep.
func TestNoCount(t *testing.T) {
	s, _ := begin(t, settings(10))
	var err error
	for range 10 {
		if _, err = s.Read(page(-1), t0.Time()); err != nil {
			break
		}
		s.Next(t0.Time())
	}
	if failure.ClassOf(err) != failure.Breach || !strings.Contains(err.Error(), "X-Total-Count") {
		t.Errorf("%v", err)
	}
}

// TestBackfillCostsOneRequestAPage counts the requests of a table without hidden rows.
func TestBackfillCostsOneRequestAPage(t *testing.T) {
	tab := &table{rows: map[string]*tableRow{}, now: t0}
	for i := range 1000 {
		id := hexID(i)
		tab.rows[id] = &tableRow{id: id, ts: t0 - Timestamp(5000-i*4)}
	}
	set := settings(101) // of which one is held back
	s := NewSweep(set, Durable{}, false, NewFilter())
	s.Observe(t0.Time(), t0.Time())
	for n := 0; ; n++ {
		st := s.Next(t0.Time())
		if st.Request == nil {
			break
		}
		d, err := s.Read(tab.answer(*st.Request), t0.Time())
		if err != nil {
			t.Fatal(err)
		}
		s.Published(d.Seq)
	}
	if got := len(tab.requests); got > 11 {
		t.Errorf("%d requests for 1000 rows in pages of 101", got)
	}
}

// TestFilterBound: above 20 times the window the table fails naming the settings (rule 11).
func TestFilterBound(t *testing.T) {
	set := settings(5)
	set.Window = 2
	s, _ := begin(t, set)
	var err error
	crowded := false
	for i := 0; i < 100 && err == nil; i += 5 {
		rows := make([]record.Row, 5)
		for j := range rows {
			rows[j] = row(t0-5, fmt.Sprintf("%032d", i+j))
		}
		var d Draft
		if d, err = s.Read(page(-1, rows...), t0.Time()); err == nil {
			crowded = crowded || d.Crowded
			s.Next(t0.Time())
		}
	}
	if failure.ClassOf(err) != failure.Misconfigured || !strings.Contains(err.Error(), "dedup.window.records") || !crowded {
		t.Errorf("crowded %v, %v", crowded, err)
	}
}

func TestMiddle(t *testing.T) {
	for _, c := range []struct{ lo, hi, want string }{
		{"", "", "7" + strings.Repeat("f", 31)},
		{strings.Repeat("0", 32), strings.Repeat("0", 31) + "2", strings.Repeat("0", 31) + "1"},
		{"8" + strings.Repeat("0", 31), "", "b" + strings.Repeat("f", 31)},
		{strings.Repeat("f", 32), "", ""},
		{strings.Repeat("0", 31) + "1", strings.Repeat("0", 31) + "2", ""},
		{"not hex", "", ""},
	} {
		got, ok := middle(c.lo, c.hi)
		if ok != (c.want != "") || ok && got != c.want {
			t.Errorf("between %q and %q: %q %v, want %q", c.lo, c.hi, got, ok, c.want)
		}
	}
}

// TestHINeverStepsBack: a Date that jumps back does not take HI with it.
func TestHINeverStepsBack(t *testing.T) {
	s, first := begin(t, settings(10))
	d, err := s.Read(page(0), t0.Time())
	if err != nil || !d.Ended {
		t.Fatalf("%+v, %v", d, err)
	}
	s.Published(d.Seq)
	later := t0.Time().Add(6 * time.Second)
	s.Observe((t0 + 2).Time(), later) // 4 s behind what was expected: believed
	next := s.Next(later).Request
	if next == nil {
		t.Fatal("no poll")
	}
	if hi := next.Query[strings.Index(next.Query, "ts<="):]; hi < first.Query[strings.Index(first.Query, "ts<="):] {
		t.Errorf("HI went back: %q after %q", next.Query, first.Query)
	}
}
