package poller

import (
	"context"
	"fmt"
	"slices"
	"time"

	"snowmelt/actors/kit"
	"snowmelt/actors/msg"
	"snowmelt/core/cursor"
	"snowmelt/core/failure"
	"snowmelt/core/kafka"
	"snowmelt/core/limit"
	"snowmelt/core/record"
	"snowmelt/core/servicenow"
)

// probe asks for the table's oldest row: it shows access, the cursor fields and
// the instance's time. With Probe it also asks for that row by its own time,
// which shows whether the instance reads times as UTC (source.md rule 4).
func (p *pollerActor) probe() {
	cfg, gen := p.cfg, p.gen
	if p.attempt == 0 {
		p.first = time.Now()
	}
	kit.Run[msg.Poller](p.reader, p.self, 0, func(ctx context.Context) msg.Poller {
		m := Probe(ctx, cfg)
		m.Gen = gen
		return m
	}, func(err error) msg.Poller { return &msg.Probed{Gen: gen, Err: err} })
}

// zoneTries is the number of rows that must agree before a table fails for its time zone: a row may have changed.
const zoneTries = 3

// Probe checks one table at start: access, cursor fields, the instance's time
// and, with cfg.Probe, whether the instance reads times as UTC.
func Probe(ctx context.Context, cfg Config) *msg.Probed {
	var m *msg.Probed
	for try := 1; ; try++ {
		r := cfg.List
		r.Query, r.Limit = cfg.Sweep.Query.With(nil, cfg.Fields.Timestamp, cfg.Fields.ID), 1
		r.Count = cfg.Count
		page, err := cfg.Instance.List(ctx, r, cfg.Fields)
		if err != nil {
			return &msg.Probed{Err: err}
		}
		m = &msg.Probed{Date: page.Date, Received: page.Received, Oldest: cursor.None, Total: page.Total}
		if page.Date.IsZero() {
			m.Err = &failure.Error{
				Class: failure.Misconfigured, Op: "probing " + r.Table, Detail: "answers carry no Date header, so the instance's time is unknown",
				Hint: "a proxy in between may strip it",
			}
		}
		if len(page.Rows) == 0 || m.Err != nil || !cfg.Probe {
			page.Release()
			return m
		}
		row := page.Rows[0]
		page.Release()
		if m.Oldest, m.Err = checkRow(cfg, row); m.Err != nil || m.Oldest == cursor.None {
			return m
		}
		same, err := sameTime(ctx, cfg, row)
		if err != nil {
			return &msg.Probed{Err: err}
		}
		if same {
			return m
		}
		if try == zoneTries {
			m.Err = &failure.Error{
				Class: failure.Misconfigured, Op: "probing " + r.Table,
				Detail: fmt.Sprintf("row %s shows %s %s, but is not found when asked for by that time", row.SysID, cfg.Fields.Timestamp, row.Timestamp),
				Hint:   "set the integration user's time zone to UTC (GMT)",
			}
			return m
		}
	}
}

// checkRow says whether a row shows the fields that a cursor needs. An empty
// timestamp is not a hidden one.
func checkRow(cfg Config, row record.Row) (cursor.Timestamp, error) {
	hidden := func(field, hint string) error {
		return &failure.Error{
			Class: failure.Permission, Op: "probing " + cfg.List.Table,
			Detail: fmt.Sprintf("rows show no usable %s", field), Hint: hint,
		}
	}
	if row.SysID == "" {
		return cursor.None, hidden(cfg.Fields.ID, "let the integration user read it, or set snow.table."+cfg.Alias+".sys.id.field")
	}
	t, err := cursor.ParseTimestamp(row.Timestamp)
	if err == nil {
		return t, nil
	}
	if hasEmpty(row, cfg.Fields.Timestamp) {
		return cursor.None, nil
	}
	return cursor.None, hidden(cfg.Fields.Timestamp,
		"let the integration user read it; tables without it are read by snow.table."+cfg.Alias+".timestamp.field=sys_created_on")
}

// sameTime asks for a row by id and its own time.
func sameTime(ctx context.Context, cfg Config, row record.Row) (bool, error) {
	r := cfg.List
	r.Query = cursor.Query{}.And(cfg.Fields.ID + "=" + row.SysID).And(cfg.Fields.Timestamp + "=" + row.Timestamp).String()
	r.Limit = 1
	page, err := cfg.Instance.List(ctx, r, cfg.Fields)
	if err != nil {
		return false, err
	}
	defer page.Release()
	return len(page.Rows) > 0, nil
}

func hasEmpty(row record.Row, field string) bool {
	return servicenow.IsEmpty(row.Raw, field)
}

func (p *pollerActor) probed(m *msg.Probed) {
	p.reading = false
	if m.Err != nil {
		p.readFailed(m.Err)
		return
	}
	p.release(limit.Success, 0)
	p.attempt, p.limited = 0, 0
	p.oldest, p.date, p.received = m.Oldest, m.Date, m.Received
	p.mode = claiming
	cfg, gen, oldest, date := p.cfg, p.gen, m.Oldest, m.Date
	kit.Run[msg.Poller](p.writer, p.self, claimTime, func(ctx context.Context) msg.Poller {
		m := claim(ctx, cfg, oldest, date)
		m.Gen = gen
		return m
	}, func(err error) msg.Poller { return &msg.Claimed{Gen: gen, Err: err} })
}

// claimTime bounds the taking over of a table; most of it is reading for the filter.
const claimTime = 15 * time.Minute

// claim takes the table over: topic, fence, cursor, filter, in this order.
func claim(ctx context.Context, cfg Config, oldest cursor.Timestamp, now time.Time) *msg.Claimed {
	fail := func(err error) *msg.Claimed { return &msg.Claimed{Err: err} }
	// Before the fence only existence counts; retention is judged by where the table stands.
	if err := cfg.EnsureTopic(ctx, now); err != nil {
		return fail(err)
	}
	opened, err := cfg.Publisher.Open(ctx)
	if err != nil {
		return fail(err)
	}
	m := &msg.Claimed{Filter: cursor.NewFilter(), Next: opened.Ends, Found: opened.Found}
	if !opened.Found {
		for _, s := range opened.Siblings {
			if other := s.Key.Partition["query_fingerprint"]; !slices.Contains(cfg.Known, other) {
				return fail(&failure.Error{
					Class: failure.Misconfigured, Op: "reading the cursor of " + cfg.Alias,
					Detail: fmt.Sprintf("there is a cursor of this table under another base query (at %s, %s)", s.Offset["timestamp"], other),
					Hint:   "restore the old snow.table." + cfg.Alias + ".query, or give the pipeline another name to start anew",
				})
			}
		}
		return finish(ctx, cfg, m, max(oldest, cfg.Sweep.Start))
	}
	if m.Durable, err = cursor.ParseOffset(opened.Offset, cfg.Fingerprint); err != nil {
		return fail(err)
	}
	from, warning := rebuildFrom(m.Durable.Tail, opened)
	m.Warning = warning
	horizon := cfg.Sweep.Horizon(m.Durable)
	err = cfg.Publisher.Scan(ctx, from, opened.Ends, func(r kafka.Scanned) error {
		for _, h := range r.Headers {
			if h.Key != record.HeaderVersion {
				continue
			}
			if alias, v, ok := cursor.ParseVersion(string(h.Value)); ok && alias == cfg.Alias && v.Time > horizon {
				m.Filter.Add(v)
			}
		}
		return nil
	})
	if err != nil {
		return fail(err)
	}
	return finish(ctx, cfg, m, m.Durable.Cursor.Time)
}

// finish checks the topic against the oldest row that is still to come.
func finish(ctx context.Context, cfg Config, m *msg.Claimed, oldest cursor.Timestamp) *msg.Claimed {
	if err := cfg.EnsureTopic(ctx, oldest.Time()); err != nil {
		return &msg.Claimed{Err: err}
	}
	return m
}

// maxRebuild bounds the records that are read to rebuild a filter without a tail.
const maxRebuild = 2_000_000

// rebuildFrom says from which offsets the filter is rebuilt.
func rebuildFrom(tail map[int32]int64, o kafka.Opened) (map[int32]int64, string) {
	from, warning := map[int32]int64{}, ""
	var records int64
	for partition, end := range o.Ends {
		at, known := tail[partition]
		switch start := o.Starts[partition]; {
		case known && at >= start && at <= end:
			from[partition] = at
		case known && at > end:
			warning = "the topic was replaced or cut since the cursor was written; rows of the re-read window may appear twice"
			from[partition] = start
		default:
			from[partition] = start
		}
		records += end - from[partition]
	}
	if tail == nil && records > maxRebuild {
		return o.Ends, fmt.Sprintf("the cursor does not say where the re-read window begins and the topic holds %d records; rows of the window may appear twice", records)
	}
	return from, warning
}

func (p *pollerActor) claimed(m *msg.Claimed) {
	if m.Err != nil {
		p.halt(m.Err)
		return
	}
	if m.Warning != "" {
		p.cfg.Log.Warn("the filter of known versions may be incomplete", "pipeline", p.cfg.Pipeline, "table", p.cfg.Alias, "because", m.Warning)
	}
	p.mode = sweeping
	p.next = m.Next
	if m.Durable.Tail != nil {
		p.tail.Add(max(m.Durable.Cursor.Time, m.Filter.Newest()), m.Durable.Tail)
	} else if m.Found {
		p.tail.Add(max(m.Durable.Cursor.Time, m.Filter.Newest()), m.Next)
	}
	p.sweep = cursor.NewSweep(p.cfg.Sweep, m.Durable, m.Found, m.Filter)
	p.sweep.Observe(p.date, p.received)
	if p.cfg.Kept.limit > 0 {
		p.sweep.SetLimit(p.cfg.Kept.limit)
	}
	p.cfg.Log.Info("the table is claimed", "pipeline", p.cfg.Pipeline, "table", p.cfg.Alias, "cursor_found", m.Found,
		"cursor", m.Durable.Cursor.Time, "sys_id", m.Durable.Cursor.SysID, "known_versions", m.Filter.Len())
	p.state(msg.Running, nil)
	p.readNext()
}
