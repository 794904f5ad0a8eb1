package kafka

import (
	"context"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"snowmelt/core/failure"
)

// elsewhere makes the publisher's Cluster that of another process.
func (r *rig) elsewhere(cfg *PublisherConfig) { cfg.Cluster = r.connect(nil) }

func TestTakeoverFencesTheOwner(t *testing.T) {
	// a: the owner. Where it sleeps decides what it meets when it wakes.
	for name, test := range map[string]struct {
		sleepsBefore kmsg.Key // the request that leaves only after the takeover
		pages        int      // published before
		want         []failure.Class
	}{
		"before producing":              {kmsg.Produce, 1, []failure.Class{failure.Fenced}},
		"before the commit":             {kmsg.EndTxn, 1, []failure.Class{failure.Fenced}},
		"before its first producer":     {kmsg.InitProducerID, 0, []failure.Class{failure.OutcomeUnknown}},
		"before producing a first page": {kmsg.Produce, 0, []failure.Class{failure.Fenced}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			a, b := r.publisher(), r.publisher(r.elsewhere)
			r.open(a)
			for range test.pages {
				r.publish(a, page("a", 1, 1))
			}
			asleep, wake := make(chan struct{}), make(chan struct{})
			r.tap.set(func() {
				r.tap.before = map[kmsg.Key]func(){test.sleepsBefore: func() {
					select {
					case <-asleep: // a repeated request does not sleep again
					default:
						close(asleep)
						<-wake
					}
				}}
			})
			result := make(chan error, 1)
			zombie := page("zombie", 3, 2)
			go func() {
				_, err := a.Publish(context.Background(), zombie)
				result <- err
			}()
			<-asleep
			r.open(b)
			r.publish(b, page("b", 1, 3))
			close(wake)
			wantClass(t, <-result, test.want...)
			wantKeys(t, without(r.keys(rows), "a0"), "b0")
			// the zombie stays shut until it opens again
			_, err := a.Publish(ctx(t), zombie)
			wantClass(t, err, failure.OutcomeUnknown)
			// the rightful owner goes on, opening again if the zombie's last try fenced it
			if _, err := b.Publish(ctx(t), page("c", 1, 4)); err != nil {
				wantClass(t, err, failure.Fenced)
				if o := r.open(b); !maps.Equal(o.Offset, cursorAt(3)) {
					t.Fatalf("cursor %v", o.Offset)
				}
				r.publish(b, page("c", 1, 4))
			}
			wantKeys(t, without(r.keys(rows), "a0"), "b0", "c0")
		})
	}
}

func without(keys []string, gone string) []string {
	var left []string
	for _, k := range keys {
		if k != gone {
			left = append(left, k)
		}
	}
	return left
}

func TestTakeoverByPagesThatLeaveTheCursor(t *testing.T) {
	r := newRig(t)
	a := r.publisher(func(cfg *PublisherConfig) { cfg.Pool = NewPool(1) })
	r.open(a)
	r.publish(a, page("a", 1, 1))
	a.cfg.Pool.evict(a.session) // as another table's page would

	b := r.publisher(r.elsewhere)
	r.open(b)
	late := page("b", 1, 1)
	late.Cursor = nil
	r.publish(b, late)

	_, err := a.Publish(ctx(t), page("zombie", 1, 2))
	wantClass(t, err, failure.Fenced)
	wantText(t, err, a.TransactionalID(), "another process")
	wantKeys(t, r.keys(rows), "a0", "b0")
}

func TestOpenAgainAfterAFence(t *testing.T) {
	r := newRig(t)
	a, b := r.publisher(), r.publisher(r.elsewhere)
	r.open(a)
	r.publish(a, page("a", 1, 1))
	r.open(b)
	_, err := a.Publish(ctx(t), page("z", 1, 2))
	wantClass(t, err, failure.Fenced)
	wantText(t, err, a.TransactionalID(), "another process owns this table")
	if o := r.open(a); !maps.Equal(o.Offset, cursorAt(1)) {
		t.Fatalf("cursor %v", o.Offset)
	}
	r.publish(a, page("a2", 1, 2))
	_, err = b.Publish(ctx(t), page("z", 1, 2)) // and now b is the zombie
	wantClass(t, err, failure.Fenced)
	wantKeys(t, r.keys(rows), "a0", "a20")
}

func TestLostCommitAnswer(t *testing.T) {
	for _, committed := range []bool{true, false} {
		name := map[bool]string{true: "committed", false: "not committed"}[committed]
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			p := r.publisher()
			r.open(p)
			r.publish(p, page("a", 1, 1))
			r.tap.set(func() {
				lost := map[kmsg.Key]bool{kmsg.EndTxn: true}
				if committed {
					r.tap.loseAnswer = lost
				} else {
					r.tap.loseRequest = lost
				}
			})
			_, err := p.Publish(within(t, time.Second), page("b", 1, 2))
			wantClass(t, err, failure.OutcomeUnknown)
			_, err = p.Publish(ctx(t), page("b", 1, 2))
			wantClass(t, err, failure.OutcomeUnknown) // not before Open
			r.tap.set(func() { r.tap.loseAnswer, r.tap.loseRequest = nil, nil })

			o := r.open(p)
			if committed {
				if !maps.Equal(o.Offset, cursorAt(2)) {
					t.Fatalf("cursor %v: the page went through", o.Offset)
				}
			} else {
				if !maps.Equal(o.Offset, cursorAt(1)) {
					t.Fatalf("cursor %v: the page did not go through", o.Offset)
				}
				r.publish(p, page("b", 1, 2))
			}
			wantKeys(t, r.keys(rows), "a0", "b0")
		})
	}
}

func TestOneLostCommitAnswerHeals(t *testing.T) {
	r := newRig(t)
	p := r.publisher()
	r.open(p)
	r.publish(p, page("a", 1, 1))
	r.tap.set(func() {
		r.tap.loseAnswer = map[kmsg.Key]bool{kmsg.EndTxn: true}
		r.tap.before = map[kmsg.Key]func(){kmsg.EndTxn: func() {
			r.tap.set(func() { r.tap.loseAnswer, r.tap.before = nil, nil })
		}}
	})
	r.publish(p, page("b", 1, 2))
	wantKeys(t, r.keys(rows), "a0", "b0")
}

func TestErrorsOfTheCommit(t *testing.T) {
	for _, test := range []struct {
		err  *kerr.Error
		want failure.Class
	}{
		{kerr.ProducerFenced, failure.OutcomeUnknown},
		{kerr.InvalidProducerEpoch, failure.OutcomeUnknown},
		{kerr.InvalidTxnState, failure.OutcomeUnknown},
		{kerr.InvalidProducerIDMapping, failure.OutcomeUnknown},
		{kerr.UnknownServerError, failure.OutcomeUnknown},
		{kerr.TransactionAbortable, failure.Aborted},
		{kerr.TransactionalIDAuthorizationFailed, failure.BrokerRefused},
	} {
		t.Run(test.err.Message, func(t *testing.T) {
			r := newRig(t)
			p := r.publisher()
			r.open(p)
			r.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.EndTxn}, Err: test.err})
			_, err := p.Publish(ctx(t), page("a", 1, 1))
			wantClass(t, err, test.want)
			if o := r.open(p); o.Found {
				t.Fatalf("cursor %v", o.Offset)
			}
			r.publish(p, page("a", 1, 1))
			wantKeys(t, r.keys(rows), "a0")
		})
	}
}

func TestErrorsOfProducing(t *testing.T) {
	for _, test := range []struct {
		err  *kerr.Error
		want failure.Class
	}{
		{kerr.ProducerFenced, failure.OutcomeUnknown},
		{kerr.InvalidProducerEpoch, failure.OutcomeUnknown},
		{kerr.InvalidTxnState, failure.OutcomeUnknown},
		{kerr.TopicAuthorizationFailed, failure.BrokerRefused},
		{kerr.InvalidRecord, failure.Aborted},
		{kerr.InvalidTimestamp, failure.TopicRefused},
	} {
		t.Run(test.err.Message, func(t *testing.T) {
			r := newRig(t)
			p := r.publisher()
			r.open(p)
			fault := r.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: rows, Err: test.err, Count: -1})
			_, err := p.Publish(ctx(t), page("a", 10, 1))
			wantClass(t, err, test.want)
			fault.Remove()
			if o := r.open(p); o.Found {
				t.Fatalf("cursor %v", o.Offset)
			}
			r.publish(p, page("b", 1, 1))
			wantKeys(t, r.keys(rows), "b0")
		})
	}
}

func TestPassingTroubleIsSatOut(t *testing.T) {
	r := newRig(t)
	p := r.publisher()
	faults := []*kfake.FaultHandle{
		r.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Err: kerr.ConcurrentTransactions, Count: 2}),
		r.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotLeaderForPartition, Count: 2}),
		r.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.EndTxn}, Err: kerr.CoordinatorNotAvailable, Count: 2}),
		r.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Err: kerr.NotLeaderForPartition, Count: 2}),
	}
	r.open(p)
	r.publish(p, page("a", 5, 1))
	if o := r.open(r.publisher(r.elsewhere)); !o.Found {
		t.Fatal("no cursor")
	}
	for i, f := range faults {
		if f.Hits() == 0 {
			t.Errorf("fault %d was not met", i)
		}
	}
}

func TestTransactionTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		p := r.publisher(func(cfg *PublisherConfig) { cfg.TransactionTimeout = 2 * time.Second })
		r.open(p)
		r.publish(p, page("a", 1, 1))
		r.tap.set(func() {
			r.tap.before = map[kmsg.Key]func(){kmsg.EndTxn: func() { <-time.After(5 * time.Second) }}
		})
		_, err := p.Publish(ctx(t), page("b", 1, 2))
		wantClass(t, err, failure.OutcomeUnknown)
		r.tap.set(func() { r.tap.before = nil })
		wantKeys(t, r.keys(rows), "a0")
		if o := r.open(p); !maps.Equal(o.Offset, cursorAt(1)) {
			t.Fatalf("cursor %v", o.Offset)
		}
		r.publish(p, page("b", 1, 2))
		wantKeys(t, r.keys(rows), "a0", "b0")
		p.Close(ctx(t))
		r.c.Close()
		r.fake.Close()
	})
}

func TestTransactionTimeoutOverTheBrokers(t *testing.T) {
	r := newRig(t)
	p := r.publisher(func(cfg *PublisherConfig) { cfg.TransactionTimeout = 24 * time.Hour })
	_, err := p.Open(ctx(t))
	wantClass(t, err, failure.Misconfigured)
	wantText(t, err, "snow.source.transaction.timeout.ms", p.TransactionalID())
}
