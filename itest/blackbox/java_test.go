package blackbox

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"snowmelt/itest/fakesnow"
	"snowmelt/itest/harness"
	"snowmelt/itest/kafka"
)

// java runs a class of Kafka's, or a source file, and returns what it prints.
func (w *world) java(args ...string) string {
	w.t.Helper()
	cmd := kafka.Java(w.ctx(), args...)
	var out, log strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := cmd.Run(); err != nil {
		w.t.Fatalf("java %v: %v\n%s\n%s", args, err, out.String(), tail(log.String(), 20))
	}
	return out.String()
}

func (w *world) connect(args ...string) string {
	w.t.Helper()
	return w.java(append([]string{filepath.Join("..", "kafka", "Connect.java")}, args...)...)
}

// cursorOf returns the only cursor of the configuration's pipeline.
func (w *world) cursorOf(config string) (partition, offset map[string]string) {
	w.t.Helper()
	list := w.start("offsets", "list", "-c", config, "--output", "json")
	list.exits(0)
	var all []struct{ Partition, Offset map[string]string }
	if err := json.Unmarshal([]byte(list.Stdout()), &all); err != nil || len(all) != 1 {
		w.t.Fatalf("%s (%v)", list.Stdout(), err)
	}
	return all[0].Partition, all[0].Offset
}

func pairs(m map[string]string) string {
	var all []string
	for k, v := range m { // in no order: Connect has its own
		all = append(all, k+"="+v)
	}
	return strings.Join(all, ";")
}

// TestJava: Kafka's console consumer reads our records, Connect's classes read our cursor
// and our dead letters, and a cursor that Connect wrote is gone on from.
func TestJava(t *testing.T) {
	const table = "incident"
	w := newApache(t, kafka.Options{})
	w.inst.Generate(table, 400, fakesnow.GenOptions{MinimalFields: true})
	config := w.configure(w.source(table), nil)
	p := w.run(config)
	w.arrived(table)
	p.signal(syscall.SIGTERM)
	p.exits(0)

	out := w.java("org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", w.bootstrap, "--topic", topicOf(table),
		"--from-beginning", "--max-messages", "400", "--timeout-ms", "20000", "--isolation-level", "read_committed",
		"--formatter-property", "print.key=true", "--formatter-property", "print.headers=true")
	have := map[string]map[string]string{}
	for _, r := range w.inst.Rows(table, nil) {
		have[r["sys_id"]] = r
	}
	read := 0
	for line := range strings.Lines(out) {
		parts := strings.SplitN(strings.TrimSpace(line), "\t", 3)
		if len(parts) != 3 {
			continue
		}
		var row map[string]any
		if err := json.Unmarshal([]byte(parts[2]), &row); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		want := have[parts[1]]
		if want == nil || row["number"] != want["number"] || !strings.Contains(parts[0], "snow.version:"+table+"|") {
			t.Errorf("the console consumer read %s", line)
		}
		delete(have, parts[1])
		read++
	}
	if read != 400 || len(have) > 0 {
		t.Errorf("the console consumer read %d records, %d rows are missing", read, len(have))
	}

	partition, offset := w.cursorOf(config)
	w.until("Connect to read the cursor", func() (bool, error) { // a commit's marker comes after its answer
		out = w.connect("offset", w.bootstrap, "snowmelt-offsets", "itsm", pairs(partition))
		return strings.Contains(out, "timestamp="), nil
	})
	for k, v := range offset {
		if !strings.Contains(out, k+"="+v+"\n") {
			t.Errorf("Connect reads no %s=%s:\n%s", k, v, out)
		}
	}

	// Connect moves the cursor, with its own order of fields and so perhaps in another
	// partition; what lies before it is not read again, what lies behind it is.
	later := w.inst.Now().Add(10 * time.Second).UTC()
	offset["timestamp"], offset["sys_id"] = later.Format(time.DateTime), ""
	written := map[string]string{}
	for k, v := range offset {
		if k != "tail" && k != "verified" && v != "" {
			written[k] = v
		}
	}
	written["sys_id"] = strings.Repeat("0", 32)
	out = w.connect("offset", w.bootstrap, "snowmelt-offsets", "itsm", pairs(partition), pairs(written))
	if !strings.Contains(out, "timestamp="+written["timestamp"]) {
		t.Fatalf("Connect wrote %s", out)
	}
	if _, now := w.cursorOf(config); now["timestamp"] != written["timestamp"] {
		t.Errorf("the cursor is %v, Connect wrote %v", now, written)
	}
	w.inst.Generate(table, 20, fakesnow.GenOptions{Start: later.Add(5 * time.Second), OneSecond: true, MinimalFields: true, Seed: 9, IDPrefix: "c"})
	p = w.run(config)
	w.arrived(table)
	p.signal(syscall.SIGTERM)
	p.exits(0)
	if n := w.records(table); n != 420 {
		t.Errorf("%d records, want 420", n)
	}
	w.counts(table)
	if _, now := w.cursorOf(config); now["timestamp"] <= written["timestamp"] {
		t.Errorf("the cursor stays at %v", now)
	}

	w.topic(updates, 1, map[string]string{"retention.ms": "-1"})
	w.topic(updateFails, 1, nil)
	w.produce(0, 3)
	bad := &kgo.Record{Topic: updates, Key: []byte("bad"), Value: []byte(`{"no_such_field":"x"}`), Headers: []kgo.RecordHeader{{Key: "snow.operation", Value: []byte("CREATE")}}}
	if err := w.client.ProduceSync(w.ctx(), bad).FirstErr(); err != nil {
		t.Fatal(err)
	}
	sink := w.run(w.configureSink(settings{
		"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "dead", "errors.deadletterqueue.topic.replication.factor": 1,
		"errors.deadletterqueue.context.headers.enable": true,
	}))
	w.settled(4)
	sink.signal(syscall.SIGTERM)
	sink.exits(0)
	out = w.connect("dlq", w.bootstrap, "dead")
	for _, want := range []string{
		"key=bad\n", "value={\"no_such_field\":\"x\"}\n", "__connect.errors.topic=" + updates + "\n", "__connect.errors.partition=0\n",
		"__connect.errors.offset=3\n", "__connect.errors.connector.name=updates\n", "__connect.errors.stage=TASK_PUT\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("Connect reads no %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "=MISSING") {
		t.Errorf("Connect misses headers:\n%s", out)
	}
	dead, err := harness.ReadTopic(w.ctx(), "dead", true, w.kafka()...)
	if err != nil || len(dead) != 1 {
		t.Errorf("%d dead letters (%v)", len(dead), err)
	}
	t.Log(fmt.Sprint("read ", read, " records by the console consumer"))
}
