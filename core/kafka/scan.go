package kafka

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kgo"

	"snowmelt/core/record"
)

// errStopped ends a read whose consumer has an error of its own.
var errStopped = errors.New("stopped by the reader")

// Scanned is one committed record of the table's topic without its value. Key and
// Headers are valid until fn returns.
type Scanned struct {
	Partition int32
	Offset    int64
	Key       []byte
	// Timestamp is in milliseconds since 1970-01-01 UTC.
	Timestamp int64
	Headers   []record.Header
	// Tombstone is true when the record has no value.
	Tombstone bool
}

// Scan reads the committed records of the table's topic from the offsets in from
// up to, not including, those in to, and calls fn for each, in the order of its
// partition; an error of fn ends it and is returned. A partition that is missing
// in from, or whose offset has been deleted since, is read from its start.
//
// to is Opened.Ends: it was taken after the fence, when every transaction of this
// table had ended, and the markers before it count as read, so Scan ends even
// where a log does not end with a record. It waits for the open transactions of
// other producers that share the topic; if one does not end within ctx, Scan
// fails with Transient.
func (p *Publisher) Scan(ctx context.Context, from, to map[int32]int64, fn func(Scanned) error) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	c := p.cfg.Cluster
	starts, err := c.starts(ctx, p.cfg.Topic)
	if err != nil {
		return err
	}
	at := make(map[int32]int64, len(to))
	for partition := range to {
		at[partition] = max(from[partition], starts[partition])
	}
	r := &reader{c: c, topic: p.cfg.Topic, isolation: committed}
	if err := r.refresh(ctx); err != nil {
		return classify("reading topic "+p.cfg.Topic, err, resource{topic: p.cfg.Topic, need: "Read"})
	}
	var headers []record.Header
	var stop error
	err = r.read(ctx, at, to, func(rec *kgo.Record) error {
		if rec.Attrs.IsControl() {
			return nil
		}
		headers = headers[:0]
		for _, h := range rec.Headers {
			headers = append(headers, record.Header{Key: h.Key, Value: h.Value})
		}
		if stop = fn(Scanned{
			Partition: rec.Partition, Offset: rec.Offset, Key: rec.Key, Timestamp: rec.Timestamp.UnixMilli(),
			Headers: headers, Tombstone: rec.Value == nil,
		}); stop != nil {
			return errStopped
		}
		return nil
	})
	if stop != nil {
		return stop
	}
	return err
}
