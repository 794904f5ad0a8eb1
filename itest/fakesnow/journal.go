package fakesnow

import (
	"net/http"
	"net/url"
	"sync"
	"time"
)

// Entry is one request as the instance received and answered it.
type Entry struct {
	Seq     int         `json:"seq"` // from 1, never reused
	Time    time.Time   `json:"time"`
	Method  string      `json:"method"`
	Path    string      `json:"path"`
	Table   string      `json:"table"`
	SysID   string      `json:"sys_id"`
	Query   url.Values  `json:"query"`
	Headers http.Header `json:"headers"`
	// Body is the request body, cut at Options.JournalBody; BodySize is its full length.
	Body     string `json:"body"`
	BodySize int    `json:"body_size"`
	User     string `json:"user"`
	// Status is the status decided; 0 when no answer was given (resets, refusals).
	Status int `json:"status"`
	// RowsReturned counts the rows of a list in the answer.
	RowsReturned int `json:"rows_returned"`
	// Faults names the kinds of the faults that hit the request.
	Faults []string `json:"faults"`
}

// journal is a ring of entries with in-flight counts.
type journal struct {
	mu       sync.Mutex
	limit    int
	bodyMax  int
	ring     []Entry
	seq      int
	inFlight map[string]int
	high     map[string]int
}

func (j *journal) init(limit, bodyMax int) {
	j.limit, j.bodyMax = limit, bodyMax
	j.inFlight, j.high = map[string]int{}, map[string]int{}
}

func (j *journal) enter(user string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, known := j.high[user]; !known && len(j.high) >= 10000 {
		return
	}
	j.inFlight[user]++
	j.high[user] = max(j.high[user], j.inFlight[user])
}

func (j *journal) leave(user string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.inFlight[user] > 0 {
		j.inFlight[user]--
	}
}

// add gives the entry its number and keeps it, dropping the oldest beyond the limit.
func (j *journal) add(e Entry) Entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.seq++
	e.Seq = j.seq
	if len(j.ring) < j.limit {
		j.ring = append(j.ring, e)
	} else {
		j.ring[(j.seq-1)%j.limit] = e
	}
	return e
}

func (j *journal) since(n, limit int) []Entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	first := max(n+1, j.seq-len(j.ring)+1)
	out := make([]Entry, 0, max(0, j.seq-first+1))
	for s := first; s <= j.seq && (limit <= 0 || len(out) < limit); s++ {
		out = append(out, j.ring[(s-1)%j.limit])
	}
	return out
}

// Journal returns the entries kept, oldest first.
func (in *Instance) Journal() []Entry { return in.journal.since(0, 0) }

// JournalSince returns the entries after the one with sequence number n.
func (in *Instance) JournalSince(n int) []Entry { return in.journal.since(n, 0) }

// JournalDropped counts the entries that the bounded journal has dropped.
func (in *Instance) JournalDropped() int {
	in.journal.mu.Lock()
	defer in.journal.mu.Unlock()
	return in.journal.seq - len(in.journal.ring)
}

// InFlightHighWater is the largest number of requests of a user ("" = requests without credentials)
// that were in progress at once.
func (in *Instance) InFlightHighWater(user string) int {
	in.journal.mu.Lock()
	defer in.journal.mu.Unlock()
	return in.journal.high[user]
}

func (j *journal) next() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.seq + 1
}
