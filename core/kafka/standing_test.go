package kafka

import (
	"context"
	"maps"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"snowmelt/core/failure"
)

// What coordinators say after what has happened: kfake knows no state after a
// transaction, Apache Kafka 3 raises the epoch by one at a time-out and leaves it at a
// commit, Apache Kafka 4 raises it by one at a commit and by two at a time-out.
func TestStanding(t *testing.T) {
	const timeout = time.Minute
	now := time.Now()
	idle := standing{id: 7, epoch: 20}
	busy := standing{id: 7, epoch: 20, began: now}
	late := standing{id: 7, epoch: 20, began: now.Add(-timeout)}
	ending := standing{id: 7, epoch: 20, began: now, ending: true}
	last := standing{id: 7, epoch: math.MaxInt16 - 1, began: now, ending: true}
	for _, test := range []struct {
		name  string
		s     standing
		id    int64
		epoch int16
		state string
		holds bool
	}{
		{"nobody came", idle, 7, 20, "Empty", true},
		{"nobody came, in a transaction", busy, 7, 20, "Ongoing", true},
		{"a commit under Kafka 3", ending, 7, 20, "CompleteCommit", true},
		{"a commit under Kafka 4", ending, 7, 21, "CompleteCommit", true},
		{"a commit or an abort at kfake", ending, 7, 21, "Empty", true},
		{"an abort under Kafka 4", ending, 7, 21, "CompleteAbort", true},
		{"the epochs of the id are used up", last, 8, 0, "CompleteCommit", true},
		{"timed out under Kafka 3", late, 7, 21, "CompleteAbort", true},
		{"timed out under Kafka 4", late, 7, 22, "CompleteAbort", true},
		{"timing out", late, 7, 21, "PrepareAbort", true},
		{"timed out at kfake", late, 7, 21, "Empty", true},

		{"fenced while idle", idle, 7, 21, "Empty", false},
		{"another producer id", busy, 8, 0, "Empty", false},
		{"fenced in a transaction that had time left", busy, 7, 21, "Empty", false},
		{"fenced in a transaction, Kafka 3", late, 7, 22, "Empty", false},
		{"fenced in a transaction, Kafka 4", late, 7, 23, "Empty", false},
		{"fenced, and the successor publishes", late, 7, 22, "Ongoing", false},
		{"fenced, and the successor has committed", late, 7, 23, "CompleteCommit", false},
		{"fenced, and the successor has aborted", late, 7, 23, "CompleteAbort", false},
		{"fenced while the commit was on its way", ending, 7, 22, "Empty", false},
		{"an older epoch", busy, 7, 19, "Empty", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := test.s.holds(kadm.DescribedTransaction{ProducerID: test.id, ProducerEpoch: test.epoch, State: test.state}, timeout)
			if got != test.holds {
				t.Errorf("holds: %v", got)
			}
		})
	}
}

// A zombie that wakes with deadlines that have passed, and not with a fence, would
// take the table back from its successor by opening again.
func TestZombieDoesNotTakeTheTableBack(t *testing.T) {
	for name, wake := range map[string]func(*testing.T, *Publisher, func()){
		"while idle": func(_ *testing.T, _ *Publisher, takeover func()) { takeover() },
		"in a page that ran out of time": func(t *testing.T, a *Publisher, takeover func()) {
			ctx, cancel := context.WithCancel(ctx(t))
			defer cancel()
			takeover()
			cancel()
			_, err := a.Publish(ctx, page("zombie", 1, 9))
			if err == nil {
				t.Fatal("published")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			a, b := r.publisher(), r.publisher(r.elsewhere)
			r.open(a)
			r.publish(a, page("a", 1, 1))
			wake(t, a, func() { r.open(b) })
			_, err := a.Open(ctx(t))
			wantClass(t, err, failure.Fenced)
			wantText(t, err, "another process owns this table", a.TransactionalID())
			r.publish(b, page("b", 1, 2)) // undisturbed

			// the owner has published since: the table is still not claimed
			_, err = a.Open(ctx(t))
			wantClass(t, err, failure.Fenced)
			r.publish(b, page("c", 1, 3))
			wantKeys(t, r.keys(rows), "a0", "b0", "c0")

			// it has not since: whoever opens after all that gets it
			_, err = a.Open(ctx(t))
			wantClass(t, err, failure.Fenced)
			if o := r.open(a); !maps.Equal(o.Offset, cursorAt(3)) {
				t.Fatalf("cursor %v", o.Offset)
			}
			_, err = b.Publish(ctx(t), page("z", 1, 4))
			wantClass(t, err, failure.Fenced)
		})
	}
}

// Accidents that look like a fence, and are none: the table is opened again.
func TestAccidentsAreNoTakeover(t *testing.T) {
	for name, accident := range map[string]func(*rig){
		"a fence by the broker":  func(r *rig) { r.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.ProducerFenced}) },
		"a commit refused":       func(r *rig) { r.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.EndTxn}, Err: kerr.InvalidProducerEpoch}) },
		"a page that is aborted": func(r *rig) { r.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.InvalidRecord}) },
		"an answer of the abort lost": func(r *rig) {
			r.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.InvalidRecord})
			r.tap.set(func() { r.tap.loseAnswer = map[kmsg.Key]bool{kmsg.EndTxn: true} })
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			p := r.publisher()
			for i := range 3 {
				r.open(p)
				r.publish(p, page("a", 1, 2*i+1))
				accident(r)
				_, err := p.Publish(ctx(t), page("b", 1, 2*i+2))
				wantClass(t, err, failure.OutcomeUnknown, failure.Aborted)
				r.tap.set(func() { r.tap.loseAnswer = nil })
			}
			r.open(p)
			wantKeys(t, r.keys(rows), "a0", "a0", "a0")
		})
	}
}

// An answer to the fence that is lost leaves an epoch that is ours, and unknown.
func TestLostAnswerToTheFence(t *testing.T) {
	r := newRig(t)
	p := r.publisher()
	r.open(p)
	r.publish(p, page("a", 1, 1))
	r.tap.set(func() { r.tap.loseAnswer = map[kmsg.Key]bool{kmsg.InitProducerID: true} })
	_, err := p.Open(within(t, time.Second))
	wantClass(t, err, failure.Transient)
	r.tap.set(func() { r.tap.loseAnswer = nil })
	r.open(p)
	r.publish(p, page("b", 1, 2))
	wantKeys(t, r.keys(rows), "a0", "b0")
}

// Without an answer to the question the table is claimed as before; without a
// coordinator nothing is.
func TestUnknownOwner(t *testing.T) {
	for _, test := range []struct {
		err  *kerr.Error
		open bool
	}{
		{kerr.TransactionalIDAuthorizationFailed, true},
		{kerr.TransactionalIDNotFound, true},
		{kerr.UnsupportedVersion, true},
		{kerr.CoordinatorNotAvailable, false},
	} {
		t.Run(test.err.Message, func(t *testing.T) {
			r := newRig(t)
			p := r.publisher()
			r.open(p)
			asked := r.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.DescribeTransactions}, Err: test.err, Count: -1})
			_, err := p.Open(within(t, 500*time.Millisecond))
			if asked.Hits() == 0 {
				t.Fatal("nobody was asked")
			}
			if test.open && err != nil || !test.open && err == nil {
				t.Fatal(err)
			}
			if err != nil {
				wantClass(t, err, failure.Transient)
			}
		})
	}
}

// Taken over after the transaction had timed out: the successor keeps the table.
func TestTakeoverAfterATimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		a := r.publisher(func(cfg *PublisherConfig) { cfg.TransactionTimeout = 2 * time.Second })
		b := r.publisher(r.elsewhere)
		r.open(a)
		r.publish(a, page("a", 1, 1))
		r.tap.set(func() {
			r.tap.before = map[kmsg.Key]func(){kmsg.EndTxn: func() {
				<-time.After(5 * time.Second)
				r.open(b)
				r.publish(b, page("b", 1, 2))
			}}
		})
		_, err := a.Publish(ctx(t), page("z", 1, 2))
		wantClass(t, err, failure.Fenced)
		r.publish(b, page("c", 1, 3))
		wantKeys(t, r.keys(rows), "a0", "b0", "c0")
		for _, p := range []*Publisher{a, b} {
			p.Close(ctx(t))
			p.cfg.Cluster.Close()
		}
		r.fake.Close()
	})
}
