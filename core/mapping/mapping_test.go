package mapping

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"snowmelt/core/failure"
	"snowmelt/core/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	idA = "0123456789abcdef0123456789abcdef"
	idB = "fedcba9876543210fedcba9876543210"
)

func defaults() Settings {
	return Settings{
		Table: "incident", OperationMode: "key_value", OperationHeader: "snow.operation", UpdateMethod: Patch, KeyField: "sys_id", ValueField: "sys_id",
		Precedence: "reject", IDPattern: regexp.MustCompile(`^[0-9a-f]{32}$`), Null: "omit", Nested: "reject", Delimiter: "_", Unknown: "passthrough", TableHeader: "snow.table",
	}
}

func in(key, value string, headers ...string) *record.Consumed {
	c := &record.Consumed{Topic: "t", Partition: 1, Offset: 7, Value: []byte(value)}
	if key != "" {
		c.Key = []byte(key)
	}
	if value == "<null>" {
		c.Value = nil
	}
	for i := 0; i+1 < len(headers); i += 2 {
		c.Headers = append(c.Headers, record.Header{Key: headers[i], Value: []byte(headers[i+1])})
	}
	return c
}

// TestResolve has a line for each way to an operation and an id.
func TestResolve(t *testing.T) {
	op := func(s string) []string { return []string{"snow.operation", s} }
	for _, c := range []struct {
		name string
		set  func(*Settings)
		in   *record.Consumed
		want Target
		say  string
	}{
		{"tombstone", nil, in(idA, "<null>"), Target{Delete, idA}, ""},
		{"no id", nil, in("", `{"a":1}`), Target{Create, ""}, ""},
		{"id in the key", nil, in(" "+strings.ToUpper(idA)+" ", `{"a":1}`), Target{Patch, idA}, ""},
		{"id as a JSON string", nil, in(`"`+idA+`"`, `{}`), Target{Patch, idA}, ""},
		{"id in an object key", nil, in(`{"sys_id":"`+idA+`"}`, `{}`), Target{Patch, idA}, ""},
		{"object key without it", nil, in(`{"x":1}`, `{}`), Target{Create, ""}, ""},
		{"id in the value", nil, in("", `{"sys_id":"`+idA+`"}`), Target{Patch, idA}, ""},
		{"id in the header", nil, in("", `{}`, HeaderSysID, idA), Target{Patch, idA}, ""},
		{"PUT", func(s *Settings) { s.UpdateMethod = Put }, in(idA, `{}`), Target{Put, idA}, ""},
		{"all agree", nil, in(idA, `{"sys_id":"`+idA+`"}`, HeaderSysID, idA), Target{Patch, idA}, ""},
		{"disagreement", nil, in(idA, `{"sys_id":"`+idB+`"}`), Target{}, "precedence=reject"},
		{"key wins", func(s *Settings) { s.Precedence = "key" }, in(idA, `{"sys_id":"`+idB+`"}`), Target{Patch, idA}, ""},
		{"value wins", func(s *Settings) { s.Precedence = "value" }, in(idA, `{"sys_id":"`+idB+`"}`), Target{Patch, idB}, ""},
		{"no id pattern", nil, in("order-42", `{}`), Target{}, "no sys_id"},
		{"path in an id", nil, in("../"+idA, `{}`), Target{}, "no sys_id"},
		{"create with any key", nil, in("order-42", `{}`, op("create")...), Target{Create, ""}, ""},
		{"POST", nil, in("order-42", `{}`, op(" Post ")...), Target{Create, ""}, ""},
		{"update", nil, in(idA, `{}`, op("UPDATE")...), Target{Patch, idA}, ""},
		{"upsert with an id", nil, in(idA, `{}`, op("upsert")...), Target{Patch, idA}, ""},
		{"upsert without", nil, in("", `{}`, op("upsert")...), Target{Create, ""}, ""},
		{"upsert of nothing", nil, in("", "<null>", op("upsert")...), Target{}, "needs a value"},
		{"delete with a value", nil, in(idA, `{}`, op("DELETE")...), Target{Delete, idA}, ""},
		{"unknown operation", nil, in(idA, `{}`, op("MERGE")...), Target{}, "MERGE"},
		{"header required", func(s *Settings) { s.OperationMode, s.HeaderRequired = "header", true }, in(idA, `{}`), Target{}, "missing"},
		{"header mode infers", func(s *Settings) { s.OperationMode = "header" }, in(idA, `{}`), Target{Patch, idA}, ""},
		{"fixed", func(s *Settings) { s.OperationMode, s.Fixed = "fixed", Create }, in(idA, `{}`), Target{Create, ""}, ""},
		{"header beats fixed", func(s *Settings) { s.OperationMode, s.Fixed = "fixed", Create }, in(idA, "<null>", op("delete")...), Target{Delete, idA}, ""},
		{"delete without an id", nil, in("", "<null>"), Target{}, "needs a sys_id"},
		{"update without an id", nil, in("", `{}`, op("patch")...), Target{}, "needs a sys_id"},
		{"update of nothing", nil, in(idA, "<null>", op("patch")...), Target{}, "needs a value"},
		{"create of nothing", nil, in(idA, "<null>", op("create")...), Target{}, "needs a value"},
		{"id that is no text", nil, in("", `{"sys_id":5}`), Target{}, "no text"},
		{"key that is no JSON", nil, in(`{"sys_id"`, `{}`), Target{}, "no JSON object"},
	} {
		s := defaults()
		if c.set != nil {
			c.set(&s)
		}
		got, err := s.Resolve(c.in)
		if c.say == "" && (err != nil || got != c.want) {
			t.Errorf("%s: %+v, %v; want %+v", c.name, got, err, c.want)
		}
		if c.say != "" && (failure.ClassOf(err) != failure.RecordError || !strings.Contains(err.Error(), c.say) || !strings.Contains(err.Error(), "t-1@7")) {
			t.Errorf("%s: %v, want a record error with %q", c.name, err, c.say)
		}
	}
}

// TestMap has a line for each policy of the body.
func TestMap(t *testing.T) {
	fields := map[string]bool{"a": true, "b": true, "o_x": true}
	for _, c := range []struct {
		name, value, want, say string
		set                    func(*Settings)
	}{
		{"as it is", `{"b":"x","a":"y"}`, `{"b":"x","a":"y"}`, "", nil},
		{"numbers keep every digit", `{"a":9007199254740993,"b":0.1000000000000000055511151231257827}`, `{"a":9007199254740993,"b":0.1000000000000000055511151231257827}`, "", nil},
		{"text", `{"a":"émoji 😀 <&>"}`, `{"a":"émoji 😀 <&>"}`, "", nil},
		{"reserved", `{"sys_id":"x","sys_mod_count":1,"snow.operation":"x","snow.table":"x","a":1}`, `{"a":1}`, "", nil},
		{"allowed reserved", `{"sys_id":"x","a":1,"b":2}`, `{"sys_id":"x","a":1}`, "", func(s *Settings) { s.Allow = []string{"sys_id", "a"} }},
		{"deny", `{"a":1,"b":2}`, `{"b":2}`, "", func(s *Settings) { s.Deny = []string{"a"} }},
		{"rename", `{"a":1,"c":2}`, `{"b":1,"c":2}`, "", func(s *Settings) { s.Rename = [][2]string{{"a", "b"}} }},
		{"rename, then allow", `{"a":1,"c":2}`, `{"b":1}`, "", func(s *Settings) { s.Rename, s.Allow = [][2]string{{"a", "b"}}, []string{"b"} }},
		{"rename swaps", `{"a":1,"b":2}`, `{"b":1,"a":2}`, "", func(s *Settings) { s.Rename = [][2]string{{"a", "b"}, {"b", "a"}} }},
		{"rename collides", `{"a":1,"b":2}`, "", `called "b"`, func(s *Settings) { s.Rename = [][2]string{{"a", "b"}} }},
		{"null omitted", `{"a":null,"b":1}`, `{"b":1}`, "", nil},
		{"null clears", `{"a":null}`, `{"a":""}`, "", func(s *Settings) { s.Null = "clear" }},
		{"null rejected", `{"a":null}`, "", "field a is null", func(s *Settings) { s.Null = "reject" }},
		{"nested rejected", `{"o":{"x":1}}`, "", "field o is an object", nil},
		{"array rejected", `{"o":[1]}`, "", "field o is an array", nil},
		{"flattened", `{"o":{"x":1,"y":{"z":null}}}`, `{"o_x":1}`, "", func(s *Settings) { s.Nested = "flatten" }},
		{"flattened array", `{"o":{"x":[1]}}`, "", "o.x is an array", func(s *Settings) { s.Nested = "flatten" }},
		{"flattened collides", `{"o_x":1,"o":{"x":2}}`, "", "a second time", func(s *Settings) { s.Nested = "flatten" }},
		{"flattened to a reserved name", `{"sys":{"id":"x"},"a":1}`, `{"a":1}`, "", func(s *Settings) { s.Nested = "flatten" }},
		{"stringified", `{"o":{"x":[1,"<"]}}`, `{"o":"{\"x\":[1,\"<\"]}"}`, "", func(s *Settings) { s.Nested = "stringify" }},
		{"unknown fails", `{"a":1,"zz":2}`, "", "has no field zz", func(s *Settings) { s.Unknown = "fail" }},
		{"unknown dropped", `{"a":1,"zz":2}`, `{"a":1}`, "", func(s *Settings) { s.Unknown = "drop" }},
		{"unknown reported", `{"zz":2,"a":1}`, `{"a":1}`, "", func(s *Settings) { s.Unknown = "report" }},
		{"array", `[1]`, "", "an array", nil},
		{"null", `null`, "", "null", nil},
		{"empty", ``, "", "unexpected EOF", nil},
		{"not JSON", `hello`, "", "cannot be mapped", nil},
		{"two values", `{} {}`, "", "behind the end", nil},
		{"a name twice", `{"a":1,"a":2}`, "", "stands twice", nil},
		{"too deep", strings.Repeat(`{"a":`, 300) + "1" + strings.Repeat("}", 300), "", "nested deeper", nil},
		{"too large", `{"a":"` + strings.Repeat("x", maxBody) + `"}`, "", "bytes", nil},
	} {
		s := defaults()
		if c.set != nil {
			c.set(&s)
		}
		w, err := s.Map(in("", c.value), Target{Operation: Create}, fields)
		if c.say == "" && (err != nil || string(w.Body) != c.want) {
			t.Errorf("%s: %s, %v; want %s", c.name, w.Body, err, c.want)
		}
		if c.say != "" && (failure.ClassOf(err) != failure.RecordError || !strings.Contains(err.Error(), c.say)) {
			t.Errorf("%s: %.200v, want a record error with %q", c.name, err, c.say)
		}
		if reported := len(w.Unknown) == 1 && w.Unknown[0] == "zz"; reported != (c.name == "unknown reported") {
			t.Errorf("%s: reported %v", c.name, w.Unknown)
		}
	}
	if w, err := defaults().Map(in(idA, "<null>"), Target{Delete, idA}, nil); err != nil || w.Body != nil || w.SysID != idA {
		t.Errorf("delete: %+v, %v", w, err)
	}
}

// FuzzMap: whatever bytes come, the outcome is valid JSON without reserved fields, or a record error.
func FuzzMap(f *testing.F) {
	f.Add(`{"a":{"b":[1,null]},"sys_id":"x"}`, 0)
	f.Add(`{"sys":{"id":1}}`, 1)
	f.Fuzz(func(t *testing.T, value string, policy int) {
		s := defaults()
		s.Nested = []string{"reject", "flatten", "stringify"}[abs(policy)%3]
		c := in(value, value)
		if _, err := s.Resolve(c); err != nil && failure.ClassOf(err) != failure.RecordError {
			t.Fatal(err)
		}
		w, err := s.Map(c, Target{Operation: Create}, nil)
		if err != nil {
			if failure.ClassOf(err) != failure.RecordError {
				t.Fatal(err)
			}
			return
		}
		var m map[string]any
		if json.Unmarshal(w.Body, &m) != nil {
			t.Fatalf("%q became %q", value, w.Body)
		}
		for _, name := range reserved {
			if _, ok := m[name]; ok {
				t.Fatalf("%q kept %s: %q", value, name, w.Body)
			}
		}
	})
}

func abs(n int) int {
	if n < 0 {
		return -(n + 1)
	}
	return n
}
