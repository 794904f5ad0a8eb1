package supervisor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"snowmelt/actors/limiter"
	"snowmelt/actors/msg"
	"snowmelt/actors/poller"
	"snowmelt/actors/source"
	"snowmelt/config"
	"snowmelt/core/cursor"
	"snowmelt/core/kafka"
	"snowmelt/core/limit"
	"snowmelt/core/record"
	"snowmelt/core/servicenow"
)

// modCount is the field that tells versions of one row within a second apart.
const modCount = "sys_mod_count"

// addSource prepares one source pipeline: its client, its cluster, its tables.
func (e *Engine) addSource(s config.Source) error {
	client, err := e.client(s.Instance)
	if err != nil {
		return err
	}
	cluster, err := e.cluster(s.Kafka)
	if err != nil {
		return err
	}
	pool := kafka.NewPool(s.PublishersMax)
	tables := make([]func(msg.Ref[msg.Limiter]) source.Table, len(s.Tables))
	var fingerprints []string
	for _, t := range s.Tables {
		fingerprints = append(fingerprints, cursor.Fingerprint(t.Name, t.Query, t.QueryDomain))
	}
	for i, t := range s.Tables {
		e.board.addTable(s.Name, t.Alias)
		cfg := e.pollerConfig(s, t, client, cluster, pool, fingerprints[i])
		cfg.Known = fingerprints
		tables[i] = func(l msg.Ref[msg.Limiter]) source.Table {
			return source.Table{Alias: cfg.Alias, Props: func(parent msg.Ref[msg.Source]) *actor.Props {
				cfg := cfg
				cfg.Limiter, cfg.Parent = l, parent
				return poller.Props(cfg, e.rootCfg.opts...)
			}}
		}
	}
	e.rootCfg.pipelines = append(e.rootCfg.pipelines, pipeline{
		kind: "source", name: s.Name, host: client.Host(), drain: &msg.DrainSource{},
		props: func(l msg.Ref[msg.Limiter]) *actor.Props {
			c := source.Config{
				Pipeline: s.Name, Decide: decideSource, Backoff: s.Instance.Retry, Budget: restarts(),
				RestartFailed: s.TableRestart,
				Observer:      e.board, Log: e.log, Jitter: e.opts.jitter,
			}
			for _, t := range tables {
				c.Tables = append(c.Tables, t(l))
			}
			return source.Props(c, e.rootCfg.opts...)
		},
	})
	return nil
}

// cluster prepares the Kafka side of a pipeline; nothing connects yet.
func (e *Engine) cluster(settings map[string]string) (*kafka.Cluster, error) {
	opts, err := kafka.Options(settings)
	if err != nil {
		return nil, fmt.Errorf("reading the kafka settings: %w", err)
	}
	c, err := kafka.Connect(opts, e.opts.kafka...)
	if err != nil {
		return nil, fmt.Errorf("preparing the Kafka client: %w", err)
	}
	e.clusters = append(e.clusters, c)
	return c, nil
}

// client returns the client of an instance, and with the first of a host its limiter.
func (e *Engine) client(i config.Instance) (*servicenow.Client, error) {
	cfg := servicenow.Config{
		URL: i.URL, Username: i.Username, Password: i.Password, UserAgent: strings.ReplaceAll(i.UserAgent, "<version>", Version),
		ConnectTimeout: i.ConnectTimeout, HeaderTimeout: i.RequestTimeout, BodyIdle: i.BodyIdle,
		MaxBody: i.MaxResponse, Connections: i.MaxConcurrent,
	}
	if e.opts.transport != nil {
		cfg.RoundTripper = e.opts.transport(i.URL.Host)
	}
	c, err := servicenow.New(cfg, i.AllowPlaintext)
	if err != nil {
		return nil, err
	}
	key := fmt.Sprintf("%+v", i) // pipelines with the same settings share connections
	if known := e.clients[key]; known != nil {
		return known, nil
	}
	e.clients[key] = c
	for _, known := range e.rootCfg.instances {
		if known.host == c.Host() {
			return c, nil
		}
	}
	e.board.addInstance(c.Host(), i.MaxConcurrent)
	set := limit.Settings{Max: i.MaxConcurrent, Adaptive: i.Adaptive, PerHour: i.MaxPerHour}
	e.rootCfg.instances = append(e.rootCfg.instances, instance{c.Host(), limiter.Config{
		Host: c.Host(), Observer: e.board, Settings: set, Kept: limiter.NewKept(set),
	}})
	return c, nil
}

func (e *Engine) pollerConfig(s config.Source, t config.Table, client *servicenow.Client, cluster *kafka.Cluster, pool *kafka.Pool, fingerprint string) poller.Config {
	return poller.Config{
		Pipeline: s.Name, Alias: t.Alias, Fingerprint: fingerprint,
		Sweep: cursor.Settings{
			Table: t.Name, Query: t.Parsed, TimestampField: t.TimestampField, IDField: t.IDField, Limit: t.BatchSize,
			Start: t.Start, Overlap: cursor.Timestamp(s.Overlap), SafetyLag: cursor.Timestamp(s.SafetyLag),
			LateWindow: cursor.Timestamp(s.LateWindow), LateInterval: s.LateInterval, PollInterval: t.PollInterval,
			Prove: s.ProvePages, SkipBadRows: s.SkipBadRows, Window: s.DedupWindow,
		},
		List: servicenow.ListRequest{
			Table: t.Name, Fields: t.Fields, DisplayValue: t.DisplayValue, KeepReferenceLink: !t.ExcludeReferenceLink,
			NoDomain: !t.QueryDomain, Category: t.QueryCategory,
		},
		Fields: servicenow.Fields{ID: t.IDField, Timestamp: t.TimestampField, ModCount: modCount},
		Shape:  record.Shape{Topic: t.Topic, Table: t.Name, Instance: client.Host(), Mode: s.SchemaMode},
		Probe:  s.Probe, Retry: s.Instance.Retry, VerifiedEvery: s.VerifiedInterval,
		EnsureTopic: func(ctx context.Context, oldest time.Time) error { return ensureTopics(ctx, cluster, s, t, oldest) },
		Instance:    client,
		Publisher: kafka.NewPublisher(kafka.PublisherConfig{
			Cluster: cluster, Pipeline: s.Name, CursorTopic: s.OffsetTopic, Topic: t.Topic,
			Key: CursorKey(s.Name, client.Host(), t), TransactionalIDPrefix: s.TransactionalIDPrefix,
			TransactionTimeout: s.TransactionTimeout, ExactlyOnce: s.ExactlyOnce, Pool: pool,
		}),
		Observer: e.board, Group: &e.group, Log: e.log, Jitter: e.opts.jitter, Kept: &poller.Kept{},
	}
}

// CursorKey is the key of a table's cursor record (source.md section 4).
func CursorKey(pipeline, host string, t config.Table) kafka.CursorKey {
	return kafka.CursorKey{Pipeline: pipeline, Partition: map[string]string{
		"instance": host, "table": t.Name, "timestamp_field": t.TimestampField,
		"query_fingerprint": cursor.Fingerprint(t.Name, t.Query, t.QueryDomain),
	}}
}

// ensureTopics makes sure that both topics exist and keep what is written to them.
func ensureTopics(ctx context.Context, cluster *kafka.Cluster, s config.Source, t config.Table, oldest time.Time) error {
	if err := cluster.EnsureCursorTopic(ctx, s.OffsetTopic, s.OffsetPartitions, s.OffsetReplication); err != nil {
		return err
	}
	topic, err := cluster.EnsureTopic(ctx, kafka.TopicSpec{
		Name: t.Topic, Partitions: s.TopicPartitions, Replication: s.TopicReplication, Settings: s.TopicSettings,
	}, s.CreateTopics)
	if err != nil {
		return err
	}
	return kafka.CheckSourceTopic(topic, s.ExactlyOnce, oldest, time.Now(), s.AllowExpiring)
}
