package itest

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"snowmelt/config"
	"snowmelt/itest/fakesnow"
)

const input = "incident-updates"

// produce puts records into a topic, each key into the partition of its hash.
func (w *world) produce(records ...*kgo.Record) {
	c, err := kgo.NewClient(w.clientOpts()...)
	if err != nil {
		panic(err)
	}
	defer c.Close()
	if err := c.ProduceSync(context.Background(), records...).FirstErr(); err != nil {
		panic(err)
	}
}

func (w *world) topics(partitions int32, names ...string) {
	c, err := kgo.NewClient(w.clientOpts()...)
	if err != nil {
		panic(err)
	}
	defer c.Close()
	if _, err := kadm.NewClient(c).CreateTopics(context.Background(), partitions, 1, nil, names...); err != nil {
		panic(err)
	}
}

func (w *world) committed(group string) map[string]kadm.Offset {
	c, err := kgo.NewClient(w.clientOpts()...)
	if err != nil {
		panic(err)
	}
	defer c.Close()
	offsets, err := kadm.NewClient(c).FetchOffsets(context.Background(), group)
	if err != nil {
		panic(err)
	}
	out := map[string]kadm.Offset{}
	offsets.Each(func(o kadm.OffsetResponse) { out[fmt.Sprintf("%s-%d", o.Topic, o.Partition)] = o.Offset })
	return out
}

func (w *world) runSink(t *testing.T, s config.Sink) *process {
	t.Helper()
	return must[*process](t)(w.run(config.Config{Sinks: []config.Sink{s}}))
}

// TestSinkWrites: creates, updates and deletes arrive, in order per key, and the offsets follow.
func TestSinkWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.topics(3, input)
		w.inst.Generate("incident", 20, fakesnow.GenOptions{})
		var ids []string
		for _, r := range w.inst.Rows("incident", nil) {
			ids = append(ids, r["sys_id"])
		}
		p := w.runSink(t, w.sink("incident", input))
		var records []*kgo.Record
		for round := range 5 {
			for i, id := range ids {
				records = append(records, &kgo.Record{Topic: input, Key: []byte(id), Value: fmt.Appendf(nil, `{"short_description":"round %d of %d","urgency":"%d"}`, round, i, round%3+1)})
			}
		}
		for i := range 10 {
			records = append(records, &kgo.Record{Topic: input, Value: fmt.Appendf(nil, `{"short_description":"new %d"}`, i)})
		}
		records = append(records, &kgo.Record{Topic: input, Key: []byte(ids[0])}, &kgo.Record{Topic: input, Key: []byte(ids[1])})
		w.produce(records...)
		time.Sleep(time.Minute)
		st := p.Status()
		stopped(t, p)
		if n := w.inst.Count("incident"); n != 28 {
			t.Errorf("%d rows, want 20 + 10 - 2; %+v", n, st)
		}
		for i, id := range ids[2:] {
			r, _ := w.inst.Get("incident", id)
			if want := fmt.Sprintf("round 4 of %d", i+2); r["short_description"] != want {
				t.Errorf("row %d says %q, want %q", i+2, r["short_description"], want)
			}
		}
		total := int64(0)
		for part, o := range w.committed("connect-updates") {
			total += o.At
			if want := fmt.Sprintf(`{"v":1,"mark":%d}`, o.At); o.Metadata != want {
				t.Errorf("%s was left with %s, want %s", part, o.Metadata, want)
			}
		}
		if total != int64(len(records)) {
			t.Errorf("%d offsets committed of %d records", total, len(records))
		}
	})
}
