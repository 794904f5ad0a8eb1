package record

import "fmt"

// Consumed is a record as it came out of a topic.
type Consumed struct {
	Topic     string
	Partition int32
	Offset    int64
	Key       []byte
	// Value is nil for a tombstone; empty is something else.
	Value   []byte
	Headers []Header
	// Timestamp is in milliseconds since 1970-01-01 UTC.
	Timestamp int64
}

// Place names the record in messages: topic, partition and offset.
func (c *Consumed) Place() string { return fmt.Sprintf("%s-%d@%d", c.Topic, c.Partition, c.Offset) }

// Header returns the value of the last header with this key.
func (c *Consumed) Header(key string) (string, bool) {
	for i := len(c.Headers) - 1; i >= 0; i-- {
		if c.Headers[i].Key == key {
			return string(c.Headers[i].Value), true
		}
	}
	return "", false
}
