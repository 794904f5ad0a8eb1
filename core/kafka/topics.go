package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"snowmelt/core/failure"
)

const (
	policyCompact = "compact"
	policyDelete  = "delete"
	logAppendTime = "LogAppendTime"

	settingRetention = "retention.ms"
	settingPolicy    = "cleanup.policy"

	// topicPoll is how often a created topic is looked for.
	topicPoll = 50 * time.Millisecond
)

// TopicSpec says how a topic is made when it is missing.
type TopicSpec struct {
	Name string
	// Partitions and Replication are the broker's defaults when they are below 1.
	Partitions  int
	Replication int
	// Settings are topic settings, topic.creation.default.<setting>. Without
	// retention.ms it is -1: records carry the times of their rows, so a
	// broker's default retention would delete a backfill within minutes.
	Settings map[string]string
}

// Topic is what is known of a topic that exists.
type Topic struct {
	Name       string
	Partitions int
	// RetentionMs is the retention in milliseconds, -1 for ever.
	RetentionMs int64
	// RetentionBytes is the retention per partition in bytes, -1 without bound.
	RetentionBytes int64
	// CleanupPolicy is "delete", "compact" or both with a comma.
	CleanupPolicy string
	// TimestampType is CreateTime or LogAppendTime.
	TimestampType string
	// MaxMessageBytes is the largest batch that the topic takes.
	MaxMessageBytes int
	// Created is true when EnsureTopic made the topic.
	Created bool
}

// EnsureTopic describes the topic of spec and makes it if it is missing and
// create allows it (topic.creation.enable). It fails with TopicRefused when the
// topic is missing and must not be made, with Misconfigured when the broker
// refuses the settings, and with BrokerRefused when an ACL is missing.
func (c *Cluster) EnsureTopic(ctx context.Context, spec TopicSpec, create bool) (Topic, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	t, err := c.describe(ctx, spec.Name)
	if err == nil || !isMissing(err) {
		return t, err
	}
	op := "looking for topic " + spec.Name
	if !create {
		return Topic{}, &failure.Error{
			Class: failure.TopicRefused, Op: op, Detail: "the topic does not exist and topic.creation.enable is false",
			Hint: "create it with retention.ms=-1, or set topic.creation.enable=true",
		}
	}
	settings := map[string]*string{}
	for name, v := range spec.Settings {
		settings[name] = &v
	}
	if _, ok := settings[settingRetention]; !ok {
		forever := "-1"
		settings[settingRetention] = &forever
	}
	if err := c.create(ctx, spec, settings); err != nil {
		return Topic{}, err
	}
	for { // the controller knows the topic before every broker does
		t, err = c.describe(ctx, spec.Name)
		if err == nil || !isMissing(err) {
			t.Created = err == nil
			return t, err
		}
		if wait := pause(ctx, topicPoll); wait != nil {
			return Topic{}, classify("waiting for the new topic "+spec.Name, wait, resource{topic: spec.Name})
		}
	}
}

// FindTopic makes sure that a topic is there. Unlike EnsureTopic it needs no ACL beside
// Read or Write, whichever is the need: the settings of the topic are looked at only if
// they may be.
func (c *Cluster) FindTopic(ctx context.Context, name, need string) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	op := "looking for topic " + name
	if _, err := c.metadata(ctx, name); isMissing(err) {
		return &failure.Error{Class: failure.TopicRefused, Op: op, Detail: "the topic does not exist", Hint: "create topic " + name, Err: err}
	} else if err != nil {
		return classify(op, err, resource{topic: name, need: need})
	}
	return c.learnLimit(ctx, name)
}

func (c *Cluster) create(ctx context.Context, spec TopicSpec, settings map[string]*string) error {
	op := "creating topic " + spec.Name
	partitions, replication := int32(-1), int16(-1)
	if spec.Partitions > 0 {
		partitions = int32(spec.Partitions)
	}
	if spec.Replication > 0 {
		replication = int16(spec.Replication)
	}
	answer, err := c.admin.CreateTopic(ctx, partitions, replication, settings, spec.Name)
	if err == nil || errors.Is(err, kerr.TopicAlreadyExists) {
		return nil // somebody else was faster
	}
	err = classify(op, err, resource{topic: spec.Name, need: "Create"})
	if f, ok := errors.AsType[*failure.Error](err); ok {
		f.Detail = answer.ErrMessage
	}
	return err
}

// describe reads partitions and settings of a topic and remembers its limit.
func (c *Cluster) describe(ctx context.Context, name string) (Topic, error) {
	op := "describing topic " + name
	m, err := c.metadata(ctx, name)
	if err != nil {
		return Topic{}, classify(op, err, resource{topic: name, need: "Describe"})
	}
	t := Topic{Name: name, Partitions: len(m.leaders), RetentionMs: -1, RetentionBytes: -1}
	configs, err := c.admin.DescribeTopicConfigs(ctx, name)
	if err != nil {
		return Topic{}, classify(op, err, resource{topic: name, need: "DescribeConfigs"})
	}
	for _, config := range configs {
		if config.Err != nil {
			return Topic{}, classify(op, config.Err, resource{topic: name, need: "DescribeConfigs"})
		}
		for _, s := range config.Configs {
			t.set(s.Key, s.MaybeValue())
		}
	}
	c.setLimit(name, t.MaxMessageBytes)
	return t, nil
}

func (t *Topic) set(name, value string) {
	n, err := strconv.ParseInt(value, 10, 64)
	switch {
	case name == settingPolicy:
		t.CleanupPolicy = value
	case name == "message.timestamp.type":
		t.TimestampType = value
	case err != nil: // the settings below are numbers
	case name == settingRetention:
		t.RetentionMs = n
	case name == "retention.bytes":
		t.RetentionBytes = n
	case name == "max.message.bytes":
		t.MaxMessageBytes = int(n)
	}
}

func hasPolicy(t Topic, policy string) bool {
	for p := range strings.SplitSeq(t.CleanupPolicy, ",") {
		if strings.TrimSpace(p) == policy {
			return true
		}
	}
	return false
}

// CheckSourceTopic fails with TopicRefused when a table's topic would lose or
// misdate what is written to it (spec: source, section 2): LogAppendTime under
// exactly_once, since the duplicate filter is rebuilt from record times; and a
// policy of delete whose retention is shorter than the age of the oldest row to
// come, unless allowExpiring. A zero oldest is an empty table.
func CheckSourceTopic(t Topic, exactlyOnce bool, oldest, now time.Time, allowExpiring bool) error {
	op := "checking topic " + t.Name
	appendTime := t.TimestampType == logAppendTime
	if appendTime && exactlyOnce {
		return &failure.Error{
			Class: failure.TopicRefused, Op: op, Detail: "message.timestamp.type is LogAppendTime",
			Hint: "set message.timestamp.type=CreateTime on the topic, or snow.source.delivery=at_least_once",
		}
	}
	// With LogAppendTime the broker's clock decides about age, not the row's.
	if allowExpiring || appendTime || oldest.IsZero() || t.RetentionMs < 0 || !hasPolicy(t, policyDelete) {
		return nil
	}
	// Compared in milliseconds: a retention of Long.MAX_VALUE is no time.Duration.
	age := now.UnixMilli() - oldest.UnixMilli()
	if age <= t.RetentionMs {
		return nil
	}
	return &failure.Error{
		Class: failure.TopicRefused, Op: op,
		Detail: fmt.Sprintf("retention.ms is %d, but the oldest row to come is of %s, %d ms ago: the broker would delete it",
			t.RetentionMs, oldest.UTC().Format(time.DateTime), age),
		Hint: "set retention.ms=-1 on the topic, or snow.source.allow.expiring.topics=true",
	}
}

// cursorSettings are those of a cursor topic that is made here. Segments are
// small, as those of __consumer_offsets are, because the newest one is never
// compacted and every owner of a table reads it.
var cursorSettings = map[string]string{settingPolicy: policyCompact, "segment.bytes": "104857600"}

// EnsureCursorTopic makes the compacted topic of the cursors if it is missing.
// A topic that exists and is not compacted is refused with TopicRefused: it
// would forget cursors.
func (c *Cluster) EnsureCursorTopic(ctx context.Context, name string, partitions, replication int) error {
	t, err := c.EnsureTopic(ctx, TopicSpec{
		Name: name, Partitions: partitions, Replication: replication, Settings: maps.Clone(cursorSettings),
	}, true)
	if err != nil {
		return err
	}
	op := "checking cursor topic " + name
	if !hasPolicy(t, policyCompact) {
		return &failure.Error{
			Class: failure.TopicRefused, Op: op, Detail: fmt.Sprintf("cleanup.policy is %q, so cursors would be deleted", t.CleanupPolicy),
			Hint: "set cleanup.policy=compact on the topic, or choose another offset.storage.topic",
		}
	}
	if hasPolicy(t, policyDelete) && t.RetentionMs >= 0 {
		return &failure.Error{
			Class: failure.TopicRefused, Op: op,
			Detail: fmt.Sprintf("cleanup.policy is %q with retention.ms=%d, so cursors of idle tables would be deleted", t.CleanupPolicy, t.RetentionMs),
			Hint:   "set cleanup.policy=compact on the topic",
		}
	}
	return nil
}
