package kafka

import (
	"context"
	"maps"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"snowmelt/core/failure"
)

// write produces one record as some other program does; in a transaction that
// stays open until the returned function ends it, when id is given.
func (r *rig) write(topic, id, k, v string, at time.Time, partition int32) func(kgo.TransactionEndTry) {
	r.t.Helper()
	ctx := ctx(r.t)
	opts := []kgo.Opt{}
	if partition >= 0 {
		opts = append(opts, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	}
	if id != "" {
		opts = append(opts, kgo.TransactionalID(id))
	}
	client := r.client(opts...)
	r.t.Cleanup(client.Close)
	if id != "" {
		if err := client.BeginTransaction(); err != nil {
			r.t.Fatal(err)
		}
	}
	rec := &kgo.Record{Topic: topic, Key: []byte(k), Timestamp: at, Partition: partition}
	if v != "" {
		rec.Value = []byte(v)
	}
	if err := client.ProduceSync(ctx, rec).FirstErr(); err != nil {
		r.t.Fatal(err)
	}
	return func(how kgo.TransactionEndTry) {
		if err := client.EndTransaction(ctx, how); err != nil {
			r.t.Fatal(err)
		}
	}
}

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func TestForeignOpenTransactionDoesNotBlock(t *testing.T) {
	r := newRig(t)
	if err := r.fake.CreateTopic("one", 1, nil); err != nil { // everything in one partition
		t.Fatal(err)
	}
	onOne := func(cfg *PublisherConfig) { cfg.CursorTopic = "one" }
	r.write("one", "foreign", string(key("problem").Encode()), `{"timestamp":"1"}`, noon, 0)
	p := r.publisher(onOne)
	if o := r.open(p); o.Found {
		t.Fatal("found a cursor")
	}
	// the own commit lies behind the start of the open one: read_committed cannot see it
	r.publish(p, page("a", 1, 7))
	if n := len(r.records("one")); n != 0 {
		t.Fatalf("%d records before the last stable offset: the test proves nothing", n)
	}
	again := r.publisher(onOne, func(cfg *PublisherConfig) { cfg.Cluster = r.connect(nil) })
	o, err := again.Open(within(t, 5*time.Second))
	if err != nil || !maps.Equal(o.Offset, cursorAt(7)) {
		t.Fatalf("%+v, %v", o, err)
	}
}

func TestForeignCommitIsTakenWhenItCommits(t *testing.T) {
	r := newRig(t)
	commit := r.write(cursors, "a", string(key("problem").Encode()), `{"timestamp":"1"}`, noon, -1)
	abort := r.write(cursors, "b", string(key("change").Encode()), `{"timestamp":"1"}`, noon, -1)
	tables := func() (all []string) {
		found, err := r.c.Cursors(ctx(t), cursors)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			all = append(all, f.Key.Partition[PartitionTable]+" "+f.Offset["timestamp"])
		}
		return all
	}
	wantKeys(t, tables())
	commit(kgo.TryCommit) // the records were read before, their markers are read now
	abort(kgo.TryAbort)
	wantKeys(t, tables(), "problem 1")
	r.write(cursors, "", string(key("sla").Encode()), `{"timestamp":"2"}`, noon, -1)
	r.write(cursors, "", string(key("kb").Encode()), `{"timestamp":"3"}`, noon, -1)
	wantKeys(t, tables(), "kb 3", "problem 1", "sla 2")
	r.write(cursors, "", string(key("kb").Encode()), "", noon, -1)
	r.write(cursors, "", `["itsm",{"table":"x"},"schema"]`, `{}`, noon, -1) // not a cursor
	wantKeys(t, tables(), "problem 1", "sla 2")
}

func TestAbortedCursorIsIgnored(t *testing.T) {
	r := newRig(t)
	p := r.publisher()
	r.open(p)
	r.publish(p, page("a", 1, 1))
	id := p.TransactionalID()
	p.Close(ctx(t))
	r.write(cursors, id, string(key("incident").Encode()), `{"timestamp":"2999-01-01 00:00:00"}`, noon, -1)
	// left open by a dead process: the fence aborts it
	if o := r.open(p); !maps.Equal(o.Offset, cursorAt(1)) {
		t.Fatalf("cursor %v", o.Offset)
	}
	wantKeys(t, r.keys(cursors), string(key("incident").Encode()))
}

const connectKey = `["itsm",{"table":"incident","timestamp_field":"sys_updated_on","instance":"dev1.service-now.com","query_fingerprint":"sha256:aa"}]`

func TestConnectsKeyOrder(t *testing.T) {
	early, late := `{"version":"1","timestamp":"2020-01-01 00:00:00","sys_id":"c"}`, `{"version":"1","timestamp":"2030-01-01 00:00:00","sys_id":"c"}`
	for own := range int32(2) { // its partition: not that of our spelling
		r := newRig(t)
		r.write(cursors, "", connectKey, early, noon, own)
		p := r.publisher()
		if o := r.open(p); !o.Found || o.Offset["sys_id"] != "c" {
			t.Fatalf("Connect's cursor was not found: %+v", o)
		}
		next := page("a", 1, 1600000000) // in 2020, later than Connect's
		r.publish(p, next)
		if o := r.open(p); !maps.Equal(o.Offset, next.Cursor) {
			t.Fatalf("cursor %v", o.Offset)
		}
		// the further one wins, wherever it is
		r.write(cursors, "", connectKey, late, noon, own)
		if o := r.open(p); o.Offset["timestamp"] != "2030-01-01 00:00:00" {
			t.Fatalf("cursor %v", o.Offset)
		}
	}
}

// Connect's clock may be ahead: the record of the next page is still the later one.
func TestSameSecondAsConnectsCursor(t *testing.T) {
	r := newRig(t)
	for partition := range int32(4) { // one of them is that of our spelling
		r.write(cursors, "", connectKey, string(encodeOffset(cursorAt(1))), time.Now().Add(24*time.Hour), partition)
	}
	p := r.publisher()
	r.open(p)
	next := page("a", 1, 1)
	next.Cursor["sys_id"] = "y"
	r.publish(p, next)
	p.cfg.Pool.evict(p.session)
	r.repeatInit(p) // so that the place of the cursor is compared
	r.publish(p, page("b", 1, 2))
	wantKeys(t, r.keys(rows), "a0", "b0")
}

func TestResetRemovesConnectsSpelling(t *testing.T) {
	for name, reset := range map[string]Page{
		"rewind": {Cursor: cursorAt(5), Rewind: true}, "forget": {Forget: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.write(cursors, "", connectKey, `{"timestamp":"2030-01-01 00:00:00"}`, noon, -1)
			p := r.publisher()
			r.open(p)
			r.publish(p, reset)
			o := r.open(p)
			if o.Found == reset.Forget || !maps.Equal(o.Offset, reset.Cursor) {
				t.Fatalf("%+v", o)
			}
		})
	}
}

func TestSiblings(t *testing.T) {
	r := newRig(t)
	other := key("incident")
	other.Partition[PartitionFingerprint] = "sha256:bb"
	foreign := key("incident")
	foreign.Partition[PartitionFingerprint], foreign.Pipeline = "sha256:bb", "crm"
	for _, k := range []CursorKey{other, foreign, key("problem")} {
		r.write(cursors, "", string(k.Encode()), `{"timestamp":"1"}`, noon, -1)
	}
	o := r.open(r.publisher())
	if o.Found || len(o.Siblings) != 1 || !o.Siblings[0].Key.Equal(other) {
		t.Fatalf("%+v", o)
	}
}

func TestUnreadableCursorIsNotAbsent(t *testing.T) {
	r := newRig(t)
	r.write(cursors, "", string(key("incident").Encode()), `not json`, noon, -1)
	_, err := r.publisher().Open(ctx(t))
	wantClass(t, err, failure.Misconfigured)
	wantText(t, err, "offsets set", "incident")
	all, err := r.c.Cursors(ctx(t), cursors)
	if err != nil || len(all) != 1 || all[0].Offset != nil {
		t.Fatalf("%+v, %v", all, err)
	}
}

func TestCursorTopicMadeAgain(t *testing.T) {
	r := newRig(t)
	p := r.publisher()
	r.open(p)
	r.publish(p, page("a", 1, 5))
	r.open(p)
	if err := r.fake.DeleteTopic(cursors); err != nil {
		t.Fatal(err)
	}
	if err := r.fake.CreateTopic(cursors, 4, nil); err != nil {
		t.Fatal(err)
	}
	for i := range int32(12) { // longer than before, so that only the topic's id tells
		r.write(cursors, "", "x", "y", noon, i%4)
	}
	if o := r.open(r.publisher()); o.Found {
		t.Fatalf("a cursor of the old topic: %v", o.Offset)
	}
}

func TestCompactedCursors(t *testing.T) {
	r := newRig(t)
	if err := r.c.EnsureCursorTopic(ctx(t), "compacted", 1, 1); err != nil {
		t.Fatal(err)
	}
	onIt := func(cfg *PublisherConfig) { cfg.CursorTopic = "compacted" }
	p := r.publisher(onIt)
	r.open(p)
	for s := range 20 {
		r.publish(p, page("a", 1, s))
	}
	r.fake.Compact()
	o := r.open(r.publisher(onIt, func(cfg *PublisherConfig) { cfg.Cluster = r.connect(nil) }))
	if !maps.Equal(o.Offset, cursorAt(19)) {
		t.Fatalf("cursor %v", o.Offset)
	}
}

func TestWaitingForAnotherReadEndsWithTheContext(t *testing.T) {
	r := newRig(t)
	l := r.c.cursorLog(cursors)
	l.lock <- struct{}{}
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := r.c.Cursors(gone, cursors)
	wantClass(t, err, failure.Transient)
	<-l.lock
}
