package harness

import (
	"net/url"
	"regexp"
	"time"

	"snowmelt/config"
	"snowmelt/core/failure"
	"snowmelt/core/mapping"
)

// Source returns the settings of a source pipeline with the defaults of the key
// table, for tests that run an engine in their own process.
func Source(name, instance, brokers string, tables ...config.Table) config.Source {
	u, err := url.Parse(instance)
	if err != nil {
		panic(err)
	}
	return config.Source{
		Name: name, Tables: tables, ExactlyOnce: true, SchemaMode: "schemaless", Probe: true, ProvePages: true,
		Instance: config.Instance{
			URL: u, Username: "snowmelt", Password: "secret-of-tests", UserAgent: "snowmelt/test", MaxConcurrent: 8, Adaptive: true,
			ConnectTimeout: 10 * time.Second, RequestTimeout: 75 * time.Second, BodyIdle: 30 * time.Second, MaxResponse: 64 << 20,
			Retry: failure.Retry{MaxAttempts: 5, MaxElapsed: 5 * time.Minute, Initial: 500 * time.Millisecond, Max: 30 * time.Second},
		},
		Kafka:   map[string]string{"bootstrap.servers": brokers},
		Overlap: 2, SafetyLag: 1, LateWindow: 60, LateInterval: 30 * time.Second, VerifiedInterval: 5 * time.Minute,
		DedupWindow: 50000, PublishersMax: 64, TransactionTimeout: 30 * time.Second, TransactionalIDPrefix: "snowmelt-",
		OffsetTopic: "snowmelt-offsets", OffsetPartitions: 25, OffsetReplication: -1,
		CreateTopics: true, TopicPartitions: 3, TopicReplication: -1, TopicSettings: map[string]string{"retention.ms": "-1"},
	}
}

// Table returns the settings of a table with the defaults of the key table.
func Table(name, topic string) config.Table {
	return config.Table{
		Alias: name, Name: name, Topic: topic, TimestampField: "sys_updated_on", IDField: "sys_id", Start: 0,
		ExcludeReferenceLink: true, QueryDomain: true, BatchSize: 5000, PollInterval: 5 * time.Second,
	}
}

// Sink returns the settings of a sink pipeline with the defaults of the key
// table, dead letters off, for tests that run an engine in their own process.
func Sink(name, instance, brokers, table string, topics ...string) config.Sink {
	src := Source(name, instance, brokers)
	return config.Sink{
		Name: name, Instance: src.Instance, Kafka: src.Kafka, Topics: topics, Group: "connect-" + name,
		SessionTimeout: 45 * time.Second, RebalanceTimeout: 2 * time.Minute, OffsetReset: "earliest", ReadCommitted: true,
		MaxInFlight: 8, MaxPending: 1000, CommitInterval: 5 * time.Second, CreateAmbiguous: "fail_ambiguous", Statuses: []int{502, 504},
		NotFound: "fail", OnErrors: "fail", Redelivered: "ambiguous", Settle: 75 * time.Second, DeadLetterReplication: 1,
		Mapping: mapping.Settings{
			Table: table, OperationMode: "key_value", OperationHeader: "snow.operation", UpdateMethod: mapping.Patch, KeyField: "sys_id",
			ValueField: "sys_id", Precedence: "reject", IDPattern: regexp.MustCompile(`^[0-9a-f]{32}$`), Null: "omit", Nested: "reject",
			Delimiter: "_", Unknown: "fail", TableHeader: "snow.table",
		},
	}
}
