package cursor

import (
	"fmt"
	"strings"
)

// Query is a parsed encoded query: groups joined by ^NQ, each a list of terms
// joined by ^, some of which begin with OR and bind to the term before them.
// The zero Query matches every row.
type Query struct {
	groups [][]string
}

// QueryError says which part of a base query cannot be kept, and where it stands.
type QueryError struct {
	// Pos is the byte position in the query as it was configured.
	Pos int
	// Problem says what is wrong and what to write instead.
	Problem string
}

// Error returns position and problem.
func (e *QueryError) Error() string { return fmt.Sprintf("at position %d: %s", e.Pos, e.Problem) }

// ParseQuery reads a base query as people paste it (source.md rule 12): a
// trailing ^ or ^EQ is dropped, line breaks between terms are dropped, ^NQ
// starts a new group. It refuses, with a *QueryError, what would change the
// meaning of the cursor terms that are added: ORDERBY, empty terms, line breaks
// inside a term, an ^OR with nothing before it.
func ParseQuery(s string) (Query, error) {
	if strings.TrimSpace(s) == "" {
		return Query{}, nil
	}
	var q Query
	var group []string
	ended := false
	for pos := 0; pos <= len(s); {
		end := strings.IndexByte(s[pos:], '^')
		last := end < 0
		if last {
			end = len(s) - pos
		}
		term, at := trimBreaks(s[pos : pos+end])
		start := pos + at
		pos += end + 1
		switch {
		case term == "" && last && start > 0:
			continue // a trailing caret
		case term == "":
			return Query{}, &QueryError{start, "an empty term; remove one of the carets"}
		case term == "EQ":
			ended = true
			continue
		case ended && !strings.HasPrefix(term, "NQ"):
			return Query{}, &QueryError{start, "a term after ^EQ; ^EQ ends a query"}
		}
		if rest, ok := strings.CutPrefix(term, "NQ"); ok {
			ended = false
			if len(group) == 0 {
				return Query{}, &QueryError{start, "^NQ with no term before it"}
			}
			q.groups = append(q.groups, group)
			group = nil
			if term, at = trimBreaks(rest); term == "" {
				return Query{}, &QueryError{start, "^NQ with no term behind it"}
			}
			start += 2 + at
		}
		if err := checkTerm(term, start, len(group) == 0); err != nil {
			return Query{}, err
		}
		group = append(group, term)
	}
	if len(group) > 0 {
		q.groups = append(q.groups, group)
	}
	return q, nil
}

// trimBreaks drops line breaks at either end of a term together with the blanks
// around them; blanks alone stay, they may belong to a value.
func trimBreaks(s string) (string, int) {
	left := len(s) - len(strings.TrimLeft(s, " \t\r\n"))
	if !strings.ContainsAny(s[:left], "\r\n") && left < len(s) {
		left = 0
	}
	term := s[left:]
	right := len(strings.TrimRight(term, " \t\r\n"))
	if strings.ContainsAny(term[right:], "\r\n") {
		term = term[:right]
	}
	return term, left
}

// reserved are the prefixes that are not terms of a filter.
var reserved = []string{"ORDERBYDESC", "ORDERBY", "GROUPBY"}

func checkTerm(term string, pos int, first bool) error {
	if i := strings.IndexAny(term, "\r\n"); i >= 0 {
		return &QueryError{pos + i, "a line break inside a term; break lines only beside a caret"}
	}
	if strings.ContainsRune(term, 0) {
		return &QueryError{pos, "a NUL character"}
	}
	for _, r := range reserved {
		if strings.HasPrefix(term, r) {
			return &QueryError{pos, r + " is not allowed: the cursor decides the order"}
		}
	}
	if rest, ok := strings.CutPrefix(term, "OR"); ok {
		if first {
			return &QueryError{pos, "^OR with no term before it"}
		}
		term, pos = rest, pos+2
	}
	n := 0
	for n < len(term) && isFieldChar(term[n]) {
		n++
	}
	if n == 0 {
		return &QueryError{pos, fmt.Sprintf("%.30q does not begin with a field name", term)}
	}
	if n == len(term) && !strings.HasPrefix(term, "END") && !strings.HasSuffix(term, "EMPTY") &&
		!strings.HasSuffix(term, "ANYTHING") && !strings.HasSuffix(term, "EMPTYSTRING") {
		return &QueryError{pos, fmt.Sprintf("%.30q has no operator", term)}
	}
	return nil
}

func isFieldChar(c byte) bool {
	return c == '_' || c == '.' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// With returns the encoded query whose every group also demands the given terms
// (^OR and ^NQ: source.md rule 2), followed by the ORDERBY terms.
func (q Query) With(terms []string, orderBy ...string) string {
	groups := q.groups
	if len(groups) == 0 {
		groups = [][]string{nil}
	}
	var b strings.Builder
	for i, g := range groups {
		if i > 0 {
			b.WriteString("^NQ")
		}
		for j, t := range g {
			if j > 0 {
				b.WriteByte('^')
			}
			b.WriteString(t)
		}
		for j, t := range terms {
			if j > 0 || len(g) > 0 {
				b.WriteByte('^')
			}
			b.WriteString(t)
		}
	}
	for _, o := range orderBy {
		if b.Len() > 0 {
			b.WriteByte('^')
		}
		b.WriteString("ORDERBY" + o)
	}
	return b.String()
}

// And returns q with one more term in every group.
func (q Query) And(term string) Query {
	if len(q.groups) == 0 {
		return Query{groups: [][]string{{term}}}
	}
	out := make([][]string, len(q.groups))
	for i, g := range q.groups {
		out[i] = append(append(make([]string, 0, len(g)+1), g...), term)
	}
	return Query{groups: out}
}

// String returns the query as one line, without cursor terms.
func (q Query) String() string {
	if len(q.groups) == 0 {
		return ""
	}
	return q.With(nil)
}
