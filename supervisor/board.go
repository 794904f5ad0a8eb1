package supervisor

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"snowmelt/actors/msg"
	"snowmelt/core/cursor"
	"snowmelt/core/kafka"
)

// board is what the actors tell: the state behind status, readiness and
// metrics. Its methods may be called from any goroutine.
type board struct {
	set *metrics.Set

	mu        sync.Mutex
	pipelines map[string]*pipelineBoard
	instances map[string]msg.InstanceFacts
	watch     func(pipeline, alias string, s msg.State, err error)
}

type pipelineBoard struct {
	name, kind string
	state      msg.State
	err        error
	tables     map[string]*tableBoard
	lanes      map[kafka.Partition]*laneBoard
}

type tableBoard struct {
	state   msg.State
	err     error
	since   time.Time
	facts   msg.PublishedFacts
	settled time.Time
	rows    uint64
	starts  int
	attempt int
	next    time.Time
	lastErr error

	rowsTotal, pages, bytes, duplicates, skipped, retries *metrics.Counter
	limit, hidden, filter                                 *metrics.Gauge
	took                                                  *metrics.PrometheusHistogram
}

var _ msg.Observer = (*board)(nil)

func newBoard(set *metrics.Set) *board {
	return &board{set: set, pipelines: map[string]*pipelineBoard{}, instances: map[string]msg.InstanceFacts{}}
}

// addTable makes a table known before its poller starts, so that its series exist from the beginning.
func (b *board) addTable(pipeline, alias string) {
	p := b.pipelines[pipeline]
	if p == nil {
		p = &pipelineBoard{name: pipeline, kind: "source", state: msg.Starting, tables: map[string]*tableBoard{}, lanes: map[kafka.Partition]*laneBoard{}}
		b.pipelines[pipeline] = p
	}
	labels := fmt.Sprintf("{pipeline=%q,table=%q}", pipeline, alias)
	name := func(s string) string { return "snowmelt_source_" + s + labels }
	t := &tableBoard{state: msg.Starting, since: time.Now(), settled: time.Now()}
	t.facts.State = cursor.Durable{Cursor: cursor.Cursor{Time: cursor.None}, Verified: cursor.None, Late: cursor.None, Phase: cursor.Backfill}
	t.rowsTotal, t.pages, t.bytes = b.set.NewCounter(name("rows_total")), b.set.NewCounter(name("pages_total")), b.set.NewCounter(name("bytes_total"))
	t.duplicates, t.skipped = b.set.NewCounter(name("duplicates_total")), b.set.NewCounter(name("rows_skipped_total"))
	t.retries = b.set.NewCounter(name("retries_total"))
	t.limit, t.hidden, t.filter = b.set.NewGauge(name("page_size"), nil), b.set.NewGauge(name("hidden_rows"), nil), b.set.NewGauge(name("filter_versions"), nil)
	t.took = b.set.NewPrometheusHistogram(name("page_duration_seconds"))
	b.set.NewGauge(name("lag_seconds"), func() float64 { return b.read(t, (*tableBoard).lag) })
	b.set.NewGauge(name("cursor_seconds"), func() float64 {
		return b.read(t, func(t *tableBoard) float64 { return max(0, float64(t.facts.State.Cursor.Time)) })
	})
	b.set.NewGauge(name("stream"), func() float64 {
		return b.read(t, func(t *tableBoard) float64 { return oneIf(t.facts.State.Phase == cursor.Stream) })
	})
	b.set.NewGauge(name("failed"), func() float64 {
		return b.read(t, func(t *tableBoard) float64 { return oneIf(t.state == msg.Failed) })
	})
	p.tables[alias] = t
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// lag grows while nothing is published or proven.
func (t *tableBoard) lag() float64 { return (t.facts.Lag + time.Since(t.settled)).Seconds() }

func (b *board) read(t *tableBoard, f func(*tableBoard) float64) float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return f(t)
}

func (b *board) table(pipeline, alias string) *tableBoard { return b.pipelines[pipeline].tables[alias] }

// TableState implements msg.Observer.
func (b *board) TableState(pipeline, alias string, s msg.State, err error) {
	b.mu.Lock()
	t := b.table(pipeline, alias)
	if s == msg.Starting {
		t.starts++
		if t.state == msg.Retrying { // it is tried again: the failure stays visible until it works (Invariant 7)
			b.mu.Unlock()
			return
		}
	}
	if t.state != s {
		t.state, t.since = s, time.Now()
	}
	t.err = err
	if s == msg.Running {
		t.attempt = 0
	}
	watch := b.watch
	b.mu.Unlock()
	if watch != nil {
		watch(pipeline, alias, s, err)
	}
}

// TableRetry implements msg.Observer.
func (b *board) TableRetry(pipeline, alias string, attempt int, next time.Time, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.table(pipeline, alias)
	t.retries.Inc()
	t.attempt, t.next, t.lastErr = attempt, next, err
}

// PageRead implements msg.Observer.
func (b *board) PageRead(pipeline, alias string, p msg.PageFacts) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.table(pipeline, alias)
	t.pages.Inc()
	t.bytes.Add(int(p.Bytes))
	t.duplicates.Add(p.Suppressed)
	t.skipped.Add(p.Bad)
	t.hidden.Set(float64(p.Hidden))
	t.limit.Set(float64(p.Limit))
	t.filter.Set(float64(p.FilterLen))
	t.took.Update(p.Took.Seconds())
}

// PagePublished implements msg.Observer.
func (b *board) PagePublished(pipeline, alias string, p msg.PublishedFacts) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.table(pipeline, alias)
	t.facts, t.settled = p, time.Now()
	t.rows += uint64(p.Rows)
	t.rowsTotal.Add(p.Rows)
	t.skipped.Add(p.Skipped)
}

// Restarted implements msg.Observer.
func (b *board) Restarted(kind string) {
	b.set.GetOrCreateCounter(fmt.Sprintf("snowmelt_actor_restarts_total{kind=%q}", kind)).Inc()
}

// PipelineState implements msg.Observer.
func (b *board) PipelineState(pipeline string, s msg.State, err error) {
	b.mu.Lock()
	p := b.pipelines[pipeline]
	p.state, p.err = s, err
	watch := b.watch
	b.mu.Unlock()
	if watch != nil {
		watch(pipeline, "", s, err)
	}
}

// Instance implements msg.Observer.
func (b *board) Instance(host string, f msg.InstanceFacts) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.instances[host] = f
	if f.Limited {
		b.set.GetOrCreateCounter(fmt.Sprintf("snowmelt_instance_rate_limited_total{instance=%q}", host)).Inc()
	}
}

// addInstance makes an instance's series exist.
func (b *board) addInstance(host string, permits int) {
	b.instances[host] = msg.InstanceFacts{Permits: permits}
	gauge := func(name string, f func(msg.InstanceFacts) int) {
		b.set.NewGauge(fmt.Sprintf("snowmelt_instance_%s{instance=%q}", name, host), func() float64 {
			b.mu.Lock()
			defer b.mu.Unlock()
			return float64(f(b.instances[host]))
		})
	}
	gauge("permits", func(f msg.InstanceFacts) int { return f.Permits })
	gauge("in_flight", func(f msg.InstanceFacts) int { return f.InFlight })
	gauge("waiting", func(f msg.InstanceFacts) int { return f.Waiting })
	b.set.GetOrCreateCounter(fmt.Sprintf("snowmelt_instance_rate_limited_total{instance=%q}", host))
}

// status returns a consistent copy of everything.
func (b *board) status(version string) Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := Status{Version: version, Pipelines: []PipelineStatus{}, Instances: []InstanceStatus{}}
	now := time.Now()
	for _, name := range slices.Sorted(maps.Keys(b.pipelines)) {
		s.Pipelines = append(s.Pipelines, b.pipelines[name].status())
	}
	for _, host := range slices.Sorted(maps.Keys(b.instances)) {
		f := b.instances[host]
		i := InstanceStatus{Host: host, Permits: f.Permits, InFlight: f.InFlight, Waiting: f.Waiting, Breaker: "none"}
		if f.PausedUntil.After(now) {
			i.PausedUntil = &f.PausedUntil
		}
		s.Instances = append(s.Instances, i)
	}
	return s
}

func (p *pipelineBoard) status() PipelineStatus {
	s := PipelineStatus{Name: p.name, Kind: p.kind, State: string(p.summary()), Children: []ChildStatus{}}
	if p.err != nil {
		s.Error = p.err.Error()
	}
	for _, alias := range slices.Sorted(maps.Keys(p.tables)) {
		t := p.tables[alias]
		c := ChildStatus{
			Name: alias, Kind: "table", State: string(t.state), Since: t.since, LagSeconds: t.lag(),
			Phase: string(t.facts.State.Phase), Restarts: max(0, t.starts-1), Rows: t.rows, Attempt: t.attempt,
		}
		if t.err != nil {
			c.Error = t.err.Error()
		}
		if cur := t.facts.State.Cursor; cur.Time != cursor.None {
			c.Cursor = cur.Time.String() + " " + cur.SysID
		}
		if v := t.facts.State.Verified; v != cursor.None {
			c.Verified = v.String()
		}
		if t.attempt > 0 {
			c.NextTry = &t.next
			if t.err == nil && t.lastErr != nil {
				c.Error = t.lastErr.Error()
			}
		}
		s.Children = append(s.Children, c)
	}
	s.Children = append(s.Children, p.laneStatus()...)
	return s
}

// summary is the pipeline's state as its tables make it: no failure is hidden by traffic (Invariant 7).
func (p *pipelineBoard) summary() msg.State {
	if p.state == msg.Failed || p.state == msg.Stopping || p.state == msg.Stopped {
		return p.state
	}
	count := map[msg.State]int{}
	for _, t := range p.tables {
		count[t.state]++
	}
	for _, l := range p.lanes {
		count[l.state]++
	}
	switch {
	case p.state == msg.Retrying: // a sink that cannot start yet
		return msg.Retrying
	case count[msg.Failed] > 0:
		return msg.Degraded
	case count[msg.Retrying] > 0:
		return msg.Retrying
	case count[msg.Throttled] > 0:
		return msg.Throttled
	}
	return msg.Running
}
