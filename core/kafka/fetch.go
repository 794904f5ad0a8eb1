package kafka

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"snowmelt/core/failure"
)

const (
	fetchBytes          = 8 << 20
	fetchPartitionBytes = 1 << 20
	// fetchWait is short: requests of other tables queue behind it on the shared connection.
	fetchWait    = 100 * time.Millisecond
	fetchBackoff = 50 * time.Millisecond

	uncommitted int8 = 0
	committed   int8 = 1
)

// reader reads ranges of a topic's partitions with raw Fetch requests. Control
// records are kept, and the position follows the batches, not the records: a
// log ends in markers, and compaction leaves batches without records.
type reader struct {
	c         *Cluster
	topic     string
	isolation int8
	id        kadm.TopicID
	leaders   map[int32]int32
	// held says that in the last answer an open transaction kept a committed read
	// from its end.
	held bool
}

// refresh learns the topic's id and the leaders of its partitions. It fails when
// the topic was made again since the last refresh: its offsets mean nothing then.
func (r *reader) refresh(ctx context.Context) error {
	m, err := r.c.metadata(ctx, r.topic)
	if err != nil {
		return err
	}
	if r.leaders != nil && r.id != m.id {
		return &failure.Error{
			Class: failure.Transient, Op: "reading topic " + r.topic, Detail: "the topic was deleted and made again meanwhile",
		}
	}
	r.id, r.leaders = m.id, m.leaders
	return nil
}

// metadata is what the brokers say of a topic now.
type metadata struct {
	id      kadm.TopicID
	leaders map[int32]int32
}

// metadata asks the brokers. kadm would answer from a cache, and an old id of a
// topic that was made again would find the positions of the old one good.
func (c *Cluster) metadata(ctx context.Context, topic string) (metadata, error) {
	req := kmsg.NewPtrMetadataRequest()
	rt := kmsg.NewMetadataRequestTopic()
	rt.Topic = &topic
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, c.client)
	if err != nil {
		return metadata{}, err
	}
	for _, t := range resp.Topics {
		if t.Topic == nil || *t.Topic != topic {
			continue
		}
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
			return metadata{}, err
		}
		m := metadata{id: t.TopicID, leaders: make(map[int32]int32, len(t.Partitions))}
		for _, p := range t.Partitions {
			m.leaders[p.Partition] = p.Leader
		}
		return m, nil
	}
	return metadata{}, kerr.UnknownTopicOrPartition
}

// read moves every position in at up to its end in to and calls fn for each
// record on the way, in the order of its partition. A position is moved when all
// records of its answer were taken, so that at is where to go on after an error.
func (r *reader) read(ctx context.Context, at, to map[int32]int64, fn func(*kgo.Record) error) error {
	op := "reading topic " + r.topic
	for {
		byLeader := map[int32][]int32{}
		for p, end := range to {
			if at[p] < end {
				byLeader[r.leaders[p]] = append(byLeader[r.leaders[p]], p)
			}
		}
		if len(byLeader) == 0 {
			return nil
		}
		moved := false
		var again error
		for leader, partitions := range byLeader {
			m, err := r.fetch(ctx, leader, partitions, at, to, fn)
			moved = moved || m
			if err == nil {
				continue
			}
			if ctx.Err() != nil {
				return r.stuck(err, at, to)
			}
			if !retriable(err) {
				return classify(op, err, resource{topic: r.topic, need: "Read"})
			}
			again = err
		}
		if again != nil {
			if err := pause(ctx, fetchBackoff); err != nil {
				return r.stuck(fmt.Errorf("%w: %w", err, again), at, to)
			}
			if err := r.refresh(ctx); err != nil && !retriable(err) {
				return classify(op, err, resource{topic: r.topic, need: "Describe"})
			}
		} else if !moved {
			if err := pause(ctx, fetchBackoff); err != nil {
				return r.stuck(err, at, to)
			}
		}
	}
}

// stuck explains a read that ran out of time before its end.
func (r *reader) stuck(err error, at, to map[int32]int64) error {
	f := &failure.Error{Class: failure.Transient, Op: "reading topic " + r.topic, Err: err}
	for p, end := range to {
		if at[p] < end {
			f.Detail = fmt.Sprintf("partition %d stands at offset %d of %d", p, at[p], end)
			break
		}
	}
	if r.held {
		f.Hint = "an open transaction of another producer holds the partition back until it ends or times out"
	}
	return f
}

// fetch asks one leader once. It reports whether any position moved.
func (r *reader) fetch(ctx context.Context, leader int32, partitions []int32, at, to map[int32]int64, fn func(*kgo.Record) error) (bool, error) {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis = int32(fetchWait / time.Millisecond)
	req.MinBytes = 1
	req.MaxBytes = fetchBytes
	req.IsolationLevel = r.isolation
	req.SessionEpoch = -1 // no fetch session
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic, rt.TopicID = r.topic, r.id
	for _, p := range partitions {
		rp := kmsg.NewFetchRequestTopicPartition()
		rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = p, at[p], fetchPartitionBytes
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	answer, err := r.c.client.Broker(int(leader)).RetriableRequest(ctx, req)
	if err != nil {
		return false, err
	}
	resp := answer.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return false, err
	}
	moved := false
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			m, err := r.take(ctx, &resp.Topics[i].Partitions[j], at, to, fn)
			moved = moved || m
			if err != nil {
				return moved, err
			}
		}
	}
	return moved, nil
}

// take hands the records of one partition's answer to fn, up to the end in to.
func (r *reader) take(ctx context.Context, rp *kmsg.FetchResponseTopicPartition, at, to map[int32]int64, fn func(*kgo.Record) error) (bool, error) {
	from, end := at[rp.Partition], to[rp.Partition]
	if rp.ErrorCode == kerr.OffsetOutOfRange.Code {
		return r.skip(ctx, rp.Partition, at)
	}
	level := kgo.ReadUncommitted()
	if r.isolation == committed {
		level = kgo.ReadCommitted()
	}
	fetched, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
		KeepControlRecords: true, Offset: from, IsolationLevel: level, Topic: r.topic, Partition: rp.Partition,
	}, rp, kgo.DefaultDecompressor(), nil)
	if fetched.Err != nil {
		return false, fetched.Err
	}
	for _, rec := range fetched.Records {
		if rec.Offset >= end {
			next = end
			break
		}
		if err := fn(rec); err != nil {
			return false, err
		}
	}
	at[rp.Partition] = next
	r.held = r.isolation == committed && next < end && fetched.LastStableOffset <= next
	return next > from, nil
}

// skip moves a position that retention has overtaken to the start of the log.
// A position behind the end of the log belongs to a topic that was replaced.
func (r *reader) skip(ctx context.Context, partition int32, at map[int32]int64) (bool, error) {
	starts, err := r.c.admin.ListStartOffsets(ctx, r.topic)
	if err != nil {
		return false, err
	}
	start, ok := starts.Lookup(r.topic, partition)
	if !ok || start.Err != nil {
		return false, start.Err
	}
	if start.Offset > at[partition] {
		at[partition] = start.Offset
		return true, nil
	}
	return false, &failure.Error{
		Class: failure.TopicRefused, Op: "reading topic " + r.topic,
		Detail: fmt.Sprintf("offset %d of partition %d is not in the log", at[partition], partition),
		Hint:   "the topic was deleted and made again, or its log was cut: start the table again",
	}
}

// retriable reports whether a read may go on after err and a look at the metadata.
func retriable(err error) bool {
	if isMissing(err) || kerr.IsRetriable(err) {
		return true
	}
	return kgo.IsRetryableBrokerErr(err)
}

// ends lists the high watermarks of a topic's partitions.
func (c *Cluster) ends(ctx context.Context, topic string) (map[int32]int64, error) {
	listed, err := c.admin.ListEndOffsets(ctx, topic)
	return offsets(topic, listed, err)
}

// starts lists the first offsets of a topic's partitions.
func (c *Cluster) starts(ctx context.Context, topic string) (map[int32]int64, error) {
	listed, err := c.admin.ListStartOffsets(ctx, topic)
	return offsets(topic, listed, err)
}

func offsets(topic string, listed kadm.ListedOffsets, err error) (map[int32]int64, error) {
	op := "listing the offsets of topic " + topic
	r := resource{topic: topic, need: "Describe"}
	if err != nil {
		return nil, classify(op, err, r)
	}
	found := map[int32]int64{}
	for p, o := range listed[topic] {
		if o.Err != nil {
			return nil, classify(op, o.Err, r)
		}
		found[p] = o.Offset
	}
	if len(found) == 0 {
		return nil, classify(op, kerr.UnknownTopicOrPartition, r)
	}
	return found, nil
}
