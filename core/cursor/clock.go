package cursor

import "time"

// Clock is the instance's time as its answers show it: the last Date header
// plus the time since it was received (source.md section 1). A Date has a
// resolution of one second and is cut, so the estimate is never ahead.
type Clock struct {
	date    time.Time // the Date that is believed
	at      time.Time // when it was received, with monotonic reading
	set     bool
	doubted int // answers in a row that disagree with it
	other   time.Duration
}

const (
	clockTolerance = 5 * time.Second
	clockAgreement = 3 // a Date far off is believed once it and two more agree
)

// Observe takes the Date of an answer, received at now. A zero date is ignored.
func (c *Clock) Observe(date, now time.Time) {
	if date.IsZero() {
		return
	}
	if !c.set {
		c.date, c.at, c.set = date, now, true
		return
	}
	off := date.Sub(c.Now(now))
	if off.Abs() <= clockTolerance {
		c.date, c.at, c.doubted = date, now, 0
		return
	}
	if c.doubted > 0 && (off-c.other).Abs() > clockTolerance {
		c.doubted = 0
	}
	c.other = off
	if c.doubted++; c.doubted >= clockAgreement {
		c.date, c.at, c.doubted = date, now, 0
	}
}

// Known says whether an answer has been seen.
func (c *Clock) Known() bool { return c.set }

// Now returns the instance's time at the local time now.
func (c *Clock) Now(now time.Time) time.Time { return c.date.Add(now.Sub(c.at)) }
