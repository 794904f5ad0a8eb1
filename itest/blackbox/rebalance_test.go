package blackbox

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"snowmelt/itest/fakesnow"
	"snowmelt/itest/harness"
)

// TestRebalance: members of a sink's group come and go in the middle of creates.
// Revoked lanes finish and commit, so that the next owner repeats nothing and
// doubts nothing (field report K2).
func TestRebalance(t *testing.T) {
	const creates = 600
	w := newWorld(t)
	if _, err := w.admin.CreateTopics(w.ctx(), 6, 1, nil, updates, updateFails); err != nil {
		t.Fatal(err)
	}
	w.inst.AddFault(fakesnow.Fault{Kind: fakesnow.FaultLatency, Table: "incident", Params: fakesnow.FaultParams{MinMS: 10, MaxMS: 150}})
	var records []*kgo.Record
	for i := range creates {
		records = append(records, &kgo.Record{
			Topic: updates, Key: fmt.Appendf(nil, "%d", i), Value: fmt.Appendf(nil, `{"correlation_id":"create-%d"}`, i),
			Headers: []kgo.RecordHeader{{Key: "snow.operation", Value: []byte("CREATE")}},
		})
	}
	if err := w.client.ProduceSync(w.ctx(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	config := w.configureSink(settings{"group.instance.id": "", "snow.sink.lane.max.pending": 20}) // a pause must not outlive its assignment
	rows := func(n int) {
		t.Helper()
		w.until(fmt.Sprint(n, " rows"), func() (bool, error) { return w.inst.Count("incident") >= n, nil })
	}
	var members []*child
	for i := range 3 {
		members = append(members, w.run(config))
		rows((i + 1) * creates / 10)
	}
	for i, p := range members[:2] {
		p.signal(syscall.SIGTERM)
		p.exits(0)
		rows((i + 5) * creates / 10)
	}
	w.until("every record to be committed", func() (bool, error) {
		n, err := w.committed()
		return n == creates || members[2].Ended(), err
	})
	members[2].signal(syscall.SIGTERM)
	members[2].exits(0)
	count := map[string]int{}
	for _, r := range w.inst.Rows("incident", nil) {
		count[r["correlation_id"]]++
	}
	for i := range creates {
		if n := count[fmt.Sprint("create-", i)]; n != 1 {
			t.Errorf("create %d made %d rows", i, n)
		}
	}
	reports, err := harness.ReadTopic(w.ctx(), updateFails, true, w.kafka()...)
	if err != nil || len(reports) > 0 {
		t.Errorf("%d records are in doubt after orderly rebalances (%v): %.300s", len(reports), err, fmt.Sprint(reports))
	}
}
