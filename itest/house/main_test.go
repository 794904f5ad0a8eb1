// Package house keeps the rules of the house that a machine can keep: who may
// import whom, what the pure packages must not know, sizes and names. Each rule
// is a function of parsed files, so that its own test can show it failing.
package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const module = "snowmelt"

// source is one Go file of the repository.
type source struct {
	// name is the path from the root, pkg its folder: "" for the root.
	name, pkg string
	test      bool
	lines     int
	file      *ast.File
	fset      *token.FileSet
}

// at names a place in the file.
func (s source) at(n ast.Node) string {
	p := s.fset.Position(n.Pos())
	return s.name + ":" + strconv.Itoa(p.Line)
}

// imports returns the paths that the file imports.
func (s source) imports() []string {
	var out []string
	for _, i := range s.file.Imports {
		p, _ := strconv.Unquote(i.Path.Value)
		out = append(out, p)
	}
	return out
}

// called returns the name by which the file knows an imported package, "" when it does not import it.
func (s source) called(pkg string) string {
	for _, i := range s.file.Imports {
		if p, _ := strconv.Unquote(i.Path.Value); p == pkg {
			if i.Name != nil {
				return i.Name.Name
			}
			return strings.TrimPrefix(path.Base(p), "go-")
		}
	}
	return ""
}

// uses returns the places where the file uses one of the names of a package.
func (s source) uses(pkg string, names ...string) []string {
	var out []string
	known := s.called(pkg)
	if known == "" {
		return nil
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := sel.X.(*ast.Ident); ok && x.Name == known && slices.Contains(names, sel.Sel.Name) {
			out = append(out, s.at(sel)+" uses "+pkg+"."+sel.Sel.Name)
		}
		return true
	})
	return out
}

func read(name string, text []byte) (source, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, name, text, parser.SkipObjectResolution|parser.ParseComments)
	pkg := path.Dir(name)
	if pkg == "." {
		pkg = ""
	}
	return source{name, pkg, strings.HasSuffix(name, "_test.go"), strings.Count(string(text), "\n"), f, fset}, err
}

// skipped are folders that hold nothing of the house.
var skipped = []string{".git", ".cache", "bin", "dist", "logs", "testdata"}

// walk visits every file and folder of the repository by its path from the root.
func walk(t *testing.T, visit func(name string, d fs.DirEntry)) {
	t.Helper()
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, p)
		if err != nil || name == "." {
			return err
		}
		if d.IsDir() && slices.Contains(skipped, d.Name()) {
			return fs.SkipDir
		}
		visit(filepath.ToSlash(name), d)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// sources returns every Go file, at least as many as the house is known to have.
func sources(t *testing.T) []source {
	t.Helper()
	var all []source
	walk(t, func(name string, d fs.DirEntry) {
		if d.IsDir() || !strings.HasSuffix(name, ".go") {
			return
		}
		text, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		s, err := read(name, text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	})
	if len(all) < 100 {
		t.Fatalf("only %d Go files found: the walk looks in the wrong place", len(all))
	}
	return all
}

// sample parses a file for the test of a rule.
func sample(t *testing.T, name, text string) source {
	t.Helper()
	s, err := read(name, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}
