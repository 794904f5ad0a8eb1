package msg

import (
	"snowmelt/core/lane"
	"snowmelt/core/servicenow"
)

// Lane is the inbox of a partition's lane.
type Lane interface{ lane() }

// Deliver tells a lane that records lie in its Kept. They are not in the message:
// a message is lost when the lane panics over it, and a lost record would be a gap.
type Deliver struct{ quiet }

// Marked says that a commit with this mark is durable.
type Marked struct {
	quiet
	Mark lane.Mark
}

// Wrote tells a lane that the outcome of a request lies in its Kept.
type Wrote struct{ quiet }

// Written is the outcome of one request. It is matched by offset and attempt, not
// by the actor that sent it: a restarted lane takes over what its predecessor sent.
type Written struct {
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
type EndLane struct {
	quiet
	// Abandon ends it even if its last report cannot be made durable: the offset stays.
	Abandon bool
}

func (*Deliver) lane()  {}
func (*Marked) lane()   {}
func (*Wrote) lane()    {}
func (*Reported) lane() {}
func (*LaneTick) lane() {}
func (*EndLane) lane()  {}
func (*Granted) lane()  {}
