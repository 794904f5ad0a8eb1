package fakesnow

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"
)

// computed is a table whose rows are made from their number when they are read: 10^7 rows without the
// memory of storing them. Times and ids rise with the number, so that every index has one order.
type computed struct {
	t     *table
	n     int
	seed  uint64
	step  uint64 // between the first 16 hex digits of neighbouring ids
	start time.Time
	span  time.Duration
	gen   uint64 // identity of block 0

	mu   sync.Mutex
	make *generator
}

// GenerateComputed turns a table into n rows like those of Generate that are not stored but computed
// from their number. The table is read only, its earlier rows and its parents do not show in it or see
// it, and Snapshot does not hold it. A further call replaces the rows.
func (in *Instance) GenerateComputed(table string, n int, g GenOptions) {
	if g.Span == 0 && !g.OneSecond {
		g.Span = 30 * 24 * time.Hour
	}
	if g.Start.IsZero() {
		g.Start = in.Now().Add(-g.Span)
	}
	seed := in.opts.Seed
	if g.Seed != 0 {
		seed = g.Seed
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	t := in.ensureTable(table)
	c := &computed{
		t: t, n: n, seed: mix(uint64(seed), table), step: ^uint64(0) / uint64(max(n, 1)), // bits
		start: g.Start.UTC().Truncate(time.Second), span: g.Span,
	}
	in.leafGen++
	c.gen = 1<<63 | in.leafGen<<32
	c.make = &generator{rnd: rand.New(rand.NewPCG(c.seed, 0)), t: t, in: in, short: g.MinimalFields} //nolint:gosec // repeatable on purpose
	c.make.prepare()
	t.comp, t.count = c, n
}

func (c *computed) stamp(i int) string {
	at := c.start
	if c.n > 1 {
		at = at.Add(time.Duration(float64(c.span) * float64(i) / float64(c.n-1)))
	}
	return at.Format(Stamp)
}

func (c *computed) id(i int) string {
	high := uint64(i) * c.step // bits
	return fmt.Sprintf("%016x%016x", high, mix(c.seed+high, "id"))
}

// key is row i with its index keys and nothing else.
func (c *computed) key(i int) *row {
	id, at := c.id(i), c.stamp(i)
	return &row{class: c.t, id: id, key: id, updated: at, created: at}
}

func (c *computed) row(i int) *row {
	r := c.key(i)
	r.compute = func() []string {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.make.rnd = rand.New(rand.NewPCG(c.seed, uint64(i))) //nolint:gosec // repeatable on purpose
		at, _ := time.Parse(Stamp, r.updated)
		vals := c.make.row(i+1, at, "").vals
		vals[c.make.pos["sys_id"]] = r.id
		return vals
	}
	return r
}

func (c *computed) find(id string) *row {
	id = strings.ToLower(id)
	if len(id) != 32 {
		return nil
	}
	high, err := strconv.ParseUint(id[:16], 16, 64)
	if err != nil || c.step == 0 || high/c.step >= uint64(c.n) { // n is positive
		return nil
	}
	if i := int(high / c.step); c.id(i) == id { // below n
		return c.row(i)
	}
	return nil
}

// computedIndex is every index of a computed table.
type computedIndex struct {
	*computed
	kind indexKind
}

func (x computedIndex) what() indexKind { return x.kind }
func (x computedIndex) count() int      { return x.n }

func (x computedIndex) rank(b bound, steps *int64) int {
	lo, hi := 0, x.n
	for lo < hi {
		*steps++
		mid := (lo + hi) / 2
		if x.kind.before(x.key(mid), b) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

func (x computedIndex) leaf(number int) *node {
	from := number * leafBulk
	n := &node{gen: x.gen + uint64(number)} // not negative
	for i := from; i < min(from+leafBulk, x.n); i++ {
		n.rows = append(n.rows, x.row(i))
	}
	return n
}

func (x computedIndex) ascend(from int, fn func(*node, int) bool) {
	for from < x.n {
		number := from / leafBulk
		if !fn(x.leaf(number), from-number*leafBulk) {
			return
		}
		from = (number + 1) * leafBulk
	}
}

func (x computedIndex) descend(from int, fn func(*node, int) bool) {
	for from = min(from, x.n-1); from >= 0; {
		number := from / leafBulk
		if !fn(x.leaf(number), from-number*leafBulk) {
			return
		}
		from = number*leafBulk - 1
	}
}
