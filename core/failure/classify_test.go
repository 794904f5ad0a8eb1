package failure

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const (
	jsonType = "application/json;charset=UTF-8"
	htmlType = "text/html;charset=UTF-8"
)

// TestClassify has a line for each row of the table and for each body of the field reports.
func TestClassify(t *testing.T) {
	for _, c := range []struct {
		what   string
		a      Answer
		class  Class
		shrink bool
	}{
		{"no credentials", Answer{Status: 401, Body: []byte(`{"error":{"message":"User Not Authenticated","detail":"Required to provide Auth information"},"status":"failure"}`)}, Auth, false},
		{"MFA", Answer{Status: 401, MFA: true}, Auth, false},
		{"proxy credentials", Answer{Status: 407}, Misconfigured, false},
		{"rate limit", Answer{Status: 429}, RateLimited, false},
		{"unreadable query field", Answer{Status: 403, Body: []byte(`{"error":{"message":"Insufficient rights to query records","detail":"Field(s) present in the query do not have permission to be read"},"status":"failure"}`)}, Permission, false},
		{"API ACL", Answer{Status: 403, Body: []byte(`{"error":{"message":"User Not Authorized","detail":"Failed API level ACL Validation"}}`)}, Permission, false},
		{"invalid table", Answer{Status: 400, Body: []byte(`{"error":{"message":"Invalid table nope","detail":null},"status":"failure"}`)}, NotFound, false},
		{"wrong path", Answer{Status: 400, Body: []byte(`{"error":{"message":"Requested URI does not represent any resource"}}`)}, Misconfigured, false},
		{"missing", Answer{Status: 404}, NotFound, false},
		{"bad request", Answer{Status: 400}, RecordError, false},
		{"unprocessable", Answer{Status: 422}, RecordError, false},
		{"conflict", Answer{Status: 409}, Conflict, false},
		{"conflict that passes", Answer{Status: 409, Body: []byte(`{"error":"busy, try again"}`)}, Transient, false},
		{"unique key", Answer{Status: 500, Body: []byte(`{"error":{"message":"Unique Key violation detected by database"}}`)}, Conflict, false},
		{"too long", Answer{Status: 414, ContentType: htmlType, Body: []byte("<html>URI Too Long")}, Permanent, false},
		{"teapot", Answer{Status: 418}, Permanent, false},
		{"not implemented", Answer{Status: 501}, Permanent, false},
		{"request timeout", Answer{Status: 408}, Transient, true},
		{"too early", Answer{Status: 425}, Transient, false},
		{"server error", Answer{Status: 500}, Transient, false},
		{"bad gateway", Answer{Status: 502, ContentType: htmlType}, Transient, false},
		{"unavailable", Answer{Status: 503}, Transient, false},
		{"gateway timeout", Answer{Status: 504}, Transient, true},
		{"quota before the first byte", Answer{Status: 500, Body: []byte(`{"error":{"message":"Transaction cancelled: maximum execution time exceeded"}}`)}, TooLarge, true},
		{"quota at the end", Answer{Status: 200, ContentType: jsonType, Body: []byte(`..."x":"1"},{"error":{"message":"Transaction cancelled: maximum execution time exceeded"}}`)}, TooLarge, true},
		{"hibernating", Answer{Status: 200, ContentType: htmlType, Body: []byte("<html><title>Instance Hibernating page</title>")}, Transient, false},
		{"maintenance", Answer{Status: 200, ContentType: htmlType, Body: []byte("<html>Scheduled Maintenance")}, Transient, false},
		{"login page", Answer{Status: 200, ContentType: htmlType, Body: []byte("<html><form id=login>")}, Transient, false},
		{"some page", Answer{Status: 200, Body: []byte("<!DOCTYPE html><p>hello")}, Permanent, false},
		{"XML", Answer{Status: 200, ContentType: "text/xml", Body: []byte("<response/>")}, Permanent, false},
		{"redirect to a login page", Answer{Status: 302, Location: "https://x/login.do"}, Auth, false},
		{"redirect elsewhere", Answer{Status: 302, Location: "https://other/"}, Permanent, false},
		{"ACL in a 200", Answer{Status: 200, ContentType: jsonType, Body: []byte(`{"error":{"message":"ACL Exception Query Failed due to security constraints"}}`)}, Permission, false},
		{"Oracle is no ACL", Answer{Status: 200, ContentType: jsonType, Body: []byte(`{"error":{"message":"oracle is down"}}`)}, Permanent, false},
	} {
		e := Classify("reading", c.a, time.Now())
		if e.Class != c.class || e.Shrink != c.shrink {
			t.Errorf("%s: %v (shrink %v), want %v (%v)", c.what, e.Class, e.Shrink, c.class, c.shrink)
		}
	}
}

// TestSamples classifies every recorded error body: none may be taken for a bug, and none of a 4xx for something to repeat.
func TestSamples(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("..", "..", "..", "shared", "data", "api_samples", "errors_and_auth.json"))
	if err != nil {
		t.Skip("the recorded answers are not beside this checkout: ", err)
	}
	var file struct {
		Samples []struct {
			Status int             `json:"status"`
			When   string          `json:"when"`
			Body   json.RawMessage `json:"body"`
		} `json:"samples"`
	}
	if err := json.Unmarshal(raw, &file); err != nil || len(file.Samples) == 0 {
		t.Fatalf("%d samples, %v", len(file.Samples), err)
	}
	for _, s := range file.Samples {
		if s.Status < 300 {
			continue
		}
		e := Classify("reading", Answer{Status: s.Status, ContentType: jsonType, Body: s.Body}, time.Now())
		repeat := e.Class == Transient || e.Class == RateLimited || e.Class == TooLarge
		if e.Class == Bug || repeat && s.Status < 500 && s.Status != 429 && s.Status != 408 {
			t.Errorf("%d when %s: %v", s.Status, s.When, e.Class)
		}
	}
}

func TestErrorSaysEverything(t *testing.T) {
	e := Classify("reading a page of incident", Answer{
		Status: 403, Body: []byte(`{"error":{"message":"Insufficient rights to query records","detail":"Field(s) present"},"status":"failure"}`),
	}, time.Now())
	for _, part := range []string{"reading a page of incident", "403", "Insufficient rights to query records", "Field(s) present", "cursor field"} {
		if !strings.Contains(e.Error(), part) {
			t.Errorf("%q lacks %q", e, part)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2024, 3, 1, 12, 0, 0, 0, time.UTC)
	for in, want := range map[string]time.Duration{
		"1742": 1742 * time.Second, " 5 ": 5 * time.Second, "0": 0, "-3": 0, "99999999999": time.Hour, "": 0, "soon": 0,
		now.Add(90 * time.Second).Format("Mon, 02 Jan 2006 15:04:05 GMT"): 90 * time.Second,
		now.Add(-time.Minute).Format("Mon, 02 Jan 2006 15:04:05 GMT"):     0,
		"1.5": 0,
	} {
		if got := ParseRetryAfter(in, now); got != want {
			t.Errorf("%q: %v, want %v", in, got, want)
		}
	}
}

// TestRetryArithmetic: the wait lies under a ceiling that doubles up to the
// maximum, Retry-After replaces it exactly, attempts and elapsed time end it.
func TestRetryArithmetic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ms := func(name string, lo, hi int) time.Duration {
			return time.Duration(rapid.IntRange(lo, hi).Draw(t, name)) * time.Millisecond
		}
		r := Retry{MaxAttempts: rapid.IntRange(1, 20).Draw(t, "max"), MaxElapsed: ms("elapsed.max", 0, 400000), Initial: ms("initial", 0, 5000), Max: ms("cap", 1, 60000)}
		attempt, elapsed, jitter := rapid.IntRange(1, 25).Draw(t, "attempt"), ms("elapsed", 0, 400000), rapid.Float64Range(0, 0.999).Draw(t, "jitter")
		after := ms("after", 0, 3600)
		wait, ok := r.Next(attempt, elapsed, after, jitter)
		if attempt >= r.MaxAttempts {
			if ok {
				t.Fatal("attempts do not end")
			}
			return
		}
		ceiling := min(float64(r.Max), float64(r.Initial)*float64(uint64(1)<<(attempt-1)))
		switch {
		case after > 0 && wait != after:
			t.Fatalf("waited %v, the instance said %v", wait, after)
		case after == 0 && (wait < 0 || float64(wait) > ceiling):
			t.Fatalf("waited %v under a ceiling of %v", wait, time.Duration(ceiling))
		case ok != (elapsed+wait <= r.MaxElapsed):
			t.Fatalf("ok %v after %v + %v of %v", ok, elapsed, wait, r.MaxElapsed)
		}
	})
}

func TestExcerpt(t *testing.T) {
	long := Excerpt([]byte(strings.Repeat("ä", 600)))
	if n := len(strings.TrimSuffix(long, "…")); n > maxExcerpt || n < maxExcerpt-3 || strings.ContainsRune(long, '�') {
		t.Errorf("cut to %d bytes: %q", n, long)
	}
	for _, secret := range []string{"hunter2secret", "c25vd21lbHQ6cHc="} {
		text := Excerpt([]byte("Authorization: Basic c25vd21lbHQ6cHc=\npassword=hunter2secret&x=1 {\"client_secret\": \"hunter2secret\"} bearer hunter2secret"))
		if strings.Contains(text, secret) {
			t.Errorf("%q shows %q", text, secret)
		}
	}
	if got := Excerpt([]byte("a\n\tb\x00c")); got != "a b c" {
		t.Errorf("%q", got)
	}
	if got := NewRedactor("s3cr3t", "ab").Text("x s3cr3t ab"); got != "x *** ab" {
		t.Errorf("%q", got)
	}
}

// FuzzClassify: no body makes classification panic, or shows a credential that it carries.
func FuzzClassify(f *testing.F) {
	f.Add(200, "text/html", []byte("<html>login"))
	f.Add(500, "", []byte(`{"error":{"message":1}}`))
	f.Fuzz(func(t *testing.T, status int, contentType string, body []byte) {
		e := Classify("reading", Answer{Status: status, ContentType: contentType, Body: body, Excerpt: Excerpt(body)}, time.Now())
		if e.Class == Bug || e.Error() == "" || len(e.Detail) > maxExcerpt+len("…")+200 {
			t.Fatalf("%v %d", e, len(e.Detail))
		}
	})
}

func TestEveryClassHasAName(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range Classes() {
		if strings.HasPrefix(c.String(), "CLASS_") || seen[c.String()] {
			t.Errorf("class %d is called %s", c, c)
		}
		seen[c.String()] = true
	}
	if len(seen) == 0 || len(classNames) != int(classes) {
		t.Errorf("%d names for %d classes", len(classNames), classes)
	}
}
