package cursor

import (
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"time"

	"snowmelt/core/failure"
	"snowmelt/core/record"
)

// Read takes the page that answers the last request and returns what to
// publish. Drafts are to be published in the order in which they were read; one
// without rows may be passed to Published as soon as those before it are.
// Its errors fail the table: failure.Breach, failure.BadRow.
func (s *Sweep) Read(page Page, now time.Time) (Draft, error) {
	s.clock.Observe(page.Date, page.Received)
	d := Draft{Seq: s.asked.Seq, Kind: s.asked.Kind, Newest: None}
	w := s.active()
	v := w.read(page.Rows, s.asked.Limit, page.Total, s.set.Prove)
	if err := s.check(v); err != nil {
		return Draft{}, err
	}
	s.grow()
	d.Bad, d.Hidden, d.Again, d.Breach = v.bad, v.hidden, v.again, v.breach
	switch d.Kind {
	case LateScan:
		s.unknown(page.Rows, v.rows)
		if s.cur.scan.done {
			s.cur.scanning = false
		}
	case LateFetch:
		s.accept(&d, page.Rows, v.rows)
		if w.done {
			s.cur.fetches = s.cur.fetches[1:]
		}
	case Main:
		s.accept(&d, page.Rows, v.rows)
		if s.cur.main.done {
			s.endSweep(&d, page.Date, now)
		}
	}
	if d.Kind != Main && !s.cur.scanning && len(s.cur.fetches) == 0 {
		s.cur.late = max(s.cur.late, s.cur.lateHI)
		s.cur.lateDue = now.Add(s.set.LateInterval)
	}
	d.State = s.cur.durable()
	d.Horizon = s.set.Horizon(d.State)
	s.remember(&d)
	d.after = s.cur
	if n := s.filter.Len(); n > s.set.Window {
		d.Crowded = true
		if n > 20*s.set.Window {
			return Draft{}, &failure.Error{
				Class: failure.Misconfigured, Op: "remembering the published versions of " + s.set.Table,
				Detail: fmt.Sprintf("%d versions lie in the re-read window, the limit is 20 x %d", n, s.set.Window),
				Hint:   "raise snow.source.dedup.window.records, or lower snow.source.late.window.seconds or snow.source.overlap.seconds",
			}
		}
	}
	s.drafts = append(s.drafts, d)
	return d, nil
}

func (s *Sweep) active() *walk {
	switch s.asked.Kind {
	case LateFetch:
		// A copy, so that the snapshots of earlier drafts keep theirs.
		s.cur.fetches = append([]fetch(nil), s.cur.fetches...)
		return &s.cur.fetches[0].walk
	case LateScan:
		return &s.cur.scan
	case Main:
	}
	return &s.cur.main
}

func (s *Sweep) check(v verdict) error {
	switch {
	case v.fatal != "":
		hint := "the instance may ignore terms that it cannot parse: check the query and set glide.invalid_query.returns_no_rows"
		if v.breach == "" {
			hint = "check which rows and fields the integration user may read"
		}
		return &failure.Error{
			Class: failure.Breach, Op: "reading " + s.set.Table,
			Detail: v.fatal + "; query " + strconv.Quote(s.asked.Query), Hint: hint,
		}
	case v.bad > 0 && !s.set.SkipBadRows:
		return &failure.Error{
			Class: failure.BadRow, Op: "reading " + s.set.Table,
			Detail: fmt.Sprintf("%d rows without a usable %s or %s after %s", v.bad, s.set.IDField, s.set.TimestampField, s.cur.cursor.Time),
			Hint:   "let the integration user read both fields, or set snow.source.bad.row.behavior=skip",
		}
	}
	return nil
}

// versionOf names the version that a row shows. Without sys_mod_count it is told by its content.
func versionOf(r *record.Row, t Timestamp) Version {
	mod := r.ModCount
	if mod == "" {
		h := fnv.New128a()
		_, _ = h.Write(r.Raw)
		mod = fmt.Sprintf("#%x", h.Sum(nil))
	}
	return Version{Time: t, SysID: r.SysID, Mod: mod}
}

// accept takes the rows whose version is new and moves the cursor over them.
// Late rows do not move it: they lie before it.
func (s *Sweep) accept(d *Draft, rows []record.Row, entries []entry) {
	d.Rows = make([]Accepted, 0, len(entries))
	phase := s.cur.phase
	for _, e := range entries {
		r := &rows[e.row]
		v := versionOf(r, e.time)
		if s.filter.Has(v) {
			d.Suppressed++
		} else {
			d.Rows = append(d.Rows, Accepted{Row: r, Version: v, Phase: phase})
			d.Newest = max(d.Newest, e.time)
		}
		if d.Kind == Main {
			s.cur.cursor = s.cur.cursor.advance(e.time, r.SysID)
		}
	}
}

// advance moves a cursor forward, never back.
func (c Cursor) advance(t Timestamp, id string) Cursor {
	switch {
	case t < c.Time, t == c.Time && isHex32(c.SysID) && isHex32(id) && id < c.SysID:
		return c
	}
	return Cursor{Time: t, SysID: id}
}

// remember puts the draft's versions into the filter as far as the window reaches:
// what lies before it is never asked for again once the draft is published.
func (s *Sweep) remember(d *Draft) {
	for _, a := range d.Rows {
		if a.Version.Time > d.Horizon && s.filter.Add(a.Version) {
			d.added = append(d.added, a.Version)
		}
	}
}

// idsPerFetch bounds the length of an IN list: 100 ids are 3.3 KB of a URL.
const idsPerFetch = 100

// unknown plans the fetching of the late rows that the filter does not know.
func (s *Sweep) unknown(rows []record.Row, entries []entry) {
	var ids []string
	lo, hi := Timestamp(0), None
	seen := map[string]bool{}
	for _, e := range entries {
		r := &rows[e.row]
		if r.ModCount != "" && s.filter.Has(versionOf(r, e.time)) {
			continue
		}
		if hi == None {
			lo = e.time - 1
		}
		hi = e.time
		if !seen[r.SysID] {
			seen[r.SysID] = true
			ids = append(ids, r.SysID)
		}
	}
	if len(ids) == 0 {
		return
	}
	fetches := append([]fetch(nil), s.cur.fetches...)
	if len(ids) > 4*idsPerFetch || strings.ContainsAny(strings.Join(ids, ""), ",^") {
		// A mass of late rows, or ids that cannot stand in a list: read the range.
		s.cur.fetches = append(fetches, fetch{s.set.Query, newWalk(lo, hi, s.set.Prove)})
		return
	}
	for len(ids) > 0 {
		n := min(idsPerFetch, len(ids))
		q := s.set.Query.And(s.set.IDField + "IN" + strings.Join(ids[:n], ","))
		fetches = append(fetches, fetch{q, newWalk(lo, hi, s.set.Prove)})
		ids = ids[n:]
	}
	s.cur.fetches = fetches
}

// endSweep draws the conclusions of a proven end.
func (s *Sweep) endSweep(d *Draft, date, now time.Time) {
	p := &s.cur
	d.Ended = true
	p.sweeping = false
	proven := p.hi
	if !date.IsZero() {
		proven = min(proven, TimestampOf(date)-s.set.SafetyLag)
	}
	p.verified = max(p.verified, proven)
	if p.merged {
		p.merged = false
		p.late = max(p.late, p.lateHI)
		p.lateDue = now.Add(s.set.LateInterval)
	}
	behind := s.clock.Now(now).Add(-time.Duration(s.set.SafetyLag) * time.Second).Sub(p.hi.Time())
	if behind > s.set.PollInterval+time.Second { // HI is cut to the second
		p.phase = Backfill
		p.idle = now
		return
	}
	p.phase = Stream
	p.idle = now.Add(s.set.PollInterval)
}

// Published says that the oldest draft is durable, or had nothing to publish.
func (s *Sweep) Published(seq int) {
	if len(s.drafts) == 0 || s.drafts[0].Seq != seq {
		return
	}
	s.done = s.drafts[0].after
	s.drafts = s.drafts[1:]
	s.filter.Cut(s.set.Horizon(s.done.durable()))
}

// Dropped takes every draft back: the sweep goes on from what is published.
func (s *Sweep) Dropped() {
	for _, d := range s.drafts {
		for _, v := range d.added {
			s.filter.Remove(v)
		}
	}
	s.drafts = nil
	s.cur = s.done
}
