// Package lane is the order and the offsets of one partition: which record may
// be written now, how far everything is finished, and what a crash may have left
// applied (sink.md sections 2 to 4). It is pure; one lane actor drives it.
package lane

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
)

const (
	// maxAhead is how far the mark may run ahead over updates and deletes.
	maxAhead = 500
	// maxBitmap bounds the finished records that metadata can name, so that it stays under 1 KB.
	maxBitmap = 4096
)

// Doubt says what is known of a record that is about to be written.
type Doubt uint8

// The doubts.
const (
	// Fresh: nobody wrote it before.
	Fresh Doubt = iota
	// InDoubt: the process before may have written it.
	InDoubt
)

// Mark is what a commit's metadata says beside the offset: records below At and
// not among Done may have been sent.
type Mark struct {
	At int64
	// Done holds the offsets behind the committed one that are finished.
	Done []int64
}

type metadata struct {
	Version int    `json:"v"`
	Mark    int64  `json:"mark"`
	Done    string `json:"done,omitempty"`
}

// Encode returns the commit metadata for a committed offset.
func (m Mark) Encode(committed int64) string {
	out := metadata{Version: 1, Mark: max(m.At, committed)}
	if len(m.Done) > 0 {
		var bits []byte
		for _, o := range m.Done {
			i := o - committed
			if i < 0 || i >= maxBitmap {
				continue
			}
			for int64(len(bits)) <= i/8 {
				bits = append(bits, 0)
			}
			bits[i/8] |= 1 << (i % 8)
		}
		out.Done = base64.RawStdEncoding.EncodeToString(bits)
	}
	b, _ := json.Marshal(out) // two numbers and a string
	return string(b)
}

// ParseMark reads commit metadata. Metadata that others wrote (empty, or a
// member id) means that nothing is in doubt.
func ParseMark(committed int64, s string) (Mark, error) {
	m := Mark{At: committed}
	var in metadata
	if len(s) == 0 || s[0] != '{' || json.Unmarshal([]byte(s), &in) != nil {
		return m, nil //nolint:nilerr // others wrote it: nothing is in doubt
	}
	if in.Version != 1 {
		return m, fmt.Errorf("reading commit metadata: version %d is not known here", in.Version)
	}
	bits, err := base64.RawStdEncoding.DecodeString(in.Done)
	if err != nil || len(bits) > maxBitmap/8 {
		return m, fmt.Errorf("reading commit metadata: the bitmap %.40q is malformed", in.Done)
	}
	m.At = max(in.Mark, committed)
	for i := range int64(len(bits)) * 8 {
		if bits[i/8]&(1<<(i%8)) != 0 {
			m.Done = append(m.Done, committed+i)
		}
	}
	return m, nil
}

// record is one delivered record that is not finished.
type record struct {
	offset int64
	// alone says that the mark must not run beyond it before it is sent: a create.
	alone bool
	sent  bool
	// doubted says that a request for it may have had its effect.
	doubted bool
}

// Lane is the state of one partition. It survives the actor that drives it.
type Lane struct {
	pending []record // in order of offset
	run     int64    // everything below is finished: the offset to commit
	end     int64    // offset after the last record delivered
	mark    int64    // wanted
	covered int64    // committed mark
	doubt   int64    // records below were perhaps sent by the process before
	done    map[int64]bool
}

// New returns the lane of a partition whose group committed the given offset with the given mark.
func New(committed int64, m Mark) *Lane {
	l := &Lane{run: committed, end: committed, mark: m.At, covered: m.At, doubt: m.At, done: map[int64]bool{}}
	for _, o := range m.Done {
		if o >= committed {
			l.done[o] = true
		}
	}
	return l
}

// Add takes a delivered record; create says that sending it twice could make a
// second row. It returns false for a record that is finished already, or that
// was delivered before.
func (l *Lane) Add(offset int64, create bool) bool {
	if offset < l.end {
		return false
	}
	l.end = offset + 1
	if l.done[offset] {
		l.advance()
		return false
	}
	l.pending = append(l.pending, record{offset: offset, alone: create})
	return true
}

// Len returns the number of records that are not finished.
func (l *Lane) Len() int { return len(l.pending) }

// InFlight says whether a record was sent and is not finished.
func (l *Lane) InFlight() bool { return len(l.pending) > 0 && l.pending[0].sent }

// Next returns the record that may be written now: the oldest, one at a time
// (Invariant 3). covered is false when a commit of the mark must come first.
func (l *Lane) Next() (offset int64, d Doubt, covered, ok bool) {
	if len(l.pending) == 0 || l.pending[0].sent {
		return 0, Fresh, false, false
	}
	r := l.pending[0]
	if r.offset < l.doubt {
		d = InDoubt
	}
	if r.offset >= l.mark {
		l.mark = l.ahead()
	}
	return r.offset, d, r.offset < l.covered, true
}

// ahead is how far the mark may run: over one create, or over updates and deletes up to the next create.
func (l *Lane) ahead() int64 {
	if l.pending[0].alone {
		return l.pending[0].offset + 1
	}
	at := l.pending[0].offset
	for i, r := range l.pending {
		if r.alone || i >= maxAhead {
			break
		}
		at = r.offset + 1
	}
	return at
}

// Sent says that the record at offset left the process.
func (l *Lane) Sent(offset int64) {
	if len(l.pending) > 0 && l.pending[0].offset == offset {
		l.pending[0].sent = true
	}
}

// Unsent says that the record at offset is no longer in flight and may be sent
// again. applied says that a request for it may have had its effect: the mark
// then goes on covering it when the lane ends.
func (l *Lane) Unsent(offset int64, applied bool) {
	if len(l.pending) > 0 && l.pending[0].offset == offset {
		l.pending[0].sent, l.pending[0].doubted = false, l.pending[0].doubted || applied
	}
}

// Finish says that the record at offset is written, or given up as the user
// chose, and that every report about it is durable (Invariant 2).
func (l *Lane) Finish(offset int64) {
	i, ok := slices.BinarySearchFunc(l.pending, offset, func(r record, o int64) int { return int(r.offset - o) })
	if !ok {
		return
	}
	l.pending = slices.Delete(l.pending, i, i+1)
	l.done[offset] = true
	l.advance()
}

// advance moves the run over what is finished; offsets that no record holds are gaps.
func (l *Lane) advance() {
	to := l.end
	if len(l.pending) > 0 {
		to = l.pending[0].offset
	}
	for o := range l.done {
		if o < to {
			delete(l.done, o)
		}
	}
	l.run = max(l.run, to)
}

// Commit returns what to commit: the offset after the unbroken finished run, and
// the mark that goes with it. With nothing in flight the mark of a lane that
// ends is the offset itself.
func (l *Lane) Commit(ending bool) (int64, Mark) {
	m := Mark{At: max(l.mark, l.run)}
	doubted := len(l.pending) > 0 && (l.pending[0].sent || l.pending[0].doubted)
	if ending && !doubted && l.doubt <= l.run {
		m.At = l.run
	}
	for o := range l.done {
		if o >= l.run {
			m.Done = append(m.Done, o)
		}
	}
	slices.Sort(m.Done)
	return l.run, m
}

// Committed says that a commit with this mark is durable.
func (l *Lane) Committed(m Mark) { l.covered = max(l.covered, m.At) }
