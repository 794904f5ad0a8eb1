package readme

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"snowmelt/itest/harness"
)

// limit bounds each wait: generous, since other tests run at the same time.
const limit = 2 * time.Minute

// TestCommands runs the commands of every page.
func TestCommands(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	pages = append(pages, filepath.Join(root, "README.md"), filepath.Join(root, "CONTRIBUTING.md"))
	ran := map[string]int{}
	for _, page := range pages {
		raw, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(page)
		blocks, err := parse(string(raw))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		t.Run(name, func(t *testing.T) {
			f := newFolder(t)
			for _, b := range blocks {
				if !b.skip {
					f.run(b)
					ran[name]++
				}
			}
			f.stop()
		})
	}
	if ran["README.md"] < 8 || ran["operations.md"] < 4 {
		t.Errorf("the pages hold fewer commands than they had: %v", ran)
	}
}

// TestMarkers shows that a page cannot hold commands that nobody runs.
func TestMarkers(t *testing.T) {
	for text, ok := range map[string]bool{
		"<!-- run -->\n```sh\nls\n```\n":                          true,
		"<!-- run -->\n\n```sh\nls\n```\n":                        true,
		"<!-- run: background until up -->\n```sh\nls\n```\n":     true,
		"<!-- not run: it deletes the disk -->\n```sh\nls\n```":   true,
		"```go\nls\n```\n":                                        true,
		"```sh\nls\n```\n":                                        false,
		"<!-- not run: -->\n```sh\nls\n```\n":                     false,
		"<!-- run: sometimes -->\n```sh\nls\n```\n":               false,
		"<!-- run -->\nfirst this\n```sh\nls\n```\n":              false,
		"<!-- run -->\n```sh\nls\n":                               false,
		"<!-- run -->\n```sh\nls\n```\n```bash\nrm -r /\n```\n":   false,
		"<!-- run -->\n```sh\nls\n```\n```console\n$ rm /\n```\n": false,
	} {
		if _, err := parse(text); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// folder is where the commands of one page run.
type folder struct {
	t     *testing.T
	dir   string
	ports map[string]string
	live  []*process
}

func newFolder(t *testing.T) *folder {
	f := &folder{t: t, dir: t.TempDir(), ports: map[string]string{}}
	if err := os.Symlink(binary, filepath.Join(f.dir, "snowmelt")); err != nil {
		t.Fatal(err)
	}
	examples, err := filepath.Glob(filepath.Join(root, "examples", "*"))
	if err != nil || len(examples) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	if err := os.Mkdir(filepath.Join(f.dir, "examples"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, e := range examples {
		raw, err := os.ReadFile(e)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(f.dir, "examples", filepath.Base(e)), []byte(f.move(string(raw))), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

var address = regexp.MustCompile(`127\.0\.0\.1:[1-9][0-9]*`)

// move replaces each address by one with a free port, the same one each time.
func (f *folder) move(text string) string {
	return address.ReplaceAllStringFunc(text, func(a string) string {
		if f.ports[a] == "" {
			f.ports[a] = harness.FreeAddress()
		}
		return f.ports[a]
	})
}

func (f *folder) run(b block) {
	f.t.Helper()
	script := strings.ReplaceAll(f.move(b.script), "go run . ", "./snowmelt ")
	until := f.move(b.until)
	switch {
	case b.background:
		p := f.start(script)
		f.live = append(f.live, p)
		select {
		case <-p.saw(until):
		case err := <-p.ended:
			p.ended <- err
			f.t.Fatalf("line %d ended before it said %q: %v\n%s", b.line, until, err, p.output())
		case <-time.After(limit):
			f.t.Fatalf("line %d never said %q:\n%s", b.line, until, p.output())
		}
	case until != "":
		var out string
		for deadline := time.Now().Add(limit); !strings.Contains(out, until); {
			if time.Now().After(deadline) {
				f.t.Fatalf("line %d never said %q; last:\n%s", b.line, until, out)
			}
			out, _ = f.finish(script)
			<-time.After(50 * time.Millisecond)
		}
	default:
		if out, err := f.finish(script); err != nil {
			f.t.Fatalf("line %d: %v\n%s\n%s", b.line, err, script, out)
		}
	}
}

// stop ends what runs in the background, the last one first.
func (f *folder) stop() {
	f.t.Helper()
	for len(f.live) > 0 {
		p := f.live[len(f.live)-1]
		f.live = f.live[:len(f.live)-1]
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case err := <-p.ended:
			if err != nil {
				f.t.Errorf("%s: %v\n%s", p.cmd.Args, err, p.output())
			}
		case <-time.After(limit):
			f.t.Errorf("%s: SIGTERM did not end it", p.cmd.Args)
			_ = p.cmd.Process.Kill()
			<-p.ended
		}
	}
}

func (f *folder) command(ctx context.Context, script string) *exec.Cmd {
	c := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", script)
	c.Dir = f.dir
	c.WaitDelay = 10 * time.Second
	for _, pair := range os.Environ() {
		if !strings.HasPrefix(pair, "SNOWMELT_") { // they are settings, and unknown ones are refused
			c.Env = append(c.Env, pair)
		}
	}
	return c
}

func (f *folder) finish(script string) (string, error) {
	ctx, cancel := context.WithTimeout(f.t.Context(), limit)
	defer cancel()
	out, err := f.command(ctx, script).CombinedOutput()
	return string(out), err
}

// process runs in the background.
type process struct {
	cmd   *exec.Cmd
	ended chan error

	mu   sync.Mutex
	text bytes.Buffer
	want string
	seen chan struct{}
}

var _ io.Writer = (*process)(nil)

// Write takes what the process prints.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, err := p.text.Write(b)
	p.look()
	return n, err
}

func (p *process) look() {
	if p.want != "" && strings.Contains(p.text.String(), p.want) {
		p.want = ""
		close(p.seen)
	}
}

// saw is closed once the process has printed text.
func (p *process) saw(text string) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.want, p.seen = text, make(chan struct{})
	p.look()
	return p.seen
}

func (p *process) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// start runs a script whose last command takes the place of the shell, so that a signal reaches it.
func (f *folder) start(script string) *process {
	f.t.Helper()
	p := &process{ended: make(chan error, 1)}
	p.cmd = f.command(context.WithoutCancel(f.t.Context()), "exec "+strings.TrimSpace(script))
	p.cmd.Stdout, p.cmd.Stderr = p, p
	if err := p.cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	go func() { p.ended <- p.cmd.Wait() }()
	f.t.Cleanup(func() {
		if len(f.live) > 0 { // the page failed half-way
			_ = p.cmd.Process.Kill()
		}
	})
	return p
}
