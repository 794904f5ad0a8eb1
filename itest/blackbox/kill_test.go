package blackbox

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"snowmelt/itest/fakesnow"
	"snowmelt/itest/harness"
)

// writer changes an instance all the time: bursts within one second, rows whose
// timestamps lie up to 55 s back, updates.
type writer struct {
	inst  *fakesnow.Instance
	table string
	rng   *rand.Rand
	ids   []string
	stop  context.CancelFunc
	done  sync.WaitGroup
}

func (w *world) write(table string, seed uint64) *writer {
	ctx, cancel := context.WithCancel(context.Background())
	x := &writer{inst: w.inst, table: table, rng: rand.New(rand.NewPCG(seed, 2)), stop: cancel}
	for _, r := range w.inst.Rows(table, nil) {
		x.ids = append(x.ids, r["sys_id"])
	}
	x.done.Go(func() {
		for tick := time.Tick(20 * time.Millisecond); ; {
			select {
			case <-tick:
				x.change()
			case <-ctx.Done():
				return
			}
		}
	})
	w.t.Cleanup(x.end)
	return x
}

func (x *writer) end() {
	x.stop()
	x.done.Wait()
}

func (x *writer) change() {
	now := x.inst.Now()
	switch n := x.rng.IntN(100); {
	case n < 2: // more rows of one second than a page holds
		x.insert(250, now)
	case n < 12:
		x.insert(1+x.rng.IntN(3), now.Add(-time.Duration(x.rng.IntN(56))*time.Second))
	case n < 40:
		x.insert(1+x.rng.IntN(3), now)
	case n < 80:
		x.inst.Touch(x.table, x.ids[x.rng.IntN(len(x.ids))], map[string]string{"short_description": fmt.Sprint("change ", n)})
	}
}

func (x *writer) insert(n int, at time.Time) {
	stamp := at.UTC().Format(fakesnow.Stamp)
	for range n {
		id := fmt.Sprintf("%016x%016x", x.rng.Uint64(), x.rng.Uint64())
		x.inst.Insert(x.table, map[string]string{
			"sys_id": id, "sys_created_on": stamp, "sys_updated_on": stamp, "sys_mod_count": "0", "number": fmt.Sprint("INC", len(x.ids)),
		})
		x.ids = append(x.ids, id)
	}
}

// kills is how often the process is killed.
func kills(t *testing.T) int {
	n, _ := strconv.Atoi(os.Getenv("SNOWMELT_KILLS"))
	if testing.Short() {
		return cmp.Or(n, 5)
	}
	if n > 0 {
		t.Logf("%d kills", n)
	}
	return cmp.Or(n, 30)
}

// moments are when a process is killed: at random, while the broker holds a request,
// or at the answer to a commit.
var moments = []string{
	"commit lost", "random", "commit late", "random", "commit lost", "commit answered", "random", "commit late", "produce lost", "random",
}

// TestKill kills the process at random and at chosen moments. Every version of a
// row that is the last one arrives, no version twice, under read_committed.
func TestKill(t *testing.T) {
	const table, seed = "incident", 20260
	w := newWorld(t)
	w.inst.Generate(table, 6000, fakesnow.GenOptions{MinimalFields: true})
	changes := w.write(table, seed)
	g := newGate(w.broker)
	g.slow = 20 * time.Millisecond // so that some random moments are within a transaction
	config := w.configure(w.source(table), nil)
	rng := rand.New(rand.NewPCG(seed, 1))
	n := kills(t)
	open, byMoment := 0, map[string]int{}
	var late []*trap // commits that reach the broker when their sender is dead
	defer func() {
		for _, trap := range late {
			trap.open(true)
		}
	}()
	for i := range n {
		moment := moments[i%len(moments)]
		wait := time.Duration(rng.IntN(300)) * time.Millisecond
		nth := 1 + rng.IntN(4)
		var trap *trap
		switch moment {
		case "random":
			trap = g.arm(kmsg.EndTxn, 1, passes)
			if rng.IntN(3) == 0 { // before anything is committed, perhaps
				trap = nil
			}
		case "commit answered":
			trap, wait = g.arm(kmsg.EndTxn, nth, passes), 0
		case "produce lost":
			trap, wait = g.arm(kmsg.Produce, nth), 0
		default:
			trap, wait = g.arm(kmsg.EndTxn, nth), 0
		}
		p := w.run(config)
		for _, t := range late { // into the start of the next process
			t.open(false)
		}
		if trap != nil {
			w.reached(p, trap)
		}
		if wait > 0 {
			<-time.After(wait)
		}
		p.Kill()
		if len(w.ongoing(table)) > 0 {
			open++
			byMoment[moment]++
		}
		if trap != nil && moment != "commit late" {
			trap.open(true)
		} else if trap != nil {
			late = append(late, trap)
		}
	}
	t.Logf("%d kills, %d of them left an open transaction: %v", n, open, byMoment)
	if open < n/3 {
		t.Errorf("only %d of %d kills left an open transaction", open, n)
	}
	g.arm(kmsg.EndTxn, -1)
	changes.end()
	p := w.run(config)
	for _, t := range late {
		t.open(false)
	}
	w.arrived(table)
	p.signal(syscall.SIGTERM)
	p.exits(0)
	w.counts(table)
	lost, err := harness.OpenTransactions(w.ctx(), topicOf(table), w.kafka()...)
	if err != nil || lost == 0 {
		t.Errorf("%d records of transactions that were never committed (%v): the kills hit nothing", lost, err)
	}
	t.Logf("%d records belong to transactions that were never committed", lost)
}

func passes(t *trap) { t.pass = true }
