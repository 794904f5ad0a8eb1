package kafka

import (
	"math"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"snowmelt/core/failure"
)

func TestEnsureTopic(t *testing.T) {
	r := newRig(t)
	_, err := r.c.EnsureTopic(ctx(t), TopicSpec{Name: "fresh"}, false)
	wantClass(t, err, failure.TopicRefused)
	wantText(t, err, "fresh", "topic.creation.enable")
	if r.fake.TopicInfo("fresh") != nil {
		t.Fatal("it was made")
	}

	topic, err := r.c.EnsureTopic(ctx(t), TopicSpec{Name: "fresh", Partitions: 7, Settings: map[string]string{"max.message.bytes": "12345"}}, true)
	want := Topic{
		Name: "fresh", Partitions: 7, RetentionMs: -1, RetentionBytes: -1, CleanupPolicy: "delete",
		TimestampType: "CreateTime", MaxMessageBytes: 12345, Created: true,
	}
	if err != nil || topic != want {
		t.Fatalf("%+v, %v", topic, err)
	}
	if n := r.c.limit("fresh"); n != 12345 {
		t.Fatalf("limit %d", n)
	}

	// the user's retention is kept; an existing topic is left as it is
	topic, err = r.c.EnsureTopic(ctx(t), TopicSpec{Name: "kept", Settings: map[string]string{"retention.ms": "1000"}}, true)
	if err != nil || topic.RetentionMs != 1000 || topic.Partitions < 1 {
		t.Fatalf("%+v, %v", topic, err)
	}
	topic, err = r.c.EnsureTopic(ctx(t), TopicSpec{Name: "kept", Partitions: 9, Settings: map[string]string{"retention.ms": "5"}}, true)
	if err != nil || topic.RetentionMs != 1000 || topic.Created {
		t.Fatalf("%+v, %v", topic, err)
	}
}

func TestEnsureTopicErrors(t *testing.T) {
	for _, test := range []struct {
		key  kmsg.Key
		err  *kerr.Error
		want failure.Class
		says string
	}{
		{kmsg.CreateTopics, kerr.TopicAuthorizationFailed, failure.BrokerRefused, "ACL Create on topic new"},
		{kmsg.CreateTopics, kerr.ClusterAuthorizationFailed, failure.BrokerRefused, "ACL Create on the cluster"},
		{kmsg.CreateTopics, kerr.InvalidConfig, failure.Misconfigured, "topic.creation.default"},
		{kmsg.CreateTopics, kerr.InvalidReplicationFactor, failure.Misconfigured, "topic new"},
		{kmsg.DescribeConfigs, kerr.TopicAuthorizationFailed, failure.BrokerRefused, "ACL DescribeConfigs on topic new"},
		{kmsg.Metadata, kerr.TopicAuthorizationFailed, failure.BrokerRefused, "ACL Describe on topic new"},
	} {
		t.Run(test.err.Message, func(t *testing.T) {
			r := newRig(t)
			fault := r.fake.Fault(kfake.Fault{Keys: []kmsg.Key{test.key}, Err: test.err, Count: -1})
			_, err := r.c.EnsureTopic(ctx(t), TopicSpec{Name: "new"}, true)
			if fault.Hits() == 0 {
				t.Fatal("the fault was not met")
			}
			wantClass(t, err, test.want)
			wantText(t, err, test.says)
		})
	}
}

func TestEnsureTopicLosesTheRace(t *testing.T) {
	r := newRig(t)
	r.fake.ControlKey(int16(kmsg.CreateTopics), func(kmsg.Request) (kmsg.Response, error, bool) {
		_ = r.fake.CreateTopic("raced", 2, nil)
		return nil, nil, false
	})
	topic, err := r.c.EnsureTopic(ctx(t), TopicSpec{Name: "raced", Partitions: 5}, true)
	if err != nil || topic.Partitions != 2 {
		t.Fatalf("%+v, %v", topic, err)
	}
}

func TestCheckSourceTopic(t *testing.T) {
	now := time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)
	week := int64(7 * 24 * 3600 * 1000)
	old := now.AddDate(-10, 0, 0)
	base := Topic{Name: "incident", CleanupPolicy: "delete", TimestampType: "CreateTime", RetentionMs: week}
	with := func(f func(*Topic)) Topic { x := base; f(&x); return x }
	for name, test := range map[string]struct {
		topic       Topic
		exactlyOnce bool
		oldest      time.Time
		allow       bool
		refused     bool
	}{
		"retention too short":      {base, true, old, false, true},
		"the same, allowed":        {base, true, old, true, false},
		"rows younger":             {base, true, now.Add(-time.Hour), false, false},
		"exactly as old":           {base, true, now.Add(-time.Duration(week) * time.Millisecond), false, false},
		"one ms older":             {base, true, now.Add(-time.Duration(week+1) * time.Millisecond), false, true},
		"empty table":              {base, true, time.Time{}, false, false},
		"for ever":                 {with(func(t *Topic) { t.RetentionMs = -1 }), true, old, false, false},
		"Long.MAX_VALUE":           {with(func(t *Topic) { t.RetentionMs = math.MaxInt64 }), true, old, false, false},
		"older than a Duration":    {base, true, time.Date(1500, 1, 1, 0, 0, 0, 0, time.UTC), false, true},
		"compacted":                {with(func(t *Topic) { t.CleanupPolicy = "compact" }), true, old, false, false},
		"both policies":            {with(func(t *Topic) { t.CleanupPolicy = "compact, delete" }), true, old, false, true},
		"LogAppendTime":            {with(func(t *Topic) { t.TimestampType, t.RetentionMs = "LogAppendTime", -1 }), true, old, true, true},
		"LogAppendTime at_least":   {with(func(t *Topic) { t.TimestampType = "LogAppendTime" }), false, old, false, false},
		"at_least_once, too short": {base, false, old, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			err := CheckSourceTopic(test.topic, test.exactlyOnce, test.oldest, now, test.allow)
			if !test.refused {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			wantClass(t, err, failure.TopicRefused)
			wantText(t, err, "incident")
			if test.topic.TimestampType == "CreateTime" {
				wantText(t, err, "604800000", test.oldest.Format(time.DateTime), "snow.source.allow.expiring.topics")
			} else {
				wantText(t, err, "LogAppendTime", "at_least_once")
			}
		})
	}
}

func TestEnsureCursorTopic(t *testing.T) {
	r := newRig(t)
	for range 2 { // made, then found
		if err := r.c.EnsureCursorTopic(ctx(t), "offsets", 25, -1); err != nil {
			t.Fatal(err)
		}
	}
	info := r.fake.TopicInfo("offsets")
	topic, err := r.c.EnsureTopic(ctx(t), TopicSpec{Name: "offsets"}, false)
	if err != nil || info == nil || topic.Partitions != 25 || topic.CleanupPolicy != "compact" {
		t.Fatalf("%+v, %v", topic, err)
	}
	for name, configs := range map[string]map[string]string{
		"deleting": {"cleanup.policy": "delete"},
		"both":     {"cleanup.policy": "compact,delete", "retention.ms": "604800000"},
	} {
		if err := r.fake.CreateTopic(name, 1, configs); err != nil {
			t.Fatal(err)
		}
		err := r.c.EnsureCursorTopic(ctx(t), name, 25, -1)
		wantClass(t, err, failure.TopicRefused)
		wantText(t, err, name, "cleanup.policy=compact")
	}
}
