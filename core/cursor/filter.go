package cursor

import (
	"hash/maphash"
)

// Version identifies one version of one row.
type Version struct {
	Time  Timestamp
	SysID string
	// Mod is sys_mod_count, or a hash of the row on tables without it.
	Mod string
}

type hash128 struct{ a, b uint64 }

// Filter holds the published row versions of the re-read window as 128-bit
// hashes, so that a row that is read again is not published again.
type Filter struct {
	seedA, seedB maphash.Seed
	known        map[hash128]struct{}
	seconds      map[Timestamp][]hash128
	newest       Timestamp
}

// NewFilter returns an empty filter.
func NewFilter() *Filter {
	return &Filter{
		seedA: maphash.MakeSeed(), seedB: maphash.MakeSeed(),
		known: map[hash128]struct{}{}, seconds: map[Timestamp][]hash128{}, newest: None,
	}
}

func (f *Filter) hash(v Version) hash128 {
	var buf [128]byte
	b := append(buf[:0], v.SysID...)
	b = append(b, 0)
	b = append(b, v.Mod...)
	for shift := 0; shift < 64; shift += 8 {
		b = append(b, byte(int64(v.Time)>>shift))
	}
	return hash128{maphash.Bytes(f.seedA, b), maphash.Bytes(f.seedB, b)}
}

// Len returns the number of versions held.
func (f *Filter) Len() int { return len(f.known) }

// Has says whether v was published.
func (f *Filter) Has(v Version) bool {
	if v.Time > f.newest {
		return false
	}
	_, ok := f.known[f.hash(v)]
	return ok
}

// Add remembers v and says whether it was new.
func (f *Filter) Add(v Version) bool {
	h := f.hash(v)
	if _, ok := f.known[h]; ok {
		return false
	}
	f.known[h] = struct{}{}
	f.seconds[v.Time] = append(f.seconds[v.Time], h)
	f.newest = max(f.newest, v.Time)
	return true
}

// Remove forgets v, which was added for a page that was then not published.
func (f *Filter) Remove(v Version) {
	h := f.hash(v)
	if _, ok := f.known[h]; !ok {
		return
	}
	delete(f.known, h)
	s := f.seconds[v.Time]
	for i := len(s) - 1; i >= 0; i-- {
		if s[i] == h {
			s[i] = s[len(s)-1]
			s = s[:len(s)-1]
			break
		}
	}
	if len(s) == 0 {
		delete(f.seconds, v.Time)
	} else {
		f.seconds[v.Time] = s
	}
}

// Cut forgets every version that is not later than horizon.
func (f *Filter) Cut(horizon Timestamp) {
	for t, s := range f.seconds {
		if t <= horizon {
			for _, h := range s {
				delete(f.known, h)
			}
			delete(f.seconds, t)
		}
	}
}

// Any says whether a version with lo < time <= hi is held.
func (f *Filter) Any(lo, hi Timestamp) bool {
	for t := range f.seconds {
		if lo < t && t <= hi {
			return true
		}
	}
	return false
}

// Newest returns the time of the latest version ever added, None if there was none.
func (f *Filter) Newest() Timestamp { return f.newest }
