package blackbox

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"snowmelt/itest/fakesnow"
	"snowmelt/itest/kafka"
)

// newApache is a world with a real broker; the test is skipped without -kafka=real.
func newApache(t *testing.T, opts kafka.Options) *world {
	t.Helper()
	if *kafkaFlag != "real" {
		t.Skip("run with -kafka=real")
	}
	w := newWorldWithoutBroker(t)
	w.options = opts
	w.startBroker()
	return w
}

func (w *world) topic(name string, partitions int32, settings map[string]string) {
	w.t.Helper()
	all := map[string]*string{}
	for k, v := range settings {
		all[k] = &v
	}
	if _, err := w.admin.CreateTopic(w.ctx(), partitions, -1, all, name); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) setting(topic, name string) string {
	w.t.Helper()
	all, err := w.admin.DescribeTopicConfigs(w.ctx(), topic)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, c := range all {
		for _, s := range c.Configs {
			if s.Key == name {
				return s.MaybeValue()
			}
		}
	}
	return ""
}

// fails waits until a table has failed, and checks what it says.
func (c *child) fails(table string, parts ...string) {
	c.w.t.Helper()
	var s tableStatus
	c.w.until(table+" has failed", func() (bool, error) {
		var err error
		s, err = c.table(table)
		return s.State == "FAILED", err
	})
	for _, part := range parts {
		if !strings.Contains(s.Error, part) && !strings.Contains(c.Stderr(), part) {
			c.w.t.Errorf("%q does not say %q", s.Error, part)
		}
	}
}

// TestRetention: rows of 2016 outlive the broker's cleaner in a topic that was made here;
// a topic that would lose or misdate them is refused, by the table and by check.
func TestRetention(t *testing.T) {
	w := newApache(t, kafka.Options{})
	hold := settings{"engine.on.failure": "hold"}
	for _, table := range []string{"incident", "change_request", "problem", "sc_task", "cmdb_ci"} {
		w.inst.Generate(table, 600, fakesnow.GenOptions{Start: time.Date(2016, 1, 1, 0, 0, 0, 0, time.UTC), MinimalFields: true})
	}
	w.topic(topicOf("change_request"), 1, nil) // the brokers' 7 days
	w.topic(topicOf("problem"), 1, map[string]string{"message.timestamp.type": "LogAppendTime", "retention.ms": "-1"})
	w.topic(topicOf("sc_task"), 1, nil)
	p := w.run(w.configure(w.source("incident", "change_request", "problem", "sc_task").with(settings{
		"topic.creation.default.segment.bytes": 1 << 20,
	}), hold))
	w.arrived("incident")
	p.fails("change_request", "retention.ms is 604800000", "2016-01-01", "snow.source.allow.expiring.topics")
	p.fails("problem", "LogAppendTime", "at_least_once")
	p.signal(syscall.SIGTERM)
	p.exits(0)
	check := w.start("check", "-c", w.configure(w.source("change_request"), nil), "--output", "json")
	if code, err := check.Wait(w.ctx()); err != nil || code == 0 || !strings.Contains(check.Stdout(), "604800000") {
		t.Errorf("check: %d %s (%v)", code, check.Stdout(), err)
	}
	// With the user's word for it they are written, and gone. The markers of transactions are of
	// today and keep their segment, so that takes the other kind of delivery here.
	p = w.run(w.configure(w.source("sc_task").with(settings{
		"snow.source.allow.expiring.topics": true, "snow.source.delivery": "at_least_once",
	}), hold))
	w.until("the broker has deleted the old rows", func() (bool, error) {
		starts, err := w.admin.ListStartOffsets(w.ctx(), topicOf("sc_task"))
		o, _ := starts.Lookup(topicOf("sc_task"), 0)
		return o.Offset == 600, err
	})
	p.signal(syscall.SIGTERM)
	p.exits(0)
	// What the broker refuses is said with its own words. kfake takes any setting.
	p = w.run(w.configure(w.source("cmdb_ci").with(settings{"topic.creation.default.retention.mss": "-1"}), hold))
	p.fails("cmdb_ci", "INVALID_CONFIG", "retention.mss")
	if v := w.setting(topicOf("incident"), "retention.ms"); v != "-1" {
		t.Errorf("retention.ms is %q", v)
	}
	for name, want := range map[string]string{"cleanup.policy": "compact", "segment.bytes": "104857600"} {
		if v := w.setting("snowmelt-offsets", name); v != want {
			t.Errorf("%s of the cursor topic is %q", name, v)
		}
	}
	w.counts("incident") // the cleaner has come by since
}

// produce writes creates to the sink's input.
func (w *world) produce(from, n int) {
	w.t.Helper()
	var records []*kgo.Record
	for i := from; i < from+n; i++ {
		records = append(records, &kgo.Record{
			Topic: updates, Key: fmt.Appendf(nil, "order-%d", i), Value: fmt.Appendf(nil, `{"correlation_id":"create-%d"}`, i),
			Headers: []kgo.RecordHeader{{Key: "snow.operation", Value: []byte("CREATE")}},
		})
	}
	if err := w.client.ProduceSync(w.ctx(), records...).FirstErr(); err != nil {
		w.t.Fatal(err)
	}
}

// once checks that creates made one row each.
func (w *world) once(n int) {
	w.t.Helper()
	count := map[string]int{}
	for _, r := range w.inst.Rows("incident", nil) {
		count[r["correlation_id"]]++
	}
	missing, twice := 0, 0
	for i := range n {
		switch c := count[fmt.Sprint("create-", i)]; {
		case c == 0:
			missing++
		case c > 1:
			twice++
		}
	}
	if missing+twice > 0 {
		w.t.Errorf("of %d creates %d are missing and %d are there twice", n, missing, twice)
	}
}

func (w *world) settled(total int64) {
	w.t.Helper()
	w.until(fmt.Sprintf("%d records are settled", total), func() (bool, error) {
		got, err := w.committed()
		if err == nil && got != total {
			err = fmt.Errorf("%d are", got)
		}
		return got == total, err
	})
}

// TestSinkOutOfRange: records that were deleted before they were written stop the sink,
// which says so and does not jump; it goes on where it is told to.
func TestSinkOutOfRange(t *testing.T) {
	w := newApache(t, kafka.Options{})
	w.topic(updates, 1, map[string]string{"retention.ms": "-1"})
	w.topic(updateFails, 1, nil)
	config := w.configureSink(nil)
	w.produce(0, 20)
	p := w.run(config)
	w.settled(20)
	p.signal(syscall.SIGTERM)
	p.exits(0)
	w.produce(20, 20)
	at := kadm.Offsets{}
	at.Add(kadm.Offset{Topic: updates, Partition: 0, At: 30})
	if _, err := w.admin.DeleteRecords(w.ctx(), at); err != nil {
		t.Fatal(err)
	}
	p = w.run(config)
	p.exits(4)
	if !strings.Contains(p.Stderr(), "no longer in the log") || !strings.Contains(p.Stderr(), "OFFSET_OUT_OF_RANGE") {
		t.Error("it does not say what is wrong")
	}
	if n := len(w.inst.Rows("incident", nil)); n != 20 {
		t.Errorf("%d rows, want 20", n)
	}
	w.until("the group is empty", func() (bool, error) {
		g, err := w.admin.DescribeGroups(w.ctx(), "connect-updates")
		if err == nil && g["connect-updates"].State != "Empty" {
			_, err = w.admin.LeaveGroup(w.ctx(), kadm.LeaveGroup("connect-updates").InstanceIDs("one"))
			return false, err
		}
		return err == nil, err
	})
	if err := w.admin.CommitAllOffsets(w.ctx(), "connect-updates", at); err != nil {
		t.Fatal(err)
	}
	p = w.run(config)
	w.settled(40)
	p.signal(syscall.SIGTERM)
	p.exits(0)
	if n := len(w.inst.Rows("incident", nil)); n != 30 {
		t.Errorf("%d rows, want 30", n)
	}
}

// TestSinkRebalance: two members share the partitions; one comes, goes, and comes again
// while creates are written, and each of them is written once.
func TestSinkRebalance(t *testing.T) {
	w := newApache(t, kafka.Options{})
	w.topic(updates, 4, map[string]string{"retention.ms": "-1"})
	w.topic(updateFails, 1, nil)
	w.inst.AddFault(fakesnow.Fault{Kind: fakesnow.FaultLatency, Table: "incident", Params: fakesnow.FaultParams{MinMS: 1, MaxMS: 10}})
	members := func(n int) {
		t.Helper()
		w.until(fmt.Sprintf("the group has %d members with partitions", n), func() (bool, error) {
			g, err := w.admin.DescribeGroups(w.ctx(), "connect-updates")
			d := g["connect-updates"]
			with := 0
			for _, m := range d.Members {
				if a, ok := m.Assigned.AsConsumer(); ok && len(a.Topics) > 0 {
					with++
				}
			}
			return d.State == "Stable" && with == n && len(d.Members) == n, err
		})
	}
	a := w.run(w.configureSink(settings{"group.instance.id": ""}))
	n := 0
	more := func() {
		w.produce(n, 300)
		n += 300
	}
	more()
	members(1)
	config := w.configureSink(settings{"group.instance.id": ""})
	for range 2 {
		b := w.run(config)
		more()
		members(2)
		more()
		b.signal(syscall.SIGTERM)
		b.exits(0)
		more()
		members(1)
	}
	w.settled(int64(n))
	a.signal(syscall.SIGTERM)
	a.exits(0)
	w.once(n)
	reports, err := w.admin.ListEndOffsets(w.ctx(), updateFails)
	if o, _ := reports.Lookup(updateFails, 0); err != nil || o.Offset != 0 {
		t.Errorf("%d reports (%v)", o.Offset, err)
	}
	t.Logf("%d creates over 4 rebalances", n)
}

// TestThreeBrokers kills and restarts brokers in the middle of a backfill and of writes:
// the coordinator of the transactions, leaders, the coordinator of the group.
func TestThreeBrokers(t *testing.T) {
	const table = "incident"
	w := newApache(t, kafka.Options{Brokers: 3})
	w.inst.Generate(table, 4000, fakesnow.GenOptions{MinimalFields: true})
	w.inst.AddFault(fakesnow.Fault{Kind: fakesnow.FaultLatency, Table: table, Params: fakesnow.FaultParams{MinMS: 20, MaxMS: 60}})
	w.topic(updates, 4, map[string]string{"retention.ms": "-1"})
	w.topic(updateFails, 1, nil)
	source := w.run(w.configure(w.source(table).with(settings{"snow.source.batch.size": 100}), nil))
	w.until("the backfill has begun", func() (bool, error) { return w.records(table) > 0, nil })
	kill := func(what string, id int32) {
		t.Helper()
		n := w.real.Nodes[id-1]
		before := w.records(table)
		n.Kill()
		<-time.After(3 * time.Second)
		if err := n.Start(w.ctx()); err != nil {
			t.Fatal(err)
		}
		if err := w.real.Ready(w.ctx()); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		w.until("the table goes on", func() (bool, error) { return w.records(table) > before, nil })
		t.Logf("killed broker %d, %s: %d records before, %d after another %v", id, what, before, w.records(table), time.Since(began).Round(time.Millisecond))
	}
	txn := w.transactions("")[0]
	kill("coordinator of "+txn.TxnID, txn.Coordinator)
	m, err := w.admin.Metadata(w.ctx(), topicOf(table), updates)
	if err != nil {
		t.Fatal(err)
	}
	kill("leader of a partition of the table's topic", m.Topics[topicOf(table)].Partitions[0].Leader)
	sink := w.run(w.configureSink(settings{"snow.sink.table": "problem"}))
	w.produce(0, 400)
	g, err := w.admin.DescribeGroups(w.ctx(), "connect-updates")
	if err != nil {
		t.Fatal(err)
	}
	changes := w.write(table, 3)
	kill("coordinator of the group", g["connect-updates"].Coordinator.NodeID)
	w.produce(400, 400)
	changes.end()
	w.arrived(table)
	w.settled(800)
	for _, p := range []*child{source, sink} {
		p.signal(syscall.SIGTERM)
		p.exits(0)
	}
	w.counts(table)
	count := map[string]int{}
	for _, r := range w.inst.Rows("problem", nil) {
		count[r["correlation_id"]]++
	}
	reports, _ := w.admin.ListEndOffsets(w.ctx(), updateFails)
	o, _ := reports.Lookup(updateFails, 0)
	missing := 0
	for i := range 800 {
		switch c := count[fmt.Sprint("create-", i)]; {
		case c == 0:
			missing++
		case c > 1:
			t.Errorf("create %d made %d rows", i, c)
		}
	}
	if int64(missing) > o.Offset {
		t.Errorf("%d creates are missing, %d were reported", missing, o.Offset)
	}
	t.Logf("%d of 800 creates missing, %d reported", missing, o.Offset)
}
