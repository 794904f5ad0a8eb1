package fakesnow

import (
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"sync"
	"time"
)

// Kinds of faults.
const (
	// FaultStatus answers Params.Status without doing anything (or after doing it: Params.Applied).
	FaultStatus = "status"
	// FaultRefuse refuses connections. On a Server it closes the listener for Params.Seconds (0: until
	// the fault is cleared) whatever it aims at; on a Transport it hits the requests it aims at.
	FaultRefuse = "refuse"
	// FaultResetBefore resets the connection before the request was read.
	FaultResetBefore = "reset_before"
	// FaultResetAfter resets it after the request was read; nothing is applied.
	FaultResetAfter = "reset_after"
	// FaultAppliedNoAnswer applies the request, then resets the connection.
	FaultAppliedNoAnswer = "applied_no_answer"
	// FaultLateApply never answers, and applies the request Params.MS after it came: the write of a
	// transaction that outlives its client.
	FaultLateApply = "late_apply"
	// FaultResetBody resets in the middle of the body, at Params.AtByte (0: half).
	FaultResetBody = "reset_body"
	// FaultTruncated is a complete HTTP answer whose JSON is cut.
	FaultTruncated = "truncated"
	// FaultMalformed is a complete answer with a stray byte in its JSON.
	FaultMalformed = "malformed"
	// FaultHTML200 is an HTML page with status 200; Params.Variant: hibernation, login, maintenance.
	FaultHTML200 = "html200"
	// FaultErrorIn200 has an error object in a 200; Params.Variant: both (beside result) or only.
	FaultErrorIn200 = "error_in_200"
	// FaultMaxExecution is the 60 s quota; Params.Variant: status (500) or body (200, broken JSON).
	FaultMaxExecution = "max_execution"
	// FaultWrongContentType sends the right body with Params.ContentType (default text/plain).
	FaultWrongContentType = "wrong_content_type"
	// FaultBadGzip compresses the body and breaks its checksum.
	FaultBadGzip = "bad_gzip"
	// FaultStallHeaders never answers until the client leaves or the server closes.
	FaultStallHeaders = "stall_headers"
	// FaultStallBody stalls in the body, at Params.AtByte (0: half).
	FaultStallBody = "stall_body"
	// FaultSlowDrip writes Params.ChunkBytes (1024) every Params.MS (100) milliseconds.
	FaultSlowDrip = "slow_drip"
	// FaultLatency waits Params.MS, or evenly between MinMS and MaxMS, before the answer.
	FaultLatency = "latency"
	// FaultDuplicateRows repeats Params.Rows (1) rows within a page.
	FaultDuplicateRows = "duplicate_rows"
	// FaultReorderRows shuffles the rows of a page.
	FaultReorderRows = "reorder_rows"
	// FaultExtraRows ignores the cursor terms of the query, as if they could not be parsed.
	FaultExtraRows = "extra_rows"
	// FaultNullResult is {"result":null}.
	FaultNullResult = "null_result"
	// FaultTouchRows updates Params.Rows (1) rows of a page right after it was read.
	FaultTouchRows = "touch_rows"
	// FaultRateLimit is a rate limit rule: Params.Limit requests per Params.WindowSeconds (3600).
	FaultRateLimit = "rate_limit"
)

var faultKinds = []string{
	FaultStatus, FaultRefuse, FaultResetBefore, FaultResetAfter, FaultAppliedNoAnswer, FaultLateApply, FaultResetBody, FaultTruncated,
	FaultMalformed, FaultHTML200, FaultErrorIn200, FaultMaxExecution, FaultWrongContentType, FaultBadGzip,
	FaultStallHeaders, FaultStallBody, FaultSlowDrip, FaultLatency, FaultDuplicateRows, FaultReorderRows,
	FaultExtraRows, FaultNullResult, FaultTouchRows, FaultRateLimit,
}

// Fault is a rule that spoils requests. Empty aims match everything.
type Fault struct {
	// Kind is one of the Fault constants.
	Kind string `json:"kind"`
	// Table, Method and User aim at a table, an HTTP method, the user name that the request claims.
	Table  string `json:"table,omitempty"`
	Method string `json:"method,omitempty"`
	User   string `json:"user,omitempty"`
	// Path aims at paths that begin with it; without it, faults with neither Table nor Path hit the
	// whole API (the token endpoint only when Path says so or Kind is html200).
	Path string `json:"path,omitempty"`
	// Contains aims at requests whose path, decoded query or body contains the text.
	Contains string `json:"contains,omitempty"`
	// After lets that many matching requests pass first.
	After int `json:"after,omitempty"`
	// Times ends the fault after so many hits; 0 is for ever.
	Times int `json:"times,omitempty"`
	// Probability hits that share of the matching requests, decided by seed, table, method and the
	// number of the request among those of this table and method; 0 hits all.
	Probability float64 `json:"probability,omitempty"`
	// Params depend on the kind.
	Params FaultParams `json:"params,omitzero"`
	// Match is a further condition, for tests in Go.
	Match func(Entry) bool `json:"-"`
}

// FaultParams are the details of a fault; which count depends on its kind.
type FaultParams struct {
	// Status is the status code of FaultStatus.
	Status int `json:"status,omitempty"`
	// Variant picks among the bodies of a kind. For status 403: business_rule (default), data_policy,
	// acl_insert, acl_update, acl_delete, api_acl, query; for 401: mfa; for 409: transient;
	// for 400: invalid_table; for 500 and others: html, max_execution.
	Variant string `json:"variant,omitempty"`
	// RetryAfter is sent as it is; "date:N" sends the HTTP date in N seconds of instance time.
	RetryAfter string `json:"retry_after,omitempty"`
	// Body replaces the body of a status fault.
	Body string `json:"body,omitempty"`
	// ContentType replaces the content type.
	ContentType string `json:"content_type,omitempty"`
	// Applied executes the request before spoiling the answer: status, max_execution, html200,
	// null_result, error_in_200 otherwise leave the store alone (error_in_200 beside a result applies it).
	Applied bool `json:"applied,omitempty"`
	// AtByte is where a body is cut or stalls.
	AtByte int `json:"at_byte,omitempty"`
	// MS, MinMS and MaxMS are milliseconds.
	MS    int `json:"ms,omitempty"`
	MinMS int `json:"min_ms,omitempty"`
	MaxMS int `json:"max_ms,omitempty"`
	// ChunkBytes is the size of a drip.
	ChunkBytes int `json:"chunk_bytes,omitempty"`
	// Rows is a number of rows.
	Rows int `json:"rows,omitempty"`
	// Limit and WindowSeconds make a rate limit rule.
	Limit         int `json:"limit,omitempty"`
	WindowSeconds int `json:"window_seconds,omitempty"`
	// Seconds is how long a Server refuses connections.
	Seconds int `json:"seconds,omitempty"`
}

func (f Fault) check() error {
	var errs []error
	if !slices.Contains(faultKinds, f.Kind) {
		errs = append(errs, fmt.Errorf("unknown kind %q; one of %s", f.Kind, strings.Join(faultKinds, ", ")))
	}
	if f.Kind == FaultStatus && (f.Params.Status < 100 || f.Params.Status > 999) {
		errs = append(errs, fmt.Errorf("a status fault needs params.status, got %d", f.Params.Status))
	}
	if f.Kind == FaultRateLimit && f.Params.Limit <= 0 {
		errs = append(errs, errors.New("a rate_limit fault needs params.limit"))
	}
	if f.Probability < 0 || f.Probability > 1 {
		errs = append(errs, fmt.Errorf("probability %v is not between 0 and 1", f.Probability))
	}
	return errors.Join(errs...)
}

type activeFault struct {
	Fault
	id      int
	matched int
	hits    int
	window  time.Time
	used    int // of the rate limit's window
}

type faultSet struct {
	mu     sync.Mutex
	seed   uint64
	nextID int
	active []*activeFault
	counts map[string]int
	nth    map[string]int
}

func (s *faultSet) init(seed int64) {
	s.seed = uint64(seed) // bits of a seed
	s.counts, s.nth = map[string]int{}, map[string]int{}
}

// mix hashes a number and a text to 64 well-spread bits.
func mix(n uint64, text string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text))
	x := h.Sum64() ^ (n * 0x9e3779b97f4a7c15)
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// AddFault adds a fault and returns its id. It panics when the fault makes no sense (an unknown kind,
// a status fault without a status).
func (in *Instance) AddFault(f Fault) int {
	if err := f.check(); err != nil {
		panic("fakesnow: adding a fault: " + err.Error())
	}
	s := &in.faults
	s.mu.Lock()
	s.nextID++
	id := s.nextID
	s.active = append(s.active, &activeFault{Fault: f, id: id})
	s.mu.Unlock()
	if f.Kind == FaultRefuse {
		in.refuse(time.Duration(f.Params.Seconds) * time.Second)
	}
	return id
}

// RemoveFault ends one fault; its count stays.
func (in *Instance) RemoveFault(id int) {
	s := &in.faults
	s.mu.Lock()
	refused := false
	s.active = slices.DeleteFunc(s.active, func(f *activeFault) bool {
		refused = refused || f.id == id && f.Kind == FaultRefuse
		return f.id == id
	})
	s.mu.Unlock()
	if refused {
		in.accept()
	}
}

// ClearFaults ends all faults; their counts stay.
func (in *Instance) ClearFaults() {
	in.faults.mu.Lock()
	in.faults.active = nil
	in.faults.mu.Unlock()
	in.accept()
}

// FaultCounts returns how often each kind has hit, also by faults that have ended.
func (in *Instance) FaultCounts() map[string]int {
	in.faults.mu.Lock()
	defer in.faults.mu.Unlock()
	out := make(map[string]int, len(in.faults.counts))
	for k, v := range in.faults.counts {
		out[k] = v
	}
	return out
}

// hit is a fault that has struck a request, with its dice.
type hit struct {
	Fault
	dice uint64
	// rate limit only
	over  bool
	reset time.Time
}

// number counts the requests of a table and method, from 1.
func (s *faultSet) number(table, method string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := method + " " + table
	if _, known := s.nth[key]; !known && len(s.nth) >= 10000 {
		return 1
	}
	s.nth[key]++
	return s.nth[key]
}

// early kinds strike before the body of the request was read.
func early(kind string) bool { return kind == FaultRefuse || kind == FaultResetBefore }

// passive kinds leave the answer's fate to other faults that strike the same request.
func passive(kind string) bool {
	switch kind {
	case FaultLatency, FaultDuplicateRows, FaultReorderRows, FaultExtraRows, FaultTouchRows, FaultRateLimit:
		return true
	}
	return false
}

// strike decides which faults hit a request: all passive ones, and the first of the others.
func (s *faultSet) strike(e Entry, query string, nth int, before, inProcess bool, now time.Time) []hit {
	s.mu.Lock()
	defer s.mu.Unlock()
	var hits []hit
	decided := false
	for _, f := range s.active {
		if early(f.Kind) != before || decided && !passive(f.Kind) || f.Kind == FaultRefuse && !inProcess || !f.aims(e, query) {
			continue
		}
		f.matched++
		dice := mix(s.seed+uint64(f.id)<<32+uint64(nth), e.Method+" "+e.Table) // bits
		if f.matched <= f.After || f.Times > 0 && f.hits >= f.Times ||
			f.Probability > 0 && float64(dice>>11)/(1<<53) >= f.Probability {
			continue
		}
		h := hit{Fault: f.Fault, dice: mix(dice, f.Kind)}
		if f.Kind == FaultRateLimit {
			window := time.Duration(f.Params.WindowSeconds) * time.Second
			if window == 0 {
				window = time.Hour
			}
			if f.window.IsZero() || !now.Before(f.window.Add(window)) || now.Before(f.window) {
				f.window, f.used = now.Truncate(time.Second), 0
			}
			f.used++
			h.over, h.reset = f.used > f.Params.Limit, f.window.Add(window)
			hits = append(hits, h)
			if h.over {
				f.hits++
				s.counts[f.Kind]++
				decided = true
			}
			continue
		}
		f.hits++
		s.counts[f.Kind]++
		decided = decided || !passive(f.Kind)
		hits = append(hits, h)
	}
	return hits
}

func (f *activeFault) aims(e Entry, query string) bool {
	if f.Table != "" && f.Table != e.Table || f.Method != "" && !strings.EqualFold(f.Method, e.Method) || f.User != "" && f.User != e.User {
		return false
	}
	if f.Path != "" && !strings.HasPrefix(e.Path, f.Path) {
		return false
	}
	if f.Path == "" && f.Table == "" && e.Path == tokenPath && f.Kind != FaultHTML200 {
		return false
	}
	if f.Contains != "" && !strings.Contains(e.Path, f.Contains) && !strings.Contains(query, f.Contains) && !strings.Contains(e.Body, f.Contains) {
		return false
	}
	return f.Match == nil || f.Match(e)
}

func (s *faultSet) count(kind string) {
	s.mu.Lock()
	s.counts[kind]++
	s.mu.Unlock()
}
