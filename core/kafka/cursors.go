package kafka

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"snowmelt/core/failure"
)

// cursorLog is the cursor topic as far as it was read. It is kept between reads,
// because a thousand tables that start would otherwise read the whole topic a
// thousand times; a read goes on where the last one ended.
//
// It reads uncommitted records, so that another table's open transaction does
// not block it, and holds the records of each producer until their marker: taken
// at a commit, dropped at an abort. After a fence the own transactional id has no
// open transaction below the high watermark, so what is still held then belongs
// to others (spec: source, section 2).
type cursorLog struct {
	topic string
	lock  chan struct{} // held while reading; a channel, so that waiting ends with the context

	id    kadm.TopicID
	next  map[int32]int64
	parts map[int32]*cursorPart
}

// cursorPart is one partition of the cursor topic. Cursors are told apart by
// Encode of their parsed key: Connect orders the fields of its keys otherwise.
type cursorPart struct {
	open     map[int64][]held               // by producer id: not yet committed
	newest   map[string]CursorRecord        // the newest by order of commit, tombstones too
	variants map[string]map[string]struct{} // the raw keys of the live records
}

type held struct {
	raw string
	rec CursorRecord
}

func (c *Cluster) cursorLog(topic string) *cursorLog {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.logs[topic]
	if l == nil {
		l = &cursorLog{topic: topic, lock: make(chan struct{}, 1)}
		c.logs[topic] = l
	}
	return l
}

// Cursors returns every cursor of the topic that is alive, in the order of their
// encoded keys: the newest of each key, without tombstones.
func (c *Cluster) Cursors(ctx context.Context, topic string) ([]CursorRecord, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	var all []CursorRecord
	err := c.readCursors(ctx, topic, func(l *cursorLog) { all = l.cursors() })
	return all, err
}

// readCursors brings the cursor log of topic up to its present high watermarks
// and calls fn while no other read can change it.
func (c *Cluster) readCursors(ctx context.Context, topic string, fn func(*cursorLog)) error {
	l := c.cursorLog(topic)
	select {
	case l.lock <- struct{}{}:
		defer func() { <-l.lock }()
	case <-ctx.Done():
		return classify("waiting to read cursor topic "+topic, ctx.Err(), resource{topic: topic})
	}
	r := &reader{c: c, topic: topic, isolation: uncommitted}
	if err := r.refresh(ctx); err != nil {
		return classify("reading cursor topic "+topic, err, resource{topic: topic, need: "Read"})
	}
	// Ends first, starts second: a start is then never behind what was read.
	ends, err := c.ends(ctx, topic)
	if err != nil {
		return err
	}
	starts, err := c.starts(ctx, topic)
	if err != nil {
		return err
	}
	if l.stale(r.id, ends) {
		l.reset(r.id, ends)
	}
	for p, start := range starts {
		if _, known := ends[p]; known {
			l.next[p] = max(l.next[p], start)
		}
	}
	if err := r.read(ctx, l.next, ends, l.apply); err != nil {
		return err
	}
	fn(l)
	return nil
}

// stale reports whether what was read is of another topic than the one that
// bears the name now, or of a log that has been cut since.
func (l *cursorLog) stale(id kadm.TopicID, ends map[int32]int64) bool {
	if l.parts == nil || l.id != id || len(l.parts) != len(ends) {
		return true
	}
	for p, next := range l.next {
		if end, ok := ends[p]; !ok || end < next {
			return true
		}
	}
	return false
}

func (l *cursorLog) reset(id kadm.TopicID, ends map[int32]int64) {
	l.id, l.next, l.parts = id, map[int32]int64{}, map[int32]*cursorPart{}
	for p := range ends {
		l.parts[p] = &cursorPart{
			open: map[int64][]held{}, newest: map[string]CursorRecord{}, variants: map[string]map[string]struct{}{},
		}
	}
}

// apply takes one record of the log. It never fails: a read that breaks off can
// then go on at the position that it reached.
func (l *cursorLog) apply(r *kgo.Record) error {
	part := l.parts[r.Partition]
	if r.Attrs.IsControl() {
		if commit, ok := marker(r); ok {
			for _, h := range part.open[r.ProducerID] {
				if commit {
					part.take(h)
				}
			}
			delete(part.open, r.ProducerID)
		}
		return nil
	}
	key, ok := ParseCursorKey(r.Key)
	if !ok {
		return nil
	}
	h := held{raw: string(r.Key), rec: CursorRecord{
		Key: key, At: r.Offset, LogPartition: r.Partition, Time: r.Timestamp.UnixMilli(), Deleted: r.Value == nil,
	}}
	if !h.rec.Deleted {
		h.rec.Offset = parseOffset(r.Value)
	}
	if r.Attrs.IsTransactional() {
		part.open[r.ProducerID] = append(part.open[r.ProducerID], h)
	} else {
		part.take(h)
	}
	return nil
}

// take makes a committed record the newest of its key.
func (p *cursorPart) take(h held) {
	key := string(h.rec.Key.Encode())
	p.newest[key] = h.rec
	if h.rec.Deleted {
		delete(p.variants[key], h.raw)
		return
	}
	if p.variants[key] == nil {
		p.variants[key] = map[string]struct{}{}
	}
	p.variants[key][h.raw] = struct{}{}
}

// marker reads the type of a control record; ok is false for markers that end no
// transaction (Kafka protocol guide, "Control Batches").
func marker(r *kgo.Record) (commit, ok bool) {
	if len(r.Key) < 4 {
		return false, false
	}
	kind := binary.BigEndian.Uint16(r.Key[2:])
	return kind == 1, kind <= 1
}

// cursors returns the cursors that are alive.
func (l *cursorLog) cursors() []CursorRecord {
	best := map[string]CursorRecord{}
	for _, p := range l.parts {
		for key, rec := range p.newest {
			if have, ok := best[key]; !rec.Deleted && (!ok || rec.further(have)) {
				best[key] = rec
			}
		}
	}
	all := make([]CursorRecord, 0, len(best))
	for _, key := range slices.Sorted(maps.Keys(best)) {
		rec := best[key]
		rec.Offset = maps.Clone(rec.Offset) // callers may change theirs
		all = append(all, rec)
	}
	return all
}

// found is what one table needs of the cursor log.
type found struct {
	own      *CursorRecord
	siblings []CursorRecord
	// variants are other spellings of the own key that are alive in the log.
	variants [][]byte
}

func (l *cursorLog) find(key CursorKey) found {
	var f found
	for _, rec := range l.cursors() {
		switch {
		case rec.Key.Equal(key):
			f.own = &rec
		case rec.Key.sibling(key):
			f.siblings = append(f.siblings, rec)
		}
	}
	own := string(key.Encode())
	for _, p := range l.parts {
		for raw := range p.variants[own] {
			if raw != own {
				f.variants = append(f.variants, []byte(raw))
			}
		}
	}
	return f
}

// cursor reads the cursor of key. A record whose value cannot be read is an
// error: taking it for absent would read the table from its beginning.
func (c *Cluster) cursor(ctx context.Context, topic string, key CursorKey) (found, error) {
	var f found
	if err := c.readCursors(ctx, topic, func(l *cursorLog) { f = l.find(key) }); err != nil {
		return found{}, err
	}
	if f.own != nil && f.own.Offset == nil {
		return found{}, &failure.Error{
			Class: failure.Misconfigured, Op: fmt.Sprintf("reading the cursor %s", key.Encode()),
			Detail: fmt.Sprintf("the value at offset %d of %s-%d is no JSON object", f.own.At, topic, f.own.LogPartition),
			Hint:   "set the cursor again with snowmelt offsets set",
		}
	}
	return f, nil
}
