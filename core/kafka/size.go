package kafka

import (
	"fmt"

	"snowmelt/core/failure"
	"snowmelt/core/record"
)

// batchOverhead is the size of a record batch without its records: the header
// of message format 2 (Kafka protocol guide, "Record Batch").
const batchOverhead = 61

// clientFraming is what kgo counts beyond a batch when it compares it with its
// limit: the length before the batch in the request.
const clientFraming = 5

// RecordSize returns the bytes that r needs on its own: a batch of one record,
// uncompressed, with key, value, headers and framing. It is what a broker
// compares with max.message.bytes, or more when the batch is compressed.
func RecordSize(r record.Record) int {
	// attributes, timestamp delta and offset delta of the only record are one byte each
	n := 3 + blobSize(r.Key == nil, len(r.Key)) + blobSize(r.Value == nil, len(r.Value)) + varintSize(len(r.Headers))
	for _, h := range r.Headers {
		n += blobSize(false, len(h.Key)) + blobSize(h.Value == nil, len(h.Value))
	}
	return batchOverhead + varintSize(n) + n
}

// blobSize is the size of bytes with their length before them; null is length -1.
func blobSize(null bool, n int) int {
	if null {
		return 1
	}
	return varintSize(n) + n
}

// varintSize is the size of the zigzag varint of n >= 0.
func varintSize(n int) int {
	size := 1
	for v := uint64(n) << 1; v >= 0x80; v >>= 7 {
		size++
	}
	return size
}

// fits fails with Oversized when r is over limit, naming its key and both sizes.
func fits(op string, r record.Record, limit int) error {
	size := RecordSize(r)
	if size <= limit {
		return nil
	}
	return &failure.Error{
		Class:  failure.Oversized,
		Op:     op,
		Detail: fmt.Sprintf("the record with key %s has %d bytes, topic %s takes %d", excerpt(r.Key), size, r.Topic, limit),
		Hint:   "raise kafka.max.request.size and the topic's max.message.bytes, or read fewer fields",
	}
}

// excerpt is a key as text, cut: keys are sys_ids, but need not be.
func excerpt(key []byte) string {
	const most = 64
	if len(key) > most {
		return fmt.Sprintf("%.*q...", most, key[:most])
	}
	return fmt.Sprintf("%q", key)
}
