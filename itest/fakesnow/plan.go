package fakesnow

import (
	"slices"
	"sort"
	"strings"
)

// page is what a list request found.
type page struct {
	rows  []*row
	segs  []segment // runs of rows that are whole leaves of the index, in order
	total int       // matching rows; -1 when not asked for
}

// segment is rows[from:to] of a page, all rows of the leaf content gen.
type segment struct {
	gen      uint64
	from, to int
}

// span is a range of an index that holds all rows a group can match.
type span struct {
	lo, hi bound
	all    bool // no upper bound
	exact  bool // the range alone says what the group says
	timed  bool // bounded by the time field of the index
}

// spanOf reads the terms of a group that bound an index.
func spanOf(c compiled, kind indexKind) span {
	s := span{lo: bound{tpos: -1}, all: true, exact: true}
	field := map[indexKind]string{byUpdated: "sys_updated_on", byCreated: "sys_created_on", byID: "sys_id"}[kind]
	raise := func(b bound) {
		if later(b, s.lo) {
			s.lo = b
		}
	}
	lower := func(b bound) {
		if s.all || later(s.hi, b) {
			s.hi, s.all = b, false
		}
	}
	at := func(v string, side int) bound {
		if kind == byID {
			return bound{id: v, ipos: side}
		}
		return bound{t: v, tpos: side}
	}
	used := make([]bool, len(c.terms))
	apply := func(op, v string) bool {
		if v == "" {
			return false
		}
		switch op {
		case "=":
			raise(at(v, -1))
			lower(at(v, 1))
		case ">":
			raise(at(v, 1))
		case ">=":
			raise(at(v, -1))
		case "<":
			lower(at(v, -1))
		case "<=":
			lower(at(v, 1))
		case "BETWEEN":
			a, b, _ := strings.Cut(v, "@")
			if a == "" || b == "" {
				return false
			}
			raise(at(a, -1))
			lower(at(b, 1))
		default:
			return false
		}
		if kind != byID {
			raise(bound{tpos: 1}) // an empty time matches no comparison
			s.timed = true
		}
		return true
	}
	for i, cl := range c.terms {
		if len(cl.terms) == 1 && cl.terms[0].field == field {
			used[i] = apply(cl.terms[0].op, cl.terms[0].value)
		}
	}
	if kind != byID && !s.all && s.lo.t == s.hi.t && s.lo.tpos == -1 && s.hi.tpos == 1 {
		t := s.lo.t // one second: the id bounds it further
		for i, cl := range c.terms {
			if len(cl.terms) != 1 || cl.terms[0].field != "sys_id" || cl.terms[0].value == "" {
				continue
			}
			used[i] = true
			switch id := cl.terms[0].value; cl.terms[0].op {
			case ">":
				raise(bound{t: t, id: id, ipos: 1})
			case ">=":
				raise(bound{t: t, id: id, ipos: -1})
			case "<":
				lower(bound{t: t, id: id, ipos: -1})
			case "<=":
				lower(bound{t: t, id: id, ipos: 1})
			default:
				used[i] = false
			}
		}
	}
	s.exact = !slices.Contains(used, false)
	return s
}

// later tells whether a lies right of b.
func later(a, b bound) bool {
	if c := strings.Compare(a.t, b.t); c != 0 {
		return c > 0
	}
	if a.tpos != 0 || b.tpos != 0 {
		return a.tpos > b.tpos
	}
	if c := strings.Compare(a.id, b.id); c != 0 {
		return c > 0
	}
	return a.ipos > b.ipos
}

// fetch says what to read: limit and offset in rows, whether the total is wanted.
type fetch struct {
	limit, offset int
	count         bool
	shuffle       uint64 // not 0: an order of its own for a list without ORDERBY
}

// choose picks the index that serves the filter and whether it gives the wanted order.
func (f *filter) choose(t *table) (kind indexKind, desc, ordered bool) {
	timed := func(k indexKind) bool {
		for _, g := range f.groups {
			if !spanOf(g, k).timed {
				return false
			}
		}
		return len(f.groups) > 0
	}
	oneSecond := func(k indexKind) bool {
		t := ""
		for i, g := range f.groups {
			s := spanOf(g, k)
			if s.all || s.lo.t != s.hi.t || s.lo.tpos > 0 || i > 0 && s.lo.t != t {
				return false
			}
			t = s.lo.t
		}
		return true
	}
	best := byID
	switch {
	case timed(byUpdated) && t.lay.col("sys_updated_on") != nil:
		best = byUpdated
	case timed(byCreated):
		best = byCreated
	}
	if len(f.order) == 0 {
		return best, false, true
	}
	first := f.order[0]
	switch first.name {
	case "sys_id":
		if best != byID && oneSecond(best) {
			return best, first.desc, true
		}
		if best == byID {
			return byID, first.desc, true
		}
		return best, false, false
	case "sys_updated_on", "sys_created_on":
		kind = byUpdated
		if first.name == "sys_created_on" {
			kind = byCreated
		}
		if len(f.order) == 1 || f.order[1].name == "sys_id" && f.order[1].desc == first.desc {
			return kind, first.desc, true
		}
	}
	return best, false, false
}

// run executes a filter on a table. It holds the read lock only while it collects rows.
func (in *Instance) run(t *table, build func() *filter, ft fetch) (pg page) {
	in.mu.RLock()
	f := build()
	kind, _, _ := f.choose(t)
	in.mu.RUnlock()
	in.withIndex(t, kind, func(ix index) { pg = in.scan(t, f, ix, ft) })
	return pg
}

func (in *Instance) scan(t *table, f *filter, ix index, ft fetch) page {
	if f.reject {
		return page{}
	}
	var steps int64
	defer func() { in.visited.Add(steps) }()
	_, desc, ordered := f.choose(t)
	if ids, ok := f.points(); ok {
		return in.gather(f, in.lookup(t, f, ids, &steps), ft)
	}
	lo, hi, exact := ix.count(), 0, len(f.groups) == 1
	for _, g := range f.groups {
		s := spanOf(g, ix.what())
		if ix.what() == byID {
			s.lo.id, s.hi.id = in.fold(s.lo.id), in.fold(s.hi.id)
		} else if s.lo.tpos == 0 || s.hi.tpos == 0 {
			s.lo.id, s.hi.id = in.fold(s.lo.id), in.fold(s.hi.id)
		}
		lo = min(lo, ix.rank(s.lo, &steps))
		end := ix.count()
		if !s.all {
			end = ix.rank(s.hi, &steps)
		}
		hi = max(hi, end)
		exact = exact && s.exact
	}
	hi = max(hi, lo)
	if !ordered || ft.shuffle != 0 && len(f.order) == 0 {
		var rows []*row
		ix.ascend(lo, func(leaf *node, at int) bool {
			for _, r := range leaf.rows[at:min(len(leaf.rows), at+hi-lo)] {
				steps++
				if exact || f.match(r) {
					rows = append(rows, r)
				}
			}
			lo += len(leaf.rows) - at
			return lo < hi
		})
		return in.gather(f, rows, ft)
	}
	pg := page{total: -1}
	if exact {
		pg.total = hi - lo
		skip := min(ft.offset, hi-lo)
		if desc {
			hi -= skip
		} else {
			lo += skip
		}
		ft.offset, ft.count = 0, false
	}
	if desc {
		in.walkDown(f, ix, lo, hi, ft, exact, &pg, &steps)
	} else {
		in.walkUp(f, ix, lo, hi, ft, exact, &pg, &steps)
	}
	return pg
}

// walkUp collects matching rows of the ranks [lo, hi); whole leaves become segments.
func (in *Instance) walkUp(f *filter, ix index, lo, hi int, ft fetch, exact bool, pg *page, steps *int64) {
	matched := 0
	left := hi - lo
	if left <= 0 || ft.limit <= 0 && !ft.count {
		if !exact {
			pg.total = 0
		}
		return
	}
	ix.ascend(lo, func(leaf *node, at int) bool {
		rows := leaf.rows[at:min(len(leaf.rows), at+left)]
		left -= len(rows)
		begin := len(pg.rows)
		for _, r := range rows {
			if len(pg.rows) >= ft.limit && !ft.count {
				break
			}
			*steps++
			if !exact && !f.match(r) {
				continue
			}
			matched++
			if matched > ft.offset && len(pg.rows) < ft.limit {
				pg.rows = append(pg.rows, r)
			}
		}
		if len(pg.rows)-begin == len(leaf.rows) {
			pg.segs = append(pg.segs, segment{gen: leaf.gen, from: begin, to: len(pg.rows)})
		}
		return left > 0 && (ft.count || len(pg.rows) < ft.limit)
	})
	if !exact && ft.count {
		pg.total = matched
	}
}

func (in *Instance) walkDown(f *filter, ix index, lo, hi int, ft fetch, exact bool, pg *page, steps *int64) {
	matched, left := 0, hi-lo
	if left > 0 {
		ix.descend(hi-1, func(leaf *node, at int) bool {
			for ; at >= 0 && left > 0; at-- {
				if len(pg.rows) >= ft.limit && !ft.count {
					return false
				}
				left--
				*steps++
				if !exact && !f.match(leaf.rows[at]) {
					continue
				}
				matched++
				if matched > ft.offset && len(pg.rows) < ft.limit {
					pg.rows = append(pg.rows, leaf.rows[at])
				}
			}
			return left > 0
		})
	}
	if !exact && ft.count {
		pg.total = matched
	}
}

// points returns the ids that the query names, when every group names some.
func (f *filter) points() ([]string, bool) {
	var ids []string
	for _, g := range f.groups {
		found := false
		for _, cl := range g.terms {
			if len(cl.terms) == 1 && cl.terms[0].field == "sys_id" && cl.terms[0].value != "" {
				switch cl.terms[0].op {
				case "=":
					ids, found = append(ids, cl.terms[0].value), true
				case "IN":
					ids, found = append(ids, strings.Split(cl.terms[0].value, ",")...), true
				}
			}
		}
		if !found {
			return nil, false
		}
	}
	return ids, true
}

func (in *Instance) lookup(t *table, f *filter, ids []string, steps *int64) []*row {
	var rows []*row
	seen := map[*row]bool{}
	for _, id := range ids {
		*steps++
		if r := in.find(t, id); r != nil && !seen[r] && f.match(r) {
			seen[r] = true
			rows = append(rows, r)
		}
	}
	sort.Slice(rows, func(i, j int) bool { return rows[i].key < rows[j].key })
	return rows
}

// gather orders all matching rows and cuts the page out of them.
func (in *Instance) gather(f *filter, rows []*row, ft fetch) page {
	if len(f.order) > 0 {
		sort.SliceStable(rows, func(i, j int) bool {
			for _, k := range f.order {
				a, b := k.read(rows[i]), k.read(rows[j])
				if k.col.kind == "string" {
					a, b = strings.ToLower(a), strings.ToLower(b)
				}
				c := 0
				if a == "" || b == "" {
					c = strings.Compare(a, b)
				} else {
					c = in.compareValues(k.col, a, b)
				}
				if k.desc {
					c = -c
				}
				if c != 0 {
					return c < 0
				}
			}
			return false
		})
	} else if ft.shuffle != 0 {
		at := func(r *row) uint64 { return mix(ft.shuffle, r.key) }
		sort.Slice(rows, func(i, j int) bool { return at(rows[i]) < at(rows[j]) })
	}
	total := len(rows)
	rows = rows[min(ft.offset, len(rows)):]
	return page{rows: rows[:min(max(ft.limit, 0), len(rows))], total: total}
}
