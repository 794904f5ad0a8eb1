package msg

import (
	"snowmelt/core/lane"
	"snowmelt/core/record"
	"snowmelt/core/servicenow"
)

// Lane is the inbox of a partition's lane.
type Lane interface{ lane() }

// Deliver hands records to a lane, in the order of the partition.
type Deliver struct {
	quiet
	Records []record.Consumed
	// Fields are the table's columns, nil under policy passthrough.
	Fields map[string]bool
}

// Marked says that a commit with this mark is durable.
type Marked struct {
	quiet
	Mark lane.Mark
}

// Written is the outcome of one request. It is matched by offset and attempt, not
// by the actor that sent it: a restarted lane takes over what its predecessor sent.
type Written struct {
	quiet
	Offset  int64
	Attempt int
	Result  servicenow.Written
	Err     error
}

// Reported says that every report about a record is durable.
type Reported struct {
	quiet
	Offset int64
}

// LaneTick is a timer of a lane that went off.
type LaneTick struct {
	quiet
	Token uint64
}

// EndLane ends a lane: what is in flight is finished, nothing more is sent.
type EndLane struct{ quiet }

func (*Deliver) lane()  {}
func (*Marked) lane()   {}
func (*Written) lane()  {}
func (*Reported) lane() {}
func (*LaneTick) lane() {}
func (*EndLane) lane()  {}
func (*Granted) lane()  {}
