package failure

import "time"

// Retry is the arithmetic of failures.md section 2: full jitter under a ceiling
// that doubles, an exact Retry-After instead when there is one, and an end.
type Retry struct {
	// MaxAttempts counts the first attempt too.
	MaxAttempts int
	// MaxElapsed ends the retries once the next wait would pass it, counted from the first attempt.
	MaxElapsed time.Duration
	// Initial is the ceiling of the first wait, Max the largest ceiling.
	Initial, Max time.Duration
}

// Next returns the wait after the attempt-th attempt (1 for the first), or false
// when the retries are exhausted. elapsed is the time since the first attempt
// less pauses and waits for permits; jitter is in [0, 1).
func (r Retry) Next(attempt int, elapsed, retryAfter time.Duration, jitter float64) (time.Duration, bool) {
	if attempt >= r.MaxAttempts {
		return 0, false
	}
	wait := retryAfter
	if wait <= 0 {
		wait = time.Duration(jitter * float64(r.ceiling(attempt)))
	}
	return wait, elapsed+wait <= r.MaxElapsed
}

// Backoff returns the wait before a task that is retriable tries again, for the
// n-th time in a row: the same jitter, without an end.
func (r Retry) Backoff(n int, jitter float64) time.Duration {
	return time.Duration(jitter * float64(r.ceiling(n)))
}

func (r Retry) ceiling(attempt int) time.Duration {
	c := r.Initial
	for range attempt - 1 {
		if c >= r.Max {
			break
		}
		c *= 2
	}
	return min(c, r.Max)
}
