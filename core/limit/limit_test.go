package limit

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

var t0 = time.Date(2024, 3, 1, 12, 0, 0, 0, time.UTC)

// TestNeverMoreThanPermitted drives a limiter with random answers: permits stay
// within their bounds, none leaves during a pause, and every permit comes back.
func TestNeverMoreThanPermitted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		set := Settings{Max: rapid.IntRange(1, 20).Draw(t, "max"), Adaptive: rapid.Bool().Draw(t, "adaptive"), PerHour: rapid.SampledFrom([]int{0, 3600, 36000}).Draw(t, "hour")}
		l, now, held := New(set), t0, 0
		var last time.Time
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "do") {
			case 0, 1:
				ok, at := l.Take(now)
				if !ok {
					if !at.IsZero() && !at.After(now) {
						t.Fatalf("told to come back at %v, now is %v", at, now)
					}
					if at.IsZero() && held < l.Permits() {
						t.Fatalf("refused with %d of %d", held, l.Permits())
					}
					break
				}
				held++
				if now.Before(l.PausedUntil()) {
					t.Fatal("a permit left during a pause")
				}
				if set.PerHour > 0 && !last.IsZero() && now.Sub(last) < time.Hour/time.Duration(set.PerHour) {
					t.Fatalf("two requests %v apart with %d an hour", now.Sub(last), set.PerHour)
				}
				last = now
			case 2:
				if held > 0 {
					held--
					l.Give(Outcome(rapid.IntRange(0, 2).Draw(t, "outcome")), time.Duration(rapid.IntRange(0, 5).Draw(t, "after"))*time.Second, now)
				}
			case 3:
				now = now.Add(time.Duration(rapid.IntRange(1, 3000).Draw(t, "ms")) * time.Millisecond)
			}
			if l.InFlight() != held || l.Permits() < 1 || l.Permits() > set.Max || held > set.Max {
				t.Fatalf("%d in flight (%d held), %d permits of %d", l.InFlight(), held, l.Permits(), set.Max)
			}
			if !set.Adaptive && l.Permits() != set.Max {
				t.Fatal("permits changed without adaptive throttling")
			}
		}
	})
}

func TestAdapts(t *testing.T) {
	l := New(Settings{Max: 16, Adaptive: true})
	now := t0
	for range 8 { // one overload seen by eight requests in flight
		l.Take(now)
	}
	for range 8 {
		l.Give(Limited, 0, now)
	}
	if l.Permits() != 8 {
		t.Errorf("one overload took the permits to %d, want 8", l.Permits())
	}
	now = now.Add(2 * time.Second)
	for range 2 * recoverAfter {
		l.Take(now)
		l.Give(Success, 0, now)
	}
	if l.Permits() != 10 {
		t.Errorf("after %d successes %d permits, want 10", 2*recoverAfter, l.Permits())
	}
}

func TestRetryAfterPauses(t *testing.T) {
	l := New(Settings{Max: 2})
	l.Take(t0)
	l.Give(Limited, 1742*time.Second, t0)
	if ok, at := l.Take(t0.Add(1741 * time.Second)); ok || !at.Equal(t0.Add(1742*time.Second)) {
		t.Errorf("%v, come back at %v", ok, at)
	}
	if ok, _ := l.Take(t0.Add(1742 * time.Second)); !ok {
		t.Error("still paused after the pause")
	}
}
