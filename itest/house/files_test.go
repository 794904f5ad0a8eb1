package house

import (
	"bytes"
	"go/ast"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestLengths: files stay readable.
func TestLengths(t *testing.T) {
	for _, s := range sources(t) {
		switch {
		case s.test && s.lines > 800, !s.test && s.lines > 500:
			t.Errorf("%s has %d lines", s.name, s.lines)
		case !s.test && s.lines > 400:
			t.Logf("%s has %d lines, aim at 400", s.name, s.lines)
		}
	}
}

// TestLeaks: every package with tests looks for goroutines that they left behind.
func TestLeaks(t *testing.T) {
	tested, covered := map[string]bool{}, map[string]bool{}
	for _, s := range sources(t) {
		if s.test {
			tested[s.pkg] = true
			covered[s.pkg] = covered[s.pkg] || checksLeaks(s)
		}
	}
	if len(tested) < 8 {
		t.Fatalf("only %d packages with tests were found", len(tested))
	}
	for pkg := range tested {
		if !covered[pkg] {
			t.Errorf("package %q has tests without goleak in TestMain", pkg)
		}
	}
	if checksLeaks(sample(t, "a/a_test.go", "package a\nimport \"go.uber.org/goleak\"\nfunc TestX() { goleak.Find() }")) {
		t.Error("goleak outside TestMain counts")
	}
}

// checksLeaks says whether the file's TestMain uses goleak.
func checksLeaks(s source) bool {
	for _, d := range s.file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Name.Name != "TestMain" || f.Recv != nil {
			continue
		}
		for _, use := range s.uses("go.uber.org/goleak", "VerifyTestMain", "Find", "VerifyNone") {
			if use != "" {
				return true
			}
		}
	}
	return false
}

var vague = regexp.MustCompile(`(?i)^(utils?|common|helpers?|types|managers?|misc|shared|base)(_test)?(\.[a-z]+)?$`)

// TestNames: a name says what is inside.
func TestNames(t *testing.T) {
	n := 0
	walk(t, func(name string, _ fs.DirEntry) {
		n++
		if vague.MatchString(path.Base(name)) {
			t.Errorf("%s: the name says nothing about what is inside", name)
		}
	})
	if n < 100 {
		t.Errorf("only %d files and folders seen", n)
	}
	for name, bad := range map[string]bool{"util": true, "helpers.go": true, "types_test.go": true, "Manager.go": true, "sweep.go": false, "timestamp.go": false} {
		if vague.MatchString(name) != bad {
			t.Errorf("%s: want %v", name, bad)
		}
	}
}

// sleeps returns where a test waits for time to pass outside a bubble.
func sleeps(s source) []string {
	if !s.test || s.called("testing/synctest") != "" {
		return nil
	}
	return s.uses("time", "Sleep")
}

// TestSleeps: a test waits for what it waits for, or runs under a clock that jumps.
func TestSleeps(t *testing.T) {
	bubbles := 0
	for _, s := range sources(t) {
		for _, problem := range sleeps(s) {
			t.Error(problem)
		}
		if s.test && s.called("testing/synctest") != "" {
			bubbles += len(s.uses("time", "Sleep"))
		}
	}
	if bubbles == 0 {
		t.Error("no test sleeps in a bubble: the search finds nothing")
	}
	if len(sleeps(sample(t, "a/a_test.go", "package a\nimport \"time\"\nfunc f() { time.Sleep(1) }"))) != 1 {
		t.Error("a sleep is not found")
	}
}

// TestPages: the first page is one that people read to its end, and every link in the pages leads somewhere.
func TestPages(t *testing.T) {
	root := filepath.Join("..", "..")
	link := regexp.MustCompile(`\]\(([^)#]+)(#[^)]*)?\)`)
	links := 0
	walk(t, func(name string, _ fs.DirEntry) {
		if path.Ext(name) != ".md" {
			return
		}
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		if n := bytes.Count(text, []byte("\n")); name == "README.md" && (n > 200 || n < 50) {
			t.Errorf("README.md has %d lines, at most 200 are read", n)
		}
		for _, m := range link.FindAllSubmatch(text, -1) {
			to := string(m[1])
			if strings.Contains(to, "://") {
				continue
			}
			links++
			if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(path.Join(path.Dir(name), to)))); err != nil {
				t.Errorf("%s links to %s: %v", name, to, err)
			}
		}
	})
	if links < 8 {
		t.Errorf("only %d links found", links)
	}
}
