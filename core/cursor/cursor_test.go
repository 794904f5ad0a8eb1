package cursor

import (
	"maps"
	"testing"
	"time"

	"pgregory.net/rapid"

	"snowmelt/core/failure"
)

func TestTimestampIsTimeParse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := time.Unix(rapid.Int64Range(-62135596800, 253402300799).Draw(t, "s"), 0).UTC()
		got, err := ParseTimestamp(want.Format(layout))
		if err != nil || got.Time() != want || got.String() != want.Format(layout) {
			t.Fatalf("%v: %v, %v", want, got, err)
		}
	})
}

func TestTimestampRefuses(t *testing.T) {
	for _, s := range []string{
		"", "2024-02-30 00:00:00", "2023-02-29 00:00:00", "2024-13-01 00:00:00", "2024-00-01 00:00:00", "2024-01-00 00:00:00",
		"2024-01-01T00:00:00", "2024-01-01 24:00:00", "2024-01-01 00:60:00", "2024-01-01 00:00:60", "2024-1-01 000:00:00", "01.01.2024 00:00:00",
		"2024-01-01 00:00:00Z", "2024-01-01", "２024-01-01 00:00:0",
	} {
		if got, err := ParseTimestamp(s); err == nil {
			t.Errorf("%q was read as %v", s, got)
		}
	}
}

// FuzzParseTimestamp holds the parser against time.Parse.
func FuzzParseTimestamp(f *testing.F) {
	f.Add("2024-02-29 23:59:59")
	f.Fuzz(func(t *testing.T, s string) {
		got, err := ParseTimestamp(s)
		want, werr := time.Parse(layout, s)
		if werr == nil && len(s) == len(layout) && (err != nil || got.Time() != want) {
			t.Fatalf("%q: %v, %v; want %v", s, got, err, want)
		}
		if err == nil && werr != nil {
			t.Fatalf("%q was read as %v, time.Parse says %v", s, got, werr)
		}
	})
}

func TestFingerprintIsTheOriginals(t *testing.T) {
	// printf 'incident\nactive=true^priority=1\ntrue' | sha256sum
	const want = "sha256:1d5f2ac3cd86ba1d532bac0d90696e90290112d3f6b3c4b45eb0c57340cb71f6"
	if got := Fingerprint("incident", "  active=true^priority=1\n", true); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if Fingerprint("incident", "a=1 \t\n 2", true) != Fingerprint("incident", "a=1 2", true) {
		t.Error("white space is not folded")
	}
	if Fingerprint("incident", "a=1^b=2", true) == Fingerprint("incident", "b=2^a=1", true) {
		t.Error("the order of terms does not count")
	}
}

func TestOffsetRoundTrip(t *testing.T) {
	stamp := rapid.Custom(func(t *rapid.T) Timestamp { return Timestamp(rapid.Int64Range(0, 4e9).Draw(t, "ts")) })
	rapid.Check(t, func(t *rapid.T) {
		d := Durable{
			Cursor: Cursor{stamp.Draw(t, "time"), rapid.String().Draw(t, "id")}, Phase: rapid.SampledFrom([]Phase{Backfill, Stream}).Draw(t, "phase"),
			Fingerprint: "sha256:x", Verified: None, Late: None,
		}
		if rapid.Bool().Draw(t, "v") {
			d.Verified, d.Late = stamp.Draw(t, "verified"), stamp.Draw(t, "late")
			d.Tail = rapid.MapOf(rapid.Int32Range(0, 99), rapid.Int64Range(0, 1e15)).Draw(t, "tail")
		}
		got, err := ParseOffset(d.Offset(), "sha256:x")
		if err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(got.Tail, d.Tail) || (got.Tail == nil) != (d.Tail == nil) {
			t.Fatalf("tail %v, want %v", got.Tail, d.Tail)
		}
		got.Tail, d.Tail = nil, nil
		if got.Cursor != d.Cursor || got.Phase != d.Phase || got.Verified != d.Verified || got.Late != d.Late {
			t.Fatalf("%+v, want %+v", got, d)
		}
	})
}

func TestParseOffsetRefuses(t *testing.T) {
	good := Durable{Cursor: Cursor{Time: 5}, Phase: Stream, Fingerprint: "f", Verified: 4, Late: 3, Tail: map[int32]int64{0: 1}}.Offset()
	for key, value := range map[string]string{
		"version": "2", "fingerprint": "g", "timestamp": "yesterday", "verified": "x", "late": "", "tail": "0:-1",
	} {
		bad := maps.Clone(good)
		bad[key] = value
		if _, err := ParseOffset(bad, "f"); failure.ClassOf(err) != failure.Misconfigured {
			t.Errorf("%s=%q: %v", key, value, err)
		}
	}
	// The original's records hold neither of ours.
	for _, key := range []string{"verified", "late", "tail"} {
		delete(good, key)
	}
	if d, err := ParseOffset(good, "f"); err != nil || d.Verified != None || d.Late != None || d.Tail != nil {
		t.Errorf("%+v, %v", d, err)
	}
}

// FuzzParseOffset: no record makes the reader panic, and what it accepts it writes back the same.
func FuzzParseOffset(f *testing.F) {
	f.Add("1", "2024-01-01 00:00:00", "x", "0:1,2:3")
	f.Fuzz(func(t *testing.T, version, ts, id, tail string) {
		d, err := ParseOffset(map[string]string{"version": version, "timestamp": ts, "sys_id": id, "tail": tail, "fingerprint": "f"}, "f")
		if err == nil {
			if again, err := ParseOffset(d.Offset(), "f"); err != nil || !maps.Equal(again.Tail, d.Tail) || again.Cursor != d.Cursor {
				t.Fatalf("%+v, %v; was %+v", again, err, d)
			}
		}
	})
}

func TestVersionHeader(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := Version{Timestamp(rapid.Int64Range(0, 4e9).Draw(t, "ts")), rapid.String().Draw(t, "id"), rapid.StringMatching(`#?[0-9a-f]*`).Draw(t, "mod")}
		alias := rapid.StringMatching(`[a-z0-9_]+`).Draw(t, "alias")
		gotAlias, got, ok := ParseVersion(VersionHeader(alias, v))
		if !ok || got != v || gotAlias != alias {
			t.Fatalf("%q %+v %v", gotAlias, got, ok)
		}
	})
}

// TestTailCoversTheWindow: every version later than the horizon lies at or
// behind the offsets that the tail names, whatever was merged.
func TestTailCoversTheWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type page struct {
			newest Timestamp
			before int64
		}
		var tail Tail
		var pages []page
		horizon := None
		for i := range rapid.IntRange(1, 3*tailPages).Draw(t, "pages") {
			p := page{Timestamp(i - rapid.IntRange(0, 5).Draw(t, "late")), int64(i * 10)}
			pages = append(pages, p)
			tail.Add(p.newest, map[int32]int64{0: p.before})
			if i%7 == 0 {
				horizon = max(horizon, Timestamp(i-50))
				tail.Cut(horizon)
			}
			begin := tail.Begin(nil)[0]
			for _, q := range pages {
				if q.newest > horizon && q.before < begin {
					t.Fatalf("page at %d with %d is in the window after %d, the tail begins at %d", q.before, q.newest, horizon, begin)
				}
			}
			if len(tail.pages) > tailPages {
				t.Fatalf("%d pages remembered", len(tail.pages))
			}
			if len(pages) > 200 {
				pages = pages[100:]
			}
		}
	})
}

func TestClock(t *testing.T) {
	t0 := time.Date(2024, 3, 1, 12, 0, 0, 0, time.UTC)
	local := time.Now()
	at := func(s int) time.Time { return local.Add(time.Duration(s) * time.Second) }
	var c Clock
	if c.Known() {
		t.Error("known before the first answer")
	}
	c.Observe(time.Time{}, at(0))
	if c.Known() {
		t.Error("an answer without a Date counted")
	}
	c.Observe(t0, at(0))
	if got := c.Now(at(10)); !got.Equal(t0.Add(10 * time.Second)) {
		t.Errorf("after 10 s: %v", got)
	}
	c.Observe(t0.Add(13*time.Second), at(10)) // 3 s ahead: believed
	if got := c.Now(at(10)); !got.Equal(t0.Add(13 * time.Second)) {
		t.Errorf("a small difference was not taken: %v", got)
	}
	far := t0.Add(time.Hour)
	for i := range 2 {
		c.Observe(far.Add(time.Duration(i)*time.Second), at(11+i))
		if got := c.Now(at(11 + i)); got.After(t0.Add(time.Minute)) {
			t.Fatalf("a Date an hour ahead was believed after %d answers", i+1)
		}
	}
	c.Observe(t0.Add(16*time.Second), at(13)) // contradicted: counting begins anew
	for i := range 3 {
		c.Observe(far.Add(time.Duration(i)*time.Second), at(14+i))
	}
	if got := c.Now(at(16)); got.Before(far) {
		t.Errorf("three answers that agree were not believed: %v", got)
	}
}
