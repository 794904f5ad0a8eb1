package blackbox

import (
	"strings"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"snowmelt/itest/fakesnow"
)

// TestStop: SIGTERM in a backfill ends the process in order.
func TestStop(t *testing.T) {
	const table = "incident"
	w := newWorld(t)
	w.inst.Generate(table, 5000, fakesnow.GenOptions{MinimalFields: true})
	g := newGate(w.broker)
	config := w.configure(w.source(table), nil)
	for range 3 {
		trap := g.arm(kmsg.EndTxn, 3, passes)
		p := w.run(config)
		w.reached(p, trap)
		p.signal(syscall.SIGTERM)
		p.exits(0)
		if p.logged("snowmelt has stopped") == nil {
			t.Errorf("%s does not say that it has stopped", p.Name)
		}
	}
	if n := w.records(table); n == 0 || n >= 5000 {
		t.Fatalf("%d records: the stops were not within the backfill", n)
	}
	if open := w.transactions("Ongoing"); len(open) > 0 {
		t.Errorf("an orderly stop left transactions open: %+v", open)
	}
	p := w.run(config)
	w.arrived(table)
	p.signal(syscall.SIGINT)
	p.exits(0)
	w.counts(table)
}

// TestSecondSignal: a second signal ends a stop that a broker holds up.
func TestSecondSignal(t *testing.T) {
	const table = "incident"
	w := newWorld(t)
	w.inst.Generate(table, 3000, fakesnow.GenOptions{MinimalFields: true})
	config := w.configure(w.source(table), nil)
	p, trap := w.held(newGate(w.broker), 3, config)
	p.signal(syscall.SIGCONT)
	p.signal(syscall.SIGTERM)
	w.until("it is stopping", func() (bool, error) {
		return p.logged("stopping in order; a second signal stops at once") != nil, nil
	})
	if s, err := p.table(table); err != nil || s.State != "STOPPING" {
		t.Errorf("while stopping the table is %+v (%v)", s, err)
	}
	p.signal(syscall.SIGTERM)
	p.exits(130)
	trap.open(true)
	p = w.run(config)
	w.arrived(table)
	p.signal(syscall.SIGTERM)
	p.exits(0)
	w.counts(table)
}

// TestServersComeLater: a process that starts before its servers waits for them, and says so.
func TestServersComeLater(t *testing.T) {
	const table = "incident"
	t.Run("instance", func(t *testing.T) {
		w := newWorld(t)
		w.inst.Generate(table, 1000, fakesnow.GenOptions{MinimalFields: true})
		w.server.Refuse()
		p := w.run(w.configure(w.source(table), nil))
		w.retries(p, table)
		if err := w.server.Accept(); err != nil {
			t.Fatal(err)
		}
		w.cameThrough(p, table)
	})
	t.Run("broker", func(t *testing.T) {
		w := newWorldWithoutBroker(t)
		w.inst.Generate(table, 1000, fakesnow.GenOptions{MinimalFields: true})
		p := w.run(w.configure(w.source(table), nil))
		w.retries(p, table)
		w.startBroker()
		w.cameThrough(p, table)
	})
}

// retries waits until a table is being retried, and checks that its pipeline is not failed.
func (w *world) retries(p *child, table string) {
	w.t.Helper()
	w.until("the table is retried", func() (bool, error) {
		if p.Ended() {
			w.t.Fatal("the process has ended")
		}
		s, err := p.table(table)
		return s.State == "RETRYING" && s.Error != "", err
	})
	s, err := p.status()
	if err != nil || s.Pipelines[0].State != "RETRYING" {
		w.t.Errorf("%+v (%v)", s, err)
	}
	for path, want := range map[string]int{"/readyz": 200, "/healthz": 200} {
		if code, body, err := p.get(path); err != nil || code != want {
			w.t.Errorf("%s: %d %s (%v)", path, code, body, err)
		}
	}
}

func (w *world) cameThrough(p *child, table string) {
	w.t.Helper()
	w.arrived(table)
	w.until("the table runs", func() (bool, error) {
		s, err := p.table(table)
		return s.State == "RUNNING" && s.Error == "", err
	})
	p.signal(syscall.SIGTERM)
	p.exits(0)
	w.counts(table)
}

// TestWrongConfiguration: run exits with 2 and names every problem at once.
func TestWrongConfiguration(t *testing.T) {
	w := newWorldWithoutBroker(t)
	wrong := w.source("incident").with(settings{
		"snow.source.batch.size": 0, "snow.table.incident.query": "active=true^ORDERBYnumber", "snow.source.delivery": "twice",
		"snow.tabels": "incident", "snow.table.incident.topic": "no topic",
	})
	delete(wrong, "kafka.bootstrap.servers")
	p := w.run(w.configure(wrong, settings{"log.level": "loud"}))
	p.exits(2)
	for _, key := range []string{
		"snow.source.batch.size", "snow.table.incident.query", "snow.source.delivery", "snow.tabels", "snow.table.incident.topic",
		"kafka.bootstrap.servers", "log.level",
	} {
		if !strings.Contains(p.Stderr(), key) {
			t.Errorf("%s is not named", key)
		}
	}
	if strings.Contains(p.Stderr()+p.Stdout(), password) {
		t.Error("the password is shown")
	}
	if n := len(w.inst.Journal()); n > 0 {
		t.Errorf("%d requests were sent", n)
	}
	missing := w.start("run", "-c", "no-such-file.yaml")
	missing.exits(2)
}
