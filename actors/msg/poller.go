package msg

import (
	"time"

	"snowmelt/core/cursor"
	"snowmelt/core/kafka"
	"snowmelt/core/servicenow"
)

// Poller is the inbox of a table's poller. Results of work carry the generation
// of the actor that began it, so that a restarted actor ignores its predecessor's.
type Poller interface{ poller() }

// Drain ends a poller in order: no further page is asked for, the page being
// published is finished, the publisher is closed, then the actor stops.
type Drain struct{ quiet }

// Probed is the outcome of the check at start.
type Probed struct {
	quiet
	Gen uint64
	// Date is the instance's time and Received when it arrived.
	Date, Received time.Time
	// Oldest is the time of the table's oldest row, cursor.None when it is empty.
	Oldest cursor.Timestamp
	// Total is the number of rows when it was asked for, else -1.
	Total int
	Err   error
}

// Claimed says that the table's transactional id was initialised and its cursor
// read: where the table stands.
type Claimed struct {
	quiet
	Gen     uint64
	Durable cursor.Durable
	Found   bool
	// Filter holds the published versions of the re-read window, Newest the latest of them.
	Filter *cursor.Filter
	// Next is the end of each partition of the table's topic.
	Next map[int32]int64
	// Warning says why the filter may be incomplete, "" when it is not.
	Warning string
	Err     error
}

// PageRead is one page, or why there is none.
type PageRead struct {
	quiet
	Gen  uint64
	Page *servicenow.Page
	Took time.Duration
	Err  error
}

// PagePublished says that records and cursor of a page are durable.
type PagePublished struct {
	quiet
	Gen       uint64
	Published kafka.Published
}

// PageFailed says that a page is not, or may not be, durable.
type PageFailed struct {
	quiet
	Gen uint64
	Err error
}

// Closed says that the publisher is closed.
type Closed struct {
	quiet
	Gen uint64
}

// Tick is a timer that went off. Token tells it from one that was replaced.
type Tick struct {
	quiet
	Gen, Token uint64
}

func (*Drain) poller()         {}
func (*Probed) poller()        {}
func (*Claimed) poller()       {}
func (*PageRead) poller()      {}
func (*PagePublished) poller() {}
func (*PageFailed) poller()    {}
func (*Closed) poller()        {}
func (*Tick) poller()          {}
func (*Granted) poller()       {}
