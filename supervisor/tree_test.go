package supervisor

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/goleak"

	"snowmelt/actors/msg"
	"snowmelt/config"
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
		r, ok := sourcePolicy[c]
		if !ok || r.why == "" {
			t.Errorf("class %s has no row, or a row without a reason", c)
		}
		if got := decideSource(&failure.Error{Class: c}); got != r.directive {
			t.Errorf("class %s: %v, the table says %v", c, got, r.directive)
		}
	}
	if len(sourcePolicy) != len(classes) {
		t.Errorf("%d rows for %d classes", len(sourcePolicy), len(classes))
	}
	if got := decideSource(errors.New("nobody classified this")); got != msg.Restart {
		t.Errorf("an unclassified error: %v", got)
	}
}

type nowhere struct{}

func (nowhere) RoundTrip(*http.Request) (*http.Response, error) { return nil, errors.New("nowhere") }

// TestTreeIsWhatRuns compares the printed tree with the actors of a running engine.
func TestTreeIsWhatRuns(t *testing.T) {
	system := actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.DiscardHandler) }))
	u, _ := url.Parse("https://acme.example.test")
	table := func(alias string) config.Table {
		return config.Table{Alias: alias, Name: alias, Topic: alias, TimestampField: "sys_updated_on", IDField: "sys_id", BatchSize: 10, PollInterval: time.Hour}
	}
	src := config.Source{
		Name: "itsm", Instance: config.Instance{URL: u, Username: "u", Password: "p", MaxConcurrent: 2, RequestTimeout: time.Second, BodyIdle: time.Second,
			Retry: failure.Retry{MaxAttempts: 5, MaxElapsed: time.Hour, Initial: time.Hour, Max: time.Hour}},
		Kafka: map[string]string{"bootstrap.servers": "127.0.0.1:1"}, Tables: []config.Table{table("incident"), table("change_request")}, PublishersMax: 1,
	}
	e, err := New(config.Config{Sources: []config.Source{src}}, WithActorSystem(system), WithHTTPTransport(func(string) http.RoundTripper { return nowhere{} }),
		WithJitter(func() float64 { return 0.9 }))
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{}
	var names func(n Node, prefix string)
	names = func(n Node, prefix string) {
		name := regexp.MustCompile(`<[a-z]+>`).ReplaceAllString(n.Name, "<x>")
		if n.Name == "engine" {
			name = ""
		}
		want[prefix+name] = true
		for _, c := range n.Children {
			names(c, strings.TrimPrefix(prefix+name+"/", "/"))
		}
	}
	names(Tree, "")
	var got map[string]bool
	running := func() bool {
		got = map[string]bool{}
		for _, m := range system.ProcessRegistry.LocalPIDs.LocalPIDs {
			for _, id := range m.Keys() {
				if rest, ok := strings.CutPrefix(id, e.root.GetId()); ok {
					parts := strings.Split(strings.TrimPrefix(rest, "/"), "/")
					for i := 1; i < len(parts); i += 2 {
						parts[i] = "<x>"
					}
					got[strings.Join(parts, "/")] = true
				}
			}
		}
		return len(got) >= len(want)
	}
	for deadline := time.Now().Add(20 * time.Second); !running() && time.Now().Before(deadline); {
		<-time.After(5 * time.Millisecond)
	}
	for name := range want {
		if !got[name] {
			t.Errorf("the tree shows %q, nothing of that name runs", name)
		}
	}
	for name := range got {
		if !want[name] {
			t.Errorf("%q runs and is not in the tree", name)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := e.Stop(ctx); err != nil {
		t.Error(err)
	}
	system.Shutdown()
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
