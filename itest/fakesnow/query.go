package fakesnow

import "strings"

// query is a parsed encoded query: groups are alternatives (^NQ), a group's clauses must all hold, a
// clause is a term with the terms that ^OR bound to it.
type query struct {
	groups []group
	order  []ordering
}

type group struct{ clauses []clause }

type clause struct{ terms []term }

type term struct {
	field, op, value string
	bad              bool // could not be parsed; value holds its text
}

type ordering struct {
	field string
	desc  bool
}

// operators in the order in which they are tried; longer spellings come before their beginnings.
var operators = []string{
	"NOT LIKE", "NOT IN", "STARTSWITH", "ENDSWITH", "ISNOTEMPTY", "ISEMPTY", "BETWEEN", "NSAMEAS", "SAMEAS",
	"EMPTYSTRING", "ANYTHING", "LIKE", "IN", "!=", ">=", "<=", "=", ">", "<",
}

// parseQuery reads an encoded query. It never fails: what it cannot read becomes a bad term. With
// escape, ^^ stands for a caret inside a value.
func parseQuery(text string, escape bool) *query {
	q := &query{}
	var g group
	flush := func() {
		if len(g.clauses) > 0 {
			q.groups = append(q.groups, g)
		}
		g = group{}
	}
	for _, part := range splitQuery(text, escape) {
		joined := false
		switch {
		case part == "" || part == "EQ":
			continue
		case strings.HasPrefix(part, "ORDERBY"):
			name := part[len("ORDERBY"):]
			desc := strings.HasPrefix(name, "DESC")
			if desc {
				name = name[len("DESC"):]
			}
			q.order = append(q.order, ordering{field: name, desc: desc})
			continue
		case strings.HasPrefix(part, "GROUPBY"), strings.HasPrefix(part, "TRENDBY"):
			continue
		case strings.HasPrefix(part, "NQ"):
			flush()
			part = part[2:]
			if part == "" {
				continue
			}
		case strings.HasPrefix(part, "OR"):
			joined, part = true, part[2:]
		}
		tm := parseTerm(part)
		if joined && len(g.clauses) > 0 {
			last := &g.clauses[len(g.clauses)-1]
			last.terms = append(last.terms, tm)
		} else {
			g.clauses = append(g.clauses, clause{terms: []term{tm}})
		}
	}
	flush()
	if len(q.groups) == 0 {
		q.groups = []group{{}}
	}
	return q
}

func splitQuery(text string, escape bool) []string {
	if !escape {
		return strings.Split(text, "^")
	}
	var parts []string
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] != '^':
			b.WriteByte(text[i])
		case i+1 < len(text) && text[i+1] == '^':
			b.WriteByte('^')
			i++
		default:
			parts = append(parts, b.String())
			b.Reset()
		}
	}
	return append(parts, b.String())
}

func parseTerm(part string) term {
	n := 0
	for n < len(part) && (part[n] == '_' || part[n] == '.' || part[n] >= 'a' && part[n] <= 'z' || part[n] >= '0' && part[n] <= '9') {
		n++
	}
	if n == 0 {
		return term{bad: true, value: part}
	}
	rest := part[n:]
	for _, op := range operators {
		if !strings.HasPrefix(rest, op) {
			continue
		}
		tm := term{field: part[:n], op: op, value: rest[len(op):]}
		switch op {
		case "BETWEEN":
			tm.bad = !strings.Contains(tm.value, "@")
		case "ISEMPTY", "ISNOTEMPTY", "ANYTHING", "EMPTYSTRING":
			tm.bad = tm.value != ""
		}
		if tm.bad {
			tm.value = part
		}
		return tm
	}
	return term{bad: true, value: part}
}
