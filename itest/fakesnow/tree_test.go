package fakesnow

import (
	"fmt"
	"slices"
	"sort"
	"testing"

	"pgregory.net/rapid"
)

// TestTreeAgainstSortedSlice drives the index with random changes and compares order, ranks and walks
// with a plain sorted slice.
func TestTreeAgainstSortedSlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var gen uint64
		kind := byUpdated
		var model []*row
		n := rapid.IntRange(0, 900).Draw(t, "n")
		seconds := rapid.IntRange(1, 50).Draw(t, "seconds")
		rows := make([]*row, n)
		for i := range rows {
			rows[i] = &row{key: fmt.Sprintf("%08x", mix(uint64(i), "k")&0xffffffff), updated: fmt.Sprintf("t%03d", mix(uint64(i), "t")%uint64(seconds))}
		}
		less := func(i, j int) bool { return kind.less(model[i], model[j]) }
		bulk := rapid.IntRange(0, n).Draw(t, "bulk")
		model = append(model, rows[:bulk]...)
		sort.Slice(model, less)
		tr := newTree(kind, &gen, model)
		for _, r := range rows[bulk:] {
			tr.insert(r)
			model = append(model, r)
		}
		drop := rapid.IntRange(0, n).Draw(t, "drop")
		for i := range drop {
			at := int(mix(uint64(i), "d") % uint64(len(model)))
			tr.remove(model[at])
			model = slices.Delete(model, at, at+1)
		}
		for i := range min(20, len(model)) {
			next := *model[i]
			tr.swap(model[i], &next)
			model[i] = &next
		}
		sort.Slice(model, less)

		if tr.root.n != len(model) {
			t.Fatalf("%d rows in the tree, want %d", tr.root.n, len(model))
		}
		for _, from := range []int{0, len(model) / 3, len(model)} {
			var got []*row
			tr.ascend(from, func(leaf *node, at int) bool { got = append(got, leaf.rows[at:]...); return true })
			if !slices.Equal(got, model[from:]) {
				t.Fatalf("ascending from %d gives %d rows, want %d", from, len(got), len(model)-from)
			}
			got = nil
			tr.descend(from-1, func(leaf *node, at int) bool {
				for ; at >= 0; at-- {
					got = append(got, leaf.rows[at])
				}
				return true
			})
			slices.Reverse(got)
			if !slices.Equal(got, model[:from]) {
				t.Fatalf("descending from %d gives %d rows", from, len(got))
			}
		}
		var steps int64
		for i := 0; i < len(model); i += 17 {
			m := model[i]
			for _, b := range []bound{{t: m.updated, tpos: -1}, {t: m.updated, tpos: 1}, {t: m.updated, id: m.key, ipos: -1}, {t: m.updated, id: m.key, ipos: 1}} {
				want := 0
				for _, r := range model {
					if kind.before(r, b) {
						want++
					}
				}
				if got := tr.rank(b, &steps); got != want {
					t.Fatalf("rank of %+v is %d, want %d", b, got, want)
				}
			}
		}
	})
}

func TestCRCCombine(t *testing.T) {
	for _, cut := range []int{0, 1, 7, 100, 4999} {
		text := make([]byte, 5000)
		for i := range text {
			text[i] = byte(i * 7)
		}
		var whole, parts gluer
		whole.gzip, parts.gzip = true, true
		whole.plain(text)
		parts.plain(text[:cut])
		parts.flush()
		parts.plain(text[cut:])
		w, p := whole.finish(), parts.finish()
		if a, b := w[len(w)-1][5:], p[len(p)-1][5:]; !slices.Equal(a, b) {
			t.Errorf("cut at %d: trailer %x, want %x", cut, b, a)
		}
	}
}

func TestBlockCacheIsBounded(t *testing.T) {
	var c blockCache
	c.init(10_000)
	for i := range 100 {
		c.put(blockKey{gen: uint64(i)}, block{data: make([]byte, 1000)})
	}
	if c.used > 10_000 || len(c.items) == 0 || len(c.items) != c.order.Len() {
		t.Fatalf("%d bytes in %d blocks", c.used, len(c.items))
	}
	if _, ok := c.get(blockKey{gen: 99}); !ok {
		t.Fatal("the newest block is gone")
	}
	if _, ok := c.get(blockKey{gen: 0}); ok {
		t.Fatal("the oldest block is still there")
	}
}
