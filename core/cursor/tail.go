package cursor

import "maps"

// Tail remembers for the last published pages where they begin in the table's
// topic, so that after a restart the filter is rebuilt from there and not from
// the beginning of the log.
type Tail struct {
	pages []tailPage
}

type tailPage struct {
	newest Timestamp       // largest row time of the page
	before map[int32]int64 // next offset of each partition before the page
}

// tailPages bounds the memory; beyond it neighbouring pages are taken together.
const tailPages = 1024

// Add remembers a page: its newest row and the offsets before it.
func (t *Tail) Add(newest Timestamp, before map[int32]int64) {
	if len(t.pages) >= tailPages {
		merged := t.pages[:0]
		for i := 0; i < len(t.pages); i += 2 {
			p := t.pages[i]
			if i+1 < len(t.pages) {
				p.newest = max(p.newest, t.pages[i+1].newest)
			}
			merged = append(merged, p)
		}
		t.pages = merged
	}
	t.pages = append(t.pages, tailPage{newest, maps.Clone(before)})
}

// Cut forgets the pages at the front that hold nothing later than horizon.
func (t *Tail) Cut(horizon Timestamp) {
	n := 0
	for n < len(t.pages) && t.pages[n].newest <= horizon {
		n++
	}
	t.pages = t.pages[n:]
}

// Begin returns the offsets before the first page remembered, or next when there is none.
func (t *Tail) Begin(next map[int32]int64) map[int32]int64 {
	if len(t.pages) == 0 {
		return next
	}
	return t.pages[0].before
}
