package itest

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"snowmelt/itest/fakesnow"
	"snowmelt/itest/harness"
)

// histories is how many random histories the model test runs.
func histories() int {
	n, _ := strconv.Atoi(os.Getenv("SNOWMELT_HISTORIES"))
	if raceEnabled {
		return cmp.Or(n, 200) // each costs several times as much
	}
	return cmp.Or(n, 2000)
}

// op is one event of a history: what happens, and how much of it.
type op struct {
	Do string
	N  int
}

// plan is a whole history, drawn before it is run.
type plan struct {
	Limit, Rows, HideEvery int
	OneSecond, AtLeastOnce bool
	Ops                    []op
}

func drawPlan(t *rapid.T) plan {
	p := plan{
		Limit: rapid.IntRange(1, 9).Draw(t, "limit"), Rows: rapid.IntRange(0, 40).Draw(t, "rows"),
		HideEvery: rapid.SampledFrom([]int{0, 0, 2, 5}).Draw(t, "hide"), OneSecond: rapid.Bool().Draw(t, "second"),
		AtLeastOnce: rapid.IntRange(0, 9).Draw(t, "delivery") == 0,
	}
	what := []string{
		"insert", "insert", "late", "update", "update", "burst", "wait", "wait", "kill", "restart", "zombie",
		"fault", "fault", "broker", "broker", "lost commit", "cut",
	}
	for range rapid.IntRange(0, 25).Draw(t, "ops") {
		p.Ops = append(p.Ops, op{rapid.SampledFrom(what).Draw(t, "do"), rapid.IntRange(0, 1000).Draw(t, "n")})
	}
	return p
}

// instanceFaults are what an instance does to a reader; each ends by itself.
var instanceFaults = []fakesnow.Fault{
	{Kind: fakesnow.FaultStatus, Params: fakesnow.FaultParams{Status: 503}},
	{Kind: fakesnow.FaultStatus, Params: fakesnow.FaultParams{Status: 500}},
	{Kind: fakesnow.FaultStatus, Params: fakesnow.FaultParams{Status: 429, RetryAfter: "7"}},
	{Kind: fakesnow.FaultStatus, Params: fakesnow.FaultParams{Status: 429}},
	{Kind: fakesnow.FaultResetBefore},
	{Kind: fakesnow.FaultResetAfter},
	{Kind: fakesnow.FaultResetBody, Params: fakesnow.FaultParams{AtByte: 900}},
	{Kind: fakesnow.FaultTruncated},
	{Kind: fakesnow.FaultMalformed},
	{Kind: fakesnow.FaultHTML200},
	{Kind: fakesnow.FaultBadGzip},
	{Kind: fakesnow.FaultMaxExecution},
	{Kind: fakesnow.FaultStallHeaders},
	{Kind: fakesnow.FaultStallBody},
	{Kind: fakesnow.FaultDuplicateRows},
	{Kind: fakesnow.FaultReorderRows},
	{Kind: fakesnow.FaultExtraRows},
	{Kind: fakesnow.FaultTouchRows},
}

// brokerFaults are what a broker answers while it moves things about.
var brokerFaults = []struct {
	key kmsg.Key
	err *kerr.Error
}{
	{kmsg.Produce, kerr.NotLeaderForPartition},
	{kmsg.Produce, kerr.RequestTimedOut},
	{kmsg.EndTxn, kerr.CoordinatorNotAvailable},
	{kmsg.EndTxn, kerr.ConcurrentTransactions},
	{kmsg.InitProducerID, kerr.CoordinatorLoadInProgress},
	{kmsg.AddPartitionsToTxn, kerr.NotCoordinator},
	{kmsg.Fetch, kerr.NotLeaderForPartition},
	{kmsg.Produce, kerr.KafkaStorageError},
}

// history is a plan being run.
type history struct {
	*world
	plan    plan
	running *process
	past    []*process
	ids     []string
	hidden  sync.Map // ids
	next    int
}

func (h *history) insert(n int, at time.Time) {
	for range n {
		h.next++
		id := fmt.Sprintf("%032x", uint64(h.next)*0x9E3779B97F4A7C15)
		if h.plan.HideEvery > 0 && h.next%h.plan.HideEvery == 0 {
			h.hidden.Store(id, true)
		}
		stamp := at.UTC().Format(fakesnow.Stamp)
		h.inst.Insert("incident", map[string]string{
			"sys_id": id, "sys_created_on": stamp, "sys_updated_on": stamp, "sys_mod_count": "0", "number": fmt.Sprint("INC", h.next),
		})
		h.ids = append(h.ids, id)
	}
}

func (h *history) begin() error {
	tab := harness.Table("incident", topic)
	tab.BatchSize = h.plan.Limit
	src := h.source(tab)
	src.ExactlyOnce = !h.plan.AtLeastOnce
	src.TopicPartitions = 2
	src.OffsetPartitions = 3
	p, err := h.start(src)
	h.running = p
	return err
}

func (h *history) do(o op) error {
	switch o.Do {
	case "insert":
		h.insert(1+o.N%3, h.inst.Now())
	case "burst": // one second with more rows than a page
		h.insert(2*h.plan.Limit+1, h.inst.Now())
	case "late":
		h.insert(1+o.N%2, h.inst.Now().Add(-time.Duration(o.N%56)*time.Second))
	case "update":
		if len(h.ids) > 0 {
			h.inst.Touch("incident", h.ids[o.N%len(h.ids)], map[string]string{"short_description": fmt.Sprint("change ", o.N)})
		}
	case "wait":
		time.Sleep(time.Duration(o.N*20) * time.Millisecond)
	case "kill":
		h.running.kill()
		h.past = append(h.past, h.running)
		return h.begin()
	case "restart":
		if err := h.running.stop(); err != nil {
			return err
		}
		return h.begin()
	case "zombie": // a second owner takes over; the first finds out by itself
		h.past = append(h.past, h.running)
		return h.begin()
	case "fault":
		f := instanceFaults[o.N%len(instanceFaults)]
		f.Table, f.Times = "incident", 1+o.N%2
		h.inst.AddFault(f)
	case "broker":
		f := brokerFaults[o.N%len(brokerFaults)]
		h.broker.Fault(kfake.Fault{Keys: []kmsg.Key{f.key}, Err: f.err, Count: 1 + o.N%2})
	case "lost commit": // the broker commits, and the answer is lost
		h.broker.ControlKey(int16(kmsg.EndTxn), func(r kmsg.Request) (kmsg.Response, error, bool) { return nil, errors.New("lost"), false })
	case "cut":
		h.running.cut(false)
	}
	return nil
}

// run plays the plan and says what is wrong at its end.
func (h *history) run() (err error) {
	defer func() {
		for _, p := range append(h.past, h.running) {
			if p != nil {
				if serr := p.stop(); serr != nil && err == nil {
					err = serr
				}
			}
		}
	}()
	begin := h.inst.Now().Add(-48 * time.Hour)
	for i := range h.plan.Rows {
		at := begin
		if !h.plan.OneSecond {
			at = begin.Add(time.Duration(i*i) * time.Minute / 2)
		}
		h.insert(1, at)
	}
	hidden := func(id string) bool { _, ok := h.hidden.Load(id); return ok }
	h.inst.HideRows("incident", func(id string, _ map[string]string) bool { return hidden(id) })
	if err := h.begin(); err != nil {
		return err
	}
	for _, o := range h.plan.Ops {
		if err := h.do(o); err != nil {
			return fmt.Errorf("%v: %w", o, err)
		}
	}
	h.inst.ClearFaults()
	if h.zombies() { // one of several owners is left; give the table to a fresh one
		h.running.kill()
		h.past = append(h.past, h.running)
		if err := h.begin(); err != nil {
			return err
		}
	}
	h.insert(1, h.inst.Now())
	time.Sleep(6 * time.Minute)
	tally, err := h.world.tally("incident", topic, hidden)
	if err != nil {
		return err
	}
	if h.plan.AtLeastOnce {
		tally.Duplicates, tally.Backwards = 0, 0
	}
	if !tally.OK() {
		return fmt.Errorf("%+v; status %+v", tally, h.running.Status().Pipelines)
	}
	return nil
}

func (h *history) zombies() bool {
	for _, p := range h.past {
		if !p.dead {
			return true
		}
	}
	return false
}

// TestHistories plays random histories of an instance, a broker and processes
// that die, against the real engine: under exactly_once every visible row's
// last version arrives, and no version twice.
func TestHistories(t *testing.T) {
	t.Parallel()
	n := histories()
	t.Logf("%d histories", n)
	played := 0
	for played < n {
		rapid.Check(t, func(rt *rapid.T) {
			p := drawPlan(rt)
			var err error
			synctest.Test(t, func(t *testing.T) {
				h := &history{world: newWorld(t), plan: p}
				err = h.run()
			})
			if err != nil {
				rt.Fatalf("%+v: %v", p, err)
			}
			played++
		})
		if t.Failed() {
			return
		}
	}
}
