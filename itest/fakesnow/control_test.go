package fakesnow

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// controlCall asks the fake's own API over a real server.
func control(t *testing.T, fn func(ask func(method, path, body string) answer, in *Instance)) {
	t.Helper()
	in := fixed(Options{})
	srv, err := in.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{}
	fn(func(method, path, body string) answer {
		t.Helper()
		return callOver(t, tr, srv.URL(), method, path, body)
	}, in)
	tr.CloseIdleConnections()
	if err := srv.Close(); err != nil {
		t.Error(err)
	}
}

func TestControlAPI(t *testing.T) {
	control(t, func(ask func(method, path, body string) answer, in *Instance) {
		for _, c := range []struct {
			method, path, body string
			status             int
			want               string
		}{
			{"POST", "/__fake/rows/incident", `[{"sys_id":"a","sys_updated_on":"2020-01-01 00:00:00","state":2},{"sys_id":"b"}]`, 201, `"count":2`},
			{"POST", "/__fake/rows/incident", `{"sys_id":"c"}`, 201, `"count":3`},
			{"POST", "/__fake/rows/incident", `[1]`, 400, `a row must be an object`},
			{"GET", "/__fake/rows/incident", ``, 200, `"count":3`},
			{"GET", "/__fake/rows/incident/a", ``, 200, `"state":"2"`},
			{"GET", "/__fake/rows/incident/zz", ``, 404, `no such row`},
			{"PATCH", "/__fake/rows/incident/a", `{"state":"3"}`, 201, `"rows":1`},
			{"DELETE", "/__fake/rows/incident/b?audit=true", ``, 200, `"count":2`},
			{"GET", "/__fake/rows/sys_audit_delete", ``, 200, `"documentkey":"b"`},
			{"POST", "/__fake/clock", `{"set":"2030-01-01 00:00:00"}`, 200, `"stamp":"2030-01-01 00:00:00"`},
			{"POST", "/__fake/clock", `{"advance_seconds":1.5}`, 200, `"stamp":"2030-01-01 00:00:01"`},
			{"POST", "/__fake/clock", `{"set":"soon"}`, 400, `neither`},
			{"POST", "/__fake/faults", `{"kind":"status","table":"incident","method":"GET","times":1,"probability":1,"after":0,"params":{"status":503,"retry_after":"5"}}`, 201, `"id":1`},
			{"GET", "/api/now/table/incident", ``, 503, ``},
			{"GET", "/api/now/table/incident", ``, 200, `"sys_id":"a"`},
			{"GET", "/__fake/faults", ``, 200, `"counts":{"status":1}`},
			{"POST", "/__fake/faults", `{"kind":"nonsense"}`, 400, `unknown kind`},
			{"POST", "/__fake/faults", `{"kind":"status"}`, 400, `needs params.status`},
			{"POST", "/__fake/faults", `[{"kind":"latency","params":{"ms":1}},{"kind":"null_result"}]`, 201, `"ids":[2,3]`},
			{"DELETE", "/__fake/faults", ``, 200, `"counts":{"status":1}`},
			{"GET", "/api/now/table/incident", ``, 200, `"sys_id":"a"`},
			{"GET", "/__fake/journal?since=1&limit=1", ``, 200, `"seq":2`},
			{"GET", "/__fake/journal", ``, 200, `"Authorization":["redacted"]`},
			{"POST", "/__fake/settings", `{"glide.invalid_query.returns_no_rows":"true"}`, 200, `true`},
			{"GET", "/api/now/table/incident?sysparm_query=x_y=1", ``, 200, `{"result":[]}`},
			{"GET", "/__fake/state", ``, 200, `"in_flight_high_water":{"admin":1}`},
			{"GET", "/__fake/nonsense", ``, 404, `no such path`},
		} {
			a := ask(c.method, c.path, c.body)
			if a.status != c.status || !strings.Contains(string(a.body), c.want) {
				t.Errorf("%s %s %s: %d %s", c.method, c.path, c.body, a.status, a.body)
			}
		}
		if r, _ := in.Get("incident", "a"); r["state"] != "3" || r["sys_updated_on"] != "2020-01-01 00:00:00" {
			t.Errorf("%v", r)
		}
		if a := ask("GET", "/api/now/table/incident", ""); a.header.Get("Date") != in.Now().Format(http.TimeFormat) {
			t.Errorf("Date %s", a.header.Get("Date"))
		}
	})
}

func TestClock(t *testing.T) {
	in := fixed(Options{})
	if !in.Now().Equal(epoch) {
		t.Fatal(in.Now())
	}
	in.Advance(-time.Hour)
	in.Advance(time.Minute)
	if !in.Now().Equal(epoch.Add(-59 * time.Minute)) {
		t.Error(in.Now())
	}
	in.SetClock(epoch.AddDate(1, 0, 0))
	if !in.Now().Equal(epoch.AddDate(1, 0, 0)) {
		t.Error(in.Now())
	}
}

func TestGenerate(t *testing.T) {
	for _, c := range []struct {
		table         string
		least, number int
		prefix        string
	}{{"incident", 55, 1, "INC"}, {"change_request", 55, 1, "CHG"}, {"cmdb_ci_server", 50, 0, ""}, {"sys_user", 25, 0, ""}} {
		one, two := fixed(Options{Seed: 4}), fixed(Options{Seed: 4})
		start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		for _, in := range []*Instance{one, two} {
			in.Generate(c.table, 200, GenOptions{Start: start, Span: time.Hour})
		}
		path := listPath(c.table, "sys_created_on>=2026-01-01 00:00:00^ORDERBYsys_created_on^ORDERBYsys_id")
		a, b := call(t, one, "GET", path, ""), call(t, two, "GET", path, "")
		rows := a.listed(t)
		if string(a.body) != string(b.body) || len(rows) != 200 {
			t.Errorf("%s: %d rows, not repeatable", c.table, len(rows))
		}
		if len(rows[0]) < c.least {
			t.Errorf("%s: %d fields", c.table, len(rows[0]))
		}
		if first, last := rows[0]["sys_updated_on"], rows[199]["sys_updated_on"]; first != "2026-01-01 00:00:00" || last != "2026-01-01 01:00:00" {
			t.Errorf("%s: from %v to %v", c.table, first, last)
		}
		if number, _ := rows[0]["number"].(string); !strings.HasPrefix(number, c.prefix) {
			t.Errorf("%s: number %v", c.table, rows[0]["number"])
		}
	}
	in := fixed(Options{})
	in.Generate("incident", 50, GenOptions{OneSecond: true, Start: epoch})
	in.Generate("incident", 50, GenOptions{OneSecond: true, Start: epoch, Seed: 9})
	if a := call(t, in, "GET", listPath("incident", "sys_updated_on="+epoch.Format(Stamp), "sysparm_limit=1"), ""); a.header.Get("X-Total-Count") != "100" {
		t.Errorf("%s rows in the second", a.header.Get("X-Total-Count"))
	}
	if a := call(t, in, "POST", "/api/now/table/incident", "{}").record(t)["number"]; a != "INC0010101" {
		t.Errorf("the next number is %v", a)
	}
}

func TestEventLog(t *testing.T) {
	log, err := LoadEvents(dataFile(t, "uci498_sample_mass_close_day.csv.gz"))
	if err != nil {
		t.Fatal(err)
	}
	if log.Len() != 26328 {
		t.Fatalf("%d events", log.Len())
	}
	in := fixed(Options{})
	first, ok := log.Peek()
	if !ok || log.Apply(in, 1000) != 1000 {
		t.Fatal("nothing applied")
	}
	if next, _ := log.Peek(); next.Before(first) {
		t.Errorf("the log goes back from %v to %v", first, next)
	}
	closing := time.Date(2016, 3, 24, 18, 39, 0, 0, time.UTC)
	log.ApplyUntil(in, closing)
	if next, _ := log.Peek(); !next.After(closing) {
		t.Errorf("next event at %v", next)
	}
	before := call(t, in, "GET", listPath("incident", "sys_updated_on=2016-03-24 18:40:00", "sysparm_limit=1"), "").header.Get("X-Total-Count")
	log.ApplyUntil(in, closing.Add(time.Minute))
	minute := call(t, in, "GET", listPath("incident", "sys_updated_on=2016-03-24 18:40:00", "sysparm_limit=1"), "").header.Get("X-Total-Count")
	if before != "0" || minute != "420" {
		t.Errorf("%s, then %s rows in the largest minute, want 420", before, minute)
	}
	log.Apply(in, log.Len())
	if _, more := log.Peek(); more || in.Count("incident") != 3966 || log.Apply(in, 1) != 0 || log.Applied() != log.Len() {
		t.Errorf("%d incidents", in.Count("incident"))
	}
	a := call(t, in, "GET", listPath("incident", "caller_idISNOTEMPTY^state=7", "sysparm_limit=1", "sysparm_display_value=all"), "")
	r := a.listed(t)[0]
	caller, _ := r["caller_id"].(map[string]any)
	if !strings.HasPrefix(fmt.Sprint(caller["display_value"]), "Caller ") || len(fmt.Sprint(caller["value"])) != 32 {
		t.Errorf("%v", caller)
	}
	if state, _ := r["state"].(map[string]any); state["display_value"] != "Closed" {
		t.Errorf("%v", state)
	}
	if bad := in.Rows("incident", func(r map[string]string) bool {
		closed := r["state"] == "6" || r["state"] == "7"
		return !closed && r["resolved_at"] != "" || strings.Contains(r["caller_id"]+r["resolved_by"]+r["vendor"], "?") || r["sys_created_on"] == ""
	}); len(bad) > 0 {
		t.Errorf("%d rows mapped wrongly, such as %v", len(bad), bad[0])
	}
	if _, err := LoadEvents("/nowhere"); err == nil {
		t.Error("a missing log is accepted")
	}
}

func TestComputedRows(t *testing.T) {
	in := fixed(Options{Seed: 2})
	const n = 10_000_000
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	in.GenerateComputed("incident", n, GenOptions{Start: start, Span: 1000 * time.Hour})
	if in.Count("incident") != n {
		t.Fatalf("%d rows", in.Count("incident"))
	}
	base, seen, at := "sys_updated_on>=2026-01-20 10:00:00^sys_updated_on<=2026-01-20 10:10:00", map[string]bool{}, ""
	total := ""
	for len(seen) < 2000 {
		q := base + "^ORDERBYsys_updated_on^ORDERBYsys_id"
		if at != "" {
			q = base + "^sys_id>" + at + "^ORDERBYsys_updated_on^ORDERBYsys_id"
		}
		a := call(t, in, "GET", listPath("incident", q, "sysparm_limit=777", "sysparm_fields=sys_id,sys_updated_on,number,short_description"), "")
		rows := a.listed(t)
		if len(rows) == 0 {
			break
		}
		if total == "" {
			total = a.header.Get("X-Total-Count")
		}
		for _, r := range rows {
			id := r["sys_id"].(string)
			if seen[id] || id <= at || r["short_description"] == "" {
				t.Fatalf("%v after %s", r, at)
			}
			seen[id], at = true, id
		}
	}
	if total != itoa(len(seen)) || len(seen) < 1600 {
		t.Errorf("%d rows seen of %s", len(seen), total)
	}
	one := call(t, in, "GET", "/api/now/table/incident/"+at, "").record(t)
	two := call(t, in, "GET", listPath("incident", "sys_id="+at), "").listed(t)
	if len(two) != 1 || one["sys_id"] != at || fmt.Sprint(one) != fmt.Sprint(two[0]) {
		t.Errorf("%v, %v", one, two)
	}
	last := call(t, in, "GET", listPath("incident", "ORDERBYDESCsys_updated_on", "sysparm_limit=1"), "").column(t, "sys_updated_on")
	if last != start.Add(1000*time.Hour).Format(Stamp) {
		t.Errorf("the newest row is of %s", last)
	}
	if a := call(t, in, "POST", "/api/now/table/incident", "{}"); a.status != 403 {
		t.Errorf("a write to computed rows: %d", a.status)
	}
}
