package fakesnow

import (
	"fmt"
	"sort"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func queryInstance() *Instance {
	in := fixed(Options{})
	in.Insert("sys_user",
		map[string]string{"sys_id": "u1", "name": "Ann", "user_name": "ann", "manager": "u2"},
		map[string]string{"sys_id": "u2", "name": "Bob", "user_name": "bob"})
	row := func(id, at, state, desc, caller string) map[string]string {
		return map[string]string{"sys_id": id, "sys_updated_on": at, "state": state, "short_description": desc, "caller_id": caller, "active": "true", "close_notes": desc}
	}
	in.Insert("incident",
		row("a1", "2026-01-01 00:00:00", "1", "Mail down", "u1"),
		row("B2", "2026-01-01 00:00:01", "2", "mail slow", "u2"),
		row("c3", "2026-01-01 00:00:01", "10", "", ""),
		row("d4", "2026-01-01 00:00:02", "3", "a^b", "u1"),
		row("e5", "", "7", "no time", "gone"))
	return in
}

func TestEncodedQueries(t *testing.T) {
	for _, c := range []struct{ query, want string }{
		{"", "a1 B2 c3 d4 e5"},
		{"state=1", "a1"},
		{"state=01", "a1"},
		{"state!=1", "B2 c3 d4 e5"},
		{"state>2", "c3 d4 e5"}, // numbers, not texts
		{"state>=3^state<10", "d4 e5"},
		{"state<=2", "a1 B2"},
		{"short_descriptionLIKEmail", "B2"}, // values are case-sensitive
		{"short_descriptionNOT LIKEmail", "a1 c3 d4 e5"},
		{"short_descriptionSTARTSWITHMail", "a1"},
		{"short_descriptionENDSWITHslow", "B2"},
		{"stateIN1,10", "a1 c3"},
		{"stateNOT IN1,10,7", "B2 d4"},
		{"short_descriptionISEMPTY", "c3"},
		{"short_descriptionISNOTEMPTY^state=1", "a1"},
		{"stateBETWEEN2@7", "B2 d4 e5"},
		{"sys_updated_onBETWEEN2026-01-01 00:00:01@2026-01-01 00:00:02", "B2 c3 d4"},
		{"short_descriptionSAMEASclose_notes", "a1 B2 c3 d4 e5"},
		{"short_descriptionNSAMEASclose_notes", ""},
		{"state=1^ORstate=2^active=true", "a1 B2"},
		{"active=true^state=1^ORstate=2", "a1 B2"}, // OR binds to its neighbour
		{"state=1^NQstate=10", "a1 c3"},
		{"state=1^NQstate=10^short_descriptionISEMPTY^EQ", "a1 c3"},
		{"caller_id.name=Ann", "a1 d4"},
		{"caller_id.manager.user_name=bob", "a1 d4"},
		{"caller_id=u2", "B2"},
		{"ORDERBYstate", "a1 B2 d4 e5 c3"},
		{"ORDERBYDESCstate", "c3 e5 d4 B2 a1"},
		{"ORDERBYsys_updated_on^ORDERBYDESCsys_id", "e5 a1 c3 B2 d4"},
		{"ORDERBYDESCsys_id", "e5 d4 c3 B2 a1"},
		{"sys_updated_on>2026-01-01 00:00:00^ORDERBYsys_updated_on^ORDERBYsys_id", "B2 c3 d4"},
		{"sys_updated_on<=2026-01-01 00:00:01^ORDERBYDESCsys_updated_on", "c3 B2 a1"},
		{"sys_updated_on=2026-01-01 00:00:01^sys_id>b2^ORDERBYsys_id", "c3"}, // ids collate without case
		{"sys_updated_on=2026-01-01 00:00:01^sys_id>=b2^ORDERBYsys_id", "B2 c3"},
		{"sys_updated_onISEMPTY", "e5"},
		{"sys_idINa1,c3,zz,c3", "a1 c3"},
		{"sys_id=d4", "d4"},
		{"sys_id>a1^sys_id<d4^ORDERBYsys_id", "B2 c3"},
		{"nonsense=4", "a1 B2 c3 d4 e5"}, // dropped
		{"stateBOGUS4^state=1", "a1"},
		{"statelike1", "a1 B2 c3 d4 e5"}, // operators are case-sensitive
		{"short_description=a^b", ""},    // the caret ends the value, "b" is dropped, "a" is no one's
		{"sys_updated_on>javascript:gs.dateGenerate('2026-01-01','00:00:01')", "d4"},
		{"sys_created_on>2025-01-01 00:00:00^state=1", "a1"},
	} {
		in := queryInstance()
		got := call(t, in, "GET", listPath("incident", c.query, "sysparm_fields=sys_id"), "")
		if ids := got.column(t, "sys_id"); ids != c.want {
			t.Errorf("%q gives %q, want %q", c.query, ids, c.want)
		}
		if n := len(got.listed(t)); got.header.Get("X-Total-Count") != itoa(n) {
			t.Errorf("%q: X-Total-Count %s for %d rows", c.query, got.header.Get("X-Total-Count"), n)
		}
	}
}

func TestQuerySettings(t *testing.T) {
	for _, c := range []struct {
		name, setting, value, query string
		status                      int
		want                        string
	}{
		{"escaped caret", SettingCaretEscape, "true", "short_description=a^^b", 200, "d4"},
		{"invalid term, no rows by system property", SettingInvalidQuery, "true", "nonsense=1", 200, ""},
		{"invalid term, no rows", SettingInvalidTerm, "empty", "state=1^nonsense=1", 200, ""},
		{"invalid term forbidden", SettingInvalidTerm, "forbid", "nonsense=1", 403, ""},
		{"valid term under forbid", SettingInvalidTerm, "forbid", "state=1", 200, "a1"},
		{"binary collation", SettingCollation, "binary", "ORDERBYsys_id", 200, "B2 a1 c3 d4 e5"},
		{"literal in the user's zone", SettingLiteralZone, "user", "sys_updated_on>=2026-01-01 01:00:02", 200, "d4"},
		{"literal in UTC", SettingLiteralZone, "utc", "sys_updated_on>=2026-01-01 00:00:02", 200, "d4"},
	} {
		in := queryInstance()
		in.SetTimeZone("admin", "Europe/Berlin")
		in.SetSetting(c.setting, c.value)
		got := call(t, in, "GET", listPath("incident", c.query, "sysparm_fields=sys_id"), "")
		if got.status != c.status {
			t.Errorf("%s: status %d %s", c.name, got.status, got.body)
			continue
		}
		if c.status == 200 && got.column(t, "sys_id") != c.want {
			t.Errorf("%s: %q, want %q", c.name, got.column(t, "sys_id"), c.want)
		}
		if c.status == 403 && !strings.Contains(string(got.body), queryRights) {
			t.Errorf("%s: %s", c.name, got.body)
		}
	}
}

// TestIndexedAgreesWithScan compares random queries on the indexes with the plain evaluation of each
// row, pages and totals included.
func TestIndexedAgreesWithScan(t *testing.T) {
	in := fixed(Options{Seed: 3})
	in.AddTable("u_small", "", "state:integer", "name")
	for i := range 700 {
		in.Insert("u_small", map[string]string{
			"sys_id": hashID("x", itoa(i)), "sys_updated_on": fmt.Sprintf("2026-01-01 00:00:%02d", mix(uint64(i), "s")%20), "state": itoa(i % 5),
		})
	}
	all := in.Rows("u_small", nil)
	rapid.Check(t, func(rt *rapid.T) {
		second := func(label string) string {
			return fmt.Sprintf("2026-01-01 00:00:%02d", rapid.IntRange(0, 20).Draw(rt, label))
		}
		id := all[rapid.IntRange(0, len(all)-1).Draw(rt, "id")]["sys_id"]
		lo, hi, at := second("lo"), second("hi"), second("at")
		base := rapid.SampledFrom([]string{"", "state=2^", "state=1^ORstate=4^"}).Draw(rt, "base")
		inBase := func(r map[string]string) bool {
			return base == "" || base == "state=2^" && r["state"] == "2" || base == "state=1^ORstate=4^" && (r["state"] == "1" || r["state"] == "4")
		}
		var q string
		var want func(map[string]string) bool
		switch rapid.IntRange(0, 3).Draw(rt, "shape") {
		case 0:
			q = base + "sys_updated_on>" + lo + "^sys_updated_on<=" + hi + "^ORDERBYsys_updated_on^ORDERBYsys_id"
			want = func(r map[string]string) bool {
				return inBase(r) && r["sys_updated_on"] > lo && r["sys_updated_on"] <= hi
			}
		case 1:
			q = base + "sys_updated_on=" + at + "^sys_id>" + id + "^ORDERBYsys_updated_on^ORDERBYsys_id"
			want = func(r map[string]string) bool { return inBase(r) && r["sys_updated_on"] == at && r["sys_id"] > id }
		case 2:
			q = base + "sys_updated_on>" + lo + "^NQ" + base + "sys_updated_on=" + at + "^sys_id>" + id + "^ORDERBYsys_updated_on^ORDERBYsys_id"
			want = func(r map[string]string) bool {
				return inBase(r) && (r["sys_updated_on"] > lo || r["sys_updated_on"] == at && r["sys_id"] > id)
			}
		default:
			q = base + "sys_updated_on<" + hi + "^ORDERBYDESCsys_updated_on^ORDERBYDESCsys_id"
			want = func(r map[string]string) bool { return inBase(r) && r["sys_updated_on"] < hi }
		}
		desc := strings.Contains(q, "DESC")
		var ids []string
		rows := append([]map[string]string(nil), all...)
		sort.Slice(rows, func(i, j int) bool {
			a, b := rows[i]["sys_updated_on"]+rows[i]["sys_id"], rows[j]["sys_updated_on"]+rows[j]["sys_id"]
			return a < b != desc
		})
		for _, r := range rows {
			if want(r) {
				ids = append(ids, r["sys_id"])
			}
		}
		limit, offset := rapid.IntRange(0, 300).Draw(rt, "limit"), rapid.IntRange(0, 50).Draw(rt, "offset")
		got := call(t, in, "GET", listPath("u_small", q, "sysparm_fields=sys_id", "sysparm_limit="+itoa(limit), "sysparm_offset="+itoa(offset)), "")
		page := ids[min(offset, len(ids)):]
		page = page[:min(limit, len(page))]
		if got.column(t, "sys_id") != strings.Join(page, " ") || got.header.Get("X-Total-Count") != itoa(len(ids)) {
			rt.Fatalf("%s limit %d offset %d: %d rows of %s, want %d of %d", q, limit, offset, len(got.listed(t)), got.header.Get("X-Total-Count"), len(page), len(ids))
		}
	})
}

// TestPageCostsTheSameInALargeTable counts what the index looks at, not time.
func TestPageCostsTheSameInALargeTable(t *testing.T) {
	cost := func(n int) (cost int64) {
		in := fixed(Options{Seed: 5})
		in.AddTable("u_thin", "", "state:integer")
		in.Generate("u_thin", n, GenOptions{})
		mid := in.Now().AddDate(0, 0, -15).Format(Stamp)
		hi := in.Now().Format(Stamp)
		for _, q := range []string{
			"sys_updated_on>" + mid + "^sys_updated_on<=" + hi + "^ORDERBYsys_updated_on^ORDERBYsys_id",
			"sys_updated_on=" + mid + "^sys_id>5^ORDERBYsys_id",
			"sys_id>80000000^ORDERBYsys_id",
			"sys_created_on>" + mid + "^ORDERBYsys_created_on^ORDERBYsys_id",
		} {
			before := in.visited.Load()
			a := call(t, in, "GET", listPath("u_thin", q, "sysparm_limit=100", "sysparm_fields=sys_id"), "")
			if a.status != 200 || a.header.Get("X-Total-Count") == "" {
				t.Fatalf("%d %s", a.status, a.body)
			}
			cost += in.visited.Load() - before
		}
		return cost
	}
	large := 1_000_000
	if raceEnabled || testing.Short() {
		large = 100_000
	}
	small, big := cost(10_000), cost(large)
	if small == 0 || big > 2*small {
		t.Fatalf("4 pages of 10^4 rows cost %d steps, of %d rows %d", small, large, big)
	}
}

func FuzzParseQuery(f *testing.F) {
	for _, s := range []string{
		"", "^", "state=1^ORstate=2^NQactive=true^ORDERBYDESCnumber", "a^^b", "sys_updated_onBETWEEN1@2", "^OR", "^NQ", "ORDERBY",
		"javascript:gs.dateGenerate('a','b')", "caller_id.name.=", ".=1", "stateIN", "123TEXTQUERY321=x^EQ",
	} {
		f.Add(s, true)
		f.Add(s, false)
	}
	in := queryInstance()
	f.Fuzz(func(t *testing.T, text string, escape bool) {
		q := parseQuery(text, escape)
		if len(q.groups) == 0 {
			t.Fatal("no group")
		}
		sc := &scope{in: in, t: in.tables["incident"], user: in.users["admin"]}
		pg := in.run(in.tables["incident"], func() *filter { return sc.compile(q) }, fetch{limit: 10, count: true})
		if len(pg.rows) > 10 || pg.total < len(pg.rows) {
			t.Fatalf("%d rows of %d", len(pg.rows), pg.total)
		}
	})
}
