package cursor

import (
	"fmt"
	"time"

	"snowmelt/core/failure"
	"snowmelt/core/record"
)

// Settings are what a sweep needs to know of its table.
type Settings struct {
	// Table names the table in errors.
	Table string
	// Query is the base query.
	Query Query
	// TimestampField and IDField are the cursor's fields.
	TimestampField, IDField string
	// Limit is the page size, 1 to 50,000.
	Limit int
	// Start is where a table without a cursor begins; nothing below it is read.
	Start Timestamp
	// Overlap, SafetyLag and LateWindow are in seconds.
	Overlap, SafetyLag, LateWindow Timestamp
	// LateInterval is the time between two late scans, PollInterval that after a sweep that ended.
	LateInterval, PollInterval time.Duration
	// Prove asks for counts where a page could have been cut.
	Prove bool
	// SkipBadRows passes over rows without a usable id or timestamp.
	SkipBadRows bool
	// Window is the number of versions above which the filter warns; 20 times that fails the table.
	Window int
}

// Kind says what a request is for.
type Kind uint8

// The kinds of requests.
const (
	Main      Kind = iota // rows of the sweep
	LateScan              // ids, timestamps and counts of the late window
	LateFetch             // rows that the late scan did not know
)

// Request is the next page to ask for.
type Request struct {
	// Seq matches a page to its request.
	Seq   int
	Kind  Kind
	Query string
	Limit int
	// Count asks for X-Total-Count.
	Count bool
}

// Step is what a poller does next: send Request, or wait until Until.
type Step struct {
	Request *Request
	Until   time.Time
}

// Page is the answer to a request.
type Page struct {
	Rows []record.Row
	// Total is X-Total-Count, negative when the answer had none.
	Total int
	// Date is the Date header; Received is when it arrived, by the local clock.
	Date, Received time.Time
}

// Accepted is a row to publish.
type Accepted struct {
	Row     *record.Row
	Version Version
	Phase   Phase
}

// Draft is what a page would change. Nothing of it counts before Published
// (source.md section 2); Sweep.Dropped takes all drafts back.
type Draft struct {
	Seq  int
	Rows []Accepted
	// State is the cursor record that covers the rows; Tail is left to the publisher.
	State Durable
	// Newest is the largest row time of Rows.
	Newest Timestamp
	// Horizon is the time up to which the filter may forget once this is published.
	Horizon Timestamp
	// Kind is that of the request that the page answered.
	Kind Kind
	// Suppressed counts known versions, Bad skipped rows, Hidden rows that an ACL hides.
	Suppressed, Bad, Hidden int
	// Again says that the page is read once more, Breach why if the answer was at fault.
	Again  bool
	Breach string
	// Ended says that the sweep ended with this page.
	Ended bool
	// Crowded says that the filter holds more than Settings.Window versions.
	Crowded bool

	after position
	added []Version
}

// position is everything that a page changes; a copy is a snapshot.
type position struct {
	cursor   Cursor
	verified Timestamp
	late     Timestamp
	phase    Phase
	hi       Timestamp // HI of the current or last sweep
	main     walk
	sweeping bool
	merged   bool // this sweep covers the late window too
	idle     time.Time
	lateDue  time.Time
	lateHI   Timestamp // late after the running late scan
	scanning bool
	scan     walk
	fetches  []fetch
}

// fetch reads rows that a late scan found and the filter did not know.
type fetch struct {
	query Query
	walk  walk
}

// Sweep is the poller's state machine (source.md section 1): Next says what to
// ask for, Read what to publish, Published and Dropped what became of it. It is
// not safe for concurrent use; one poller owns it (Invariant 10).
type Sweep struct {
	set       Settings
	clock     Clock
	filter    *Filter
	limit     int       // page size now, halved by TooBig
	good      int       // pages since the limit last changed
	hi        Timestamp // the latest HI ever fixed
	seq       int
	asked     Request
	cur, done position // with drafts, without
	drafts    []Draft
}

// NewSweep begins at a durable state, or at Settings.Start when found is false.
// The filter must hold every version later than Horizon(d) that was published.
func NewSweep(set Settings, d Durable, found bool, filter *Filter) *Sweep {
	if !found {
		d = Durable{Cursor: Cursor{Time: set.Start}, Phase: Backfill, Verified: None, Late: None}
	} else if d.Late == None {
		d.Late = d.Cursor.Time // another engine's cursor: it passed its rows at that time or later
	}
	s := &Sweep{set: set, filter: filter, limit: set.Limit, hi: None}
	s.cur = position{cursor: d.Cursor, verified: d.Verified, late: d.Late, phase: d.Phase, hi: None}
	s.done = s.cur
	return s
}

// Horizon returns the time up to which a filter for the durable state d may
// forget: min(cursor - overlap, late - late window), rule 11.
func (set Settings) Horizon(d Durable) Timestamp {
	h := d.Cursor.Time - max(1, set.Overlap)
	if d.Late != None {
		h = min(h, d.Late-set.LateWindow)
	}
	return h
}

// Observe lets the sweep see an instance's Date without a page.
func (s *Sweep) Observe(date, received time.Time) { s.clock.Observe(date, received) }

// State returns what would be durable if everything published so far were recorded now.
func (s *Sweep) State() Durable { return s.done.durable() }

// FilterLen returns the number of versions that the filter holds.
func (s *Sweep) FilterLen() int { return s.filter.Len() }

// Limit returns the page size now in use.
func (s *Sweep) Limit() int { return s.limit }

// SetLimit goes on with a page size that an earlier incarnation arrived at.
func (s *Sweep) SetLimit(n int) { s.limit = max(1, min(n, s.set.Limit)) }

// InstanceNow returns the instance's time at the local time now; the zero time before the first answer.
func (s *Sweep) InstanceNow(now time.Time) time.Time {
	if !s.clock.Known() {
		return time.Time{}
	}
	return s.clock.Now(now)
}

func (p *position) durable() Durable {
	return Durable{Cursor: p.cursor, Phase: p.phase, Verified: p.verified, Late: p.late}
}

// Next says what to do at the local time now. It must not be called before the
// instance's time is known (Observe), nor while a request is unanswered.
func (s *Sweep) Next(now time.Time) Step {
	p := &s.cur
	hi := TimestampOf(s.clock.Now(now)) - s.set.SafetyLag
	hi = max(hi, s.hi) // never steps back
	s.hi = hi
	if !p.scanning && len(p.fetches) == 0 && !now.Before(p.lateDue) && (p.sweeping || !now.Before(p.idle)) {
		s.beginLate(hi, now)
	}
	if !p.sweeping && !p.scanning && len(p.fetches) == 0 {
		if now.Before(p.idle) {
			return Step{Until: p.idle}
		}
		if !s.beginSweep(hi, now) {
			return Step{Until: p.idle}
		}
	}
	var w *walk
	q, kind := s.set.Query, Main
	switch {
	case len(p.fetches) > 0:
		w, q, kind = &p.fetches[0].walk, p.fetches[0].query, LateFetch
	case p.scanning:
		w, kind = &p.scan, LateScan
	default:
		w = &p.main
	}
	terms, order := w.bounds(s.set.TimestampField, s.set.IDField)
	s.seq++
	s.asked = Request{
		Seq: s.seq, Kind: kind, Query: q.With(terms, order...),
		Limit: max(s.limit, w.raised), Count: w.count && s.set.Prove,
	}
	r := s.asked
	return Step{Request: &r}
}

// beginSweep fixes HI and the lower bound; false when there is nothing to read yet.
func (s *Sweep) beginSweep(hi Timestamp, now time.Time) bool {
	p := &s.cur
	lo := s.lower(p)
	if p.merged {
		lo = max(min(lo, p.late-s.set.LateWindow), s.floor(p))
	}
	if p.late == None {
		p.late = hi // nothing was passed before this moment
		p.lateDue = now.Add(s.set.LateInterval)
	}
	if hi <= lo {
		p.idle = now.Add(s.set.PollInterval)
		return false
	}
	p.hi, p.sweeping = hi, true
	p.main = newWalk(lo, hi, p.phase == Stream && s.set.Prove)
	return true
}

// lower is where a sweep begins: at the verified mark less the overlap, or at
// the cursor when rows beyond the mark were published.
func (s *Sweep) lower(p *position) Timestamp {
	var lo Timestamp
	switch {
	case p.verified == None:
		lo = p.cursor.Time - max(1, s.set.Overlap)
	case p.cursor.Time > p.verified:
		lo = max(p.verified-s.set.Overlap, p.cursor.Time-max(1, s.set.Overlap))
	default:
		lo = p.verified - s.set.Overlap
	}
	return max(lo, s.floor(p))
}

// floor is the bound that start.timestamp sets, while it counts.
func (s *Sweep) floor(p *position) Timestamp {
	if p.cursor.Time >= s.set.Start {
		return s.set.Start - 1
	}
	return None
}

// beginLate starts a late scan (rule 10), or lets the coming sweep cover its
// window when nothing known lies in it, so that an idle table costs one request
// a poll. Only rows that the sweep has passed can be late: what lies ahead of
// it is read anyway, so the scan ends where the sweep stands.
func (s *Sweep) beginLate(hi Timestamp, now time.Time) {
	p := &s.cur
	if p.late == None || s.set.LateWindow == 0 {
		return
	}
	passed := s.lower(p)
	if p.sweeping {
		passed = p.main.lo
		if p.main.drain {
			passed = p.main.second
		}
	}
	lo, up := max(p.late-s.set.LateWindow, s.floor(p)), min(hi, passed)
	switch {
	case up <= lo:
		p.late = max(p.late, hi)
		p.lateDue = now.Add(s.set.LateInterval)
	case !p.sweeping && !s.filter.Any(lo, up):
		p.merged = true
		p.lateHI = hi
	default:
		p.scanning, p.lateHI = true, hi
		p.scan = newWalk(lo, up, s.set.Prove)
	}
}

// TooBig halves the page size after an answer that was too large or too slow
// (rule 7). It fails at size 1, naming where the sweep stands.
func (s *Sweep) TooBig() error {
	if s.limit == 1 || s.asked.Limit > s.limit {
		return &failure.Error{
			Class: failure.Permanent, Op: "reading " + s.set.Table,
			Detail: fmt.Sprintf("one row is too large or too slow to read; it comes after %s %q", s.cur.cursor.Time, s.cur.cursor.SysID),
			Hint:   "raise snow.http.max.response.bytes or narrow the fields",
		}
	}
	s.limit /= 2
	s.good = 0
	return nil
}

// growAfter is the number of pages after which a halved page size is doubled.
const growAfter = 20

func (s *Sweep) grow() {
	if s.limit >= s.set.Limit {
		return
	}
	if s.good++; s.good >= growAfter {
		s.limit, s.good = min(s.set.Limit, s.limit*2), 0
	}
}
