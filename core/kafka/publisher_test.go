package kafka

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"snowmelt/core/failure"
	"snowmelt/core/record"
)

func TestPageAndCursorAreOneTransaction(t *testing.T) {
	for _, failing := range []string{rows, cursors} {
		t.Run(failing, func(t *testing.T) {
			r := newRig(t)
			p := r.publisher()
			r.open(p)
			r.publish(p, page("a", 3, 1))
			fault := r.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: failing, Err: kerr.InvalidRecord, Count: -1})
			_, err := p.Publish(ctx(t), page("b", 20, 2))
			wantClass(t, err, failure.Aborted)
			if fault.Hits() == 0 {
				t.Fatal("the fault was not met")
			}
			fault.Remove()
			wantKeys(t, r.keys(rows), "a0", "a1", "a2")
			if n := len(r.records(cursors)); n != 1 {
				t.Fatalf("%d cursors are visible, want 1", n)
			}
			// an abort leaves the publisher usable, and nothing of the page behind
			r.publish(p, page("c", 2, 2))
			wantKeys(t, r.keys(rows), "a0", "a1", "a2", "c0", "c1")
			if o := r.open(r.publisher()); !maps.Equal(o.Offset, cursorAt(2)) {
				t.Fatalf("cursor %v", o.Offset)
			}
		})
	}
}

func TestOneBadPartitionAbortsThePage(t *testing.T) {
	r := newRig(t)
	p := r.publisher()
	r.open(p)
	r.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: rows, Partitions: []int32{1}, Err: kerr.InvalidRecord, Count: -1})
	_, err := p.Publish(ctx(t), page("a", 50, 1)) // goes to all three partitions
	wantClass(t, err, failure.Aborted)
	wantKeys(t, r.keys(rows))
	wantKeys(t, r.keys(cursors))
}

func TestRestartReadsTheCursor(t *testing.T) {
	r := newRig(t)
	p := r.publisher()
	if o := r.open(p); o.Found || len(o.Ends) != 3 || len(o.Starts) != 3 {
		t.Fatalf("a new table: %+v", o)
	}
	done := r.publish(p, page("a", 30, 1))
	r.publish(p, page("b", 30, 2))
	if done.Bytes < 30*40 || len(done.Next) != 3 {
		t.Fatalf("%+v", done)
	}
	p.Close(ctx(t))

	again := r.publisher(func(cfg *PublisherConfig) { cfg.Cluster = r.connect(nil) })
	o := r.open(again)
	if !o.Found || !maps.Equal(o.Offset, cursorAt(2)) {
		t.Fatalf("%+v", o)
	}
	for partition, next := range done.Next {
		if o.Ends[partition] < next || o.Starts[partition] != 0 {
			t.Fatalf("ends %v, starts %v, next %v", o.Ends, o.Starts, done.Next)
		}
	}
	if cap := o.Offset; cap != nil {
		cap["timestamp"] = "changed by the caller"
	}
	r.publish(again, page("c", 1, 3)) // the caller's change did not become ours
}

func TestRecordsAreKeptAsTheyAre(t *testing.T) {
	r := newRig(t)
	p := r.publisher()
	r.open(p)
	want := record.Record{
		Key: []byte("k"), Timestamp: 0, // 1970 is a time like any other
		Headers: []record.Header{{Key: "h", Value: []byte("1")}, {Key: "h", Value: nil}, {Key: "", Value: []byte{}}},
	}
	r.publish(p, Page{Records: []record.Record{want}, Cursor: cursorAt(1)})
	got := r.records(rows)
	if len(got) != 1 {
		t.Fatalf("%d records", len(got))
	}
	g := got[0]
	if string(g.Key) != "k" || g.Value != nil || g.Timestamp.UnixMilli() != 0 || g.Attrs.TimestampType() != 0 ||
		len(g.Headers) != 3 || g.Headers[1].Value != nil || string(g.Headers[0].Value) != "1" {
		t.Fatalf("%+v", g)
	}
}

func TestPageWithoutCursorLeavesIt(t *testing.T) {
	r := newRig(t)
	p := r.publisher()
	r.open(p)
	r.publish(p, page("a", 1, 5))
	late := page("b", 1, 4)
	late.Cursor = nil
	r.publish(p, late)
	wantKeys(t, r.keys(rows), "a0", "b0")
	if o := r.open(r.publisher()); !maps.Equal(o.Offset, cursorAt(5)) {
		t.Fatalf("cursor %v", o.Offset)
	}
	if done, err := r.publisher().Publish(ctx(t), Page{}); err == nil {
		t.Fatalf("a publisher that is not open published %v", done)
	}
}

func TestCursorNeverMovesBack(t *testing.T) {
	for _, exactly := range []bool{true, false} {
		t.Run(fmt.Sprint("exactly_once=", exactly), func(t *testing.T) {
			r := newRig(t)
			p := r.publisher(func(cfg *PublisherConfig) { cfg.ExactlyOnce = exactly })
			r.open(p)
			r.publish(p, page("a", 1, 5))
			_, err := p.Publish(ctx(t), page("b", 1, 4))
			wantClass(t, err, failure.Bug)
			wantKeys(t, r.keys(rows), "a0")
			back := page("", 0, 4)
			back.Rewind = true
			r.publish(p, back)
			if o := r.open(p); !maps.Equal(o.Offset, cursorAt(4)) {
				t.Fatalf("cursor %v after a rewind", o.Offset)
			}
			r.publish(p, Page{Forget: true})
			if o := r.open(p); o.Found {
				t.Fatalf("cursor %v after it was forgotten", o.Offset)
			}
			r.publish(p, page("c", 1, 1))
		})
	}
}

func TestOversizedIsMeasuredBeforeProducing(t *testing.T) {
	r := newRig(t)
	if err := r.fake.CreateTopic("small", 1, map[string]string{"max.message.bytes": "2000"}); err != nil {
		t.Fatal(err)
	}
	p := r.publisher(func(cfg *PublisherConfig) { cfg.Topic = "small" })
	r.open(p)
	produced := r.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Observe: true, Count: -1})
	rec := record.Record{Key: []byte("abc"), Timestamp: 1}
	rec.Value = make([]byte, 1900)
	for RecordSize(rec) < 2000-clientFraming {
		rec.Value = append(rec.Value, 'x')
	}
	if RecordSize(rec) != 2000-clientFraming {
		t.Fatalf("size %d", RecordSize(rec))
	}
	over := rec
	over.Value = append(slices.Clone(rec.Value), 0)
	_, err := p.Publish(ctx(t), Page{Records: []record.Record{over}, Cursor: cursorAt(1)})
	wantClass(t, err, failure.Oversized)
	wantText(t, err, `"abc"`, "1996", "1995", "max.message.bytes")
	if produced.Hits() != 0 {
		t.Fatal("it was sent")
	}
	// exactly at the limit, many times, and small ones: batches are cut to the topic's limit
	full := Page{Cursor: cursorAt(1)}
	for range 20 {
		full.Records = append(full.Records, rec)
	}
	for range 500 {
		full.Records = append(full.Records, record.Record{Key: []byte("s"), Value: []byte("small"), Timestamp: 1})
	}
	r.publish(p, full)
	if n := len(r.records("small")); n != 520 {
		t.Fatalf("%d records", n)
	}
	// the broker's own refusal names a key as well
	r.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "small", Err: kerr.MessageTooLarge, Count: -1})
	_, err = p.Publish(ctx(t), Page{Records: []record.Record{rec}, Cursor: cursorAt(2)})
	wantClass(t, err, failure.Oversized)
	wantText(t, err, `"abc"`)
}

// The first transaction of a client ends within microseconds after it has learnt
// the topics: kgo may then overlook them (see settleTopics).
func TestFirstTransactionsOfManyClients(t *testing.T) {
	r := newRig(t)
	const rounds = 100
	for i := range rounds {
		p := r.publisher(func(cfg *PublisherConfig) { cfg.Key = key(fmt.Sprint("t", i)) })
		r.open(p)
		if i%2 == 0 {
			r.publish(p, page("", 0, 1)) // the cursor topic is the only one
		} else {
			r.publish(p, page("a", 1, 1))
			r.publish(p, page("a", 1, 2))
		}
		p.Close(ctx(t))
		if o := r.open(p); !o.Found {
			t.Fatalf("round %d: the page was reported as published, and is not there", i)
		}
	}
	if n := len(r.keys(rows)); n != rounds {
		t.Fatalf("%d records, want %d", n, rounds)
	}
}

func TestLargePage(t *testing.T) {
	r := newRig(t)
	p := r.publisher()
	r.open(p)
	const n = 200_000 // more than kgo buffers
	done := r.publish(p, page("r", n, 1))
	sum := int64(0)
	for _, next := range done.Next {
		sum += next
	}
	if sum != n {
		t.Fatalf("%d records acknowledged, want %d", sum, n)
	}
	seen := 0
	o := r.open(p)
	if err := p.Scan(ctx(t), nil, o.Ends, func(Scanned) error { seen++; return nil }); err != nil {
		t.Fatal(err)
	}
	if seen != n {
		t.Fatalf("scanned %d of %d", seen, n)
	}
}

func TestMissingTopics(t *testing.T) {
	r := newRig(t)
	for _, change := range []func(*PublisherConfig){
		func(cfg *PublisherConfig) { cfg.Topic = "absent" },
		func(cfg *PublisherConfig) { cfg.CursorTopic = "absent" },
	} {
		_, err := r.publisher(change).Open(ctx(t))
		wantClass(t, err, failure.TopicRefused)
		wantText(t, err, "absent", "topic.creation.enable")
	}
	// a topic that disappears under an open publisher
	p := r.publisher()
	r.open(p)
	if err := r.fake.DeleteTopic(rows); err != nil {
		t.Fatal(err)
	}
	_, err := p.Publish(ctx(t), page("a", 1, 1))
	wantClass(t, err, failure.TopicRefused, failure.Aborted)
	wantText(t, err, rows)
	wantKeys(t, r.keys(cursors))
}

func TestCancelledContextsReturnSoon(t *testing.T) {
	r := newRig(t)
	p := r.publisher()
	r.open(p)
	r.publish(p, page("a", 1, 1))
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	start := time.Now()
	_, err := p.Open(gone)
	wantClass(t, err, failure.Transient)
	r.open(p)
	_, err = p.Publish(gone, page("b", 1, 2))
	wantClass(t, err, failure.Transient, failure.Aborted)
	_, err = r.c.Cursors(gone, cursors)
	wantClass(t, err, failure.Transient)
	err = p.Scan(gone, nil, map[int32]int64{0: 10}, func(Scanned) error { return nil })
	wantClass(t, err, failure.Transient)
	_, err = r.c.EnsureTopic(gone, TopicSpec{Name: "x"}, true)
	wantClass(t, err, failure.Transient)
	if d := time.Since(start); d > 10*time.Second {
		t.Fatalf("took %v", d)
	}
	wantKeys(t, r.keys(rows), "a0")
	r.publish(p, page("b", 1, 2))
}

func TestBrokerAwayIsTransient(t *testing.T) {
	r := newRig(t)
	p := r.publisher()
	r.open(p)
	r.publish(p, page("a", 1, 1))
	r.fake.Close()
	start := time.Now()
	_, err := p.Publish(within(t, time.Second), page("b", 1, 2))
	wantClass(t, err, failure.Aborted, failure.Transient)
	_, err = p.Open(within(t, time.Second))
	wantClass(t, err, failure.Transient)
	wantClass(t, r.c.Ping(within(t, time.Second)), failure.Transient)
	if d := time.Since(start); d > 15*time.Second {
		t.Fatalf("took %v", d)
	}
}

func TestDeniedNamesTheACL(t *testing.T) {
	cases := map[string]struct {
		missing kfake.ACL
		says    []string
	}{
		"transactional id": {
			kfake.ACL{Resource: kmsg.ACLResourceTypeTransactionalId, Name: "snowmelt-", Operation: kmsg.ACLOperationWrite},
			[]string{"snowmelt-itsm-", "Write", "transactional.id.prefix"},
		},
		"write rows":   {kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: rows, Operation: kmsg.ACLOperationWrite}, []string{"ACL Write on topic rows"}},
		"write cursor": {kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: cursors, Operation: kmsg.ACLOperationWrite}, []string{"ACL Write on topic cursors"}},
		"read cursor":  {kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: cursors, Operation: kmsg.ACLOperationRead}, []string{"ACL Read on topic cursors"}},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			deny := test.missing
			deny.Pattern = kmsg.ACLResourcePatternTypePrefixed
			acls := []kfake.ACL{deny}
			for _, resource := range []kmsg.ACLResourceType{kmsg.ACLResourceTypeTopic, kmsg.ACLResourceTypeTransactionalId} {
				acls = append(acls, kfake.ACL{
					Resource: resource, Pattern: kmsg.ACLResourcePatternTypeLiteral, Name: "*", Operation: kmsg.ACLOperationAll, Allow: true,
				})
			}
			r := newRig(t, kfake.EnableSASL(), kfake.EnableACLs(),
				kfake.Superuser("PLAIN", "admin", "admin"), kfake.User("PLAIN", "snow", "melt", acls...))
			opts, err := Options(map[string]string{
				"bootstrap.servers": "localhost:9092", "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN",
				"sasl.jaas.config": `org.apache.kafka.common.security.plain.PlainLoginModule required username="snow" password="melt";`,
			})
			if err != nil {
				t.Fatal(err)
			}
			owner := r.publisher(func(cfg *PublisherConfig) {
				cfg.Cluster = r.connect(nil, kgo.SASL(plain.Auth{User: "admin", Pass: "admin"}.AsMechanism()))
			})
			r.open(owner)
			r.publish(owner, page("", 0, 1)) // something to read
			p := r.publisher(func(cfg *PublisherConfig) { cfg.Cluster = r.connect(nil, opts...) })
			_, err = p.Open(ctx(t))
			if err == nil {
				_, err = p.Publish(ctx(t), page("a", 1, 1))
			}
			wantClass(t, err, failure.BrokerRefused)
			wantText(t, err, test.says...)
			if strings.Contains(err.Error(), "melt\"") {
				t.Fatalf("the password shows: %v", err)
			}
		})
	}
}
