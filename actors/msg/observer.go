package msg

import (
	"time"

	"snowmelt/core/cursor"
	"snowmelt/core/kafka"
)

// State is the state of a table, lane or pipeline, as status and readiness show it.
type State string

// The states.
const (
	Starting  State = "STARTING"
	Running   State = "RUNNING"
	Degraded  State = "DEGRADED"
	Retrying  State = "RETRYING"
	Throttled State = "THROTTLED"
	Stopping  State = "STOPPING"
	Stopped   State = "STOPPED"
	Failed    State = "FAILED"
)

// Observer is told what happens; it feeds status and metrics. Its methods are
// called from actors: they never block and may be called from several at once.
type Observer interface {
	// TableState is a change of a table's state; err is the reason, nil when it is well.
	TableState(pipeline, alias string, s State, err error)
	// TableRetry is a request of a table that is tried again.
	TableRetry(pipeline, alias string, attempt int, next time.Time, err error)
	// PageRead is a page that arrived.
	PageRead(pipeline, alias string, p PageFacts)
	// PagePublished is a draft that became durable, or that had nothing to publish.
	PagePublished(pipeline, alias string, p PublishedFacts)
	// LaneState is a change of a lane's state; err is the reason, nil when it is well.
	LaneState(pipeline string, part kafka.Partition, s State, err error)
	// LaneMoved says where a lane stands: the offset to commit, and records not finished.
	LaneMoved(pipeline string, part kafka.Partition, offset int64, pending int)
	// LaneGone says that a lane ended.
	LaneGone(pipeline string, part kafka.Partition)
	// Wrote counts a write by operation and outcome: success, skipped, ignored, or a classification.
	Wrote(pipeline string, part kafka.Partition, operation, outcome string)
	// Reports counts reports and dead letters by kind.
	Reports(pipeline, kind string, n int)
	// Restarted counts restarts of actors by kind.
	Restarted(kind string)
	// PipelineState is a change of a pipeline's state.
	PipelineState(pipeline string, s State, err error)
	// Instance is the limiter's state.
	Instance(host string, f InstanceFacts)
}

// PageFacts describe a page that arrived.
type PageFacts struct {
	Rows, Suppressed, Bad, Hidden int
	Bytes                         int64
	Took                          time.Duration
	Limit, FilterLen              int
}

// PublishedFacts describe what is durable after a page.
type PublishedFacts struct {
	// Rows went out, Skipped were larger than the topic takes.
	Rows, Skipped int
	State         cursor.Durable
	// Lag is how far the cursor's proof lies behind the instance's time.
	Lag   time.Duration
	Ended bool
}

// InstanceFacts describe an instance's limiter.
type InstanceFacts struct {
	Permits, InFlight, Waiting int
	PausedUntil                time.Time
	Limited                    bool // a 429 has just come
}
