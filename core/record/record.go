// Package record holds the value types that travel through snowmelt: rows as an
// instance sent them, records as Kafka takes them, and their coordinates.
package record

// Row is one row of a page. Raw is the JSON object exactly as the instance sent
// it; the three other fields are what a poller needs to know of it. A row's
// bytes belong to its page and are valid until the page is released.
type Row struct {
	// Raw is the row's JSON object, byte for byte.
	Raw []byte
	// SysID is the value of the table's id field; empty when absent or not a string.
	SysID string
	// Timestamp is the value of the table's cursor field as sent, "yyyy-MM-dd HH:mm:ss".
	Timestamp string
	// ModCount is sys_mod_count as sent; empty when the row has none.
	ModCount string
}

// Header is one header of a record.
type Header struct {
	Key   string
	Value []byte
}

// Record is a record on its way to a topic. The partition is chosen by the
// Java client's partitioner from Key.
type Record struct {
	Topic string
	Key   []byte
	// Value is the record's value; nil is a tombstone.
	Value   []byte
	Headers []Header
	// Timestamp is in milliseconds since 1970-01-01 UTC.
	Timestamp int64
}

// The headers of a source record (spec: source, section 3).
const (
	HeaderTable       = "snow.table"
	HeaderInstance    = "snow.instance"
	HeaderOperation   = "snow.source.operation"
	HeaderExtractedAt = "snow.extracted_at"
	HeaderSchemaMode  = "snow.schema.mode"
	HeaderVersion     = "snow.version"
)

// OperationUpsert is the operation of a row that was read as it stands.
const OperationUpsert = "UPSERT"
