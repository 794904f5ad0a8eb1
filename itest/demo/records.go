package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// line is one record of a file for Produce.
type line struct {
	Topic   string            `json:"topic"`
	Key     *string           `json:"key"`
	Value   json.RawMessage   `json:"value"`
	Headers map[string]string `json:"headers"`
}

// maxLine bounds a line of a file of records.
const maxLine = 16 << 20

// Produce reads a file of JSON lines {"topic","key","value","headers"}, makes
// topics that are missing, and produces the records in their order. A value of
// null is a tombstone.
func (b *Broker) Produce(ctx context.Context, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("opening the records: %w", err)
	}
	defer func() { _ = f.Close() }()
	c, err := kgo.NewClient(kgo.SeedBrokers(b.Addr()))
	if err != nil {
		return fmt.Errorf("reaching the embedded broker: %w", err)
	}
	defer c.Close()
	admin, made := kadm.NewClient(c), map[string]bool{}
	scan := bufio.NewScanner(f)
	scan.Buffer(nil, maxLine)
	for n := 1; scan.Scan(); n++ {
		if len(scan.Bytes()) == 0 {
			continue
		}
		var l line
		err := json.Unmarshal(scan.Bytes(), &l)
		if err == nil && l.Topic == "" {
			err = errors.New("no topic")
		}
		if err != nil {
			return fmt.Errorf("reading line %d of %s: want {\"topic\",\"key\",\"value\",\"headers\"}: %w", n, file, err)
		}
		if !made[l.Topic] {
			if _, err := admin.CreateTopic(ctx, -1, -1, nil, l.Topic); err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
				return fmt.Errorf("creating topic %s: %w", l.Topic, err)
			}
			made[l.Topic] = true
		}
		r := &kgo.Record{Topic: l.Topic}
		if l.Key != nil {
			r.Key = []byte(*l.Key)
		}
		if len(l.Value) > 0 && string(l.Value) != "null" {
			r.Value = l.Value
		}
		for k, v := range l.Headers {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: k, Value: []byte(v)})
		}
		if err := c.ProduceSync(ctx, r).FirstErr(); err != nil {
			return fmt.Errorf("producing line %d of %s: %w", n, file, err)
		}
	}
	if err := scan.Err(); err != nil {
		return fmt.Errorf("reading %s: %w", file, err)
	}
	return nil
}
