package house

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// room is one row of the import table: what the files of a package, tests apart, may import.
type room struct {
	// inside are packages of the house; a name with /... stands for what lies below, too.
	inside []string
	// outside are modules or packages of others, by prefix.
	outside []string
}

const (
	proto    = "github.com/asynkron/protoactor-go/actor"
	franz    = "github.com/twmb/franz-go/pkg/"
	kfake    = "github.com/twmb/franz-go/pkg/kfake"
	victoria = "github.com/VictoriaMetrics/metrics"
	compress = "github.com/klauspost/compress/"
	gjson    = "github.com/tidwall/gjson"
)

// pure are the packages that are true without actors, clocks and I/O, in the
// order in which they build on each other: each may import those before it.
var pure = []string{"core/record", "core/failure", "core/limit", "core/cursor", "core/schema", "core/mapping", "core/lane"}

// rooms is the import table. A package that is not in it has no room yet: add a row, on purpose.
var rooms = map[string]room{
	"":     {inside: []string{"cmd"}},
	"cmd":  {[]string{"config", "supervisor/...", "bench/...", "itest/fakesnow", "itest/demo"}, []string{"github.com/spf13/cobra", "golang.org/x/term", victoria}},
	"core": {},

	"core/servicenow": {pure, []string{gjson, compress}},
	"core/kafka":      {pure, []string{franz}},
	"core/target":     {append([]string{"core/kafka", "core/servicenow"}, pure...), []string{franz, compress}},
	"core/codec":      {pure, []string{gjson, franz, "github.com/hamba/avro", "google.golang.org/protobuf", "github.com/bufbuild"}},
	"core/transform":  {pure, []string{gjson, "github.com/itchyny/gojq", "github.com/dop251/goja"}},

	"config": {[]string{"core/cursor", "core/failure", "core/mapping", "core/record"}, []string{
		"github.com/knadh/koanf/", "github.com/magiconair/properties", "go.yaml.in/yaml/", "github.com/pelletier/go-toml/",
	}},

	"actors/msg":     {inside: []string{"core/..."}},
	"actors/kit":     {[]string{"actors/msg", "core/..."}, []string{proto}},
	"actors/limiter": shell, "actors/poller": shell, "actors/source": shell,
	"actors/lane": shell, "actors/reporter": shell,
	"actors/sink": shell,

	"supervisor":       {[]string{"actors/...", "core/...", "config"}, []string{proto, franz, victoria}},
	"supervisor/admin": {[]string{"supervisor"}, []string{victoria}},

	"itest/fakesnow": {outside: []string{compress}},
	"itest/harness":  {[]string{"config", "core/failure", "core/cursor", "core/mapping", "itest/fakesnow"}, []string{franz}},
	"itest/kafka":    {outside: []string{franz}},
	"itest/demo":     {[]string{"supervisor/...", "config", "core/cursor", "core/failure", "itest/fakesnow", "itest/harness"}, []string{franz, compress}},
	"bench":          {[]string{"supervisor/...", "config", "core/...", "itest/fakesnow", "itest/harness", "itest/demo"}, []string{franz, compress, victoria}},
}

// shell is the room of an actor: no other actor's package, no configuration.
var shell = room{[]string{"core/...", "actors/msg", "actors/kit"}, []string{proto}}

func init() {
	for i, p := range pure {
		rooms[p] = room{inside: pure[:i]}
	}
}

func matches(name, pattern string) bool {
	if p, ok := strings.CutSuffix(pattern, "/..."); ok {
		return name == p || strings.HasPrefix(name, p+"/")
	}
	return name == pattern
}

// foreign returns what is wrong with the imports of one file.
func foreign(s source) []string {
	if s.test {
		return nil
	}
	r, known := rooms[s.pkg]
	if !known {
		return []string{s.name + ": package " + s.pkg + " has no row in the import table of itest/house"}
	}
	var out []string
	for _, p := range s.imports() {
		inside, ours := strings.CutPrefix(p, module+"/")
		switch {
		case ours:
			if !slices.ContainsFunc(r.inside, func(allowed string) bool { return matches(inside, allowed) }) {
				out = append(out, fmt.Sprintf("%s imports %s", s.name, inside))
			}
		case strings.Contains(strings.SplitN(p, "/", 2)[0], "."):
			if !slices.ContainsFunc(r.outside, func(allowed string) bool { return strings.HasPrefix(p, allowed) }) {
				out = append(out, fmt.Sprintf("%s imports %s", s.name, p))
			}
			if strings.HasPrefix(p, kfake) && s.pkg != "itest/demo" {
				out = append(out, s.name+" imports the embedded broker: only itest/demo may")
			}
		}
	}
	return out
}

// TestImports keeps the import table.
func TestImports(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range sources(t) {
		for _, problem := range foreign(s) {
			t.Error(problem)
		}
		seen[s.pkg] = true
	}
	for _, p := range []string{"", "cmd", "config", "core/cursor", "core/kafka", "actors/poller", "supervisor", "itest/fakesnow"} {
		if !seen[p] {
			t.Errorf("no file of package %q was read", p)
		}
	}
	for name, text := range map[string]string{
		"core/record/a.go":    `import "snowmelt/core/cursor"`,
		"core/kafka/a.go":     `import "snowmelt/config"`,
		"core/cursor/a.go":    `import "github.com/tidwall/gjson"`,
		"actors/poller/a.go":  `import "snowmelt/actors/source"`,
		"actors/msg/a.go":     `import "` + proto + `"`,
		"supervisor/a.go":     `import "snowmelt/cmd"`,
		"itest/fakesnow/a.go": `import "snowmelt/core/cursor"`,
		"cmd/a.go":            `import "` + kfake + `"`,
		"bench/a.go":          `import "` + kfake + `"`,
		"core/stray/a.go":     `import "fmt"`,
	} {
		if len(foreign(sample(t, name, "package a\n"+text))) == 0 {
			t.Errorf("%s with %s is not found", name, text)
		}
	}
}

// impure returns what a pure package must not know: clocks, goroutines, I/O, logs.
func impure(s source) []string {
	if s.test || !slices.Contains(pure, s.pkg) {
		return nil
	}
	var out []string
	for _, p := range s.imports() {
		for _, no := range []string{"net", "os", "log", "log/slog", "sync", "context", "runtime", "io/fs", "path/filepath", "math/rand", "crypto/rand", "testing"} {
			if p == no || strings.HasPrefix(p, no+"/") && no != "log" {
				if p != "net/url" {
					out = append(out, s.name+" imports "+p)
				}
			}
		}
	}
	out = append(out, s.uses("time", "Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker")...)
	return append(out, goStatements(s)...)
}

func goStatements(s source) []string {
	var out []string
	ast.Inspect(s.file, func(n ast.Node) bool {
		if g, ok := n.(*ast.GoStmt); ok {
			out = append(out, s.at(g)+" has a go statement")
		}
		return true
	})
	return out
}

// TestPure: core decides with what it is given.
func TestPure(t *testing.T) {
	read := map[string]int{}
	for _, s := range sources(t) {
		for _, problem := range impure(s) {
			t.Error(problem)
		}
		read[s.pkg]++
	}
	for _, p := range pure[:4] {
		if read[p] == 0 {
			t.Errorf("no file of %s was read", p)
		}
	}
	for _, text := range []string{
		`import "net/http"`, `import "os"`, `import "log/slog"`, `import "math/rand/v2"`,
		"import \"time\"\nvar x = time.Now()", "import clock \"time\"\nvar x = clock.Since", "func f() { go f() }",
	} {
		if len(impure(sample(t, "core/cursor/a.go", "package a\n"+text))) == 0 {
			t.Errorf("%q is not found", text)
		}
	}
}

// TestGoStatements: actors start goroutines only through kit.
func TestGoStatements(t *testing.T) {
	kit := 0
	for _, s := range sources(t) {
		if s.test || !strings.HasPrefix(s.pkg, "actors/") {
			continue
		}
		if s.pkg == "actors/kit" {
			kit += len(goStatements(s))
			continue
		}
		for _, problem := range goStatements(s) {
			t.Error(problem)
		}
	}
	if kit == 0 {
		t.Error("not even actors/kit has a go statement: the search finds nothing")
	}
}

// prints returns where a file outside the command line writes to the process's own output, or ends it.
func prints(s source) []string {
	if s.test || s.pkg == "" || s.pkg == "cmd" {
		return nil
	}
	out := s.uses("os", "Stdout", "Stderr", "Exit")
	return append(out, s.uses("fmt", "Print", "Println", "Printf")...)
}

// TestOutput: packages print where they are told to, and leave exits to main.
func TestOutput(t *testing.T) {
	allowed := 0
	for _, s := range sources(t) {
		for _, problem := range prints(s) {
			t.Error(problem)
		}
		if s.pkg == "" && !s.test {
			allowed += len(s.uses("os", "Stdout"))
		}
	}
	if allowed == 0 {
		t.Error("main does not use os.Stdout: the search finds nothing")
	}
	for _, text := range []string{"import \"os\"\nvar x = os.Stdout", "import \"fmt\"\nfunc f() { fmt.Println() }", "import \"os\"\nfunc f() { os.Exit(1) }"} {
		if len(prints(sample(t, "core/kafka/a.go", "package a\n"+text))) == 0 {
			t.Errorf("%q is not found", text)
		}
	}
}
