package servicenow

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"snowmelt/core/record"
)

// errSyntax is the cause of every body that is not the JSON it should be.
var errSyntax = errors.New("malformed JSON")

const (
	chunkSize = 256 << 10
	tailSize  = 4 << 10
	maxError  = 64 << 10 // of the error member that is kept
)

var chunkPool = sync.Pool{New: func() any { b := make([]byte, chunkSize); return &b }}

func getChunk(n int) []byte {
	if n <= chunkSize {
		return *chunkPool.Get().(*[]byte)
	}
	return make([]byte, n)
}

func putChunk(c []byte) {
	if cap(c) == chunkSize { // larger ones are rare and not worth keeping
		c = c[:chunkSize]
		chunkPool.Put(&c)
	}
}

// scanner splits an answer of the Table API into rows while it arrives. Rows are
// slices of its chunks: a row is never copied except when it crosses the end of
// a chunk.
type scanner struct {
	src    io.Reader
	fields Fields

	buf    []byte // current chunk, filled up to w
	r, w   int
	chunks [][]byte
	eof    bool

	rows   []record.Row
	found  bool   // a result array was seen
	failed []byte // the error member, as it came
}

// page reads the whole body: {"result":[...]} with other members around it.
func (s *scanner) page() error {
	if err := s.expect('{'); err != nil {
		return err
	}
	for first := true; ; first = false {
		c, err := s.peek()
		if err != nil {
			return err
		}
		if c == '}' && first {
			s.r++
			break
		}
		if !first {
			if c == '}' {
				s.r++
				break
			}
			if err := s.expect(','); err != nil {
				return err
			}
		}
		if err := s.member(); err != nil {
			return err
		}
	}
	if _, err := s.peek(); !errors.Is(err, io.ErrUnexpectedEOF) {
		if err == nil {
			return fmt.Errorf("%w: text behind the end of the answer", errSyntax)
		}
		return err
	}
	return nil
}

func (s *scanner) member() error {
	if c, err := s.peek(); err != nil || c != '"' {
		return s.orSyntax(err, "a member's name")
	}
	name, err := s.value()
	if err != nil {
		return err
	}
	key := string(name)
	if err := s.expect(':'); err != nil {
		return err
	}
	c, err := s.peek()
	if err != nil {
		return err
	}
	if key == `"result"` && c == '[' && !s.found {
		s.found = true
		s.r++
		return s.array()
	}
	v, err := s.value()
	if err != nil {
		return err
	}
	if key == `"error"` && !bytes.Equal(v, []byte("null")) {
		s.failed = bytes.Clone(v[:min(len(v), maxError)])
	}
	return nil
}

func (s *scanner) array() error {
	for first := true; ; first = false {
		c, err := s.peek()
		if err != nil {
			return err
		}
		if c == ']' {
			s.r++
			return nil
		}
		if !first {
			if err := s.expect(','); err != nil {
				return err
			}
			if c, err = s.peek(); err != nil {
				return err
			}
		}
		if c != '{' {
			return fmt.Errorf("%w: a row that is no object", errSyntax)
		}
		row, err := s.value()
		if err != nil {
			return err
		}
		s.rows = append(s.rows, s.fields.row(row))
	}
}

// value returns the next JSON value, valid and complete.
func (s *scanner) value() ([]byte, error) {
	n := 0
	for {
		end, ok := valueEnd(s.buf[s.r:s.w], s.eof)
		if ok {
			n = end
			break
		}
		if err := s.fill(); err != nil {
			return nil, err
		}
	}
	v := s.buf[s.r : s.r+n]
	if !gjson.ValidBytes(v) || !utf8.Valid(v) {
		return nil, fmt.Errorf("%w: an invalid value", errSyntax)
	}
	s.r += n
	return v, nil
}

// valueEnd finds where the value at the beginning of b ends, without validating
// it; false when b does not hold all of it.
func valueEnd(b []byte, eof bool) (int, bool) {
	depth := 0
	for i := 0; i < len(b); {
		switch b[i] {
		case '"':
			n, ok := stringEnd(b[i:])
			if !ok {
				return 0, false
			}
			if i += n; depth == 0 {
				return i, true
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i, true
			}
			if depth--; depth == 0 {
				return i + 1, true
			}
		case ',', ' ', '\n', '\r', '\t':
			if depth == 0 {
				return i, true
			}
		}
		i++
	}
	return len(b), eof && depth == 0 && len(b) > 0
}

// stringEnd returns the length of the string literal at the beginning of b.
func stringEnd(b []byte) (int, bool) {
	for i := 1; ; {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return 0, false
		}
		i += n
		slashes := 0
		for b[i-1-slashes] == '\\' {
			slashes++
		}
		i++
		if slashes%2 == 0 {
			return i, true
		}
	}
}

// peek returns the next byte that is not white space.
func (s *scanner) peek() (byte, error) {
	for {
		for ; s.r < s.w; s.r++ {
			switch c := s.buf[s.r]; c {
			case ' ', '\n', '\r', '\t':
			default:
				return c, nil
			}
		}
		if err := s.fill(); err != nil {
			return 0, err
		}
	}
}

func (s *scanner) expect(want byte) error {
	c, err := s.peek()
	if err == nil && c == want {
		s.r++
		return nil
	}
	return s.orSyntax(err, fmt.Sprintf("%q", want))
}

func (s *scanner) orSyntax(err error, want string) error {
	if err != nil {
		return err
	}
	return fmt.Errorf("%w: %s expected", errSyntax, want)
}

// fill reads more. What is not consumed yet stays in one piece: if the chunk is
// full, it moves to the beginning of the next.
func (s *scanner) fill() error {
	if s.eof {
		return io.ErrUnexpectedEOF
	}
	if s.w == len(s.buf) {
		rest := s.buf[s.r:s.w]
		next := getChunk(max(chunkSize, 2*len(rest)))
		s.w = copy(next, rest)
		s.r, s.buf = 0, next
		s.chunks = append(s.chunks, next)
	}
	n, err := s.src.Read(s.buf[s.w:])
	s.w += n
	if errors.Is(err, io.EOF) {
		s.eof = true
		return nil
	}
	return err
}

// tail returns the last bytes that were read, and drains a little more: a quota
// that ran out is told at the end of broken JSON.
func (s *scanner) tail() []byte {
	for n := 0; n < 16 && !s.eof && s.buf != nil; n++ {
		s.r = s.w
		if s.fill() != nil {
			break
		}
	}
	return bytes.Clone(s.buf[max(0, s.w-tailSize):s.w])
}

// row reads the three fields of a validated object in one pass. A field may be a
// string, or an object with a value (display_value=all, reference links).
func (f Fields) row(raw []byte) record.Row {
	r := record.Row{Raw: raw}
	var id, ts, mod []byte
	for i := 1; i < len(raw); {
		for i < len(raw) && raw[i] != '"' && raw[i] != '}' {
			i++
		}
		if i >= len(raw) || raw[i] == '}' {
			break
		}
		n, _ := stringEnd(raw[i:])
		name := raw[i+1 : i+n-1]
		i += n
		for raw[i] == ' ' || raw[i] == '\n' || raw[i] == '\r' || raw[i] == '\t' || raw[i] == ':' {
			i++
		}
		end, _ := valueEnd(raw[i:], true)
		v := raw[i : i+end]
		i += end
		switch string(name) {
		case f.ID:
			id = v
		case f.Timestamp:
			ts = v
		case f.ModCount:
			mod = v
		}
	}
	r.SysID, r.Timestamp, r.ModCount = text3(id, ts, mod)
	return r
}

// text3 returns three field values as strings that share one allocation.
func text3(a, b, c []byte) (string, string, string) {
	x, y, z := plain(a), plain(b), plain(c)
	var all strings.Builder
	all.Grow(len(x) + len(y) + len(z))
	all.Write(x)
	all.Write(y)
	all.Write(z)
	s := all.String()
	return s[:len(x)], s[len(x) : len(x)+len(y)], s[len(x)+len(y):]
}

// plain returns the text of a field's value: of a string, of a number, or of the
// value member of an object; nil of everything else.
func plain(v []byte) []byte {
	if len(v) == 0 {
		return nil
	}
	switch c := v[0]; {
	case c == '"' && bytes.IndexByte(v, '\\') < 0:
		return v[1 : len(v)-1]
	case c == '"':
		var s string
		if json.Unmarshal(v, &s) != nil {
			return nil
		}
		return []byte(s)
	case c == '{':
		if inner := gjson.GetBytes(v, "value"); inner.Exists() && inner.Type != gjson.JSON {
			return []byte(inner.String())
		}
	case c == '-', '0' <= c && c <= '9':
		return v
	}
	return nil
}

// IsEmpty says whether a row holds the field with an empty value.
func IsEmpty(raw []byte, field string) bool {
	v := gjson.GetBytes(raw, field)
	if v.IsObject() {
		v = v.Get("value")
	}
	return v.Exists() && v.String() == ""
}
