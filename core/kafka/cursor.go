package kafka

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"unicode/utf8"
)

// The fields of a cursor key's partition (spec: source, section 4).
const (
	PartitionInstance    = "instance"
	PartitionTable       = "table"
	PartitionFingerprint = "query_fingerprint"
	PartitionTimestamp   = "timestamp_field"
)

// offsetTimestamp is the field of a cursor by which two cursors are compared.
const offsetTimestamp = "timestamp"

// CursorKey names a cursor: the pipeline, which Kafka Connect calls the
// connector, and the partition of the source that the cursor is for.
type CursorKey struct {
	Pipeline  string
	Partition map[string]string
}

// Encode returns the key of the cursor's record: ["<pipeline>",{partition}] with
// sorted keys, byte for byte as Connect's JsonConverter writes it: no blanks, no
// escapes but those that JSON demands, control characters in upper-case hex.
func (k CursorKey) Encode() []byte {
	b := appendString([]byte{'['}, k.Pipeline)
	b = append(b, ',')
	b = appendObject(b, k.Partition)
	return append(b, ']')
}

// ParseCursorKey reads the key of a record of the cursor topic, in any order of
// its fields. It is false for everything that is no cursor key: other shapes,
// such as the schema records with a third element, and partitions with values
// that are no strings, which other connectors write.
func ParseCursorKey(raw []byte) (CursorKey, bool) {
	var parts []json.RawMessage
	if !utf8.Valid(raw) || json.Unmarshal(raw, &parts) != nil || len(parts) != 2 {
		return CursorKey{}, false
	}
	var pipeline *string
	var partition map[string]*string
	if json.Unmarshal(parts[0], &pipeline) != nil || pipeline == nil ||
		json.Unmarshal(parts[1], &partition) != nil || partition == nil {
		return CursorKey{}, false
	}
	k := CursorKey{Pipeline: *pipeline, Partition: make(map[string]string, len(partition))}
	for name, v := range partition {
		if v == nil {
			return CursorKey{}, false
		}
		k.Partition[name] = *v
	}
	return k, true
}

// Equal reports whether two keys are the same JSON, whatever the order of fields.
func (k CursorKey) Equal(other CursorKey) bool {
	return k.Pipeline == other.Pipeline && maps.Equal(k.Partition, other.Partition)
}

// TransactionalID returns prefix + pipeline + "-" + the first 16 hex digits of
// the SHA-256 of Encode: the identity that owns the table (Invariant 5).
func (k CursorKey) TransactionalID(prefix string) string {
	sum := sha256.Sum256(k.Encode())
	return prefix + k.Pipeline + "-" + hex.EncodeToString(sum[:8])
}

// sibling reports whether other is the same table of the same pipeline under
// another fingerprint: its query was changed.
func (k CursorKey) sibling(other CursorKey) bool {
	if k.Pipeline != other.Pipeline || k.Partition[PartitionFingerprint] == other.Partition[PartitionFingerprint] {
		return false
	}
	for _, name := range []string{PartitionInstance, PartitionTable, PartitionTimestamp} {
		if k.Partition[name] != other.Partition[name] {
			return false
		}
	}
	return true
}

// CursorRecord is one cursor as it stands in the cursor topic.
type CursorRecord struct {
	Key CursorKey
	// Offset is the cursor; nil when the record is a tombstone or its value is
	// no JSON object.
	Offset map[string]string
	// At is the record's offset in its log.
	At int64
	// LogPartition is the partition of the cursor topic that holds the record.
	LogPartition int32
	// Time is the record's timestamp in milliseconds since 1970-01-01 UTC.
	Time int64
	// Deleted means that the record is a tombstone.
	Deleted bool
}

// further reports whether a is to be preferred to b when one key is found in two
// partitions of the cursor topic, which happens because Connect orders the
// fields of its keys otherwise and so hashes them otherwise: the later timestamp
// wins, then the later record.
func (a CursorRecord) further(b CursorRecord) bool {
	if x, y := a.Offset[offsetTimestamp], b.Offset[offsetTimestamp]; x != y {
		return x > y // "yyyy-MM-dd HH:mm:ss" sorts as time
	}
	if a.Time != b.Time {
		return a.Time > b.Time
	}
	return a.At > b.At
}

// encodeOffset returns a cursor record's value, with sorted keys.
func encodeOffset(offset map[string]string) []byte { return appendObject(nil, offset) }

// parseOffset reads a cursor record's value. Numbers and booleans, which Connect
// allows, become their text; null fields are left out. It returns nil for
// anything but an object.
func parseOffset(raw []byte) map[string]string {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var fields map[string]any
	if d.Decode(&fields) != nil || fields == nil {
		return nil
	}
	offset := make(map[string]string, len(fields))
	for name, v := range fields {
		switch v := v.(type) {
		case nil:
		case string:
			offset[name] = v
		case json.Number:
			offset[name] = v.String()
		default:
			text, err := json.Marshal(v)
			if err != nil {
				return nil
			}
			offset[name] = string(text)
		}
	}
	return offset
}

func appendObject(b []byte, fields map[string]string) []byte {
	b = append(b, '{')
	for i, name := range slices.Sorted(maps.Keys(fields)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, name)
		b = append(b, ':')
		b = appendString(b, fields[name])
	}
	return append(b, '}')
}

// appendString writes a JSON string as Jackson does. encoding/json will not do:
// it escapes U+2028 and writes hex in lower case, and another key is another
// partition and another cursor.
func appendString(b []byte, s string) []byte {
	const hexDigits = "0123456789ABCDEF"
	b = append(b, '"')
	for _, r := range s { // invalid UTF-8 becomes U+FFFD
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r == '\b':
			b = append(b, `\b`...)
		case r == '\t':
			b = append(b, `\t`...)
		case r == '\n':
			b = append(b, `\n`...)
		case r == '\f':
			b = append(b, `\f`...)
		case r == '\r':
			b = append(b, `\r`...)
		case r < 0x20:
			b = append(b, '\\', 'u', '0', '0', hexDigits[r>>4], hexDigits[r&15])
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return append(b, '"')
}
