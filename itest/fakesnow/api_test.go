package fakesnow

import (
	"encoding/json"
	"net/http"
	"os"
	"reflect"
	"strings"
	"testing"
)

// sampleErrors are the bodies recorded in shared/data/api_samples/errors_and_auth.json.
func sampleErrors(t *testing.T) map[string]any {
	t.Helper()
	raw, err := os.ReadFile(dataFile(t, "api_samples/errors_and_auth.json"))
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Samples []struct {
			When string `json:"when"`
			Body any    `json:"body"`
			Raw  string `json:"raw_body"`
		} `json:"samples"`
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	out := map[string]any{}
	for _, s := range doc.Samples {
		out[s.When] = s.Body
	}
	if len(out) < 10 {
		t.Fatalf("%d samples", len(out))
	}
	return out
}

func TestErrorBodiesAsRecorded(t *testing.T) {
	samples := sampleErrors(t)
	table := "/api/now/table/"
	for _, c := range []struct {
		when, method, path string
		status             int
		fault              FaultParams
		auth               string
		change             func(string) string
	}{
		{when: "no or wrong credentials on /api/now (expired token: unconfirmed)", method: "GET", path: table + "incident", status: 401, auth: "none"},
		{when: "unknown table", method: "GET", path: table + "sys_nonexistent", status: 400},
		{when: "unknown path under /api", method: "GET", path: "/api/now/nonsense", status: 400},
		{when: "GET, PATCH, PUT or DELETE of a sys_id that is not there or not readable", method: "PATCH", path: table + "incident/nope", status: 404},
		{when: "GET, PATCH, PUT or DELETE of a sys_id that is not there or not readable", method: "DELETE", path: table + "incident/nope", status: 404},
		{when: "a field used in sysparm_query is not readable", method: "GET", path: table + "incident", status: 403, fault: FaultParams{Status: 403, Variant: "query"}},
		{when: "insert refused by an ACL", method: "POST", path: table + "incident", status: 403, fault: FaultParams{Status: 403, Variant: "acl_insert"}},
		{when: "table-level ACL on the API", method: "GET", path: table + "incident", status: 403, fault: FaultParams{Status: 403, Variant: "api_acl"}},
		{when: "a business rule or data policy refuses the write", method: "POST", path: table + "incident", status: 403, fault: FaultParams{Status: 403}},
		{when: "a rate limit rule is exceeded", method: "GET", path: table + "incident", status: 429, fault: FaultParams{Status: 429}},
		{when: "the 60 s quota rule cancels the transaction", method: "GET", path: table + "incident", status: 500, fault: FaultParams{Status: 500, Variant: "max_execution"}},
	} {
		in := fixed(Options{})
		if c.fault.Status != 0 {
			in.AddFault(Fault{Kind: FaultStatus, Params: c.fault})
		}
		var headers []string
		if c.auth == "none" {
			headers = []string{"Authorization", ""}
		}
		a := call(t, in, c.method, c.path, "", headers...)
		var got any
		if err := json.Unmarshal(a.body, &got); err != nil {
			t.Errorf("%s: %v in %s", c.when, err, a.body)
		}
		want := samples[c.when]
		if want == nil {
			t.Fatalf("no sample for %q", c.when)
		}
		if a.status != c.status || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %d %s, want %v", c.when, a.status, a.body, want)
		}
		if c.status == 401 && (a.header.Get("WWW-Authenticate") != `Basic realm="Service-now"` || a.header.Get("X-Is-Logged-In") != "false") {
			t.Errorf("headers %v", a.header)
		}
	}
}

func TestRecordHasTheColumnsOfTheDocumentedSample(t *testing.T) {
	raw, err := os.ReadFile(dataFile(t, "api_samples/docs_table_get_one_incident.json"))
	if err != nil {
		t.Fatal(err)
	}
	var sample struct {
		Result map[string]any `json:"result"`
	}
	if err := json.Unmarshal(raw, &sample); err != nil {
		t.Fatal(err)
	}
	in := fixed(Options{})
	id := call(t, in, "POST", "/api/now/table/incident", `{"caller_id":"46c6f9efa9fe198101ddf5eed9adf6e7"}`).record(t)["sys_id"].(string)
	got := call(t, in, "GET", "/api/now/v2/table/incident/"+id, "").record(t)
	for name := range sample.Result {
		if _, ok := got[name]; !ok {
			t.Errorf("column %s is missing", name)
		}
	}
	want := map[string]any{"link": "http://fake.test/api/now/table/sys_user/46c6f9efa9fe198101ddf5eed9adf6e7", "value": "46c6f9efa9fe198101ddf5eed9adf6e7"}
	if !reflect.DeepEqual(got["caller_id"], want) {
		t.Errorf("caller_id is %v", got["caller_id"])
	}
	domain, _ := got["sys_domain"].(map[string]any)
	if domain["link"] != "http://fake.test/api/now/table/sys_user_group/global" {
		t.Errorf("sys_domain is %v", got["sys_domain"])
	}
}

func TestDictionaryFacts(t *testing.T) {
	in := fixed(Options{Dictionary: dataFile(t, "dictionary_sdk_core_4.9.0.json")})
	in.Generate("incident", 3, GenOptions{})
	rows := call(t, in, "GET", "/api/now/table/incident", "").listed(t)
	if len(rows) != 3 || len(rows[0]) != 95 {
		t.Fatalf("%d rows of %d fields, want 3 of 95", len(rows), len(rows[0]))
	}
	a := call(t, in, "GET", listPath("sys_dictionary", "nameINincident,task^elementISNOTEMPTY^internal_typeISNOTEMPTY", "sysparm_fields=name,element,internal_type", "sysparm_exclude_reference_link=true"), "")
	if n := len(a.listed(t)); n != 95 {
		t.Errorf("%d dictionary entries for incident and task, want 95", n)
	}
	a = call(t, in, "GET", listPath("sys_db_object", "super_class.name=task", "sysparm_fields=name,super_class.name"), "")
	if names := " " + a.column(t, "name") + " "; !strings.Contains(names, " incident ") || !strings.Contains(names, " change_request ") {
		t.Errorf("subclasses of task: %s", names)
	}
	a = call(t, in, "GET", listPath("sys_db_object", "name=cmdb_ci_server", "sysparm_fields=super_class.super_class.name"), "")
	if a.column(t, "super_class.super_class.name") != "cmdb_ci_hardware" {
		t.Errorf("%s", a.body)
	}
	if err := CheckDictionary("/nowhere"); err == nil {
		t.Error("a missing dictionary is accepted")
	}
}

func TestListParametersAndHeaders(t *testing.T) {
	in := fixed(Options{})
	for i := range 25 {
		in.Insert("incident", map[string]string{"sys_id": string(rune('a' + i)), "number": itoa(i)})
	}
	a := call(t, in, "GET", listPath("incident", "ORDERBYsys_id", "sysparm_limit=10", "sysparm_offset=10", "sysparm_fields=sys_id,nonsense, number"), "")
	if a.column(t, "sys_id") != "k l m n o p q r s t" || len(a.listed(t)[0]) != 2 {
		t.Errorf("%s", a.body)
	}
	if a.header.Get("X-Total-Count") != "25" || a.header.Get("Date") != epoch.Format(http.TimeFormat) || a.header.Get("X-Is-Logged-In") != "true" ||
		a.header.Get("Content-Type") != jsonType {
		t.Errorf("headers %v", a.header)
	}
	link := a.header.Get("Link")
	for _, part := range []string{`sysparm_offset=0&sysparm_query=ORDERBYsys_id>;rel="first"`, `rel="prev"`, `sysparm_offset=20&sysparm_query=ORDERBYsys_id>;rel="next"`, `rel="last"`} {
		if !strings.Contains(link, part) {
			t.Errorf("Link %s lacks %s", link, part)
		}
	}
	a = call(t, in, "GET", listPath("incident", "", "sysparm_no_count=true"), "")
	if len(a.listed(t)) != 25 || a.header["X-Total-Count"] != nil {
		t.Errorf("headers %v", a.header)
	}
	if a = call(t, in, "GET", listPath("incident", "", "sysparm_suppress_pagination_header=true"), ""); a.header["Link"] != nil || a.header.Get("X-Total-Count") != "25" {
		t.Errorf("headers %v", a.header)
	}
	if a = call(t, in, "GET", "/api/now/table/incident?number=7&sysparm_fields=sys_id", ""); a.column(t, "sys_id") != "h" {
		t.Errorf("%s", a.body)
	}
	for path, status := range map[string]int{"/api/now/table/": 200, "/api/now/v2/table/": 200, "/api/now/v1/table/": 404} {
		if a = call(t, in, "GET", path+"problem", ""); a.status != status || status == 200 && string(a.body) != `{"result":[]}` {
			t.Errorf("empty list under %s: %d %s", path, a.status, a.body)
		}
	}
	if a = call(t, in, "GET", listPath("incident", strings.Repeat("x", 17000)), ""); a.status != 414 || !strings.HasPrefix(string(a.body), "<html>") {
		t.Errorf("%d %.80s", a.status, a.body)
	}
	in.SetSetting(SettingLinkMax, "300")
	if a = call(t, in, "GET", listPath("incident", "numberLIKE"+strings.Repeat("x", 400)), ""); a.status != 400 || !strings.Contains(string(a.body), "Pagination not supported") {
		t.Errorf("%d %s", a.status, a.body)
	}
	in.SetSetting(SettingUnordered, "shuffle")
	one := call(t, in, "GET", listPath("incident", "", "sysparm_fields=sys_id"), "").column(t, "sys_id")
	two := call(t, in, "GET", listPath("incident", "", "sysparm_fields=sys_id"), "").column(t, "sys_id")
	if one == two || len(one) != len(two) {
		t.Errorf("two lists without an order: %s, %s", one, two)
	}
}

func TestDisplayValues(t *testing.T) {
	in := fixed(Options{})
	in.SetTimeZone("admin", "America/Los_Angeles")
	in.Insert("sys_user", map[string]string{"sys_id": "u1", "name": "Ann \"A\" \\ Ö\n"})
	in.Insert("incident", map[string]string{
		"sys_id": "x", "caller_id": "u1", "opened_by": "glide.maint", "state": "7", "priority": "3", "sys_updated_on": "2024-09-24 05:39:40",
		"active": "false", "comments": "never shown",
	})
	get := func(params ...string) map[string]any {
		fields := "sysparm_fields=caller_id,caller_id.name,opened_by,assigned_to,state,priority,sys_updated_on,active,upon_reject,activity_due,sys_class_name,comments"
		return call(t, in, "GET", listPath("incident", "sys_id=x", append(params, fields)...), "").listed(t)[0]
	}
	name := "Ann \"A\" \\ Ö\n"
	link := "http://fake.test/api/now/table/sys_user/u1"
	type m = map[string]any
	for _, c := range []struct {
		params []string
		want   m
	}{
		{[]string{"sysparm_display_value=false"}, m{"caller_id": m{"link": link, "value": "u1"}, "state": "7", "sys_updated_on": "2024-09-24 05:39:40", "assigned_to": "", "comments": "", "caller_id.name": name}},
		{[]string{"sysparm_exclude_reference_link=true"}, m{"caller_id": "u1", "opened_by": "glide.maint"}},
		{[]string{"sysparm_display_value=true"}, m{"caller_id": m{"link": link, "display_value": name}, "state": "Closed", "priority": "3 - Moderate", "sys_updated_on": "2024-09-23 22:39:40", "assigned_to": "", "activity_due": "UNKNOWN", "sys_class_name": "Incident"}},
		{[]string{"sysparm_display_value=true", "sysparm_exclude_reference_link=true"}, m{"caller_id": name}},
		{[]string{"sysparm_display_value=all"}, m{
			"caller_id": m{"link": link, "display_value": name, "value": "u1"}, "assigned_to": m{"display_value": "", "value": ""},
			"upon_reject": m{"display_value": nil, "value": ""}, "activity_due": m{"display_value": "UNKNOWN", "value": ""},
			"sys_updated_on": m{"display_value": "2024-09-23 22:39:40", "value": "2024-09-24 05:39:40"},
		}},
		{[]string{"sysparm_display_value=all", "sysparm_exclude_reference_link=true"}, m{"caller_id": m{"display_value": name, "value": "u1"}}},
	} {
		got := get(c.params...)
		for field, want := range c.want {
			if !reflect.DeepEqual(got[field], want) {
				t.Errorf("%v: %s is %v, want %v", c.params, field, got[field], want)
			}
		}
	}
}

func TestInheritance(t *testing.T) {
	in := fixed(Options{})
	in.Insert("incident", map[string]string{"sys_id": "i", "short_description": "a"})
	in.Insert("change_request", map[string]string{"sys_id": "c"})
	in.Insert("cmdb_ci_linux_server", map[string]string{"sys_id": "s"})
	a := call(t, in, "GET", listPath("task", "ORDERBYsys_id"), "")
	if a.column(t, "sys_id") != "c i" || a.column(t, "sys_class_name") != "change_request incident" {
		t.Errorf("%s", a.body)
	}
	if _, has := a.listed(t)[1]["incident_state"]; has {
		t.Error("task shows a column of incident")
	}
	if a = call(t, in, "GET", "/api/now/table/cmdb_ci", ""); a.column(t, "sys_class_name") != "cmdb_ci_linux_server" {
		t.Errorf("%s", a.body)
	}
	if a = call(t, in, "GET", "/api/now/table/incident/c", ""); a.status != 404 {
		t.Errorf("a change is found as an incident: %d", a.status)
	}
	a = call(t, in, "DELETE", "/api/now/table/cmdb_ci/s", "")
	if rows := in.Rows("sys_audit_delete", nil); a.status != 204 || len(rows) != 1 || rows[0]["tablename"] != "cmdb_ci_linux_server" {
		t.Errorf("%d %v", a.status, rows)
	}
	if _, has := in.Rows("sys_audit_delete", nil)[0]["sys_updated_on"]; has {
		t.Error("sys_audit_delete has a sys_updated_on")
	}
}

func TestACLs(t *testing.T) {
	in := fixed(Options{Users: map[string]string{"bob": "b", "eve": "e"}})
	for _, id := range strings.Split("abcdefgh", "") {
		in.Insert("incident", map[string]string{"sys_id": id, "short_description": "s" + id})
	}
	bob := []string{"Authorization", "Basic Ym9iOmI="}
	eve := []string{"Authorization", "Basic ZXZlOmU="}
	in.HideRows("task", func(id string, row map[string]string) bool { return id < "d" || row["short_description"] == "sf" })
	a := call(t, in, "GET", listPath("incident", "ORDERBYsys_id", "sysparm_limit=4"), "", bob...)
	if a.column(t, "sys_id") != "d" || a.header.Get("X-Total-Count") != "8" {
		t.Errorf("a thinned page: %s of %s", a.column(t, "sys_id"), a.header.Get("X-Total-Count"))
	}
	for _, method := range []string{"GET", "PATCH", "DELETE"} {
		if a = call(t, in, method, "/api/now/table/incident/f", "{}", bob...); a.status != 404 {
			t.Errorf("%s of a hidden row: %d", method, a.status)
		}
	}
	in.HideRows("task", nil)
	in.HideField("eve", "task", "short_description")
	if r := call(t, in, "GET", "/api/now/table/incident/a", "", eve...).record(t); r["short_description"] != nil {
		t.Errorf("hidden field shows: %v", r)
	}
	if r := call(t, in, "GET", "/api/now/table/incident/a", "", bob...).record(t); r["short_description"] != "sa" {
		t.Errorf("field hidden from the wrong user: %v", r)
	}
	if a = call(t, in, "GET", listPath("incident", "short_description=sa"), "", eve...); len(a.listed(t)) != 8 {
		t.Errorf("a term on a hidden field is not dropped: %s", a.body)
	}
	in.DenyTable("eve", "incident")
	if a = call(t, in, "GET", "/api/now/table/incident", "", eve...); a.status != 403 || !strings.Contains(string(a.body), "Failed API level ACL Validation") {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a = call(t, in, "GET", "/api/now/table/incident", "", bob...); a.status != 200 {
		t.Errorf("%d", a.status)
	}
	if a = call(t, in, "GET", "/api/now/table/incident", "", "Authorization", "Basic Ym9iOng="); a.status != 401 {
		t.Errorf("a wrong password: %d", a.status)
	}
	in.ClearACLs()
	if a = call(t, in, "GET", "/api/now/table/incident", "", eve...); a.status != 200 {
		t.Errorf("%d", a.status)
	}
}

func TestViews(t *testing.T) {
	in := fixed(Options{})
	in.AddView("incident_sla", "inc_sys_id:GUID", "inc_sys_updated_on:glide_date_time", "sla_stage")
	for i := range 3 {
		in.Insert("incident_sla", map[string]string{"inc_sys_id": "same", "inc_sys_updated_on": "2026-01-01 00:00:0" + itoa(i)})
	}
	a := call(t, in, "GET", listPath("incident_sla", "inc_sys_updated_on>2026-01-01 00:00:00^sys_updated_on>3000^ORDERBYDESCinc_sys_updated_on"), "")
	rows := a.listed(t)
	if len(rows) != 2 || len(rows[0]) != 3 || rows[0]["inc_sys_id"] != "same" || rows[0]["inc_sys_updated_on"] != "2026-01-01 00:00:02" {
		t.Errorf("%s", a.body)
	}
	if a = call(t, in, "POST", "/api/now/table/incident_sla", "{}"); a.status != 403 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestStats(t *testing.T) {
	in := queryInstance()
	for _, c := range []struct{ params, want string }{
		{"sysparm_count=true", `{"result":{"stats":{"count":"5"}}}`},
		{"sysparm_count=true&sysparm_query=state>2", `{"result":{"stats":{"count":"3"}}}`},
		{"sysparm_count=true&sysparm_query=stateIN1,2&sysparm_group_by=state", `{"result":[{"groupby_fields":[{"field":"state","value":"1"}],"stats":{"count":"1"}},{"groupby_fields":[{"field":"state","value":"2"}],"stats":{"count":"1"}}]}`},
		{"sysparm_min_fields=sys_updated_on&sysparm_max_fields=state", `{"result":{"stats":{"max":{"state":"10"},"min":{"sys_updated_on":"2026-01-01 00:00:00"}}}}`},
	} {
		if a := call(t, in, "GET", "/api/now/stats/incident?"+c.params, ""); string(a.body) != c.want {
			t.Errorf("%s: %s", c.params, a.body)
		}
	}
}
