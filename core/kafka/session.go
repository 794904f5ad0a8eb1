package kafka

import (
	"context"
	"fmt"
	"maps"

	"github.com/twmb/franz-go/pkg/kgo"

	"snowmelt/core/failure"
)

// transactional returns a client that may publish the next page, from the pool
// or a new one. A new client initialises the transactional id itself, and so
// fences whoever came in between: a publisher that slept through a takeover would
// take the table back and publish behind an old cursor. So it must prove that
// nothing was published since (Invariant 5), in one of two ways:
//
//  1. The id is the same and the epoch is the next one. Every initialisation
//     raises the epoch, so ours was the only one.
//  2. Otherwise (a request that was repeated, a transaction that timed out, another
//     owner) the cursor record is read again and must be the one last read or
//     written here, by place and by content. Every transaction writes the cursor,
//     those that leave it as it is too, so another owner's page would show.
//
// Before, the coordinator is asked who owns the id (see standing.go), so that a zombie
// seldom gets as far as to fence its successor. One that does is the newest owner
// then, and keeps the table: the failure of both is OutcomeUnknown, because if it gave
// up, nobody would own the table.
func (p *Publisher) transactional(ctx context.Context) (*session, error) {
	op := "opening the producer of " + p.txnID
	pool := p.cfg.Pool
	usable, err := pool.take(ctx, p.session)
	if err != nil {
		return nil, &failure.Error{
			Class: failure.Transient, Op: op, Detail: "all producers are busy", Err: err,
			Hint: "raise snow.source.publishers.max if this lasts",
		}
	}
	if usable {
		return p.session, nil
	}
	p.session = nil
	if err := p.owned(ctx, op); err != nil {
		pool.release(nil)
		return nil, err
	}
	client, err := p.cfg.Cluster.producer(
		kgo.TransactionalID(p.txnID), kgo.TransactionTimeout(p.cfg.TransactionTimeout))
	if err != nil {
		pool.release(nil)
		return nil, err
	}
	s := &session{client: client}
	if err := p.prove(ctx, client, op); err != nil {
		pool.release(s)
		return nil, err
	}
	p.session = s
	return s, nil
}

func (p *Publisher) prove(ctx context.Context, client *kgo.Client, op string) error {
	p.standing = unknownStanding
	id, epoch, err := client.ProducerID(ctx)
	if err != nil {
		return p.refused(classify(op, err, resource{txnID: p.txnID}))
	}
	next := p.epoch != unknownEpoch && id == p.id && epoch == p.epoch+1
	// From here on the newest producer is ours, proven or not.
	p.id, p.epoch = id, epoch
	p.standing = standing{id: id, epoch: epoch}
	if next {
		return nil
	}
	p.epoch = unknownEpoch // until the proof is complete: a retry must not take the short way
	f, err := p.cfg.Cluster.cursor(ctx, p.cfg.CursorTopic, p.cfg.Key)
	if err != nil {
		return err
	}
	if !same(p.last, f.own) {
		p.opened = false
		return &failure.Error{
			Class: failure.OutcomeUnknown, Op: op,
			Detail: fmt.Sprintf("another process published in between: the cursor moved from %s to %s", p.last.place(), f.own.place()),
			Hint:   fencedHint,
		}
	}
	p.epoch = epoch
	return nil
}

// refused closes the publisher when err says that its knowledge is worth nothing.
func (p *Publisher) refused(err error) error {
	switch failure.ClassOf(err) {
	case failure.OutcomeUnknown, failure.Fenced:
		p.opened = false
	default: // says nothing about ownership
	}
	return err
}

// same reports whether two readings of the cursor found the same record.
func same(a, b *CursorRecord) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.LogPartition == b.LogPartition && a.At == b.At && maps.Equal(a.Offset, b.Offset)
}

func (a *CursorRecord) place() string {
	if a == nil {
		return "no record"
	}
	return fmt.Sprintf("offset %d of partition %d (%s %q)", a.At, a.LogPartition, offsetTimestamp, a.Offset[offsetTimestamp])
}

func (a *CursorRecord) clone() map[string]string {
	if a == nil {
		return nil
	}
	return maps.Clone(a.Offset)
}
