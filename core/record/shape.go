package record

import "strconv"

// Shape turns rows of one table into records (source.md section 3).
type Shape struct {
	// Topic is where the records go.
	Topic string
	// Table is the table's name, Instance the host it was read from.
	Table, Instance string
	// Mode is the schema mode, as the header tells it.
	Mode string
}

// Page makes the records of one page, read at extractedAt (milliseconds since 1970).
type Page struct {
	shape   Shape
	headers []Header
}

// Page returns what the records of a page have in common.
func (s Shape) Page(extractedAt int64) *Page {
	return &Page{shape: s, headers: []Header{
		{HeaderTable, []byte(s.Table)},
		{HeaderInstance, []byte(s.Instance)},
		{HeaderOperation, []byte(OperationUpsert)},
		{HeaderExtractedAt, strconv.AppendInt(nil, extractedAt, 10)},
		{HeaderSchemaMode, []byte(s.Mode)},
	}}
}

// Record returns the record of a row in mode schemaless: the row's bytes as the
// instance sent them. version is the value of the header snow.version, millis
// the row's time.
func (p *Page) Record(row *Row, version string, millis int64) Record {
	headers := make([]Header, len(p.headers)+1)
	copy(headers, p.headers)
	headers[len(p.headers)] = Header{HeaderVersion, []byte(version)}
	return Record{
		Topic: p.shape.Topic, Key: []byte(row.SysID), Value: row.Raw, Headers: headers, Timestamp: millis,
	}
}
