package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"snowmelt/core/failure"
	"snowmelt/core/record"
)

// Partition names a partition of a topic.
type Partition struct {
	Topic  string
	Number int32
}

// String returns "<topic>-<partition>".
func (p Partition) String() string { return fmt.Sprintf("%s-%d", p.Topic, p.Number) }

// Commit is a committed position with its metadata.
type Commit struct {
	// Offset is the next record to consume, -1 when nothing was committed.
	Offset   int64
	Metadata string
}

// ConsumerConfig says what a consumer reads, and as which member.
type ConsumerConfig struct {
	Cluster *Cluster
	Group   string
	Topics  []string
	// Reset is where a partition without a committed offset begins: earliest, latest, none.
	Reset string
	// ReadCommitted leaves out records of open and aborted transactions.
	ReadCommitted bool
	// InstanceID is the static member, "" for a dynamic one.
	InstanceID                       string
	SessionTimeout, RebalanceTimeout time.Duration
	// Fetched is told the committed positions of partitions that this member was given.
	// Revoked must return when nothing of the partitions is in flight and their
	// positions are committed, or when ctx ends. Lost is told partitions that another
	// member may own already: nothing of them may be committed any more.
	// All three are called by the client's goroutines, not by Poll.
	Fetched func(map[Partition]Commit)
	Revoked func(ctx context.Context, parts []Partition)
	Lost    func(parts []Partition)
}

// revokeReserve is left of the rebalance timeout when revoked work is abandoned.
const revokeReserve = 10 * time.Second

// Consumer is a member of a consumer group that commits only by hand: kgo's own
// commits would overwrite the attempt marks in the metadata.
type Consumer struct {
	cfg    ConsumerConfig
	client *kgo.Client

	mu     sync.Mutex
	paused map[Partition]bool
}

// NewConsumer joins the group; it returns before the group has decided.
func NewConsumer(cfg ConsumerConfig) (*Consumer, error) {
	c := &Consumer{cfg: cfg, paused: map[Partition]bool{}}
	start := kgo.NewOffset().AtStart()
	switch cfg.Reset {
	case "latest":
		start = kgo.NewOffset().AtEnd()
	case "none":
		start = kgo.NewOffset().AtCommitted()
	}
	level := kgo.ReadUncommitted()
	if cfg.ReadCommitted {
		level = kgo.ReadCommitted()
	}
	opts := append(append([]kgo.Opt{}, cfg.Cluster.opts...),
		kgo.ConsumerGroup(cfg.Group), kgo.ConsumeTopics(cfg.Topics...), kgo.ConsumeStartOffset(start),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()), // out of range is told, never jumped over
		kgo.FetchIsolationLevel(level), kgo.DisableAutoCommit(), kgo.Balancers(kgo.CooperativeStickyBalancer()),
		kgo.BlockRebalanceOnPoll(), kgo.SessionTimeout(cfg.SessionTimeout), kgo.RebalanceTimeout(cfg.RebalanceTimeout),
		kgo.HeartbeatInterval(min(3*time.Second, cfg.SessionTimeout/3)),
		kgo.FetchMaxBytes(16<<20), kgo.FetchMaxPartitionBytes(1<<20), kgo.MaxConcurrentFetches(3),
		kgo.OnOffsetsFetched(func(_ context.Context, _ *kgo.Client, r *kmsg.OffsetFetchResponse) error {
			cfg.Fetched(fetched(r))
			return nil
		}),
		kgo.OnPartitionsAssigned(func(_ context.Context, client *kgo.Client, parts map[string][]int32) {
			client.ResumeFetchPartitions(parts) // a pause outlives the assignment that it was made under
		}),
		kgo.OnPartitionsRevoked(func(ctx context.Context, _ *kgo.Client, parts map[string][]int32) {
			ctx, cancel := context.WithTimeout(ctx, max(time.Second, cfg.RebalanceTimeout-revokeReserve))
			defer cancel()
			if list := c.forget(parts); len(list) > 0 {
				cfg.Revoked(ctx, list)
			}
		}),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, parts map[string][]int32) {
			if list := c.forget(parts); len(list) > 0 {
				cfg.Lost(list)
			}
		}),
	)
	if cfg.InstanceID != "" {
		opts = append(opts, kgo.InstanceID(cfg.InstanceID))
	}
	var err error
	if c.client, err = newClient(opts); err != nil {
		return nil, misconfigured("making a Kafka consumer", err)
	}
	return c, nil
}

func fetched(r *kmsg.OffsetFetchResponse) map[Partition]Commit {
	out := map[Partition]Commit{}
	for _, t := range r.Topics {
		for _, p := range t.Partitions {
			out[Partition{t.Topic, p.Partition}] = commit(p.Offset, p.Metadata)
		}
	}
	for _, g := range r.Groups {
		for _, t := range g.Topics {
			for _, p := range t.Partitions {
				out[Partition{t.Topic, p.Partition}] = commit(p.Offset, p.Metadata)
			}
		}
	}
	return out
}

func commit(offset int64, metadata *string) Commit {
	c := Commit{Offset: offset}
	if metadata != nil {
		c.Metadata = *metadata
	}
	return c
}

func (c *Consumer) forget(parts map[string][]int32) []Partition {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []Partition
	for topic, numbers := range parts {
		for _, n := range numbers {
			p := Partition{topic, n}
			delete(c.paused, p)
			list = append(list, p)
		}
	}
	return list
}

// Poll waits for records, at most limit, until ctx ends; then it returns none. No
// partition is revoked between its return and Allow, so that records are never
// taken over for a partition that somebody else has already.
// Its errors fail the pipeline: TopicRefused for a position out of range,
// BrokerRefused; what heals by itself is retried inside.
func (c *Consumer) Poll(ctx context.Context, limit int) ([]record.Consumed, error) {
	fetches := c.client.PollRecords(ctx, limit)
	var failed error
	fetches.EachError(func(topic string, p int32, err error) {
		if failed != nil || isContext(err) || errors.Is(err, kgo.ErrClientClosed) {
			return
		}
		switch e := classify("consuming "+Partition{topic, p}.String(), err, resource{topic: topic, need: "Read, Describe"}); {
		case errors.Is(err, kerr.OffsetOutOfRange), isDataLoss(err):
			failed = &failure.Error{
				Class: failure.TopicRefused, Input: true, Op: "consuming " + Partition{topic, p}.String(), Err: err,
				Detail: "the committed offset of group " + c.cfg.Group + " is no longer in the log: records were deleted before they were written",
				Hint:   "decide where to go on, and set the group's offset with Kafka's consumer-groups tool",
			}
		case failure.ClassOf(e) != failure.Transient:
			if f, ok := errors.AsType[*failure.Error](e); ok {
				f.Input = true
			}
			failed = e
		}
	})
	if failed != nil {
		return nil, failed
	}
	var out []record.Consumed
	fetches.EachRecord(func(r *kgo.Record) {
		in := record.Consumed{
			Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Key: r.Key, Value: r.Value, Timestamp: r.Timestamp.UnixMilli(),
		}
		for _, h := range r.Headers {
			in.Headers = append(in.Headers, record.Header{Key: h.Key, Value: h.Value})
		}
		out = append(out, in)
	})
	return out, nil
}

// isDataLoss tells a log that was cut behind the consumer's position, over which
// the client would jump.
func isDataLoss(err error) bool {
	_, ok := errors.AsType[*kgo.ErrDataLoss](err)
	return ok
}

// Allow lets the group take partitions back. It must follow every Poll.
func (c *Consumer) Allow() { c.client.AllowRebalance() }

// Pause stops fetching a partition; what was fetched already may still be polled.
func (c *Consumer) Pause(p Partition) {
	c.mu.Lock()
	was := c.paused[p]
	c.paused[p] = true
	c.mu.Unlock()
	if !was {
		c.client.PauseFetchPartitions(map[string][]int32{p.Topic: {p.Number}})
	}
}

// Resume fetches a paused partition again.
func (c *Consumer) Resume(p Partition) {
	c.mu.Lock()
	delete(c.paused, p)
	c.mu.Unlock()
	c.client.ResumeFetchPartitions(map[string][]int32{p.Topic: {p.Number}})
}

// commitTries bounds the repeats while the group rebalances.
const commitTries = 20

// Commit is the one function that commits positions, with their metadata. It
// fails with Fenced when this member no longer owns a partition.
func (c *Consumer) Commit(ctx context.Context, commits map[Partition]Commit) error {
	if len(commits) == 0 {
		return nil
	}
	offsets := map[string]map[int32]kgo.EpochOffset{}
	for p, at := range commits {
		if offsets[p.Topic] == nil {
			offsets[p.Topic] = map[int32]kgo.EpochOffset{}
		}
		offsets[p.Topic][p.Number] = kgo.EpochOffset{Epoch: -1, Offset: at.Offset}
	}
	withMarks := kgo.PreCommitFnContext(ctx, func(req *kmsg.OffsetCommitRequest) error {
		for i := range req.Topics {
			t := &req.Topics[i]
			for j := range t.Partitions {
				meta := commits[Partition{t.Topic, t.Partitions[j].Partition}].Metadata
				t.Partitions[j].Metadata = &meta
			}
		}
		return nil
	})
	op := "committing offsets of group " + c.cfg.Group
	for try := 1; ; try++ {
		var failed error
		c.client.CommitOffsetsSync(withMarks, offsets, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, r *kmsg.OffsetCommitResponse, err error) {
			failed = err
			if r == nil {
				return
			}
			for _, t := range r.Topics {
				for _, p := range t.Partitions {
					if e := kerr.ErrorForCode(p.ErrorCode); e != nil && failed == nil {
						failed = e
					}
				}
			}
		})
		switch {
		case failed == nil:
			return nil
		case isAny(failed, kerr.IllegalGeneration, kerr.UnknownMemberID, kerr.FencedInstanceID, kerr.StaleMemberEpoch):
			return &failure.Error{Class: failure.Fenced, Op: op, Err: failed, Detail: "the group gave the partition to another member"}
		case try < commitTries && (isAny(failed, kerr.RebalanceInProgress, kerr.CoordinatorNotAvailable, kerr.NotCoordinator, kerr.CoordinatorLoadInProgress, kerr.RequestTimedOut) || kerr.IsRetriable(failed)):
			if err := pause(ctx, min(time.Second, time.Duration(try)*50*time.Millisecond)); err != nil {
				return classify(op, failed, resource{})
			}
		default:
			return classify(op, failed, resource{})
		}
	}
}

// Close leaves the group.
func (c *Consumer) Close() { c.client.CloseAllowingRebalance() }

// Produce sends records and returns when every one is acknowledged, or with the
// first failure. Reports and dead letters go this way (Invariant 2).
func (c *Cluster) Produce(ctx context.Context, records []record.Record) error {
	if len(records) == 0 {
		return nil
	}
	client, err := c.shared()
	if err != nil {
		return err
	}
	out := newOutcome("", "")
	out.produce(ctx, client, "", records)
	out.seal()
	cause := out.wait(ctx)
	if cause == nil {
		return nil
	}
	if isFence(cause) || !out.settle(abortWait) { // see Publisher.undelivered
		c.discard(client)
		out.settle(abortWait)
	}
	topic := out.topicOf(records[0].Topic)
	err = classify("producing to topic "+topic, cause, resource{topic: topic, need: "Write, Describe"})
	if e, ok := errors.AsType[*failure.Error](err); ok && e.Class == failure.OutcomeUnknown {
		e.Class = failure.Transient
	}
	return err
}
