// Package harness is what the black-box tests and the demo stand on: reading
// topics independently of the engine, and counting what arrived against what
// the instance holds.
package harness

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"snowmelt/itest/fakesnow"
)

// Record is a record of a topic, as much of it as checks need.
type Record struct {
	Topic     string
	Partition int32
	Offset    int64
	// Key is the sys_id, Updated and Mod the row's sys_updated_on and sys_mod_count.
	Key, Updated, Mod string
	Timestamp         int64
	// ProducerEpoch is that of the transaction that wrote it.
	ProducerEpoch int16
	Headers       map[string]string
	// Value is kept only when it was asked for.
	Value []byte
}

// ReadTopic returns every committed record of a topic up to its end at the time
// of the call, partition by partition in order.
func ReadTopic(ctx context.Context, topic string, values bool, opts ...kgo.Opt) ([]Record, error) {
	var out []Record
	err := eachRecord(ctx, topic, kgo.ReadCommitted(), func(r *kgo.Record) error {
		if r.Attrs.IsControl() {
			return nil
		}
		rec := Record{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Key: string(r.Key), Timestamp: r.Timestamp.UnixMilli(), ProducerEpoch: r.ProducerEpoch, Headers: map[string]string{}}
		for _, h := range r.Headers {
			rec.Headers[h.Key] = string(h.Value)
		}
		var row struct {
			Updated json.RawMessage `json:"sys_updated_on"`
			Mod     json.RawMessage `json:"sys_mod_count"`
		}
		if r.Value != nil && !values {
			if err := json.Unmarshal(r.Value, &row); err != nil {
				return fmt.Errorf("reading the value of %s/%d/%d: %w", r.Topic, r.Partition, r.Offset, err)
			}
		}
		rec.Updated, rec.Mod = text(row.Updated), text(row.Mod)
		if values {
			rec.Value = r.Value
		}
		out = append(out, rec)
		return nil
	}, opts...)
	return out, err
}

func text(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var o struct {
		Value string `json:"value"`
	}
	_ = json.Unmarshal(raw, &o)
	return o.Value
}

// OpenTransactions counts the data records of a topic that belong to no
// committed transaction: what kills left open or aborted.
func OpenTransactions(ctx context.Context, topic string, opts ...kgo.Opt) (int, error) {
	all, committed := 0, 0
	count := func(n *int) func(*kgo.Record) error {
		return func(r *kgo.Record) error {
			if !r.Attrs.IsControl() {
				*n++
			}
			return nil
		}
	}
	if err := eachRecord(ctx, topic, kgo.ReadUncommitted(), count(&all), opts...); err != nil {
		return 0, err
	}
	err := eachRecord(ctx, topic, kgo.ReadCommitted(), count(&committed), opts...)
	return all - committed, err
}

// eachRecord reads a topic from its start to its end, control records included:
// a log ends in markers, and without them the position would never reach the end.
func eachRecord(ctx context.Context, topic string, level kgo.IsolationLevel, fn func(*kgo.Record) error, opts ...kgo.Opt) error {
	admin, err := kgo.NewClient(opts...)
	if err != nil {
		return fmt.Errorf("reading topic %s: %w", topic, err)
	}
	defer admin.Close()
	list := kadm.NewClient(admin).ListEndOffsets
	if level == kgo.ReadCommitted() {
		list = kadm.NewClient(admin).ListCommittedOffsets
	}
	ends, err := list(ctx, topic)
	if err != nil {
		return fmt.Errorf("reading the ends of %s: %w", topic, err)
	}
	left := map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Err == nil && o.Offset > 0 {
			left[o.Partition] = o.Offset
		}
	})
	if len(left) == 0 {
		return nil
	}
	c, err := kgo.NewClient(append(append([]kgo.Opt{}, opts...), kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(level),
		kgo.KeepControlRecords(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
	if err != nil {
		return fmt.Errorf("reading topic %s: %w", topic, err)
	}
	defer c.Close()
	for len(left) > 0 {
		fetches := c.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("reading topic %s: %w", topic, err)
		}
		var failed error
		fetches.EachRecord(func(r *kgo.Record) {
			end, ok := left[r.Partition]
			if !ok || failed != nil {
				return
			}
			if r.Offset < end {
				failed = fn(r)
			}
			if r.Offset+1 >= end {
				delete(left, r.Partition)
			}
		})
		if failed != nil {
			return failed
		}
	}
	return nil
}

// Tally is the comparison of topics with the instance's tables.
type Tally struct {
	// Rows are those of the tables, Records those of the topics.
	Rows, Records int
	// Versions are the distinct (sys_id, sys_updated_on, sys_mod_count) per table, Duplicates the records beyond them.
	Versions, Duplicates int
	// Missing counts rows without a record, Stale those whose last record is not the row, Backwards
	// records of a key that are older than one before them.
	Missing, Stale, Backwards int
	// Examples name up to ten offending rows.
	Examples []string
}

// OK says that everything arrived, once, and in order.
func (t Tally) OK() bool {
	return t.Duplicates == 0 && t.Missing == 0 && t.Stale == 0 && t.Backwards == 0
}

// Compare adds a table and its topic to the tally. Rows for which hidden is true are not expected.
func (t *Tally) Compare(inst *fakesnow.Instance, table string, records []Record, hidden func(id string) bool) {
	say := func(format string, args ...any) {
		if len(t.Examples) < 10 {
			t.Examples = append(t.Examples, table+": "+fmt.Sprintf(format, args...))
		}
	}
	type version struct{ id, updated, mod string }
	seen := map[version]Record{}
	last := map[string]Record{}
	for _, r := range records {
		t.Records++
		v := version{r.Key, r.Updated, r.Mod}
		if first, ok := seen[v]; ok {
			t.Duplicates++
			say("%v at %d/%d was already at %d/%d", v, r.Partition, r.Offset, first.Partition, first.Offset)
		} else {
			seen[v] = r
		}
		if before, ok := last[r.Key]; ok && r.Updated < before.Updated {
			t.Backwards++
			say("%s goes back from %s to %s", r.Key, before.Updated, r.Updated)
		}
		last[r.Key] = r
	}
	t.Versions += len(seen)
	inst.Rows(table, func(row map[string]string) bool {
		id := row["sys_id"]
		if hidden != nil && hidden(id) {
			return false
		}
		t.Rows++
		switch r, ok := last[id]; {
		case !ok:
			t.Missing++
			say("%s (%s) has no record", id, row["sys_updated_on"])
		case r.Updated != row["sys_updated_on"] || r.Mod != row["sys_mod_count"]:
			t.Stale++
			say("%s is (%s, %s), its last record (%s, %s)", id, row["sys_updated_on"], row["sys_mod_count"], r.Updated, r.Mod)
		}
		return false
	})
}
