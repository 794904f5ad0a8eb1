package supervisor

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"snowmelt/actors/msg"
	"snowmelt/core/kafka"
)

// laneBoard is the state of one lane.
type laneBoard struct {
	state   msg.State
	err     error
	since   time.Time
	offset  int64
	pending int
}

// addSink makes a sink known before it starts.
func (b *board) addSink(pipeline string) {
	b.pipelines[pipeline] = &pipelineBoard{name: pipeline, kind: "sink", state: msg.Starting, tables: map[string]*tableBoard{}, lanes: map[kafka.Partition]*laneBoard{}}
	b.set.GetOrCreateCounter(fmt.Sprintf("snowmelt_sink_writes_total{pipeline=%q,operation=%q,outcome=%q}", pipeline, "CREATE", "success"))
	b.set.GetOrCreateCounter(fmt.Sprintf("snowmelt_sink_failures_total{pipeline=%q,classification=%q}", pipeline, "RECORD_ERROR"))
	b.set.NewGauge(fmt.Sprintf("snowmelt_sink_pending_records{pipeline=%q}", pipeline), func() float64 {
		b.mu.Lock()
		defer b.mu.Unlock()
		n := 0
		for _, l := range b.pipelines[pipeline].lanes {
			n += l.pending
		}
		return float64(n)
	})
}

func (b *board) lane(pipeline string, part kafka.Partition) *laneBoard {
	p := b.pipelines[pipeline]
	l := p.lanes[part]
	if l == nil {
		l = &laneBoard{state: msg.Running, since: time.Now()}
		p.lanes[part] = l
	}
	return l
}

// LaneState implements msg.Observer.
func (b *board) LaneState(pipeline string, part kafka.Partition, s msg.State, err error) {
	b.mu.Lock()
	l := b.lane(pipeline, part)
	changed := l.state != s
	if changed {
		l.state, l.since = s, time.Now()
	}
	l.err = err
	watch := b.watch
	b.mu.Unlock()
	if watch != nil && changed {
		watch(pipeline, part.String(), s, err)
	}
}

// LaneMoved implements msg.Observer.
func (b *board) LaneMoved(pipeline string, part kafka.Partition, offset int64, pending int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.lane(pipeline, part)
	l.offset, l.pending = offset, pending
}

// LaneGone implements msg.Observer.
func (b *board) LaneGone(pipeline string, part kafka.Partition) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.pipelines[pipeline].lanes, part)
}

// Wrote implements msg.Observer.
func (b *board) Wrote(pipeline string, _ kafka.Partition, operation, outcome string) {
	b.set.GetOrCreateCounter(fmt.Sprintf("snowmelt_sink_writes_total{pipeline=%q,operation=%q,outcome=%q}", pipeline, operation, strings.ToLower(outcome))).Inc()
	switch outcome {
	case "success", "skipped", "ignored":
	default:
		b.set.GetOrCreateCounter(fmt.Sprintf("snowmelt_sink_failures_total{pipeline=%q,classification=%q}", pipeline, outcome)).Inc()
	}
}

// Reports implements msg.Observer.
func (b *board) Reports(pipeline, kind string, n int) {
	b.set.GetOrCreateCounter(fmt.Sprintf("snowmelt_sink_reports_total{pipeline=%q,kind=%q}", pipeline, kind)).Add(n)
}

func (p *pipelineBoard) laneStatus() []ChildStatus {
	parts := slices.Collect(maps.Keys(p.lanes))
	slices.SortFunc(parts, func(a, b kafka.Partition) int {
		if c := strings.Compare(a.Topic, b.Topic); c != 0 {
			return c
		}
		return int(a.Number - b.Number)
	})
	var out []ChildStatus
	for _, part := range parts {
		l := p.lanes[part]
		c := ChildStatus{Name: part.String(), Kind: "lane", State: string(l.state), Since: l.since, Cursor: fmt.Sprint(l.offset), Pending: l.pending}
		if l.err != nil {
			c.Error = l.err.Error()
		}
		out = append(out, c)
	}
	return out
}
