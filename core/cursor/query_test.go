package cursor

import (
	"errors"
	"strings"
	"testing"
)

func TestParseQuery(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"", "ts>T^ORDERBYts"},
		{"  \n", "ts>T^ORDERBYts"},
		{"active=true", "active=true^ts>T^ORDERBYts"},
		{"active=true^", "active=true^ts>T^ORDERBYts"},
		{"active=true^EQ", "active=true^ts>T^ORDERBYts"},
		{"active=true^EQ^", "active=true^ts>T^ORDERBYts"},
		{"state=1^ORstate=2", "state=1^ORstate=2^ts>T^ORDERBYts"},
		{"a=1^NQb=2^ORb=3", "a=1^ts>T^NQb=2^ORb=3^ts>T^ORDERBYts"},
		{"a=1\n  ^NQ\n  b=2\n", "a=1^ts>T^NQb=2^ts>T^ORDERBYts"},
		{"caller_id.name=Ada Lovelace ^x=1", "caller_id.name=Ada Lovelace ^x=1^ts>T^ORDERBYts"},
		{"short_descriptionLIKEtwo words", "short_descriptionLIKEtwo words^ts>T^ORDERBYts"},
		{"opened_atONToday@javascript:gs.beginningOfToday()@javascript:gs.endOfToday()", "opened_atONToday@javascript:gs.beginningOfToday()@javascript:gs.endOfToday()^ts>T^ORDERBYts"},
		{"assigned_toISEMPTY", "assigned_toISEMPTY^ts>T^ORDERBYts"},
		{"order=5", "order=5^ts>T^ORDERBYts"},
	} {
		q, err := ParseQuery(c.in)
		if err != nil {
			t.Errorf("%q: %v", c.in, err)
			continue
		}
		if got := q.With([]string{"ts>T"}, "ts"); got != c.want {
			t.Errorf("%q: %q, want %q", c.in, got, c.want)
		}
	}
}

func TestParseQueryRefuses(t *testing.T) {
	for _, c := range []struct {
		in  string
		pos int
		say string
	}{
		{"active=true^ORDERBYnumber", 12, "ORDERBY"},
		{"ORDERBYDESCnumber", 0, "ORDERBYDESC"},
		{"a=1^GROUPBYb", 4, "GROUPBY"},
		{"a=1^^b=2", 4, "empty term"},
		{"^a=1", 0, "empty term"},
		{"ORa=1", 0, "no term before"},
		{"a=1^NQORb=2", 6, "no term before"},
		{"a=1^NQ", 4, "no term behind"},
		{"NQa=1", 0, "no term before"},
		{"a=1^EQ^b=2", 7, "after ^EQ"},
		{"a=two\nlines^b=1", 5, "line break"},
		{"=1", 0, "field name"},
		{"active", 0, "operator"},
	} {
		_, err := ParseQuery(c.in)
		qe, ok := errors.AsType[*QueryError](err)
		if !ok || qe.Pos != c.pos || !strings.Contains(qe.Problem, c.say) {
			t.Errorf("%q: %v, want position %d and %q", c.in, err, c.pos, c.say)
		}
	}
}

// FuzzParseQuery: whatever is accepted keeps the cursor terms in every group, in
// front of an order of our own, and parses again to the same.
func FuzzParseQuery(f *testing.F) {
	for _, s := range []string{"a=1^NQb=2", "a=1^ORb=2^EQ", "x\n^y=1", "a=1^^b", "NQ", "^", "a=ORDERBY^NQNQ=1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		q, err := ParseQuery(s)
		if err != nil {
			if qe, ok := errors.AsType[*QueryError](err); !ok || qe.Pos < 0 || qe.Pos > len(s) {
				t.Fatalf("%q: %v", s, err)
			}
			return
		}
		line := q.String()
		if strings.ContainsAny(line, "\r\n") {
			t.Fatalf("%q kept a line break: %q", s, line)
		}
		again, err := ParseQuery(line)
		if err != nil || again.String() != line {
			t.Fatalf("%q became %q, which parses to %q, %v", s, line, again.String(), err)
		}
		full := q.With([]string{"ts>T"}, "ts")
		if got, want := strings.Count(full, "^ts>T")+strings.Count(full, "ts>T^")*0, len(q.groups); line != "" && got < want {
			t.Fatalf("%q: %q has %d cursor terms for %d groups", s, full, got, want)
		}
		if !strings.HasSuffix(full, "^ORDERBYts") {
			t.Fatalf("%q: %q", s, full)
		}
	})
}
