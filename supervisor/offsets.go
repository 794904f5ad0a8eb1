package supervisor

import (
	"context"
	"fmt"

	"snowmelt/config"
	"snowmelt/core/kafka"
)

// Offset is one cursor, in the shape that `snowmelt offsets list --output json` promises.
type Offset struct {
	Pipeline  string            `json:"pipeline"`
	Partition map[string]string `json:"partition"`
	Offset    map[string]string `json:"offset"`
}

// Offsets returns the committed cursors of the configured source pipelines.
func Offsets(ctx context.Context, cfg config.Config) ([]Offset, error) {
	out := []Offset{}
	for _, s := range cfg.Sources {
		opts, err := kafka.Options(s.Kafka)
		if err != nil {
			return nil, fmt.Errorf("reading the kafka settings of %s: %w", s.Name, err)
		}
		cluster, err := kafka.Connect(opts)
		if err != nil {
			return nil, fmt.Errorf("preparing the Kafka client of %s: %w", s.Name, err)
		}
		cursors, err := cluster.Cursors(ctx, s.OffsetTopic)
		cluster.Close()
		if err != nil {
			return nil, fmt.Errorf("reading the cursors of %s: %w", s.Name, err)
		}
		for _, c := range cursors {
			if c.Key.Pipeline == s.Name {
				out = append(out, Offset{c.Key.Pipeline, c.Key.Partition, c.Offset})
			}
		}
	}
	return out, nil
}
