package msg

import (
	"snowmelt/core/kafka"
	"snowmelt/core/lane"
	"snowmelt/core/record"
)

// Sink is the inbox of a sink pipeline.
type Sink interface{ sink() }

// FieldsRead is the table's dictionary, or why it could not be read.
type FieldsRead struct {
	quiet
	Fields map[string]bool
	Err    error
}

// Joined says that the consumer was made.
type Joined struct {
	quiet
	Consumer *kafka.Consumer
	Err      error
}

// Polled is what one poll of the consumer returned.
type Polled struct {
	quiet
	Records []record.Consumed
	Err     error
}

// Fetched are the committed positions of partitions that the group gave to this member.
type Fetched struct {
	quiet
	Commits map[kafka.Partition]kafka.Commit
}

// Revoked asks for partitions back: Done is closed when nothing of them is in
// flight and their positions are committed.
type Revoked struct {
	quiet
	Parts []kafka.Partition
	Done  chan struct{}
}

// Lost says that partitions belong to somebody else already.
type Lost struct {
	quiet
	Parts []kafka.Partition
}

// LaneMoved says where a lane stands: what may be committed, and how many
// records it has not finished. Wanted says that it waits for the mark.
type LaneMoved struct {
	quiet
	Part    kafka.Partition
	Offset  int64
	Mark    lane.Mark
	Pending int
	Wanted  bool
}

// LaneEnded says that a lane has nothing in flight and takes nothing any more.
type LaneEnded struct {
	quiet
	Part   kafka.Partition
	Offset int64
	Mark   lane.Mark
}

// LaneFailed says that a lane, or the reporter, cannot go on by itself.
type LaneFailed struct {
	quiet
	// Part is the lane's partition; the zero value is the reporter.
	Part kafka.Partition
	Err  error
}

// CommitDone is the outcome of one commit.
type CommitDone struct {
	quiet
	Commits map[kafka.Partition]kafka.Commit
	Marks   map[kafka.Partition]lane.Mark
	Err     error
}

// CommitTick is the commit interval.
type CommitTick struct{ quiet }

// RetryChild is the timer of a lane, or of the start, that failed and may try again.
type RetryChild struct {
	quiet
	Part  kafka.Partition
	Token uint64
}

// DrainSink ends a pipeline in order.
type DrainSink struct{ quiet }

// Left says that the consumer has left the group.
type Left struct{ quiet }

func (*Granted) sink()    {}
func (*FieldsRead) sink() {}
func (*Joined) sink()     {}
func (*Polled) sink()     {}
func (*Fetched) sink()    {}
func (*Revoked) sink()    {}
func (*Lost) sink()       {}
func (*LaneMoved) sink()  {}
func (*LaneEnded) sink()  {}
func (*LaneFailed) sink() {}
func (*CommitDone) sink() {}
func (*CommitTick) sink() {}
func (*RetryChild) sink() {}
func (*DrainSink) sink()  {}
func (*Left) sink()       {}
