// Package config knows every setting: the key table (declared once with type,
// default, bounds and text), how files, environment and flags become one
// configuration, and the typed settings that the rest of the house reads.
package config

import (
	"net/url"
	"time"

	"snowmelt/core/cursor"
	"snowmelt/core/failure"
	"snowmelt/core/mapping"
)

// Config is a complete, valid configuration.
type Config struct {
	Sources []Source
	Sinks   []Sink
	// AdminAddress is admin.address, AdminToken admin.token.
	AdminAddress, AdminToken string
	// ShutdownTimeout is engine.shutdown.timeout.ms.
	ShutdownTimeout time.Duration
	// HoldOnFailure is engine.on.failure=hold: the process stays when every pipeline has failed.
	HoldOnFailure bool
	// FatalStopsProcess is engine.on.fatal=process.
	FatalStopsProcess bool
	// LogLevel is debug, info, warn or error; LogFormat text or json.
	LogLevel, LogFormat string
	// Notes say what was accepted and has no effect, for the log.
	Notes []string
}

// Instance says how one ServiceNow instance is reached. Pipelines on the same
// host share one limiter; its bounds are those of the first that names it.
type Instance struct {
	URL                *url.URL
	Username, Password string
	UserAgent          string
	// MaxConcurrent is snow.http.max.concurrent.requests, MaxPerHour snow.http.max.requests.per.hour.
	MaxConcurrent, MaxPerHour int
	Adaptive                  bool
	// ConnectTimeout, RequestTimeout and BodyIdle are the timeouts of snow.http.
	ConnectTimeout, RequestTimeout, BodyIdle time.Duration
	// MaxResponse is snow.http.max.response.bytes.
	MaxResponse    int64
	AllowPlaintext bool
	Retry          failure.Retry
}

// Source is one source pipeline.
type Source struct {
	Name     string
	Instance Instance
	// Kafka holds the client settings under the Java client's names, bootstrap.servers included.
	Kafka  map[string]string
	Tables []Table
	// ExactlyOnce is snow.source.delivery.
	ExactlyOnce bool
	// SchemaMode is schemaless, the only one built so far.
	SchemaMode string
	Probe      bool
	SkipBadRows, ProvePages,
	AllowExpiring bool
	Overlap, SafetyLag, LateWindow      int // seconds
	LateInterval, VerifiedInterval      time.Duration
	DedupWindow, PublishersMax          int
	TransactionTimeout                  time.Duration
	TransactionalIDPrefix               string
	OffsetTopic                         string
	OffsetPartitions, OffsetReplication int
	// CreateTopics is topic.creation.enable; the four below are topic.creation.default.*.
	CreateTopics                      bool
	TopicPartitions, TopicReplication int
	TopicSettings                     map[string]string // retention.ms included
	// TableRestart is snow.source.table.restart.interval.ms, 0 = never.
	TableRestart time.Duration
}

// Table is one table of a source pipeline.
type Table struct {
	Alias, Name, Topic string
	Start              cursor.Timestamp
	TimestampField     string
	IDField            string
	// Query is the base query as configured, Parsed what became of it.
	Query  string
	Parsed cursor.Query
	// Fields is the projection with the cursor fields and sys_mod_count, nil for all.
	Fields []string
	// DisplayValue is false or all.
	DisplayValue                      string
	ExcludeReferenceLink, QueryDomain bool
	QueryCategory                     string
	BatchSize                         int
	PollInterval                      time.Duration
}

// Sink is one sink pipeline.
type Sink struct {
	Name     string
	Instance Instance
	// Kafka holds the client settings under the Java client's names, bootstrap.servers included.
	Kafka  map[string]string
	Topics []string
	// Mapping holds the policies of routing, identity, operation and body.
	Mapping mapping.Settings
	// Group is the consumer group, InstanceID its static member or "".
	Group, InstanceID                string
	SessionTimeout, RebalanceTimeout time.Duration
	// OffsetReset is earliest, latest or none.
	OffsetReset   string
	ReadCommitted bool
	// MaxInFlight bounds the lanes that write at once, MaxPending the unfinished records of a partition.
	MaxInFlight, MaxPending int
	CommitInterval          time.Duration
	// CreateAmbiguous is retry or fail_ambiguous, Statuses the answers to a create after which the row may exist.
	CreateAmbiguous string
	Statuses        []int
	// NotFound is fail, ignore or create; OnErrors fail, log or ignore; Redelivered ambiguous, send or skip.
	NotFound, OnErrors, Redelivered string
	Settle                          time.Duration
	// SuccessTopic, ErrorTopic and DeadLetterTopic are "" when not wanted.
	SuccessTopic, ErrorTopic, DeadLetterTopic string
	ReportBody, ContextHeaders                bool
	DeadLetterReplication                     int
}
