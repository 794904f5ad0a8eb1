package fakesnow

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/klauspost/compress/gzip"
)

// ways runs a test over the in-process transport and over a real server.
func ways(t *testing.T, in *Instance, fn func(t *testing.T, rt http.RoundTripper, base string)) {
	t.Helper()
	t.Run("transport", func(t *testing.T) { fn(t, in.Transport(), "http://fake.test") })
	t.Run("server", func(t *testing.T) {
		srv, err := in.Listen("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		tr := &http.Transport{DisableCompression: true}
		fn(t, tr, srv.URL())
		tr.CloseIdleConnections()
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
	})
}

func someRows(in *Instance) *Instance {
	for i := range 20 {
		in.Insert("incident", map[string]string{"sys_id": string(rune('a' + i)), "sys_updated_on": "2026-01-01 00:00:" + itoa(10+i)})
	}
	return in
}

func TestSpoiledAnswers(t *testing.T) {
	valid := func(t *testing.T, a answer) map[string]any {
		t.Helper()
		var doc map[string]any
		mustJSON(t, a.body, &doc)
		return doc
	}
	for _, c := range []struct {
		name  string
		fault Fault
		check func(t *testing.T, a answer)
	}{
		{"status with Retry-After", Fault{Kind: FaultStatus, Params: FaultParams{Status: 429, RetryAfter: "1742"}}, func(t *testing.T, a answer) {
			if a.status != 429 || a.header.Get("Retry-After") != "1742" {
				t.Errorf("%d %v", a.status, a.header)
			}
		}},
		{"Retry-After as a date", Fault{Kind: FaultStatus, Params: FaultParams{Status: 503, RetryAfter: "date:60"}}, func(t *testing.T, a answer) {
			if a.header.Get("Retry-After") != epoch.Add(time.Minute).Format(http.TimeFormat) || !strings.Contains(a.header.Get("Content-Type"), "text/html") {
				t.Errorf("%d %v", a.status, a.header)
			}
		}},
		{"429 without Retry-After", Fault{Kind: FaultStatus, Params: FaultParams{Status: 429}}, func(t *testing.T, a answer) {
			if a.status != 429 || a.header["Retry-After"] != nil {
				t.Errorf("%d %v", a.status, a.header)
			}
		}},
		{"MFA", Fault{Kind: FaultStatus, Params: FaultParams{Status: 401, Variant: "mfa"}}, func(t *testing.T, a answer) {
			if a.status != 401 || a.header.Get("X-MFA_TOKEN") != "invalid" {
				t.Errorf("%d %v", a.status, a.header)
			}
		}},
		{"truncated", Fault{Kind: FaultTruncated}, func(t *testing.T, a answer) {
			if a.status != 200 || json.Valid(a.body) || !strings.HasPrefix(string(a.body), `{"result":[{`) {
				t.Errorf("%d %.100s", a.status, a.body)
			}
		}},
		{"truncated at a byte", Fault{Kind: FaultTruncated, Params: FaultParams{AtByte: 5}}, func(t *testing.T, a answer) {
			if string(a.body) != `{"res` {
				t.Errorf("%s", a.body)
			}
		}},
		{"malformed", Fault{Kind: FaultMalformed}, func(t *testing.T, a answer) {
			if a.status != 200 || json.Valid(a.body) {
				t.Errorf("%d %.100s", a.status, a.body)
			}
		}},
		{"hibernating", Fault{Kind: FaultHTML200}, func(t *testing.T, a answer) {
			if a.status != 200 || a.header.Get("Content-Type") != htmlType || !strings.Contains(string(a.body), "<title>Instance Hibernating page</title>") {
				t.Errorf("%d %s", a.status, a.body)
			}
		}},
		{"login page", Fault{Kind: FaultHTML200, Params: FaultParams{Variant: "login"}}, func(t *testing.T, a answer) {
			if !strings.Contains(string(a.body), "login.do") {
				t.Errorf("%s", a.body)
			}
		}},
		{"result and error", Fault{Kind: FaultErrorIn200}, func(t *testing.T, a answer) {
			if doc := valid(t, a); a.status != 200 || doc["result"] == nil || doc["error"] == nil {
				t.Errorf("%d %.100s", a.status, a.body)
			}
		}},
		{"error alone", Fault{Kind: FaultErrorIn200, Params: FaultParams{Variant: "only"}}, func(t *testing.T, a answer) {
			if doc := valid(t, a); a.status != 200 || doc["result"] != nil || doc["error"] == nil {
				t.Errorf("%d %.100s", a.status, a.body)
			}
		}},
		{"quota before the first byte", Fault{Kind: FaultMaxExecution}, func(t *testing.T, a answer) {
			if a.status != 500 || !strings.Contains(string(a.body), cancelled) {
				t.Errorf("%d %s", a.status, a.body)
			}
		}},
		{"quota in the body", Fault{Kind: FaultMaxExecution, Params: FaultParams{Variant: "body"}}, func(t *testing.T, a answer) {
			if a.status != 200 || json.Valid(a.body) || !strings.HasSuffix(string(a.body), `"message":"`+cancelled+`"},"status":"failure"}`) {
				t.Errorf("%d %.100s", a.status, a.body)
			}
		}},
		{"content type", Fault{Kind: FaultWrongContentType, Params: FaultParams{ContentType: "application/xml"}}, func(t *testing.T, a answer) {
			if a.header.Get("Content-Type") != "application/xml" || !json.Valid(a.body) {
				t.Errorf("%v", a.header)
			}
		}},
		{"null result", Fault{Kind: FaultNullResult}, func(t *testing.T, a answer) {
			if string(a.body) != `{"result":null}` {
				t.Errorf("%s", a.body)
			}
		}},
		{"bad checksum", Fault{Kind: FaultBadGzip}, func(t *testing.T, a answer) {
			zr, err := gzip.NewReader(bytes.NewReader(a.body))
			if err != nil {
				t.Fatal(err)
			}
			if _, err = io.ReadAll(zr); !errors.Is(err, gzip.ErrChecksum) {
				t.Errorf("inflating: %v", err)
			}
		}},
		{"duplicates", Fault{Kind: FaultDuplicateRows, Params: FaultParams{Rows: 2}}, func(t *testing.T, a answer) {
			if got := a.column(t, "sys_id"); got != "f f g g h i j" {
				t.Errorf("%s", got)
			}
		}},
		{"another order", Fault{Kind: FaultReorderRows}, func(t *testing.T, a answer) {
			if got := a.column(t, "sys_id"); got == "f g h i j" || len(got) != 9 {
				t.Errorf("%s", got)
			}
		}},
		{"rows out of bounds", Fault{Kind: FaultExtraRows}, func(t *testing.T, a answer) {
			if got := a.column(t, "sys_id"); got != "a b c d e" || a.header.Get("X-Total-Count") != "20" {
				t.Errorf("%s of %s", got, a.header.Get("X-Total-Count"))
			}
		}},
		{"slow drip", Fault{Kind: FaultSlowDrip, Params: FaultParams{ChunkBytes: 4000, MS: 1}}, func(t *testing.T, a answer) {
			if got := a.column(t, "sys_id"); got != "f g h i j" {
				t.Errorf("%s", got)
			}
		}},
		{"latency", Fault{Kind: FaultLatency, Params: FaultParams{MinMS: 1, MaxMS: 3}}, func(t *testing.T, a answer) {
			if got := a.column(t, "sys_id"); got != "f g h i j" {
				t.Errorf("%s", got)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := someRows(fixed(Options{}))
			in.AddFault(c.fault)
			path := listPath("incident", "sys_updated_on>2026-01-01 00:00:14^ORDERBYsys_updated_on^ORDERBYsys_id", "sysparm_limit=5")
			ways(t, in, func(t *testing.T, rt http.RoundTripper, base string) {
				c.check(t, callOver(t, rt, base, "GET", path, ""))
			})
			if n := in.FaultCounts()[c.fault.Kind]; n != 2 {
				t.Errorf("counted %d times, want 2", n)
			}
		})
	}
}

func TestBrokenConnections(t *testing.T) {
	for _, c := range []struct {
		name    string
		fault   Fault
		applied bool
		status  int // of the answer that breaks off; 0: none
		want    []error
	}{
		{"reset before", Fault{Kind: FaultResetBefore}, false, 0, []error{syscall.ECONNRESET, syscall.EPIPE, io.EOF, net.ErrClosed}},
		{"reset after", Fault{Kind: FaultResetAfter}, false, 0, []error{syscall.ECONNRESET, io.EOF}},
		{"applied, no answer", Fault{Kind: FaultAppliedNoAnswer}, true, 0, []error{syscall.ECONNRESET, io.EOF}},
		{"reset in the body", Fault{Kind: FaultResetBody}, true, 201, []error{syscall.ECONNRESET, io.ErrUnexpectedEOF}},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := fixed(Options{})
			ways(t, in, func(t *testing.T, rt http.RoundTripper, base string) {
				in.AddFault(Fault{Kind: c.fault.Kind, Method: "post", Table: "incident", Times: 1})
				before := in.Count("incident")
				a, err := try(t, rt, base, "POST", "/api/now/table/incident", `{"description":"`+strings.Repeat("x", 5000)+`"}`)
				ok := false
				for _, want := range c.want {
					ok = ok || errors.Is(err, want)
				}
				if !ok || a.status != c.status {
					t.Errorf("status %d, error %v", a.status, err)
				}
				if got := in.Count("incident") > before; got != c.applied {
					t.Errorf("applied %v, want %v", got, c.applied)
				}
				if a := callOver(t, rt, base, "POST", "/api/now/table/incident", "{}"); a.status != 201 {
					t.Errorf("afterwards: %d", a.status)
				}
			})
			if n := in.FaultCounts()[c.fault.Kind]; n != 2 {
				t.Errorf("counted %d times", n)
			}
		})
	}
}

func TestAppliedStatus(t *testing.T) {
	in := fixed(Options{})
	in.AddFault(Fault{Kind: FaultStatus, Method: "POST", Times: 1, Params: FaultParams{Status: 502, Applied: true}})
	in.AddFault(Fault{Kind: FaultStatus, Method: "POST", Times: 1, Params: FaultParams{Status: 500}})
	for _, want := range []struct{ status, rows int }{{502, 1}, {500, 1}, {201, 2}} {
		if a := call(t, in, "POST", "/api/now/table/incident", `{}`); a.status != want.status || in.Count("incident") != want.rows {
			t.Errorf("status %d with %d rows, want %+v", a.status, in.Count("incident"), want)
		}
	}
}

func TestStallsEndWithTheClientOrTheServer(t *testing.T) {
	in := someRows(fixed(Options{}))
	for _, kind := range []string{FaultStallHeaders, FaultStallBody} {
		in.ClearFaults()
		in.AddFault(Fault{Kind: kind})
		ways(t, in, func(t *testing.T, rt http.RoundTripper, base string) {
			ctx, cancel := context.WithCancel(t.Context())
			in.OnRequest(func(Entry) { cancel() })
			defer in.OnRequest(nil)
			req, err := http.NewRequestWithContext(ctx, "GET", base+"/api/now/table/incident", nil)
			if err != nil {
				t.Fatal(err)
			}
			req.SetBasicAuth("a", "b")
			resp, err := rt.RoundTrip(req)
			if err == nil {
				_, err = io.ReadAll(resp.Body)
				_ = resp.Body.Close()
			}
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", kind, err)
			}
		})
	}
	in.ClearFaults()
	in.AddFault(Fault{Kind: FaultStallHeaders})
	srv, err := in.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	arrived := make(chan struct{})
	in.OnRequest(func(Entry) { close(arrived) })
	failed := make(chan error, 1)
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	go func() {
		_, err := try(t, tr, srv.URL(), "GET", "/api/now/table/incident", "")
		failed <- err
	}()
	<-arrived
	if err := srv.Close(); err != nil {
		t.Error(err)
	}
	if err := <-failed; err == nil {
		t.Error("a stalled request was answered by Close")
	}
}

func TestRefusal(t *testing.T) {
	in := fixed(Options{})
	ways(t, in, func(t *testing.T, rt http.RoundTripper, base string) {
		path := "/api/now/table/incident"
		callOver(t, rt, base, "GET", path, "")
		id := in.AddFault(Fault{Kind: FaultRefuse})
		if _, err := try(t, rt, base, "GET", path, ""); !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, io.EOF) {
			t.Errorf("refused: %v", err)
		}
		if _, err := try(t, rt, base, "GET", path, ""); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("refused again: %v", err)
		}
		in.RemoveFault(id)
		callOver(t, rt, base, "GET", path, "")
	})
}

func TestAimsAndSchedule(t *testing.T) {
	pattern := func(f Fault, seed int64, calls ...string) string {
		in := fixed(Options{Seed: seed})
		f.Kind, f.Params.Status = FaultStatus, 500
		in.AddFault(f)
		out := ""
		for _, c := range calls {
			method, table, _ := strings.Cut(c, " ")
			if call(t, in, method, "/api/now/table/"+table, "{}").status == 500 {
				out += "x"
			} else {
				out += "."
			}
		}
		return out
	}
	mixed := []string{"GET incident", "POST incident", "GET problem", "GET incident", "POST incident", "GET incident"}
	for _, c := range []struct {
		fault Fault
		want  string
	}{
		{Fault{}, "xxxxxx"},
		{Fault{Table: "incident"}, "xx.xxx"},
		{Fault{Method: "GET"}, "x.xx.x"},
		{Fault{User: "admin"}, "xxxxxx"},
		{Fault{User: "eve"}, "......"},
		{Fault{Path: "/api/now/table/prob"}, "..x..."},
		{Fault{Contains: "problem"}, "..x..."},
		{Fault{Table: "incident", After: 2, Times: 2}, "...xx."},
		{Fault{Times: 1}, "x....."},
		{Fault{Match: func(e Entry) bool { return e.Method == "POST" }}, ".x..x."},
	} {
		if got := pattern(c.fault, 1, mixed...); got != c.want {
			t.Errorf("%+v hits %s, want %s", c.fault, got, c.want)
		}
	}
	gets := strings.Split(strings.Repeat("GET incident,", 99)+"GET incident", ",")
	one := pattern(Fault{Probability: 0.3}, 1, gets...)
	if n := strings.Count(one, "x"); n < 15 || n > 45 {
		t.Errorf("%d of 100 hits at 0.3", n)
	}
	if pattern(Fault{Probability: 0.3}, 1, gets...) != one || pattern(Fault{Probability: 0.3}, 2, gets...) == one {
		t.Error("the seed does not decide the schedule")
	}
	// other requests in between do not change the schedule of this table and method
	var noisy []string
	for _, c := range gets {
		noisy = append(noisy, "GET problem", c)
	}
	got := ""
	for i, c := range pattern(Fault{Probability: 0.3, Table: "incident"}, 1, noisy...) {
		if i%2 == 1 {
			got += string(c)
		}
	}
	if got != one {
		t.Error("requests to another table change the schedule")
	}
	defer func() {
		if recover() == nil {
			t.Error("a fault of an unknown kind is accepted")
		}
	}()
	fixed(Options{}).AddFault(Fault{Kind: "nonsense"})
}

func TestRateLimitRule(t *testing.T) {
	in := fixed(Options{})
	in.AddFault(Fault{Kind: FaultRateLimit, Table: "incident", Params: FaultParams{Limit: 2, WindowSeconds: 60}})
	for i, want := range []int{200, 200, 429, 429} {
		a := call(t, in, "GET", "/api/now/table/incident", "")
		if a.status != want || a.header.Get("X-RateLimit-Limit") != "2" || a.header.Get("X-RateLimit-Reset") != strconv.FormatInt(epoch.Add(time.Minute).Unix(), 10) || a.header.Get("X-RateLimit-Rule") == "" {
			t.Errorf("request %d: %d %v", i, a.status, a.header)
		}
		if retry := a.header.Get("Retry-After"); (retry == "60") != (want == 429) {
			t.Errorf("request %d: Retry-After %q", i, retry)
		}
	}
	in.Advance(time.Minute)
	if a := call(t, in, "GET", "/api/now/table/incident", ""); a.status != 200 {
		t.Errorf("in the next window: %d", a.status)
	}
	if n := in.FaultCounts()[FaultRateLimit]; n != 2 {
		t.Errorf("counted %d", n)
	}
}

func TestTransportInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := New(Options{})
		in.Insert("incident", map[string]string{"sys_id": "a"})
		in.AddFault(Fault{Kind: FaultLatency, Times: 1, Params: FaultParams{MS: 90_000}})
		start := time.Now()
		call(t, in, "GET", "/api/now/table/incident", "")
		if d := time.Since(start); d != 90*time.Second {
			t.Errorf("waited %v", d)
		}
		in.AddFault(Fault{Kind: FaultSlowDrip, Times: 1, Params: FaultParams{ChunkBytes: 100, MS: 1000}})
		start = time.Now()
		a := call(t, in, "GET", "/api/now/table/incident", "")
		if d := time.Since(start); d != time.Duration((len(a.body)+99)/100)*time.Second {
			t.Errorf("dripped %d bytes in %v", len(a.body), d)
		}
		in.AddFault(Fault{Kind: FaultStallHeaders})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, "GET", "https://x/api/now/table/incident", nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = in.Transport().RoundTrip(req); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		if _, err = (&http.Client{Transport: in.Transport(), Timeout: time.Minute}).Do(req.Clone(t.Context())); err == nil {
			t.Error("the client's own timeout did not end the stall")
		} else if ne := net.Error(nil); !errors.As(err, &ne) || !ne.Timeout() {
			t.Errorf("%v is no timeout", err)
		}
	})
}

func TestLateApply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := New(Options{})
		in.AddFault(Fault{Kind: FaultLateApply, Times: 1, Params: FaultParams{MS: 60_000}})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, "POST", "https://x/api/now/table/incident", strings.NewReader(`{"sys_id":"late"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.SetBasicAuth("a", "b")
		if _, err := in.Transport().RoundTrip(req); !errors.Is(err, context.DeadlineExceeded) || in.Count("incident") != 0 {
			t.Errorf("%v, %d rows", err, in.Count("incident"))
		}
		for in.Count("incident") == 0 && time.Since(in.Journal()[0].Time) < time.Hour {
			pauseFor(t.Context(), time.Second)
		}
		if row, ok := in.Get("incident", "late"); !ok || row["sys_created_on"] != in.Journal()[0].Time.Add(time.Minute).Format(Stamp) {
			t.Errorf("%v", row)
		}
	})
}

func TestTraceHooks(t *testing.T) {
	for _, c := range []struct {
		kind string
		want []string
	}{
		{"", []string{"wrote <nil>", "first byte"}},
		{FaultResetAfter, []string{"wrote <nil>"}},
		{FaultResetBefore, []string{"wrote write tcp: write: connection reset by peer"}},
		{FaultRefuse, nil},
	} {
		in := fixed(Options{})
		if c.kind != "" {
			in.AddFault(Fault{Kind: c.kind})
		}
		var got []string
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
			WroteRequest: func(i httptrace.WroteRequestInfo) {
				text := "<nil>"
				if i.Err != nil {
					text = i.Err.Error()
				}
				got = append(got, "wrote "+text)
			},
			GotFirstResponseByte: func() { got = append(got, "first byte") },
		})
		req, err := http.NewRequestWithContext(ctx, "POST", "https://x/api/now/table/incident", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		if resp, err := in.Transport().RoundTrip(req); err == nil {
			_ = resp.Body.Close()
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %q, want %q", c.kind, got, c.want)
		}
	}
}

func TestJournalAndInFlight(t *testing.T) {
	in := fixed(Options{JournalEntries: 5, JournalBody: 10})
	gate := make(chan struct{})
	var arrived sync.WaitGroup
	arrived.Add(3)
	in.OnRequest(func(Entry) { arrived.Done(); <-gate })
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() { call(t, in, "GET", "/api/now/table/incident", "") })
	}
	arrived.Wait()
	close(gate)
	wg.Wait()
	in.OnRequest(nil)
	if n := in.InFlightHighWater("admin"); n != 3 {
		t.Errorf("high-water mark %d", n)
	}
	call(t, in, "POST", "/api/now/table/problem?sysparm_fields=number", `{"description":"long"}`, "X-Request-Id", "r1")
	e := in.JournalSince(3)
	if len(e) != 1 || e[0].Seq != 4 || e[0].Method != "POST" || e[0].Table != "problem" || e[0].Query.Get("sysparm_fields") != "number" ||
		e[0].Body != `{"descript` || e[0].BodySize != 22 || e[0].User != "admin" || e[0].Status != 201 || e[0].Headers.Get("X-Request-Id") != "r1" {
		t.Fatalf("%+v", e)
	}
	in.AddFault(Fault{Kind: FaultResetAfter, Times: 1})
	_, _ = try(t, in.Transport(), "http://x", "GET", "/api/now/table/incident", "")
	call(t, in, "GET", "/api/now/table/problem", "")
	all := in.Journal()
	if len(all) != 5 || all[0].Seq != 2 || in.JournalDropped() != 1 {
		t.Errorf("%d entries from %d, %d dropped", len(all), all[0].Seq, in.JournalDropped())
	}
	if all[3].Status != 0 || !reflect.DeepEqual(all[3].Faults, []string{FaultResetAfter}) || all[4].RowsReturned != 1 {
		t.Errorf("%+v %+v", all[3], all[4])
	}
	// a row changed between two pages
	in.OnRequest(func(e Entry) { in.Insert("incident", map[string]string{"sys_id": itoa(e.Seq)}) })
	before := len(call(t, in, "GET", "/api/now/table/incident", "").listed(t))
	after := len(call(t, in, "GET", "/api/now/table/incident", "").listed(t))
	if after != before+1 {
		t.Errorf("%d rows, then %d", before, after)
	}
}
