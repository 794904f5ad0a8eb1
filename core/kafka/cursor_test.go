package kafka

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"
)

func TestCursorKeyIsConnects(t *testing.T) {
	for _, test := range []struct {
		key  CursorKey
		want string
	}{
		{key("incident"), `["itsm",{"instance":"dev1.service-now.com","query_fingerprint":"sha256:aa","table":"incident","timestamp_field":"sys_updated_on"}]`},
		{CursorKey{Pipeline: "p", Partition: map[string]string{}}, `["p",{}]`},
		// as Jackson: no HTML escapes, U+2028 as it is, hex in upper case
		{
			CursorKey{Pipeline: "a<b>&'/é\u2028\x7f", Partition: map[string]string{"q": "\"\\\b\f\n\r\t\x1f\x01"}},
			"[\"a<b>&'/é\u2028\x7f\",{\"q\":\"" + `\"\\\b\f\n\r\t\u001F\u0001` + "\"}]",
		},
	} {
		got := test.key.Encode()
		if string(got) != test.want {
			t.Errorf("got  %s\nwant %s", got, test.want)
		}
		if !json.Valid(got) {
			t.Errorf("%s is no JSON", got)
		}
		if back, ok := ParseCursorKey(got); !ok || !back.Equal(test.key) {
			t.Errorf("%s came back as %+v", got, back)
		}
	}
}

func TestParseCursorKey(t *testing.T) {
	same, ok := ParseCursorKey([]byte(` [ "itsm" , {"timestamp_field":"sys_updated_on","table":"incident","query_fingerprint":"sha256:aa","instance":"dev1.service-now.com"}]`))
	if !ok || !same.Equal(key("incident")) {
		t.Fatalf("%+v", same)
	}
	for _, raw := range []string{
		"", "null", "[]", `["a"]`, `["a",{"t":"x"},"schema"]`, `["a",{"t":1}]`, `["a",{"t":null}]`, `["a",null]`,
		`[null,{}]`, `[1,{}]`, `{"a":"b"}`, `["a",["b"]]`, `["a",{}]x`, "[\"a\xff\",{}]",
	} {
		if k, ok := ParseCursorKey([]byte(raw)); ok {
			t.Errorf("%s was taken for %+v", raw, k)
		}
	}
}

func TestTransactionalID(t *testing.T) {
	id := key("incident").TransactionalID("snowmelt-")
	prefix, digits, ok := strings.Cut(id, "itsm-")
	if !ok || prefix != "snowmelt-" || len(digits) != 16 || strings.Trim(digits, "0123456789abcdef") != "" {
		t.Fatal(id)
	}
	if id == key("problem").TransactionalID("snowmelt-") {
		t.Fatal("two tables have one id")
	}
}

func TestParseOffset(t *testing.T) {
	got := parseOffset([]byte(`{"version":1,"sys_id":"a","timestamp":"2026-01-02 03:04:05","gone":null,"b":true}`))
	want := map[string]string{"version": "1", "sys_id": "a", "timestamp": "2026-01-02 03:04:05", "b": "true"}
	if !maps.Equal(got, want) {
		t.Fatalf("got %v", got)
	}
	for _, raw := range []string{"", "null", "[1]", `"x"`, "{"} {
		if got := parseOffset([]byte(raw)); got != nil {
			t.Errorf("%q became %v", raw, got)
		}
	}
	if back := parseOffset(encodeOffset(want)); !maps.Equal(back, want) {
		t.Fatalf("came back as %v", back)
	}
}

func FuzzParseCursorKey(f *testing.F) {
	f.Add([]byte(`["itsm",{"instance":"a","table":"b"}]`))
	f.Add([]byte("[\"\\ud800\",{\"\\u0000\":\"\u2028\"}]"))
	f.Add([]byte(`["a",{"t":"x","t":"y"}]`))
	f.Add(key("incident").Encode())
	f.Fuzz(func(t *testing.T, raw []byte) {
		k, ok := ParseCursorKey(raw)
		if !ok {
			return
		}
		encoded := k.Encode()
		again, ok := ParseCursorKey(encoded)
		if !ok || !again.Equal(k) {
			t.Fatalf("%q: %+v was encoded as %q and came back as %+v", raw, k, encoded, again)
		}
		if string(again.Encode()) != string(encoded) {
			t.Fatalf("%q: two encodings", raw)
		}
	})
}

func FuzzParseOffset(f *testing.F) {
	f.Add([]byte(`{"version":"1","n":1e400,"x":{"a":[1]}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if o := parseOffset(raw); o != nil && !maps.Equal(parseOffset(encodeOffset(o)), o) {
			t.Fatalf("%q: %v does not come back", raw, o)
		}
	})
}
