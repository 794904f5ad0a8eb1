package blackbox

import (
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"snowmelt/itest/fakesnow"
	"snowmelt/itest/harness"
)

// held starts a process and stops it, by SIGSTOP, while the broker holds its n-th commit.
func (w *world) held(g *gate, nth int, config string) (*child, *trap) {
	w.t.Helper()
	trap := g.arm(kmsg.EndTxn, nth)
	p := w.run(config)
	p.admin()
	w.reached(p, trap)
	p.signal(syscall.SIGSTOP)
	return p, trap
}

// since finds the lower bound of a request for rows, or for late ones, which reach a minute back.
var since = regexp.MustCompile(`sys_updated_on>([0-9: -]{19})`)

// TestSharedCursorPartition: the cursors of two tables are in one partition. While the
// owner of one hangs in its transaction, the owner of the other is killed and comes
// back with its right cursor: it neither waits for the first nor begins anew.
func TestSharedCursorPartition(t *testing.T) {
	const stuck, live = "incident", "change_request"
	began := time.Now()
	w := newWorld(t)
	for _, table := range []string{stuck, live} {
		w.inst.Generate(table, 2000, fakesnow.GenOptions{MinimalFields: true})
	}
	g := newGate(w.broker)
	long := settings{"snow.source.transaction.timeout.ms": 600_000, "offset.storage.partitions": 1}
	// The owner of the second table commits before and after the first one hangs.
	b := w.run(w.configure(w.source(live).with(long), nil))
	w.until("the second table has begun", func() (bool, error) { return w.records(live) > 0, nil })
	b.Kill()
	g.arm(kmsg.EndTxn, -1)
	a, trap := w.held(g, 3, w.configure(w.source(stuck).with(long), nil))
	hung := w.ongoing(stuck)
	if len(hung) != 1 {
		t.Fatalf("open transactions: %+v", w.transactions("Ongoing"))
	}
	config := w.configure(w.source(live).with(long), nil)
	restarts := 0
	for range 3 {
		b = w.run(config)
		w.inst.Generate(live, 300, fakesnow.GenOptions{Start: w.inst.Now(), OneSecond: true, MinimalFields: true, Seed: int64(restarts + 2), IDPrefix: fmt.Sprint("b", restarts)})
		w.arrived(live) // progress, while the first owner's transaction is open
		b.Kill()
		restarts++
	}
	seen := w.inst.Journal()
	last := seen[len(seen)-1].Seq
	b = w.run(config)
	w.inst.Generate(live, 10, fakesnow.GenOptions{Start: w.inst.Now(), OneSecond: true, MinimalFields: true, Seed: 99, IDPrefix: "c"})
	w.arrived(live)
	asked, oldest := 0, time.Now().UTC().Format(time.DateTime)
	for _, e := range w.inst.JournalSince(last) {
		if m := since.FindStringSubmatch(e.Query.Get("sysparm_query")); m != nil && e.Table == live {
			asked++
			oldest = min(oldest, m[1])
		}
	}
	t.Logf("%d restarts; the last one asked %d times for rows, the oldest of them after %s", restarts+1, asked, oldest)
	if asked == 0 || oldest < began.Add(-2*time.Minute).UTC().Format(time.DateTime) {
		t.Errorf("the last restart asked for rows after %s: it did not find its cursor", oldest)
	}
	if still := w.ongoing(stuck); len(still) != 1 || still[0].ProducerEpoch != hung[0].ProducerEpoch {
		t.Errorf("the first owner's transaction has ended: %+v", still)
	}
	w.counts(live)
	trap.open(false) // its commit arrives after all
	a.signal(syscall.SIGCONT)
	w.arrived(stuck)
	for _, p := range []*child{a, b} {
		p.signal(syscall.SIGTERM)
		p.exits(0)
	}
	w.counts(live)
	w.counts(stuck)
}

// TestZombie: a stopped owner that wakes up after another process took its table
// writes nothing, says so, and does not take the table back.
func TestZombie(t *testing.T) {
	const table = "incident"
	for name, test := range map[string]struct {
		idle bool // stopped without an open transaction
		lose bool // its commit never arrives; otherwise after the takeover
	}{
		"in a transaction, its commit comes late": {},
		"in a transaction, its commit is lost":    {lose: true},
		"idle":                                    {idle: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.inst.Generate(table, 1500, fakesnow.GenOptions{MinimalFields: true})
			g := newGate(w.broker)
			hold := settings{"engine.on.failure": "hold"}
			config := w.configure(w.source(table).with(settings{"snow.source.transaction.timeout.ms": 600_000}), hold)
			var a *child
			var held *trap
			if test.idle {
				a = w.run(config)
				w.arrived(table)
				a.signal(syscall.SIGSTOP)
			} else {
				a, held = w.held(g, 3, config)
				defer held.open(true)
			}
			owner := w.transactions("")[0]
			b := w.run(config)
			w.inst.Generate(table, 50, fakesnow.GenOptions{Start: w.inst.Now(), OneSecond: true, MinimalFields: true, Seed: 2, IDPrefix: "b"})
			w.arrived(table)
			before := w.records(table)
			if held != nil {
				held.open(test.lose)
			}
			a.signal(syscall.SIGCONT)
			w.inst.Generate(table, 50, fakesnow.GenOptions{Start: w.inst.Now(), OneSecond: true, MinimalFields: true, Seed: 3, IDPrefix: "c"})
			var woken tableStatus
			w.until("the zombie says that it was fenced", func() (bool, error) {
				var err error
				woken, err = a.table(table)
				return woken.State == "FAILED", err
			})
			if !strings.Contains(woken.Error, "another process owns this table") || !strings.Contains(a.Stderr(), `"class":"FENCED"`) {
				t.Errorf("the zombie says %q", woken.Error)
			}
			if code, body, err := a.get("/readyz"); err != nil || code != 503 || !strings.Contains(body, table) {
				t.Errorf("/readyz of the zombie: %d %s (%v)", code, body, err)
			}
			w.inst.Generate(table, 50, fakesnow.GenOptions{Start: w.inst.Now(), OneSecond: true, MinimalFields: true, Seed: 4, IDPrefix: "d"})
			w.arrived(table)
			if after := w.records(table); after != before+100 {
				t.Errorf("%d records after the takeover, want 100", after-before)
			}
			w.counts(table)
			w.singleOwner(table, owner.ProducerEpoch)
			sa, _ := a.table(table)
			sb, err := b.table(table)
			t.Logf("the zombie published %d rows, its successor %d", sa.Rows, sb.Rows)
			if err != nil || sb.State != "RUNNING" {
				t.Errorf("the successor is %+v (%v)", sb, err)
			}
			if all := w.records(table); sa.Rows+sb.Rows != all {
				t.Errorf("the processes published %d and %d rows, the topic holds %d", sa.Rows, sb.Rows, all)
			}
			b.signal(syscall.SIGTERM)
			b.exits(0)
			a.signal(syscall.SIGTERM)
			a.exits(1) // its pipeline had failed
		})
	}
}

// singleOwner checks that the epochs of the committed records of a partition only
// grow: a record of the old owner behind one of the new would go back.
func (w *world) singleOwner(table string, old int16) {
	w.t.Helper()
	for _, topic := range []string{topicOf(table), "snowmelt-offsets"} {
		records, err := harness.ReadTopic(w.ctx(), topic, false, w.kafka()...)
		if err != nil {
			w.t.Fatal(err)
		}
		newest, later := map[int32]int16{}, 0
		for _, r := range records {
			if r.ProducerEpoch < newest[r.Partition] {
				w.t.Errorf("%s/%d/%d is of epoch %d, after one of %d", topic, r.Partition, r.Offset, r.ProducerEpoch, newest[r.Partition])
			}
			newest[r.Partition] = r.ProducerEpoch
			if r.ProducerEpoch > old {
				later++
			}
		}
		if later == 0 {
			w.t.Errorf("%s holds no record of the new owner", topic)
		}
	}
}
