package fakesnow

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// fixed returns an instance whose clock stands still.
func fixed(opts Options) *Instance {
	if opts.Clock == nil {
		opts.Clock = func() time.Time { return epoch }
	}
	return New(opts)
}

// dataFile finds a file of the shared data folder beside the repository.
func dataFile(t *testing.T, name string) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		path := filepath.Join(dir, "shared", "data", name)
		if _, err := os.Stat(path); err == nil {
			return path
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Skipf("shared/data/%s is not there: data tests need the folder shared beside the repository", name)
		}
		dir = up
	}
}

// answer is a response read to its end.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// call sends a request as admin over the in-process transport.
func call(t *testing.T, in *Instance, method, path, body string, headers ...string) answer {
	t.Helper()
	return callOver(t, in.Transport(), "http://fake.test", method, path, body, headers...)
}

func callOver(t *testing.T, rt http.RoundTripper, base, method, path, body string, headers ...string) answer {
	t.Helper()
	resp, err := try(t, rt, base, method, path, body, headers...)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return resp
}

func try(t *testing.T, rt http.RoundTripper, base, method, path, body string, headers ...string) (answer, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, base+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.SetBasicAuth("admin", "admin")
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i+1] == "" {
			req.Header.Del(headers[i])
		} else {
			req.Header.Set(headers[i], headers[i+1])
		}
	}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, b}, err
}

// listed reads a list as maps of values.
func (a answer) listed(t *testing.T) []map[string]any {
	t.Helper()
	var doc struct {
		Result []map[string]any `json:"result"`
	}
	if err := json.Unmarshal(a.body, &doc); err != nil {
		t.Fatalf("status %d, body %.300q: %v", a.status, a.body, err)
	}
	return doc.Result
}

func (a answer) record(t *testing.T) map[string]any {
	t.Helper()
	var doc struct {
		Result map[string]any `json:"result"`
	}
	if err := json.Unmarshal(a.body, &doc); err != nil || doc.Result == nil {
		t.Fatalf("status %d, body %.300q: %v", a.status, a.body, err)
	}
	return doc.Result
}

// column returns one field of a list, joined by blanks.
func (a answer) column(t *testing.T, name string) string {
	t.Helper()
	var vals []string
	for _, r := range a.listed(t) {
		vals = append(vals, r[name].(string))
	}
	return strings.Join(vals, " ")
}

// query is the path of a list with an encoded query and further parameters as name=value.
func listPath(table, query string, params ...string) string {
	v := url.Values{"sysparm_query": {query}}
	for _, p := range params {
		name, val, _ := strings.Cut(p, "=")
		v.Set(name, val)
	}
	return "/api/now/table/" + table + "?" + v.Encode()
}

func mustJSON(t *testing.T, b []byte, v any) {
	t.Helper()
	if err := json.Unmarshal(b, v); err != nil {
		t.Fatalf("%v in %.300s", err, b)
	}
}
