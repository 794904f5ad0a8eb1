package cursor

import (
	"fmt"
	"slices"
	"strings"

	"snowmelt/core/record"
)

// maxLimit is the largest sysparm_limit ever sent.
const maxLimit = 50000

const (
	maxBreaches = 3  // the same query is read this often before a breach fails the table
	maxMoved    = 10 // pages of nothing but moved rows, in a row
)

// walk goes through one range of time (lo, hi] in the order of (timestamp,
// sys_id) and ends only on proof. It is a value: a copy is a snapshot.
//
// It alternates between two shapes of query, as source.md section 1 names them:
// next buckets (ts>lo^ts<=hi) and drain bucket (ts=second^sys_id>after). When a
// page is empty although rows were cut away behind the limit, the range is
// bisected: a smaller upper bound is pushed, and popped when it is proven.
type walk struct {
	lo     Timestamp   // everything up to and including lo is passed
	his    []Timestamp // upper bounds, innermost last; his[0] is the range's end
	drain  bool
	second Timestamp // the second being drained
	after  string    // last id seen in it, "" before the first
	ids    []string  // upper id bounds, innermost last; none = open
	always bool      // ask for the count with every request
	count  bool      // ask for it with the next one
	raised int       // limit raised for a hidden run that ids cannot divide
	tries  int       // breaches of this query in a row
	moved  int       // pages of moved rows only, in a row
	last   string    // signature of the last page, to notice a page that comes again
	done   bool
}

func newWalk(lo, hi Timestamp, count bool) walk {
	return walk{lo: lo, his: []Timestamp{hi}, always: count, count: count, done: hi <= lo}
}

func (w *walk) top() Timestamp { return w.his[len(w.his)-1] }

// bounds returns the terms and the order of the next query.
func (w *walk) bounds(ts, id string) (terms, order []string) {
	if !w.drain {
		return []string{ts + ">" + w.lo.String(), ts + "<=" + w.top().String()}, []string{ts, id}
	}
	terms = []string{ts + "=" + w.second.String()}
	if w.after != "" {
		terms = append(terms, id+">"+w.after)
	}
	if len(w.ids) > 0 {
		terms = append(terms, id+"<="+w.ids[len(w.ids)-1])
	}
	return terms, []string{id}
}

// entry is a row that the walk accepted, with its parsed time.
type entry struct {
	row  int // index into the page
	time Timestamp
}

// verdict is what a walk makes of one page.
type verdict struct {
	rows   []entry
	bad    int // rows without a usable id or timestamp
	hidden int // rows that the instance counted and did not show; only with proof
	again  bool
	breach string // why the page contradicts its query, "" when it does not
	fatal  string // why the table cannot go on
}

// read takes the page that answers the current query. total is X-Total-Count,
// negative when the answer had none; prove is snow.source.prove.pages.
func (w *walk) read(rows []record.Row, limit, total int, prove bool) verdict {
	v := w.sift(rows)
	if v.breach != "" {
		if w.tries++; w.tries >= maxBreaches {
			v.fatal = v.breach
		}
		v.rows, v.again = nil, true
		return v
	}
	w.tries = 0
	full := len(rows) >= limit
	if total >= 0 && total <= limit || !prove && !full {
		if total >= 0 {
			v.hidden = max(0, total-len(rows))
		}
		w.proven()
		return v
	}
	if len(v.rows) == 0 {
		w.empty(&v, len(rows), limit, total, full)
		return v
	}
	w.moved = 0
	lastRow := v.rows[len(v.rows)-1]
	switch {
	case w.drain:
		w.after = rows[lastRow.row].SysID
	case v.rows[0].time == lastRow.time || !full && w.count:
		// One second fills the page, or hidden rows thinned it: finish that second alone.
		w.drain, w.second, w.after = true, lastRow.time, rows[lastRow.row].SysID
	default:
		// The page may have cut its last second: leave it to the next page.
		keep := len(v.rows)
		for v.rows[keep-1].time == lastRow.time {
			keep--
		}
		v.rows = v.rows[:keep]
		w.lo = v.rows[keep-1].time
	}
	w.raised = 0
	w.count = w.always || !full
	return v
}

// sift sorts out bad and moved rows and checks the others against the query.
func (w *walk) sift(rows []record.Row) (v verdict) {
	v.rows = make([]entry, 0, len(rows))
	prev, prevID := w.lo, ""
	if w.drain {
		prev, prevID = w.second, w.after
	}
	for i := range rows {
		r := &rows[i]
		t, err := ParseTimestamp(r.Timestamp)
		if r.SysID == "" || err != nil {
			v.bad++
			continue
		}
		switch {
		case w.drain && t > w.second, !w.drain && t > w.top():
			continue // moved while the page was read: a later sweep reads it
		case w.drain && t < w.second, !w.drain && t <= w.lo:
			v.breach = fmt.Sprintf("row %s has %s, below the bound %s of the query", r.SysID, t, prev)
		case t < prev:
			v.breach = fmt.Sprintf("row %s with %s came after a row with %s", r.SysID, t, prev)
		case t == prev && (w.drain || len(v.rows) > 0) && !ascends(prevID, r.SysID):
			v.breach = fmt.Sprintf("row %s came after row %s in second %s", r.SysID, prevID, t)
		case w.drain && len(w.ids) > 0 && isHex32(r.SysID) && r.SysID > w.ids[len(w.ids)-1]:
			v.breach = fmt.Sprintf("row %s is above the bound %s of the query", r.SysID, w.ids[len(w.ids)-1])
		}
		if v.breach != "" {
			return v
		}
		prev, prevID = t, r.SysID
		v.rows = append(v.rows, entry{i, t})
	}
	if n := len(v.rows); n > 0 {
		sign := strings.Join([]string{rows[v.rows[0].row].SysID, rows[v.rows[n-1].row].SysID, prev.String()}, "|")
		if w.drain && sign == w.last {
			v.breach = fmt.Sprintf("the page from row %s to %s of second %s came again", rows[v.rows[0].row].SysID, prevID, prev)
			return v
		}
		w.last = sign
	}
	return v
}

// ascends says whether id may follow prev. Collations differ, so only hex ids
// are compared (source.md rule 15); others need only differ.
func ascends(prev, id string) bool {
	if isHex32(prev) && isHex32(id) {
		return prev < id
	}
	return prev != id
}

// empty decides about a page without a usable row whose end is not proven.
func (w *walk) empty(v *verdict, rows, limit, total int, full bool) {
	switch {
	case v.bad > 0 && full && v.bad == rows:
		v.fatal = fmt.Sprintf("a full page of %d rows without a usable id or timestamp", rows)
	case rows > v.bad: // moved rows only: the same query no longer holds them
		v.again = true
		if w.moved++; w.moved >= maxMoved {
			v.fatal = fmt.Sprintf("%d pages in a row held only rows above the bound %s of the query", w.moved, w.top())
		}
	case total < 0:
		if w.count {
			v.fatal = "the answer holds no X-Total-Count although it was asked for (sysparm_no_count=false)"
		}
		w.count = true
	default:
		w.bisect(v, limit)
	}
}

// bisect narrows the range after an empty page behind which more rows lie.
func (w *walk) bisect(v *verdict, limit int) {
	if !w.drain {
		if width := w.top() - w.lo; width > 1 {
			w.his = append(slices.Clip(w.his), w.lo+width/2)
		} else {
			w.drain, w.second, w.after = true, w.top(), ""
		}
		return
	}
	upper := ""
	if len(w.ids) > 0 {
		upper = w.ids[len(w.ids)-1]
	}
	if mid, ok := middle(w.after, upper); ok {
		w.ids = append(slices.Clip(w.ids), mid)
		return
	}
	if limit >= maxLimit {
		v.fatal = fmt.Sprintf("more than %d hidden rows in second %s with ids that cannot be divided", maxLimit, w.second)
		return
	}
	w.raised = min(maxLimit, 2*limit)
}

// proven passes the current range: nothing of it was cut away.
func (w *walk) proven() {
	w.moved, w.raised = 0, 0
	if w.drain {
		if n := len(w.ids); n > 0 {
			w.after, w.ids = w.ids[n-1], w.ids[:n-1]
			return
		}
		w.drain, w.lo, w.after = false, w.second, ""
	} else {
		w.lo = w.top()
	}
	for len(w.his) > 0 && w.top() <= w.lo {
		w.his = w.his[:len(w.his)-1]
		if len(w.his) == 0 {
			w.done = true
			return
		}
	}
}

func isHex32(s string) bool {
	if len(s) != 32 {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// middle returns the id halfway between two bounds, "" being an open end, or
// false when there is none.
func middle(lo, hi string) (string, bool) {
	if lo == "" {
		lo = strings.Repeat("0", 32)
	}
	if hi == "" {
		hi = strings.Repeat("f", 32)
	}
	if !isHex32(lo) || !isHex32(hi) || lo >= hi {
		return "", false
	}
	var sum [33]int
	for i := 31; i >= 0; i-- {
		s := hexValue(lo[i]) + hexValue(hi[i]) + sum[i+1]
		sum[i+1], sum[i] = s%16, s/16
	}
	var mid [32]byte
	carry := sum[0]
	for i := range 32 {
		n := carry*16 + sum[i+1]
		mid[i] = "0123456789abcdef"[n/2]
		carry = n % 2
	}
	m := string(mid[:])
	return m, lo < m && m < hi
}

func hexValue(c byte) int {
	if c <= '9' {
		return int(c - '0')
	}
	return int(c-'a') + 10
}
