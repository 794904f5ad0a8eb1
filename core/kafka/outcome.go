package kafka

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"snowmelt/core/record"
)

// outcome collects the promises of one page. kgo calls them on a goroutine of its
// own.
type outcome struct {
	topic, cursorTopic string

	mu      sync.Mutex
	pending int
	sealed  bool
	done    chan struct{} // closed when sealed and nothing is pending
	err     error         // the first failure
	failed  string        // the topic of the record that failed first
	next    map[int32]int64
	cursor  *kgo.Record // the last acknowledged record of the cursor topic
}

func newOutcome(topic, cursorTopic string) *outcome {
	return &outcome{topic: topic, cursorTopic: cursorTopic, next: map[int32]int64{}, done: make(chan struct{})}
}

// produce hands records over, in order, and stops at the first known failure.
// kgo waits inside Produce while its buffer is full, until ctx ends.
func (o *outcome) produce(ctx context.Context, client *kgo.Client, topic string, records []record.Record) {
	o.mu.Lock()
	if o.sealed { // the next step of a delivery
		o.sealed, o.done = false, make(chan struct{})
	}
	o.mu.Unlock()
	out := make([]kgo.Record, len(records))
	for i, r := range records {
		if o.failure() != nil {
			return
		}
		k := &out[i]
		k.Topic, k.Key, k.Value, k.Timestamp = or(r.Topic, topic), r.Key, r.Value, time.UnixMilli(r.Timestamp)
		if len(r.Headers) > 0 {
			k.Headers = make([]kgo.RecordHeader, len(r.Headers))
			for j, h := range r.Headers {
				k.Headers[j] = kgo.RecordHeader{Key: h.Key, Value: h.Value}
			}
		}
		o.mu.Lock()
		o.pending++
		o.mu.Unlock()
		client.Produce(ctx, k, o.promise)
	}
}

func (o *outcome) promise(r *kgo.Record, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pending--
	switch {
	case err != nil && o.err == nil:
		if isAny(err, kerr.MessageTooLarge, kerr.RecordListTooLarge) {
			err = fmt.Errorf("a batch with the record of key %s: %w", excerpt(r.Key), err)
		}
		o.err, o.failed = err, r.Topic
	case err != nil:
	case r.Topic == o.cursorTopic:
		o.cursor = r
	case r.Topic == o.topic:
		o.next[r.Partition] = max(o.next[r.Partition], r.Offset+1)
	}
	o.finish()
}

// seal says that no more records come.
func (o *outcome) seal() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sealed = true
	o.finish()
}

func (o *outcome) finish() {
	if o.sealed && o.pending == 0 {
		select {
		case <-o.done:
		default:
			close(o.done)
		}
	}
}

func (o *outcome) failure() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// wait returns the first failure when every record has come back, or that ctx ended.
func (o *outcome) wait(ctx context.Context) error {
	select {
	case <-o.done:
		return o.failure()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// settle waits at most d for every record to come back.
func (o *outcome) settle(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-o.done:
		return true
	case <-t.C:
		return false
	}
}

// topicOf is the topic of the record that failed, else the given one.
func (o *outcome) topicOf(otherwise string) string {
	if o == nil {
		return otherwise
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return or(o.failed, otherwise)
}
