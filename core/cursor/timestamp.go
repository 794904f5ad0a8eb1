// Package cursor is the source's memory and its plan: timestamps, cursors, the
// encoded queries that page through a table, the filter of published versions,
// and Sweep, the poller's state machine as a pure value (page in, rows and next
// query out). Nothing here does I/O or reads a clock.
package cursor

import (
	"fmt"
	"time"
)

// Timestamp is a time of ServiceNow's resolution: seconds since 1970-01-01 UTC.
type Timestamp int64

// None is the Timestamp of something that has not happened.
const None Timestamp = -1 << 62

const layout = "2006-01-02 15:04:05"

// ParseTimestamp reads "yyyy-MM-dd HH:mm:ss" as UTC, the form of the Table API
// with sysparm_display_value=false. Nothing else is accepted.
func ParseTimestamp(s string) (Timestamp, error) {
	if len(s) != len(layout) {
		return None, fmt.Errorf("parsing timestamp %.40q: want yyyy-MM-dd HH:mm:ss", s)
	}
	var n [6]int
	for i, f := range [6][2]int{{0, 4}, {5, 7}, {8, 10}, {11, 13}, {14, 16}, {17, 19}} {
		for _, c := range []byte(s[f[0]:f[1]]) {
			if c < '0' || c > '9' {
				return None, fmt.Errorf("parsing timestamp %q: want yyyy-MM-dd HH:mm:ss", s)
			}
			n[i] = n[i]*10 + int(c-'0')
		}
	}
	if s[4] != '-' || s[7] != '-' || s[10] != ' ' || s[13] != ':' || s[16] != ':' {
		return None, fmt.Errorf("parsing timestamp %q: want yyyy-MM-dd HH:mm:ss", s)
	}
	if n[1] < 1 || n[1] > 12 || n[2] < 1 || n[2] > daysIn(n[0], n[1]) || n[3] > 23 || n[4] > 59 || n[5] > 59 {
		return None, fmt.Errorf("parsing timestamp %q: no such date", s)
	}
	return Timestamp(civil(n[0], n[1], n[2])*86400 + int64(n[3]*3600+n[4]*60+n[5])), nil
}

// civil counts the days from 1970-01-01 to a date of the Gregorian calendar.
func civil(y, m, d int) int64 {
	if m <= 2 {
		y--
		m += 12
	}
	era := y / 400
	yoe := y - era*400
	doy := (153*(m-3)+2)/5 + d - 1
	return int64(era*146097 + yoe*365 + yoe/4 - yoe/100 + doy - 719468)
}

func daysIn(y, m int) int {
	switch m {
	case 2:
		if y%4 == 0 && (y%100 != 0 || y%400 == 0) {
			return 29
		}
		return 28
	case 4, 6, 9, 11:
		return 30
	}
	return 31
}

// TimestampOf cuts t to the second it lies in.
func TimestampOf(t time.Time) Timestamp { return Timestamp(t.Unix()) }

// String returns "yyyy-MM-dd HH:mm:ss", or "none".
func (t Timestamp) String() string {
	if t == None {
		return "none"
	}
	return t.Time().Format(layout)
}

// Time returns t as a time.Time in UTC.
func (t Timestamp) Time() time.Time { return time.Unix(int64(t), 0).UTC() }

// Millis returns t in milliseconds since 1970, the unit of Kafka's record timestamps.
func (t Timestamp) Millis() int64 { return int64(t) * 1000 }
