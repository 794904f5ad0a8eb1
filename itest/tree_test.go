package itest

import (
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/twmb/franz-go/pkg/kgo"

	"snowmelt/config"
	"snowmelt/supervisor"
)

// TestTreeIsWhatRuns compares the printed supervision tree with the actors of a running engine.
func TestTreeIsWhatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		system := actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.DiscardHandler) }))
		w := newWorld(t)
		w.topics(2, input)
		w.produce(&kgo.Record{Topic: input, Value: []byte(`{"short_description":"x"}`)})
		cfg := config.Config{Sources: []config.Source{w.source(tables()...)}, Sinks: []config.Sink{w.sink("incident", input)}}
		p := must[*process](t)(w.run(cfg, supervisor.WithActorSystem(system)))
		time.Sleep(time.Minute)
		want := map[string]bool{}
		var names func(n supervisor.Node, prefix string)
		names = func(n supervisor.Node, prefix string) {
			want[prefix] = true
			for _, c := range n.Children {
				names(c, prefix+"/"+regexp.MustCompile(`<.*>`).ReplaceAllString(c.Name, "<x>"))
			}
		}
		names(supervisor.Tree, "")
		got := map[string]bool{}
		for _, m := range system.ProcessRegistry.LocalPIDs.LocalPIDs {
			for _, id := range m.Keys() {
				engine, rest, nested := strings.Cut(id, "/")
				if !strings.HasPrefix(engine, "engine") {
					continue
				}
				if !nested {
					got[""] = true
					continue
				}
				name := ""
				parts := strings.Split(rest, "/")
				for i := 0; i < len(parts); i++ {
					name += "/" + parts[i]
					if parts[i] != "reporter" { // every other kind is followed by what tells it apart
						name += "/<x>"
						i++
					}
				}
				got[name] = true
			}
		}
		for name := range want {
			if !got[name] {
				t.Errorf("the tree shows %q, nothing of that name runs: %v", name, got)
			}
		}
		for name := range got {
			if !want[name] {
				t.Errorf("%q runs and is not in the tree", name)
			}
		}
		stopped(t, p)
		system.Shutdown()
	})
}
