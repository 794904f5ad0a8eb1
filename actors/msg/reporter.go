package msg

import (
	"snowmelt/core/mapping"
	"snowmelt/core/record"
	"snowmelt/core/servicenow"
)

// Reporter is the inbox of a sink's reporter.
type Reporter interface{ reporter() }

// Report tells what became of a record. Reported is told to Reply once every
// report about it is durable (Invariant 2).
type Report struct {
	quiet
	Record record.Consumed
	Write  mapping.Write
	// Result is the instance's confirmation, for a success.
	Result servicenow.Written
	// Err is the permanent error, nil for a success; Classification its name in reports.
	Err            error
	Classification string
	Retries        int
	Reply          Ref[*Reported]
}

// Produced is the outcome of producing a batch of reports.
type Produced struct {
	quiet
	Err error
}

// ReportTick tries a batch again.
type ReportTick struct{ quiet }

func (*Report) reporter()     {}
func (*Produced) reporter()   {}
func (*ReportTick) reporter() {}
