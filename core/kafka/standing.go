package kafka

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"snowmelt/core/failure"
)

// standing is the newest producer of the transactional id that this publisher
// initialised, and what has been done with it since: what the coordinator should
// say of the id, if nobody else took it. It survives Open, which is when it is
// needed: whoever claims the table again after a failure must not take it from
// a successor that came while this process slept.
//
// Errors cannot tell. A transaction that timed out at the broker and a takeover
// give the same ones, and a process that was stopped for long may see nothing but
// its own deadlines pass. The coordinator's record of the id can: a time-out raises
// the epoch by one (by two in Apache Kafka 4 with transaction.version 2, which then
// shows an aborted transaction), an EndTxn of our own by at most one; a successor's
// InitProducerId raises it too, and its own transactions go on from there.
//
// It only decides who gives up: everyone but whoever initialised the id last. Effects are fenced by Kafka (Invariant 5).
type standing struct {
	id    int64
	epoch int16 // unknownEpoch: nothing is known, the id may be claimed
	// began is when the transaction was begun whose end is not known, zero if there is none.
	began time.Time
	// ending says that an EndTxn was sent for it.
	ending bool
}

var unknownStanding = standing{epoch: unknownEpoch}

// holds reports whether what the coordinator says can be this publisher's doing
// and the broker's alone.
func (s standing) holds(t kadm.DescribedTransaction, timeout time.Duration) bool {
	if t.ProducerID == s.id && t.ProducerEpoch == s.epoch {
		return true
	}
	ahead := int(t.ProducerEpoch) - int(s.epoch)
	if t.ProducerID != s.id && s.epoch >= math.MaxInt16-3 { // the epochs of the id were used up
		ahead = 1 + int(t.ProducerEpoch)
	} else if t.ProducerID != s.id {
		return false
	}
	// No broker raises an epoch without a transaction, and in one that it has raised the
	// epoch for, it is ours no longer.
	if s.began.IsZero() || ahead < 0 || t.State == "Ongoing" {
		return false
	}
	switch t.State {
	case "PrepareEpochFence", "PrepareAbort", "CompleteAbort":
		return ahead <= 2
	}
	// By the wall clock too: the other one stands still while the machine sleeps.
	lasted := max(time.Since(s.began), time.Since(s.began.Round(0)))
	return ahead <= 1 && (s.ending || lasted >= timeout)
}

// settled takes over the producer that a client has after the end of a transaction.
func (s *standing) settled(ctx context.Context, client *kgo.Client) {
	id, epoch, err := client.ProducerID(ctx)
	if err != nil {
		*s = unknownStanding
		return
	}
	*s = standing{id: id, epoch: epoch}
}

// owned asks the coordinator whether another process has taken the id since. Its
// failure is Fenced; then the next Open claims the table all the same, unless the
// other process has moved on by then. It is nil when the coordinator cannot be
// asked: by a broker before 3.0, without the ACL Describe, or when it forgot the id.
func (p *Publisher) owned(ctx context.Context, op string) error {
	if p.standing.epoch == unknownEpoch {
		return nil
	}
	described, err := p.cfg.Cluster.admin.DescribeTransactions(ctx, p.txnID)
	if err == nil {
		err = described[p.txnID].Err
	}
	if shards, ok := errors.AsType[*kadm.ShardErrors](err); ok && len(shards.Errs) > 0 {
		err = shards.Errs[0].Err
	}
	if isContext(err) || retriable(err) {
		return classify("asking who owns "+p.txnID, err, resource{txnID: p.txnID})
	}
	if err != nil {
		return nil //nolint:nilerr // it will not be answered by asking again
	}
	t, was := described[p.txnID], p.standing
	if was.holds(t, p.cfg.TransactionTimeout) {
		return nil
	}
	p.opened = false
	p.standing = standing{id: t.ProducerID, epoch: t.ProducerEpoch}
	return &failure.Error{
		Class: failure.Fenced, Op: op,
		Detail: fmt.Sprintf("another process owns this table: its producer is %d/%d, ours was %d/%d", t.ProducerID, t.ProducerEpoch, was.id, was.epoch),
		Hint:   fencedHint,
	}
}

const fencedHint = "let one of the processes go, or give them different tables"
