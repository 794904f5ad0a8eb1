package supervisor

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"snowmelt/actors/msg"
	"snowmelt/core/failure"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestEveryClassHasARow: no failure may meet a policy that does not know it.
func TestEveryClassHasARow(t *testing.T) {
	classes := failure.Classes()
	if len(classes) == 0 {
		t.Fatal("no classes")
	}
	for _, c := range classes {
		for name, policy := range map[string]map[failure.Class]row{"source": sourcePolicy, "sink": sinkPolicy} {
			if r, ok := policy[c]; !ok || r.why == "" {
				t.Errorf("class %s has no row for a %s, or a row without a reason", c, name)
			}
			if len(policy) != len(classes) {
				t.Errorf("%d rows of a %s for %d classes", len(policy), name, len(classes))
			}
		}
		if got := decideSource(&failure.Error{Class: c}); got != sourcePolicy[c].directive {
			t.Errorf("class %s: %v, the table says %v", c, got, sourcePolicy[c].directive)
		}
		if got := decideSink(&failure.Error{Class: c}); got != sinkPolicy[c].directive {
			t.Errorf("class %s: %v, the table says %v", c, got, sinkPolicy[c].directive)
		}
	}
	for _, decide := range []func(error) msg.Directive{decideSource, decideSink} {
		if got := decide(errors.New("nobody classified this")); got != msg.Restart {
			t.Errorf("an unclassified error: %v", got)
		}
	}
}

// TestTreePageIsFresh: docs/supervision-tree.md is printed from the tree.
func TestTreePageIsFresh(t *testing.T) {
	var b bytes.Buffer
	if err := PrintTree(&b); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join("..", "docs", "supervision-tree.md"))
	if err != nil || !bytes.Equal(page, b.Bytes()) {
		t.Errorf("docs/supervision-tree.md is stale (%v): run `make docs`", err)
	}
	var packages []string
	var walk func(n Node)
	walk = func(n Node) {
		packages = append(packages, n.Package)
		for _, c := range n.Children {
			walk(c)
		}
	}
	walk(Tree)
	slices.Sort(packages)
	for _, p := range slices.Compact(packages) {
		if _, err := os.Stat(filepath.Join("..", p)); err != nil {
			t.Errorf("the tree names package %s: %v", p, err)
		}
	}
}
