package kafka

import (
	"maps"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"snowmelt/core/failure"
)

func atLeastOnce(cfg *PublisherConfig) { cfg.ExactlyOnce = false }

func TestAtLeastOnceSendsTheCursorAfterTheRecords(t *testing.T) {
	r := newRig(t)
	p := r.publisher(atLeastOnce)
	transactions := r.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.EndTxn, kmsg.AddPartitionsToTxn}, Observe: true, Count: -1})
	r.open(p)
	done := r.publish(p, page("a", 20, 1))
	if len(done.Next) != 3 || done.Bytes == 0 {
		t.Fatalf("%+v", done)
	}
	// a refused record keeps the cursor back
	fault := r.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: rows, Partitions: []int32{2}, Err: kerr.InvalidRecord, Count: -1})
	cursorWrites := r.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: cursors, Observe: true, Count: -1})
	_, err := p.Publish(ctx(t), page("b", 20, 2))
	wantClass(t, err, failure.Transient)
	if cursorWrites.Hits() != 0 || fault.Hits() == 0 {
		t.Fatalf("%d cursors written, fault met %d times", cursorWrites.Hits(), fault.Hits())
	}
	fault.Remove()
	if o := r.open(p); !maps.Equal(o.Offset, cursorAt(1)) {
		t.Fatalf("cursor %v", o.Offset)
	}
	r.publish(p, page("b", 20, 2))
	if o := r.open(p); !maps.Equal(o.Offset, cursorAt(2)) {
		t.Fatalf("cursor %v", o.Offset)
	}
	if transactions.Hits() != 0 {
		t.Fatal("a transaction was used")
	}
}

func TestAtLeastOnceCursorWaitsForTheAnswer(t *testing.T) {
	r := newRig(t)
	p := r.publisher(atLeastOnce)
	r.open(p)
	r.publish(p, page("a", 1, 1))
	r.tap.set(func() { r.tap.loseAnswer = map[kmsg.Key]bool{kmsg.Produce: true} })
	_, err := p.Publish(within(t, 300*time.Millisecond), page("b", 1, 2))
	wantClass(t, err, failure.Transient)
	r.tap.set(func() { r.tap.loseAnswer = nil })
	if o := r.open(p); !maps.Equal(o.Offset, cursorAt(1)) {
		t.Fatalf("cursor %v before its records were acknowledged", o.Offset)
	}
	r.publish(p, page("b", 1, 2))
	if o := r.open(p); !maps.Equal(o.Offset, cursorAt(2)) {
		t.Fatalf("cursor %v", o.Offset)
	}
}

func TestAtLeastOnceOutlivesABrokenProducer(t *testing.T) {
	r := newRig(t)
	p := r.publisher(atLeastOnce)
	r.open(p)
	fault := r.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: rows, Err: kerr.InvalidProducerEpoch, Count: -1})
	_, err := p.Publish(within(t, 2*time.Second), page("a", 1, 1))
	wantClass(t, err, failure.Transient)
	fault.Remove()
	r.publish(p, page("a", 1, 1))
	r.c.Close()
	_, err = p.Publish(ctx(t), page("b", 1, 2))
	wantClass(t, err, failure.Transient)
}
