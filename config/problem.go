package config

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
)

// Problem is one thing that is wrong with a configuration.
type Problem struct {
	// Key is where: "sources.itsm.snow.url", or a file.
	Key   string `json:"key"`
	Value string `json:"value"`
	// Problem says what is wrong, Allowed what would be right, Suggestion the nearest known name.
	Problem    string `json:"problem"`
	Allowed    string `json:"allowed"`
	Suggestion string `json:"suggestion"`
}

// String returns the problem as one line.
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.Key)
	if p.Value != "" {
		fmt.Fprintf(&b, " = %q", p.Value)
	}
	if b.Len() > 0 {
		b.WriteString(": ")
	}
	b.WriteString(p.Problem)
	if p.Allowed != "" {
		b.WriteString("; allowed: " + p.Allowed)
	}
	if p.Suggestion != "" {
		b.WriteString("; did you mean " + p.Suggestion + "?")
	}
	return b.String()
}

// Error holds every problem of a configuration at once.
type Error struct{ Problems []Problem }

// Error returns the problems, a line each.
func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

func mapKeys[V any](m map[string]V) iter.Seq[string] { return maps.Keys(m) }

// nearest returns the name with the smallest edit distance, "" when none is near.
func nearest(name string, known []string) string {
	best, at := "", 1+len(name)/3
	slices.Sort(known)
	for _, k := range known {
		if d := distance(name, k, at); d < at {
			best, at = k, d
		}
	}
	return best
}

// distance is the Levenshtein distance of two names; limit or more when it is not below limit.
func distance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	prev := make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := range len(a) {
		cur := make([]int, len(b)+1)
		cur[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			cur[j+1] = min(prev[j]+cost, prev[j+1]+1, cur[j]+1)
		}
		prev = cur
	}
	return prev[len(b)]
}
