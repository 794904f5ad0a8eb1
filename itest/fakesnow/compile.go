package fakesnow

import (
	"math/big"
	"strconv"
	"strings"
	"time"
)

// scope is what a query is read with: its table, the user and the settings of the moment.
type scope struct {
	in     *Instance
	t      *table
	user   *user
	policy string // of invalid terms
	bad    bool   // an invalid term was met
	noTime bool   // the extra_rows fault: terms on cursor fields are ignored
}

// getter reads a field, or a field of a referenced record, from a row.
type getter struct {
	col  *column
	name string
	read func(*row) string
}

// filter is a compiled query. The caller holds in.mu for reading while it is used.
type filter struct {
	groups []compiled
	order  []sortKey
	reject bool // nothing matches (an invalid query under "empty")
}

type compiled struct {
	clauses []test
	terms   []clause // what remained of each clause, beside clauses
}

type test func(*row) bool

type sortKey struct {
	getter
	desc bool
}

// getter resolves a field or dot-walked path on a table; nil when it does not exist for this user.
func (in *Instance) getter(t *table, u *user, path string) *getter {
	name, rest, dotted := strings.Cut(path, ".")
	col := t.lay.col(name)
	if col == nil || in.isHidden(u, t, name) || t.view && strings.HasPrefix(name, "sys_") {
		return nil
	}
	if !dotted {
		return &getter{col: col, name: name, read: func(r *row) string { return r.get(name) }}
	}
	target := in.tables[col.target()]
	if !col.isReference() || target == nil {
		return nil
	}
	next := in.getter(target, u, rest)
	if next == nil {
		return nil
	}
	return &getter{col: next.col, name: path, read: func(r *row) string {
		if ref := in.find(target, r.get(name)); ref != nil {
			return next.read(ref)
		}
		return ""
	}}
}

// compile resolves the fields of a query. Invalid terms are dropped and noted in sc.bad.
func (sc *scope) compile(q *query) *filter {
	f := &filter{}
	for _, g := range q.groups {
		var c compiled
		for _, cl := range g.clauses {
			var tests []test
			kept := clause{}
			for _, tm := range cl.terms {
				if sc.noTime && (strings.HasPrefix(tm.field, "sys_updated_on") || strings.HasPrefix(tm.field, "sys_created_on") || tm.field == "sys_id") {
					continue
				}
				var get *getter
				if !tm.bad {
					get = sc.in.getter(sc.t, sc.user, tm.field)
				}
				var fn test
				if get != nil {
					tm.value = sc.literal(get.col, tm.value)
					fn = sc.test(get, tm)
				}
				if fn == nil {
					sc.bad = true
					continue
				}
				tests = append(tests, fn)
				kept.terms = append(kept.terms, tm)
			}
			if len(tests) == 0 {
				continue
			}
			c.terms = append(c.terms, kept)
			c.clauses = append(c.clauses, anyOf(tests))
		}
		f.groups = append(f.groups, c)
	}
	for _, o := range q.order {
		if get := sc.in.getter(sc.t, sc.user, o.field); get != nil {
			f.order = append(f.order, sortKey{getter: *get, desc: o.desc})
		}
	}
	f.reject = sc.bad && sc.policy == "empty"
	return f
}

func anyOf(tests []test) test {
	if len(tests) == 1 {
		return tests[0]
	}
	return func(r *row) bool {
		for _, fn := range tests {
			if fn(r) {
				return true
			}
		}
		return false
	}
}

func (f *filter) match(r *row) bool {
	for _, g := range f.groups {
		ok := true
		for _, fn := range g.clauses {
			if !fn(r) {
				ok = false
				break
			}
		}
		if ok {
			return true
		}
	}
	return false
}

// compare orders two values of a column; ok is false when one has no value to compare.
func (sc *scope) compare(col *column, a, b string) (c int, ok bool) {
	if a == "" || b == "" {
		return 0, false
	}
	return sc.in.compareValues(col, a, b), true
}

func (in *Instance) compareValues(col *column, a, b string) int {
	if col.isNumber() {
		x, errX := strconv.ParseInt(a, 10, 64)
		y, errY := strconv.ParseInt(b, 10, 64)
		if errX == nil && errY == nil {
			switch {
			case x < y:
				return -1
			case x > y:
				return 1
			}
			return 0
		}
		fx, okX := new(big.Rat).SetString(a)
		fy, okY := new(big.Rat).SetString(b)
		if okX && okY && len(a) < 64 && len(b) < 64 {
			return fx.Cmp(fy)
		}
	}
	if col.name == "sys_id" {
		return strings.Compare(in.fold(a), in.fold(b))
	}
	return strings.Compare(a, b)
}

func (sc *scope) test(get *getter, tm term) test {
	col, read, want := get.col, get.read, tm.value
	equal := func(v string) bool { return v == want }
	if col.isNumber() && want != "" {
		equal = func(v string) bool { return v == want || v != "" && sc.in.compareValues(col, v, want) == 0 }
	}
	cmp := func(ok func(int) bool) test {
		return func(r *row) bool {
			c, has := sc.compare(col, read(r), want)
			return has && ok(c)
		}
	}
	list := func() map[string]bool {
		set := map[string]bool{}
		for _, v := range strings.Split(want, ",") {
			set[v] = true
		}
		return set
	}
	switch tm.op {
	case "=":
		return func(r *row) bool { return equal(read(r)) }
	case "!=":
		return func(r *row) bool { return !equal(read(r)) }
	case ">":
		return cmp(func(c int) bool { return c > 0 })
	case ">=":
		return cmp(func(c int) bool { return c >= 0 })
	case "<":
		return cmp(func(c int) bool { return c < 0 })
	case "<=":
		return cmp(func(c int) bool { return c <= 0 })
	case "LIKE":
		return func(r *row) bool { return strings.Contains(read(r), want) }
	case "NOT LIKE":
		return func(r *row) bool { return !strings.Contains(read(r), want) }
	case "STARTSWITH":
		return func(r *row) bool { return strings.HasPrefix(read(r), want) }
	case "ENDSWITH":
		return func(r *row) bool { return strings.HasSuffix(read(r), want) }
	case "IN":
		set := list()
		return func(r *row) bool { return set[read(r)] }
	case "NOT IN":
		set := list()
		return func(r *row) bool { return !set[read(r)] }
	case "ISEMPTY", "EMPTYSTRING":
		return func(r *row) bool { return read(r) == "" }
	case "ISNOTEMPTY":
		return func(r *row) bool { return read(r) != "" }
	case "ANYTHING":
		return func(*row) bool { return true }
	case "BETWEEN":
		lo, hi, _ := strings.Cut(want, "@")
		return func(r *row) bool {
			v := read(r)
			a, okA := sc.compare(col, v, lo)
			b, okB := sc.compare(col, v, hi)
			return okA && okB && a >= 0 && b <= 0
		}
	case "SAMEAS", "NSAMEAS":
		other := sc.in.getter(sc.t, sc.user, want)
		if other == nil {
			return nil
		}
		same := tm.op == "SAMEAS"
		return func(r *row) bool { return (read(r) == other.read(r)) == same }
	}
	return nil
}

// literal turns a value of a query into a stored one: script functions are run, and times are moved
// from the user's zone to UTC when the instance reads literals so.
func (sc *scope) literal(col *column, value string) string {
	if lo, hi, ok := strings.Cut(value, "@"); ok && col.isTime() {
		return sc.literal(col, lo) + "@" + sc.literal(col, hi)
	}
	if script, ok := strings.CutPrefix(value, "javascript:"); ok {
		return sc.script(script, value)
	}
	if col.isTime() && sc.in.settings[SettingLiteralZone] == "user" {
		return sc.toUTC(value)
	}
	return value
}

func (sc *scope) toUTC(value string) string {
	t, err := time.ParseInLocation(Stamp, value, sc.user.location(sc.in))
	if err != nil {
		return value
	}
	return t.UTC().Format(Stamp)
}

func (sc *scope) script(script, whole string) string {
	name, args, _ := strings.Cut(strings.TrimSuffix(strings.TrimSpace(script), ";"), "(")
	args = strings.TrimSuffix(args, ")")
	parts := strings.Split(args, ",")
	for i := range parts {
		parts[i] = strings.Trim(strings.TrimSpace(parts[i]), `'"`)
	}
	now := sc.in.Now()
	ago := func(unit time.Duration) string {
		n, _ := strconv.Atoi(parts[0])
		return now.Add(-time.Duration(n) * unit).Format(Stamp)
	}
	switch name {
	case "gs.dateGenerate":
		if len(parts) != 2 {
			return whole
		}
		return sc.toUTC(parts[0] + " " + parts[1])
	case "gs.getUserID":
		return sc.user.id
	case "gs.nowDateTime":
		return now.Format(Stamp)
	case "gs.minutesAgo":
		return ago(time.Minute)
	case "gs.hoursAgo":
		return ago(time.Hour)
	case "gs.daysAgo":
		return ago(24 * time.Hour)
	}
	return whole
}
