package supervisor

import "time"

// Status is what the engine is doing, in the shape that GET /api/v1/status promises.
type Status struct {
	Version   string           `json:"version"`
	Pipelines []PipelineStatus `json:"pipelines"`
	Instances []InstanceStatus `json:"instances"`
}

// PipelineStatus is one source or sink.
type PipelineStatus struct {
	Name     string        `json:"name"`
	Kind     string        `json:"kind"`
	State    string        `json:"state"`
	Error    string        `json:"error,omitempty"`
	Children []ChildStatus `json:"children"`
}

// ChildStatus is one table, lane or reporter.
type ChildStatus struct {
	Name  string    `json:"name"`
	Kind  string    `json:"kind"`
	State string    `json:"state"`
	Error string    `json:"error,omitempty"`
	Since time.Time `json:"since"`
	// Cursor is the position of the last row published, "<timestamp> <sys_id>".
	Cursor string `json:"cursor,omitempty"`
	// Verified is the time up to which the table is proven complete.
	Verified string `json:"verified,omitempty"`
	// LagSeconds is how far the proof lies behind the instance's time.
	LagSeconds float64 `json:"lag_seconds"`
	Phase      string  `json:"phase,omitempty"`
	Restarts   int     `json:"restarts"`
	// Rows counts the rows published by this process.
	Rows uint64 `json:"rows"`
	// Pending counts the records of a lane that are not finished.
	Pending int `json:"pending,omitempty"`
	// Attempt, NextTry and LastError describe a request that is being retried.
	Attempt int        `json:"attempt,omitempty"`
	NextTry *time.Time `json:"next_try,omitempty"`
}

// InstanceStatus is one instance's limiter.
type InstanceStatus struct {
	Host        string     `json:"host"`
	Permits     int        `json:"permits"`
	InFlight    int        `json:"in_flight"`
	Waiting     int        `json:"waiting"`
	PausedUntil *time.Time `json:"paused_until,omitempty"`
	Breaker     string     `json:"breaker"`
}
