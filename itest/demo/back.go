package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"snowmelt/config"
	"snowmelt/itest/harness"
	"snowmelt/supervisor"
)

const (
	sinkPipeline = "updates"
	updateTopic  = "incident-updates"
	errorTopic   = "incident-update-errors"
	// markField is the field that the sink is to change.
	markField = "correlation_display"
)

// sink returns the pipeline that takes the update topic back into the instance.
func (d *demo) sink(instance string) config.Sink {
	s := harness.Sink(sinkPipeline, instance, d.broker.Addr(), "incident", updateTopic)
	s.Instance.Username, s.Instance.Password = user, password
	s.CommitInterval, s.ErrorTopic, s.OnErrors = 200*time.Millisecond, errorTopic, "log"
	return s
}

func (d *demo) createTopics(ctx context.Context) error {
	c, err := kgo.NewClient(kgo.SeedBrokers(d.broker.Addr()))
	if err != nil {
		return fmt.Errorf("creating the update topic: %w", err)
	}
	defer c.Close()
	if _, err := kadm.NewClient(c).CreateTopics(ctx, 3, 1, nil, updateTopic, errorTopic); err != nil {
		return fmt.Errorf("creating the update topic: %w", err)
	}
	return nil
}

// maxUpdates bounds the records that are written back.
const maxUpdates = 2000

// writeBack produces one update for each of some rows, and waits until the
// instance shows them all, or the time is up.
func (d *demo) writeBack(ctx context.Context) error {
	c, err := kgo.NewClient(kgo.SeedBrokers(d.broker.Addr()))
	if err != nil {
		return fmt.Errorf("producing updates: %w", err)
	}
	defer c.Close()
	n := min(maxUpdates, max(1, d.inst.Count("incident")/10))
	rows := d.inst.Rows("incident", nil)
	var records []*kgo.Record
	for i := range min(n, len(rows)) {
		id, mark := rows[i]["sys_id"], fmt.Sprint("update ", i)
		d.wanted[id] = mark
		value, err := json.Marshal(map[string]string{markField: mark})
		if err != nil {
			return fmt.Errorf("encoding an update: %w", err)
		}
		records = append(records, &kgo.Record{Topic: updateTopic, Key: []byte(id), Value: value})
	}
	if err := c.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return fmt.Errorf("producing updates: %w", err)
	}
	for {
		var r Result
		d.countSink(&r)
		if r.Sink.Written == r.Sink.Records || !d.pause(ctx, 200*time.Millisecond, fmt.Sprintf("%d of %d updates written back", r.Sink.Written, r.Sink.Records)) {
			return nil
		}
	}
}

// countSink counts in the instance's store: rows that carry the mark that was sent to them.
func (d *demo) countSink(r *Result) {
	r.Sink.Records = len(d.wanted)
	r.Sink.Written, r.Sink.RowsInInstance = 0, 0
	for id, mark := range d.wanted {
		if row, ok := d.inst.Get("incident", id); ok && row[markField] == mark {
			r.Sink.Written++
			r.Sink.RowsInInstance++
		}
	}
}

// countErrors counts the records that were reported as failed for good.
func (d *demo) countErrors(ctx context.Context) (int, error) {
	reports, err := harness.ReadTopic(ctx, errorTopic, true, kgo.SeedBrokers(d.broker.Addr()))
	if err != nil {
		return 0, err
	}
	n := 0
	for _, rep := range reports {
		var r struct {
			Classification string `json:"classification"`
		}
		if err := json.Unmarshal(rep.Value, &r); err != nil {
			return 0, fmt.Errorf("reading a report: %w", err)
		}
		if r.Classification != "RETRIES_EXHAUSTED" {
			n++
		}
	}
	return n, nil
}

// source returns the status of the source pipeline.
func (d *demo) source() supervisor.PipelineStatus {
	for _, p := range d.engine.Status().Pipelines {
		if p.Kind == "source" {
			return p
		}
	}
	return supervisor.PipelineStatus{}
}
