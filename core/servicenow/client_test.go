package servicenow

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"snowmelt/core/failure"
	"snowmelt/itest/fakesnow"
)

const secret = "a-secret-of-tests"

func client(t *testing.T, address string, rt http.RoundTripper) *Client {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(Config{
		URL: u, Username: "snowmelt", Password: secret, UserAgent: "snowmelt/test", ConnectTimeout: 5 * time.Second,
		HeaderTimeout: 75 * time.Second, BodyIdle: 30 * time.Second, MaxBody: 1 << 20, Connections: 4, RoundTripper: rt,
	}, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func list(c *Client) (*Page, error) {
	return c.List(context.Background(), ListRequest{Table: "incident", Query: "ORDERBYsys_updated_on^ORDERBYsys_id", Limit: 100, Count: true}, names)
}

func instance(rows int) *fakesnow.Instance {
	inst := fakesnow.New(fakesnow.Options{Seed: 1, Users: map[string]string{"snowmelt": secret}})
	inst.Generate("incident", rows, fakesnow.GenOptions{})
	return inst
}

// TestList reads the same page in process, over a socket, and with gzip.
func TestList(t *testing.T) {
	inst := instance(250)
	server, err := inst.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	for name, c := range map[string]*Client{
		"in process": client(t, "https://x.test", inst.Transport()), "socket": client(t, server.URL(), nil),
	} {
		p, err := list(c)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if len(p.Rows) != 100 || p.Total != 250 || p.Date.IsZero() || p.Bytes < 10000 || p.RequestID == "" {
			t.Errorf("%s: %d rows of %d, %v, %d bytes", name, len(p.Rows), p.Total, p.Date, p.Bytes)
		}
		for i, r := range p.Rows {
			if r.SysID == "" || r.Timestamp == "" || r.ModCount == "" || i > 0 && r.Timestamp < p.Rows[i-1].Timestamp {
				t.Fatalf("%s: row %d is %+v", name, i, r)
			}
		}
		p.Release()
	}
	last := inst.Journal()[len(inst.Journal())-1]
	for param, want := range map[string]string{
		"sysparm_limit": "100", "sysparm_no_count": "false", "sysparm_suppress_pagination_header": "true", "sysparm_exclude_reference_link": "true",
	} {
		if got := last.Query.Get(param); got != want {
			t.Errorf("%s=%s, want %s", param, got, want)
		}
	}
}

// TestFailuresOfAList: each fault has its class, and no page comes with it.
func TestFailuresOfAList(t *testing.T) {
	for _, c := range []struct {
		fault  fakesnow.Fault
		class  failure.Class
		shrink bool
	}{
		{fakesnow.Fault{Kind: fakesnow.FaultResetBefore}, failure.Transient, false},
		{fakesnow.Fault{Kind: fakesnow.FaultResetAfter}, failure.Ambiguous, false},
		{fakesnow.Fault{Kind: fakesnow.FaultResetBody, Params: fakesnow.FaultParams{AtByte: 5000}}, failure.Transient, true},
		{fakesnow.Fault{Kind: fakesnow.FaultTruncated}, failure.Transient, true},
		{fakesnow.Fault{Kind: fakesnow.FaultMalformed}, failure.Transient, true},
		{fakesnow.Fault{Kind: fakesnow.FaultBadGzip}, failure.Transient, true},
		{fakesnow.Fault{Kind: fakesnow.FaultMaxExecution}, failure.TooLarge, true},
		{fakesnow.Fault{Kind: fakesnow.FaultStallHeaders}, failure.Ambiguous, true},
		{fakesnow.Fault{Kind: fakesnow.FaultStallBody, Params: fakesnow.FaultParams{AtByte: 5000}}, failure.Transient, true},
		{fakesnow.Fault{Kind: fakesnow.FaultHTML200}, failure.Transient, false},
		{fakesnow.Fault{Kind: fakesnow.FaultNullResult}, failure.Transient, true},
		{fakesnow.Fault{Kind: fakesnow.FaultWrongContentType}, failure.Permanent, false},
		{fakesnow.Fault{Kind: fakesnow.FaultStatus, Params: fakesnow.FaultParams{Status: 401}}, failure.Auth, false},
		{fakesnow.Fault{Kind: fakesnow.FaultStatus, Params: fakesnow.FaultParams{Status: 429, RetryAfter: "7"}}, failure.RateLimited, false},
		{fakesnow.Fault{Kind: fakesnow.FaultStatus, Params: fakesnow.FaultParams{Status: 503}}, failure.Transient, false},
	} {
		t.Run(c.fault.Kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inst := instance(100)
				inst.AddFault(c.fault)
				p, err := list(client(t, "https://x.test", inst.Transport()))
				if p != nil || err == nil {
					t.Fatalf("%v, %v", p, err)
				}
				e, ok := err.(*failure.Error)
				if !ok || e.Class != c.class || e.Shrink != c.shrink || e.RequestID == "" {
					t.Errorf("%v: class %v shrink %v, want %v %v", err, failure.ClassOf(err), ok && e.Shrink, c.class, c.shrink)
				}
				if strings.Contains(err.Error(), secret) {
					t.Errorf("%v shows the password", err)
				}
				if c.fault.Params.RetryAfter != "" && e.RetryAfter != 7*time.Second {
					t.Errorf("Retry-After %v", e.RetryAfter)
				}
			})
		})
	}
}

func TestBodyOverTheCap(t *testing.T) {
	inst := instance(3000)
	c := client(t, "https://x.test", inst.Transport())
	_, err := c.List(context.Background(), ListRequest{Table: "incident", Query: "ORDERBYsys_id", Limit: 3000}, names)
	if failure.ClassOf(err) != failure.TooLarge || !strings.Contains(err.Error(), "snow.http.max.response.bytes") {
		t.Errorf("%v", err)
	}
}

func TestLongQueryIsNotSent(t *testing.T) {
	inst := instance(1)
	c := client(t, "https://x.test", inst.Transport())
	_, err := c.List(context.Background(), ListRequest{Table: "incident", Query: strings.Repeat("a=1^", 7000), Limit: 1}, names)
	if failure.ClassOf(err) != failure.Misconfigured || len(inst.Journal()) != 0 {
		t.Errorf("%v after %d requests", err, len(inst.Journal()))
	}
}

// TestCredentialsStayHome: no redirect is followed, so no other host sees them,
// and they are not sent in the clear (Invariant 8).
func TestCredentialsStayHome(t *testing.T) {
	var other int
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { other++ }))
	defer elsewhere.Close()
	home := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: "JSESSIONID", Value: "1"})
		if r.Header.Get("Cookie") != "" {
			t.Error("a cookie was kept")
		}
		http.Redirect(w, r, elsewhere.URL, http.StatusFound)
	}))
	defer home.Close()
	c := client(t, home.URL, nil)
	for range 2 {
		if _, err := list(c); failure.ClassOf(err) != failure.Permanent {
			t.Errorf("%v", err)
		}
	}
	if other > 0 {
		t.Error("a redirect was followed")
	}
	u, _ := url.Parse("http://acme.service-now.example")
	if _, err := New(Config{URL: u}, false); failure.ClassOf(err) != failure.Misconfigured {
		t.Errorf("credentials over plain http: %v", err)
	}
	if _, err := New(Config{URL: u}, true); err != nil {
		t.Error(err)
	}
}

// TestBuffersComeBack: reading many pages does not need more buffers than are in use.
func TestBuffersComeBack(t *testing.T) {
	inst := instance(500)
	c := client(t, "https://x.test", inst.Transport())
	read := func() {
		p, err := c.List(context.Background(), ListRequest{Table: "incident", Query: "ORDERBYsys_id", Limit: 300}, names)
		if err != nil {
			t.Fatal(err)
		}
		p.Release()
	}
	read()
	first := testing.AllocsPerRun(20, read)
	if first > 5000 {
		t.Errorf("%v allocations a page of 300 rows", first)
	}
}
