// Package limit is the arithmetic of an instance's permits: how many requests
// may be in flight, when none may leave, how both change with the answers. It is
// pure: every call takes the time.
package limit

import "time"

// Settings are the bounds of one instance.
type Settings struct {
	// Max is the largest number of requests in flight (snow.http.max.concurrent.requests).
	Max int
	// Adaptive halves the number on a 429 and recovers it (snow.http.adaptive.throttling).
	Adaptive bool
	// PerHour spreads requests evenly, 0 for no budget (snow.http.max.requests.per.hour).
	PerHour int
}

// Outcome is what an answer means to the limiter.
type Outcome uint8

// The outcomes.
const (
	// Success is an answer of the instance, refusals of single records included.
	Success Outcome = iota
	// Limited is a 429.
	Limited
	// Neutral is everything that says nothing about load: transport failures, 5xx.
	Neutral
)

// recoverAfter is the number of successes that win one permit back.
const recoverAfter = 50

// Limiter counts permits. Its zero value is useless; use New.
type Limiter struct {
	set       Settings
	permits   int
	inFlight  int
	successes int
	halved    time.Time // when the permits were last halved
	paused    time.Time
	next      time.Time // earliest time of the next request under a budget
}

// New returns a limiter with all its permits free.
func New(set Settings) *Limiter {
	set.Max = max(1, set.Max)
	return &Limiter{set: set, permits: set.Max}
}

// Take takes a permit. When none may be had it returns false and, if that ends
// by itself, the time at which to ask again; the zero time means when a permit comes back.
func (l *Limiter) Take(now time.Time) (bool, time.Time) {
	if l.inFlight >= l.permits {
		return false, time.Time{}
	}
	at := l.paused
	if l.next.After(at) {
		at = l.next
	}
	if now.Before(at) {
		return false, at
	}
	l.inFlight++
	if l.set.PerHour > 0 {
		l.next = now.Add(time.Hour / time.Duration(l.set.PerHour))
	}
	return true, time.Time{}
}

// Give gives a permit back. retryAfter is the pause that a 429 asked for.
func (l *Limiter) Give(o Outcome, retryAfter time.Duration, now time.Time) {
	l.inFlight = max(0, l.inFlight-1)
	switch o {
	case Success:
		if l.permits < l.set.Max {
			if l.successes++; l.successes >= recoverAfter {
				l.permits++
				l.successes = 0
			}
		}
	case Limited:
		l.Pause(now.Add(retryAfter))
		l.successes = 0
		// Requests that were in flight together tell of one overload, not of many.
		if l.set.Adaptive && now.Sub(l.halved) >= time.Second {
			l.permits, l.halved = max(1, l.permits/2), now
		}
	case Neutral:
	}
}

// Pause lets no request leave before until.
func (l *Limiter) Pause(until time.Time) {
	if until.After(l.paused) {
		l.paused = until
	}
}

// Permits returns the number of requests that may be in flight now.
func (l *Limiter) Permits() int { return l.permits }

// InFlight returns the number of permits taken.
func (l *Limiter) InFlight() int { return l.inFlight }

// PausedUntil returns the end of the last pause, which may lie in the past.
func (l *Limiter) PausedUntil() time.Time { return l.paused }
