package lane

import (
	"slices"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMarkRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		committed := rapid.Int64Range(0, 1<<40).Draw(t, "committed")
		m := Mark{At: committed + rapid.Int64Range(0, 5000).Draw(t, "ahead")}
		for _, d := range rapid.SliceOfNDistinct(rapid.Int64Range(0, 999), 0, 200, rapid.ID[int64]).Draw(t, "done") {
			m.Done = append(m.Done, committed+d)
		}
		slices.Sort(m.Done)
		s := m.Encode(committed)
		if len(s) > 1024 {
			t.Fatalf("%d bytes of metadata", len(s))
		}
		got, err := ParseMark(committed, s)
		if err != nil || got.At != m.At || !slices.Equal(got.Done, m.Done) {
			t.Fatalf("%+v, %v; want %+v", got, err, m)
		}
	})
}

func TestForeignMetadata(t *testing.T) {
	for _, s := range []string{"", "kgo-1234", "{", `{"v":1`} {
		if m, err := ParseMark(7, s); err != nil || m.At != 7 || m.Done != nil {
			t.Errorf("%q: %+v, %v", s, m, err)
		}
	}
	for _, s := range []string{`{"v":2,"mark":9}`, `{"v":1,"mark":9,"done":"*"}`} {
		if _, err := ParseMark(7, s); err == nil {
			t.Errorf("%q was accepted", s)
		}
	}
}

// TestLaneUnderCrashes drives lanes with random deliveries, outcomes, commits
// and crashes: records go out in order and one at a time; a create goes out only
// under a committed mark; after a crash whatever may have been sent is in doubt
// or finished, and at most one create is; nothing unfinished is ever committed.
func TestLaneUnderCrashes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type rec struct {
			offset int64
			create bool
		}
		var topic []rec
		next := int64(0)
		for range rapid.IntRange(1, 60).Draw(t, "records") {
			next += rapid.Int64Range(1, 3).Draw(t, "gap")
			topic = append(topic, rec{next - 1, rapid.Bool().Draw(t, "create")})
		}
		sent, finished := map[int64]bool{}, map[int64]bool{}
		committed, meta := int64(0), ""
		open := func() *Lane {
			m, err := ParseMark(committed, meta)
			if err != nil {
				t.Fatal(err)
			}
			return New(committed, m)
		}
		l := open()
		commit := func(ending bool) {
			at, m := l.Commit(ending)
			if at < committed {
				t.Fatalf("the commit went back from %d to %d", committed, at)
			}
			for _, r := range topic {
				if r.offset < at && !finished[r.offset] {
					t.Fatalf("offset %d committed, %d is unfinished", at, r.offset)
				}
			}
			committed, meta = at, m.Encode(at)
			l.Committed(m)
		}
		flying := int64(-1)
		for range rapid.IntRange(1, 400).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "do") {
			case 0, 1, 2: // deliver the next record
				for _, r := range topic {
					if r.offset >= l.end {
						l.Add(r.offset, r.create)
						break
					}
				}
			case 3, 4, 5:
				o, d, covered, ok := l.Next()
				if !ok {
					break
				}
				i := slices.IndexFunc(topic, func(r rec) bool { return r.offset == o })
				for _, r := range topic[:i] {
					if !finished[r.offset] {
						t.Fatalf("%d goes out before %d is finished", o, r.offset)
					}
				}
				if finished[o] && d == Fresh {
					t.Fatalf("finished record %d goes out as fresh", o)
				}
				if !covered {
					commit(false)
					if _, _, covered, _ = l.Next(); !covered {
						t.Fatalf("offset %d is not covered after the commit", o)
					}
				}
				if sent[o] && d == Fresh && topic[i].create {
					t.Fatalf("create %d was sent and is not in doubt", o)
				}
				l.Sent(o)
				sent[o] = true
				flying = o
			case 6, 7:
				if flying >= 0 && l.InFlight() {
					l.Finish(flying)
					finished[flying] = true
					flying = -1
				}
			case 8:
				commit(false)
			case 9:
				if rapid.Bool().Draw(t, "orderly") {
					commit(true)
				}
				l, flying = open(), -1
				doubtful := 0
				for _, r := range topic {
					if r.create && r.offset >= committed && r.offset < l.doubt && !l.done[r.offset] {
						doubtful++
					}
					if r.create && sent[r.offset] && r.offset >= committed && r.offset >= l.doubt && !l.done[r.offset] {
						t.Fatalf("create %d was sent, and the mark %d does not say so", r.offset, l.doubt)
					}
				}
				if doubtful > 1 {
					t.Fatalf("%d creates are in doubt, one can have been in flight", doubtful)
				}
			}
		}
	})
}
