package fakesnow

import "strings"

// Sizes of the ordered index. A full leaf read in order is also one cached block of a page.
const (
	leafMax  = 128
	leafBulk = 100
	kidsMax  = 64
)

type indexKind int

const (
	byID indexKind = iota
	byUpdated
	byCreated
	indexKinds
)

// tree is an order-statistics B+ tree over rows: every node knows how many rows are below it, so that
// a rank, a count of a range and the n-th row cost one descent.
type tree struct {
	kind indexKind
	root *node
	gen  *uint64 // counter of the instance; each leaf content has a number of its own
}

// index is what a list needs of an ordered index; a tree, or rows that are computed.
type index interface {
	what() indexKind
	count() int
	rank(b bound, steps *int64) int
	ascend(from int, fn func(leaf *node, at int) bool)
	descend(from int, fn func(leaf *node, at int) bool)
}

func (t *tree) what() indexKind { return t.kind }
func (t *tree) count() int      { return t.root.n }

type node struct {
	rows []*row  // leaf
	gen  uint64  // leaf: identity of its present content
	kids []*node // inner
	n    int     // rows below
	min  *row
}

// bound is a position between rows: before or after everything at time t (tpos -1, +1), or at t
// before or after an id (tpos 0, ipos -1 or +1). In the id index every row has time "".
type bound struct {
	t    string
	tpos int
	id   string
	ipos int
}

func (k indexKind) time(r *row) string {
	switch k {
	case byUpdated:
		return r.updated
	case byCreated:
		return r.created
	default:
		return ""
	}
}

func (k indexKind) less(a, b *row) bool {
	if c := strings.Compare(k.time(a), k.time(b)); c != 0 {
		return c < 0
	}
	return a.key < b.key
}

// before tells whether r lies left of the bound.
func (k indexKind) before(r *row, b bound) bool {
	if c := strings.Compare(k.time(r), b.t); c != 0 {
		return c < 0
	}
	if b.tpos != 0 {
		return b.tpos > 0
	}
	if c := strings.Compare(r.key, b.id); c != 0 {
		return c < 0
	}
	return b.ipos > 0
}

func (t *tree) nextGen() uint64 { *t.gen++; return *t.gen }

func newTree(kind indexKind, gen *uint64, sorted []*row) *tree {
	t := &tree{kind: kind, gen: gen}
	var level []*node
	for at := 0; at < len(sorted); at += leafBulk {
		end := min(at+leafBulk, len(sorted))
		rows := append(make([]*row, 0, leafMax), sorted[at:end]...)
		level = append(level, &node{rows: rows, gen: t.nextGen(), n: len(rows), min: rows[0]})
	}
	if len(level) == 0 {
		t.root = &node{gen: t.nextGen()}
		return t
	}
	for len(level) > 1 {
		var up []*node
		for at := 0; at < len(level); at += kidsMax / 2 {
			kids := append([]*node(nil), level[at:min(at+kidsMax/2, len(level))]...)
			n := &node{kids: kids, min: kids[0].min}
			for _, k := range kids {
				n.n += k.n
			}
			up = append(up, n)
		}
		level = up
	}
	t.root = level[0]
	return t
}

// seat is the index of the kid that a row with this key belongs to.
func (t *tree) seat(n *node, r *row) int {
	lo, hi := 0, len(n.kids)-1
	for lo < hi {
		mid := (lo + hi + 1) / 2
		if t.kind.less(r, n.kids[mid].min) {
			hi = mid - 1
		} else {
			lo = mid
		}
	}
	return lo
}

func (t *tree) slot(rows []*row, r *row) int {
	lo, hi := 0, len(rows)
	for lo < hi {
		mid := (lo + hi) / 2
		if t.kind.less(rows[mid], r) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

func (t *tree) insert(r *row) {
	if right := t.put(t.root, r); right != nil {
		left := t.root
		t.root = &node{kids: []*node{left, right}, n: left.n + right.n, min: left.min}
	}
}

// put inserts below n and returns a new right neighbour when n was split.
func (t *tree) put(n *node, r *row) *node {
	n.n++
	if n.kids == nil {
		at := t.slot(n.rows, r)
		n.rows = append(n.rows, nil)
		copy(n.rows[at+1:], n.rows[at:])
		n.rows[at] = r
		n.min, n.gen = n.rows[0], t.nextGen()
		if len(n.rows) <= leafMax {
			return nil
		}
		cut := len(n.rows) / 2
		if at == len(n.rows)-1 {
			cut = leafBulk // rows arriving in order leave full leaves behind
		}
		right := &node{rows: append(make([]*row, 0, leafMax+1), n.rows[cut:]...), gen: t.nextGen()}
		clear(n.rows[cut:])
		n.rows = n.rows[:cut]
		n.n, right.n, right.min = cut, len(right.rows), right.rows[0]
		return right
	}
	at := t.seat(n, r)
	right := t.put(n.kids[at], r)
	n.min = n.kids[0].min
	if right == nil {
		return nil
	}
	n.kids = append(n.kids, nil)
	copy(n.kids[at+2:], n.kids[at+1:])
	n.kids[at+1] = right
	if len(n.kids) <= kidsMax {
		return nil
	}
	cut := len(n.kids) / 2
	half := &node{kids: append([]*node(nil), n.kids[cut:]...)}
	clear(n.kids[cut:])
	n.kids = n.kids[:cut]
	for _, k := range half.kids {
		half.n += k.n
	}
	n.n -= half.n
	half.min = half.kids[0].min
	return half
}

// remove takes out the very row r; it must be in the tree.
func (t *tree) remove(r *row) {
	t.take(t.root, r)
	for len(t.root.kids) == 1 {
		t.root = t.root.kids[0]
	}
}

func (t *tree) take(n *node, r *row) {
	n.n--
	if n.kids == nil {
		at := t.slot(n.rows, r)
		if at >= len(n.rows) || n.rows[at].key != r.key {
			panic("fakesnow: index out of step with its rows")
		}
		n.rows = append(n.rows[:at], n.rows[at+1:]...)
		n.gen = t.nextGen()
		n.min = nil
		if len(n.rows) > 0 {
			n.min = n.rows[0]
		}
		return
	}
	at := t.seat(n, r)
	t.take(n.kids[at], r)
	t.tidy(n, at)
	n.min = nil
	if len(n.kids) > 0 {
		n.min = n.kids[0].min
	}
	if len(n.kids) == 0 { // the last row is gone: an empty leaf
		n.kids, n.rows, n.gen = nil, nil, t.nextGen()
	}
}

// tidy drops an empty kid or joins a small one to its neighbour.
func (t *tree) tidy(n *node, at int) {
	kid := n.kids[at]
	if kid.n == 0 {
		n.kids = append(n.kids[:at], n.kids[at+1:]...)
		return
	}
	if at+1 >= len(n.kids) {
		at--
	}
	if at < 0 {
		return
	}
	a, b := n.kids[at], n.kids[at+1]
	switch {
	case a.kids == nil && b.kids == nil && min(a.n, b.n) < leafMax/4 && a.n+b.n <= leafMax*3/4:
		a.rows = append(a.rows, b.rows...)
		a.gen = t.nextGen()
	case a.kids != nil && b.kids != nil && min(len(a.kids), len(b.kids)) < kidsMax/4 && len(a.kids)+len(b.kids) <= kidsMax*3/4:
		a.kids = append(a.kids, b.kids...)
	default:
		return
	}
	a.n += b.n
	n.kids = append(n.kids[:at+1], n.kids[at+2:]...)
}

// swap replaces old by a row with the same key.
func (t *tree) swap(old, next *row) {
	n := t.root
	var path []*node
	for n.kids != nil {
		path = append(path, n)
		n = n.kids[t.seat(n, old)]
	}
	at := t.slot(n.rows, old)
	n.rows[at] = next
	n.gen, n.min = t.nextGen(), n.rows[0]
	for i := len(path) - 1; i >= 0; i-- {
		path[i].min = path[i].kids[0].min
	}
}

// rank counts the rows left of the bound; steps is increased by the comparisons made.
func (t *tree) rank(b bound, steps *int64) int {
	n, rank := t.root, 0
	for n.kids != nil {
		lo, hi := 0, len(n.kids)-1 // the last kid whose first row is left of b
		for lo < hi {
			*steps++
			mid := (lo + hi + 1) / 2
			if t.kind.before(n.kids[mid].min, b) {
				lo = mid
			} else {
				hi = mid - 1
			}
		}
		for _, k := range n.kids[:lo] {
			rank += k.n
		}
		n = n.kids[lo]
	}
	lo, hi := 0, len(n.rows)
	for lo < hi {
		*steps++
		mid := (lo + hi) / 2
		if t.kind.before(n.rows[mid], b) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return rank + lo
}

// ascend visits leaves from the row with this rank on; fn gets a leaf and the offset to begin at and
// returns false to stop.
func (t *tree) ascend(from int, fn func(leaf *node, at int) bool) { ascend(t.root, from, fn) }

func ascend(n *node, from int, fn func(*node, int) bool) bool {
	if n.kids == nil {
		return from >= len(n.rows) || fn(n, from)
	}
	for _, k := range n.kids {
		if from >= k.n {
			from -= k.n
			continue
		}
		if !ascend(k, from, fn) {
			return false
		}
		from = 0
	}
	return true
}

// descend visits leaves backwards from the row with this rank; at is the last row to visit.
func (t *tree) descend(from int, fn func(leaf *node, at int) bool) { descend(t.root, from, fn) }

func descend(n *node, from int, fn func(*node, int) bool) bool {
	if from < 0 {
		return true
	}
	if n.kids == nil {
		return fn(n, min(from, len(n.rows)-1))
	}
	base := n.n
	for i := len(n.kids) - 1; i >= 0; i-- {
		k := n.kids[i]
		base -= k.n
		if from < base {
			continue
		}
		if k.n > 0 && !descend(k, from-base, fn) {
			return false
		}
	}
	return true
}
