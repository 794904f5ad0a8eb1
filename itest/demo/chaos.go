package demo

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"snowmelt/config"
	"snowmelt/core/failure"
	"snowmelt/itest/fakesnow"
)

// impatient shortens the waits of an instance's settings, so that stalls are
// found out within the demo's time.
func impatient(i config.Instance) config.Instance {
	i.RequestTimeout, i.BodyIdle = 2*time.Second, time.Second
	i.Retry = failure.Retry{MaxAttempts: 5, MaxElapsed: time.Minute, Initial: 50 * time.Millisecond, Max: time.Second}
	return i
}

// chaos is what an instance does now and then; each kind hits its share of the
// requests, decided by seed, table, method and the number of the request.
var chaos = []fakesnow.Fault{
	{Kind: fakesnow.FaultStatus, Probability: 0.03, Params: fakesnow.FaultParams{Status: 503}},
	{Kind: fakesnow.FaultStatus, Probability: 0.02, Params: fakesnow.FaultParams{Status: 500}},
	{Kind: fakesnow.FaultStatus, Probability: 0.02, Params: fakesnow.FaultParams{Status: 429, RetryAfter: "1"}},
	{Kind: fakesnow.FaultStatus, Probability: 0.02, Params: fakesnow.FaultParams{Status: 502, Applied: true}},
	{Kind: fakesnow.FaultResetBefore, Probability: 0.02},
	{Kind: fakesnow.FaultResetAfter, Probability: 0.02},
	{Kind: fakesnow.FaultAppliedNoAnswer, Probability: 0.02},
	{Kind: fakesnow.FaultHTML200, Probability: 0.01},
	{Kind: fakesnow.FaultStallHeaders, Probability: 0.005},
	{Kind: fakesnow.FaultTruncated, Method: "GET", Probability: 0.02},
	{Kind: fakesnow.FaultMalformed, Method: "GET", Probability: 0.02},
	{Kind: fakesnow.FaultBadGzip, Method: "GET", Probability: 0.02},
	{Kind: fakesnow.FaultMaxExecution, Method: "GET", Probability: 0.02},
	{Kind: fakesnow.FaultReorderRows, Method: "GET", Probability: 0.02},
	{Kind: fakesnow.FaultTouchRows, Method: "GET", Probability: 0.02, Params: fakesnow.FaultParams{Rows: 1}},
}

// brokerChaos is what a broker answers while it moves things about.
var brokerChaos = []struct {
	key   kmsg.Key
	err   *kerr.Error
	count int
}{
	{kmsg.Produce, kerr.NotLeaderForPartition, 3},
	{kmsg.EndTxn, kerr.CoordinatorNotAvailable, 2},
	{kmsg.Fetch, kerr.NotLeaderForPartition, 2},
	{kmsg.OffsetCommit, kerr.CoordinatorLoadInProgress, 2},
}

// spoil switches the chaos on.
func (d *demo) spoil() {
	for _, f := range chaos {
		for _, table := range []string{"incident", "change_request"} {
			f.Table = table
			d.inst.AddFault(f)
		}
	}
	for _, f := range brokerChaos {
		d.faults = append(d.faults, d.broker.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{f.key}, Err: f.err, Count: f.count}))
	}
}

// calm switches the instance's faults off.
func (d *demo) calm() {
	d.hits = d.injected()
	for _, f := range d.faults {
		d.hits -= f.Hits()
	}
	d.inst.ClearFaults()
}

// injected counts the faults that hit.
func (d *demo) injected() int {
	n := d.hits
	if n == 0 {
		for _, hits := range d.inst.FaultCounts() {
			n += hits
		}
	}
	for _, f := range d.faults {
		n += f.Hits()
	}
	return n
}
