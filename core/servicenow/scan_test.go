package servicenow

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

var names = Fields{ID: "sys_id", Timestamp: "sys_updated_on", ModCount: "sys_mod_count"}

func scan(body string, r func(io.Reader) io.Reader) (*scanner, error) {
	s := &scanner{src: r(strings.NewReader(body)), fields: names}
	return s, s.page()
}

func whole(r io.Reader) io.Reader { return r }

// TestRowsAreTheBytesThatCame: each row is the instance's object byte for byte,
// however the body is cut into reads.
func TestRowsAreTheBytesThatCame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var rows []string
		for range rapid.IntRange(0, 20).Draw(t, "n") {
			value := rapid.OneOf(rapid.String(), rapid.StringMatching(`[\\"{}\[\],:]*`)).Draw(t, "v")
			m := map[string]any{"sys_id": rapid.String().Draw(t, "id"), "sys_updated_on": "2024-01-01 00:00:00", "x": value}
			if rapid.Bool().Draw(t, "nested") {
				m["sys_mod_count"] = map[string]any{"display_value": "5", "value": "5"}
				m["ref"] = map[string]any{"link": "https://x", "value": value}
			}
			b, err := json.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			rows = append(rows, string(b))
		}
		space := rapid.SampledFrom([]string{"", " ", "\r\n\t"}).Draw(t, "space")
		body := space + `{` + space + `"result"` + space + `:` + space + `[` + space + strings.Join(rows, space+","+space) + space + `]` + space + `}` + space
		if rapid.Bool().Draw(t, "others") {
			body = `{"session":{"a":[1,2,{"b":"]}"}]},"result":[` + strings.Join(rows, ",") + `],"n":12}`
		}
		reader := rapid.SampledFrom([]func(io.Reader) io.Reader{whole, iotest.OneByteReader, iotest.HalfReader, iotest.DataErrReader}).Draw(t, "reader")
		s, err := scan(body, reader)
		if err != nil {
			t.Fatalf("%q: %v", body, err)
		}
		if len(s.rows) != len(rows) {
			t.Fatalf("%d rows of %d in %q", len(s.rows), len(rows), body)
		}
		for i, r := range s.rows {
			var want struct {
				SysID string `json:"sys_id"`
			}
			_ = json.Unmarshal([]byte(rows[i]), &want)
			if string(r.Raw) != rows[i] || r.SysID != want.SysID || r.Timestamp != "2024-01-01 00:00:00" {
				t.Fatalf("row %d is %q (%q), want %q (%q)", i, r.Raw, r.SysID, rows[i], want.SysID)
			}
		}
	})
}

// TestEveryCutIsSeen: a body that ends anywhere before its end is an error, and
// so is one with something behind it (rule 8).
func TestEveryCutIsSeen(t *testing.T) {
	body := `{"result":[{"sys_id":"a","x":"\\\""},{"sys_id":"b"}],"n":[1,{"m":null}]}`
	if s, err := scan(body, whole); err != nil || len(s.rows) != 2 {
		t.Fatalf("%d rows, %v", len(s.rows), err)
	}
	for i := range body {
		if s, err := scan(body[:i], whole); err == nil {
			t.Errorf("cut to %q it was read as %d rows", body[:i], len(s.rows))
		}
	}
	for _, bad := range []string{
		body + "x", body + body, `[]`, `null`, `{"result":[{"a":1},]}`, `{"result":[1]}`, `{"result":[{"a":01}]}`, `{"result":[{"a":"\x"}]}`,
		"{\"result\":[{\"a\":\"\x01\"}]}", "{\"result\":[{\"a\":\"\xff\"}]}", `{"result":[{"a":1}{"b":2}]}`, `{"result":[{"a"}]}`, `{result:[]}`, `{"result":[{]}}`,
	} {
		if _, err := scan(bad, whole); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

// TestBigRows: rows larger than a chunk stay whole.
func TestBigRows(t *testing.T) {
	big := strings.Repeat("ö{\\\"", 1<<20)
	quoted, _ := json.Marshal(big)
	body := fmt.Sprintf(`{"result":[{"sys_id":"a"},{"sys_id":"b","text":%s},{"sys_id":"c"}]}`, quoted)
	s, err := scan(body, whole)
	if err != nil || len(s.rows) != 3 || s.rows[2].SysID != "c" || !bytes.Contains(s.rows[1].Raw, quoted) {
		t.Fatalf("%d rows, %v", len(s.rows), err)
	}
}

func TestFieldForms(t *testing.T) {
	for raw, want := range map[string][3]string{
		`{"sys_id":"a","sys_updated_on":"t","sys_mod_count":"3"}`:                                {"a", "t", "3"},
		`{"sys_mod_count":3,"sys_id":"\u0061"}`:                                                  {"a", "", "3"},
		`{"sys_id":{"display_value":"x","value":"a","link":"l"},"sys_updated_on":{"value":"t"}}`: {"a", "t", ""},
		`{"sys_id":null,"sys_updated_on":["t"],"sys_mod_count":{}}`:                              {"", "", ""},
		`{ "x" : {"sys_id":"inner"} , "sys_id" : "outer" }`:                                      {"outer", "", ""},
		`{"sys_id":{"value":{"deep":1}}}`:                                                        {"", "", ""},
	} {
		r := names.row([]byte(raw))
		if got := [3]string{r.SysID, r.Timestamp, r.ModCount}; got != want {
			t.Errorf("%s: %q, want %q", raw, got, want)
		}
	}
}

// FuzzScanner: what the scanner accepts encoding/json accepts too, with the same rows.
func FuzzScanner(f *testing.F) {
	for _, s := range []string{`{"result":[{"sys_id":"a"}]}`, `{"error":{"message":"x"},"result":null}`, `{"result":[{}],"result":[{}]}`, "{\"result\":[\n]}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, body string) {
		s, err := scan(body, whole)
		var again int
		if s2, err2 := scan(body, iotest.OneByteReader); (err2 == nil) != (err == nil) {
			t.Fatalf("%q: %v whole, %v byte by byte", body, err, err2)
		} else {
			again = len(s2.rows)
		}
		if err != nil {
			return
		}
		if again != len(s.rows) {
			t.Fatalf("%q: %d rows whole, %d byte by byte", body, len(s.rows), again)
		}
		if !json.Valid([]byte(body)) {
			t.Fatalf("%q was accepted", body)
		}
		for _, r := range s.rows {
			var m map[string]json.RawMessage
			if json.Unmarshal(r.Raw, &m) != nil {
				t.Fatalf("%q holds the row %q", body, r.Raw)
			}
		}
	})
}

func TestReadErrorsPass(t *testing.T) {
	cut := errors.New("reset")
	s := &scanner{src: io.MultiReader(strings.NewReader(`{"result":[{"sys_id":"a"},`), iotest.ErrReader(cut)), fields: names}
	if err := s.page(); !errors.Is(err, cut) {
		t.Errorf("%v", err)
	}
}

func BenchmarkScan(b *testing.B) {
	var body bytes.Buffer
	body.WriteString(`{"result":[`)
	for i := range 5000 {
		if i > 0 {
			body.WriteByte(',')
		}
		fmt.Fprintf(&body, `{"sys_id":"%032d","sys_updated_on":"2024-01-01 00:00:00","sys_mod_count":"%d"`, i, i)
		for f := range 60 {
			fmt.Fprintf(&body, `,"field_%d":"value \"%d\" of field"`, f, i)
		}
		body.WriteByte('}')
	}
	body.WriteString(`]}`)
	b.SetBytes(int64(body.Len()))
	b.ReportAllocs()
	for b.Loop() {
		s := &scanner{src: bytes.NewReader(body.Bytes()), fields: names}
		if err := s.page(); err != nil || len(s.rows) != 5000 {
			b.Fatal(err)
		}
		p := Page{chunks: s.chunks}
		p.Release()
	}
}
