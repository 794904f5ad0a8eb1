package fakesnow

import (
	"strings"
	"testing"
	"time"
)

func TestCreateRules(t *testing.T) {
	for _, c := range []struct {
		name, table, body string
		want              map[string]string
	}{
		{"defaults of incident", "incident", `{}`, map[string]string{
			"state": "1", "incident_state": "1", "impact": "3", "urgency": "3", "severity": "3", "priority": "5", "active": "true",
			"approval": "not requested", "category": "inquiry", "made_sla": "true", "opened_at": "2026-03-01 12:00:00",
			"sys_domain": "global", "number": "INC0010001", "sys_class_name": "incident", "opened_by": "6816f79cc0a8016401c5a33be04be441",
			"sys_created_on": "2026-03-01 12:00:00", "sys_updated_on": "2026-03-01 12:00:00", "sys_created_by": "admin", "sys_mod_count": "0",
		}},
		{"a given id and number stay", "incident", `{"sys_id":"My-Id","number":"INC7"}`, map[string]string{"sys_id": "My-Id", "number": "INC7"}},
		{"system fields are ignored", "incident", `{"sys_created_on":"2000-01-01 00:00:00","sys_mod_count":"9","sys_updated_by":"x"}`, map[string]string{"sys_created_on": "2026-03-01 12:00:00", "sys_mod_count": "0", "sys_updated_by": "admin"}},
		{"numbers keep their digits", "incident", `{"description":9007199254740993,"close_notes":0.10,"knowledge":true,"user_input":null}`, map[string]string{"description": "9007199254740993", "close_notes": "0.10", "knowledge": "true", "user_input": ""}},
		{"nested values", "incident", `{"caller_id":{"link":"x","value":"u1"},"watch_list":["a","b"]}`, map[string]string{"caller_id": "u1", "watch_list": `["a","b"]`}},
		{"text of all kinds", "incident", `{"description":"😀 \" \\ \u0001 <&> ö"}`, map[string]string{"description": "😀 \" \\ \u0001 <&> ö"}},
		{"booleans", "incident", `{"knowledge":"1","made_sla":"False"}`, map[string]string{"knowledge": "true", "made_sla": "false"}},
		{"a subclass through its parent", "task", `{"sys_class_name":"problem"}`, map[string]string{"sys_class_name": "problem", "number": "PRB0010001"}},
	} {
		in := fixed(Options{})
		a := call(t, in, "POST", "/api/now/table/"+c.table+"?sysparm_exclude_reference_link=true", c.body)
		if a.status != 201 {
			t.Errorf("%s: %d %s", c.name, a.status, a.body)
			continue
		}
		r := a.record(t)
		for name, want := range c.want {
			if r[name] != want {
				t.Errorf("%s: %s is %q, want %q", c.name, name, r[name], want)
			}
		}
		id, _ := r["sys_id"].(string)
		if a.header.Get("Location") != "http://fake.test/api/now/table/"+c.table+"/"+id || len(id) == 0 {
			t.Errorf("%s: Location %s", c.name, a.header.Get("Location"))
		}
	}
}

func TestRefusedWrites(t *testing.T) {
	in := fixed(Options{})
	in.Insert("incident", map[string]string{"sys_id": "AbC"})
	for _, c := range []struct {
		name, method, path, body string
		status                   int
		text                     string
	}{
		{"duplicate id in the hierarchy", "POST", "problem", `{"sys_id":"abc"}`, 403, "Unique Key violation detected by database"},
		{"not JSON", "POST", "incident", `{"a":`, 400, "Exception while reading request"},
		{"an array", "POST", "incident", `[]`, 400, "Exception while reading request"},
		{"two documents", "POST", "incident", `{}{}`, 400, "Exception while reading request"},
		{"unknown row", "PUT", "incident/none", `{}`, 404, "No Record found"},
		{"unknown table", "POST", "nope", `{}`, 400, "Invalid table nope"},
		{"a list cannot be deleted", "DELETE", "incident", ``, 405, "Method not supported"},
		{"too large", "PATCH", "incident/AbC", `{"description":"` + strings.Repeat("x", 10<<20) + `"}`, 413, "Rejected large REST payload"},
	} {
		a := call(t, in, c.method, "/api/now/table/"+c.path, c.body)
		if a.status != c.status || !strings.Contains(string(a.body), c.text) {
			t.Errorf("%s: %d %.200s", c.name, a.status, a.body)
		}
	}
	if n := in.Count("task"); n != 1 {
		t.Errorf("%d rows", n)
	}
}

func TestUpdates(t *testing.T) {
	in := fixed(Options{Users: map[string]string{"admin": "admin"}})
	in.Insert("incident", map[string]string{"sys_id": "a", "short_description": "old", "state": "2", "sys_updated_on": "2020-01-01 00:00:00", "category": "x"})
	in.FreezeField("incident", "close_notes")
	in.Advance(90 * time.Second)
	a := call(t, in, "PUT", "/api/now/table/incident/a", `{"short_description":"new","state":"","close_notes":"no","category":"","u_unknown":"1","work_notes":"hi"}`)
	r := a.record(t)
	for name, want := range map[string]string{
		"short_description": "new", "state": "2", "close_notes": "", "category": "", "work_notes": "", "sys_mod_count": "1",
		"sys_updated_on": "2026-03-01 12:01:30", "sys_created_on": "2020-01-01 00:00:00", "sys_updated_by": "admin",
	} {
		if r[name] != want {
			t.Errorf("%s is %q, want %q", name, r[name], want)
		}
	}
	if _, has := r["u_unknown"]; has || a.status != 200 {
		t.Errorf("%d %v", a.status, r)
	}
	call(t, in, "PATCH", "/api/now/table/incident/a", `{"work_notes":"hi"}`)
	if rows := in.Rows("sys_journal_field", nil); len(rows) != 2 || rows[0]["value"] != "hi" || rows[0]["element_id"] != "a" {
		t.Errorf("a note sent twice: %v", rows)
	}
	call(t, in, "PATCH", "/api/now/table/incident/a", `{"short_description":"new"}`)
	if r, _ := in.Get("incident", "a"); r["sys_mod_count"] != "2" {
		t.Errorf("an update that changes nothing counts: %s", r["sys_mod_count"])
	}
	a = call(t, in, "PATCH", "/api/now/table/incident/a", `{"short_description":"3"}`, "X-no-response-body", "true")
	if a.status != 200 || len(a.body) != 0 {
		t.Errorf("%d %s", a.status, a.body)
	}
	in.SetSetting(SettingNoAuditDelete, "problem,incident")
	call(t, in, "DELETE", "/api/now/table/incident/a", "")
	if in.Count("sys_audit_delete") != 0 || in.Count("incident") != 0 {
		t.Error("the delete was audited or did nothing")
	}
}

func TestInputDisplayValueAndTruncation(t *testing.T) {
	in := fixed(Options{Dictionary: ""})
	in.SetTimeZone("admin", "Europe/Berlin")
	in.Insert("sys_user", map[string]string{"sys_id": "u9", "name": "Ann"})
	r := call(t, in, "POST", "/api/now/table/incident?sysparm_input_display_value=true&sysparm_exclude_reference_link=true", `{"due_date":"2026-07-01 12:00:00","caller_id":"Ann"}`).record(t)
	if r["due_date"] != "2026-07-01 10:00:00" || r["caller_id"] != "u9" {
		t.Errorf("%v %v", r["due_date"], r["caller_id"])
	}
	r = call(t, in, "POST", "/api/now/table/incident?sysparm_input_display_value=false", `{"due_date":"2026-07-01 12:00:00"}`).record(t)
	if r["due_date"] != "2026-07-01 12:00:00" {
		t.Errorf("%v", r["due_date"])
	}
}

func TestStampWriteAndRawAccess(t *testing.T) {
	in := fixed(Options{StampWrite: func(now time.Time) time.Time { return now.Add(-time.Minute).Truncate(time.Hour) }})
	r := call(t, in, "POST", "/api/now/table/incident", `{}`).record(t)
	if r["sys_updated_on"] != "2026-03-01 11:00:00" {
		t.Errorf("stamped %v", r["sys_updated_on"])
	}
	in.Insert("u_new", map[string]string{"sys_id": "1", "u_a": "x", "sys_updated_on": ""})
	in.Update("u_new", "1", map[string]string{"u_b": "y"})
	got, ok := in.Get("u_new", "1")
	if !ok || got["u_a"] != "x" || got["u_b"] != "y" || got["sys_updated_on"] != "" || got["sys_mod_count"] != "0" {
		t.Errorf("%v", got)
	}
	in.Touch("u_new", "1", map[string]string{"u_b": "z"})
	if got, _ = in.Get("u_new", "1"); got["u_b"] != "z" || got["sys_mod_count"] != "1" || got["sys_updated_on"] != "2026-03-01 11:00:00" {
		t.Errorf("%v", got)
	}
	if a := call(t, in, "GET", listPath("u_new", "u_b=z", "sysparm_fields=u_a"), ""); a.column(t, "u_a") != "x" {
		t.Errorf("%s", a.body)
	}
	in.Remove("u_new", "1")
	if _, ok := in.Get("u_new", "1"); ok || in.Count("sys_audit_delete") != 0 {
		t.Error("Remove left something")
	}
	in.Insert("u_new", map[string]string{"sys_id": "2"})
	in.Delete("u_new", "2")
	if in.Count("sys_audit_delete") != 1 {
		t.Error("Delete left no audit row")
	}
}

func TestSnapshotRestore(t *testing.T) {
	in := fixed(Options{})
	in.Generate("incident", 300, GenOptions{})
	path := listPath("incident", "ORDERBYsys_updated_on^ORDERBYsys_id", "sysparm_limit=500")
	before := call(t, in, "GET", path, "")
	snap := in.Snapshot()
	for _, r := range in.Rows("incident", nil)[:100] {
		in.Delete("incident", r["sys_id"])
	}
	in.Insert("incident", map[string]string{"u_more": "1"})
	in.Restore(snap)
	if after := call(t, in, "GET", path, ""); string(after.body) != string(before.body) || in.Count("incident") != 300 || in.Count("sys_audit_delete") != 0 {
		t.Errorf("%d rows after Restore", in.Count("incident"))
	}
	in.Touch("incident", in.Rows("incident", nil)[0]["sys_id"], nil)
	in.Restore(snap)
	if after := call(t, in, "GET", path, ""); string(after.body) != string(before.body) {
		t.Error("a second Restore differs")
	}
}

func TestOAuthBatchImport(t *testing.T) {
	in := fixed(Options{Users: map[string]string{"bob": "b"}, Clients: map[string]string{"c": "s"}})
	form := []string{"Content-Type", "application/x-www-form-urlencoded", "Authorization", ""}
	ask := func(body string) answer { return call(t, in, "POST", tokenPath, body, form...) }
	for _, bad := range []string{"", "grant_type=password&client_id=c&client_secret=x&username=bob&password=b", "grant_type=password&client_id=c&client_secret=s&username=bob&password=x", "grant_type=refresh_token&client_id=c&client_secret=s&refresh_token=x"} {
		if a := ask(bad); a.status != 401 || string(a.body) != `{"error_description":"access_denied","error":"server_error"}` {
			t.Errorf("%q: %d %s", bad, a.status, a.body)
		}
	}
	token := func(a answer) (access, refresh string) {
		var doc map[string]any
		mustJSON(t, a.body, &doc)
		access, _ = doc["access_token"].(string)
		refresh, _ = doc["refresh_token"].(string)
		return access, refresh
	}
	access, refresh := token(ask("grant_type=password&client_id=c&client_secret=s&username=bob&password=b"))
	if again, _ := token(ask("grant_type=refresh_token&client_id=c&client_secret=s&refresh_token=" + refresh)); again != access || access == "" {
		t.Errorf("a token within the lifetime: %q, %q", access, again)
	}
	bearer := []string{"Authorization", "Bearer " + access}
	if a := call(t, in, "GET", "/api/now/table/incident", "", bearer...); a.status != 200 {
		t.Errorf("%d", a.status)
	}
	batch := `{"batch_request_id":"1","rest_requests":[{"id":"a","method":"POST","url":"/api/now/table/incident","body":"eyJzeXNfaWQiOiJ4In0="},{"id":"b","method":"GET","url":"/api/now/table/incident/none"},{"id":"c","method":"DELETE","url":"/api/now/table/problem/none"}]}`
	in.AddFault(Fault{Kind: FaultStatus, Table: "problem", Params: FaultParams{Status: 503, Variant: "unserviced"}})
	var doc struct {
		Serviced []struct {
			ID     string `json:"id"`
			Status int    `json:"status_code"`
		} `json:"serviced_requests"`
		Unserviced []string `json:"unserviced_requests"`
	}
	mustJSON(t, call(t, in, "POST", "/api/now/v1/batch", batch, bearer...).body, &doc)
	if len(doc.Serviced) != 2 || doc.Serviced[0].Status != 201 || doc.Serviced[1].Status != 404 || len(doc.Unserviced) != 1 || doc.Unserviced[0] != "c" || in.Count("incident") != 1 {
		t.Errorf("%+v", doc)
	}
	if a := call(t, in, "POST", "/api/now/import/incident", `{"short_description":"i"}`, bearer...); a.status != 201 || !strings.Contains(string(a.body), `"status":"inserted"`) {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := call(t, in, "POST", "/api/now/import/incident/insertMultiple", `{"records":[{"short_description":"1"},{"sys_id":"x","short_description":"2"}]}`, bearer...); a.status != 201 || in.Count("incident") != 3 {
		t.Errorf("%d %s", a.status, a.body)
	}
	in.Advance(31 * time.Minute)
	if a := call(t, in, "GET", "/api/now/table/incident", "", bearer...); a.status != 401 {
		t.Errorf("an expired token: %d", a.status)
	}
}

func TestWriteSettings(t *testing.T) {
	in := fixed(Options{Dictionary: dataFile(t, "dictionary_sdk_core_4.9.0.json")})
	in.SetSetting(SettingTruncate, "true")
	in.SetSetting(SettingKeepGivenID, "false")
	r := call(t, in, "POST", "/api/now/table/incident", `{"sys_id":"mine","cause":"`+strings.Repeat("ö", 4001)+`"}`).record(t)
	if cause, _ := r["cause"].(string); cause != strings.Repeat("ö", 4000) {
		t.Errorf("%d bytes stored", len(cause))
	}
	if id, _ := r["sys_id"].(string); len(id) != 32 {
		t.Errorf("the given id was kept: %v", r["sys_id"])
	}
	if rows := in.Rows("sys_properties", nil); len(rows) != 0 {
		t.Errorf("the fake's own settings show: %v", rows)
	}
	in.SetSetting(SettingInvalidQuery, "true")
	in.SetSetting(SettingInvalidQuery, "false")
	if a := call(t, in, "GET", listPath("sys_properties", "name="+SettingInvalidQuery), ""); a.column(t, "value") != "false" {
		t.Errorf("%s", a.body)
	}
}
