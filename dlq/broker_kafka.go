package dlq

import (
	"context"
	"fmt"
	"slices"
)

// kafkaBroker is a cluster of Kafka as a broker.
type kafkaBroker struct{ *Cluster }

var _ broker = kafkaBroker{}

func (b kafkaBroker) close() { b.Producer.Close() }

// unattended: topics with a dead-letter topic's name that hold records and have
// no drain position.
func (b kafkaBroker) unattended(ctx context.Context, view *clusterView, drained []string) ([]UnattendedSource, error) {
	var names []string
	for name := range view.Topics {
		if deadLetterName.MatchString(name) && !slices.Contains(drained, name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil, nil
	}
	return b.holding(ctx, names)
}

// holding gives those of the topics that hold records, by name.
func (c *Cluster) holding(ctx context.Context, topics []string) ([]UnattendedSource, error) {
	first, err := c.Admin.ListStartOffsets(ctx, topics...)
	if err != nil {
		return nil, fmt.Errorf("start offsets on %s: %w", c.Name, err)
	}
	last, err := c.Admin.ListEndOffsets(ctx, topics...)
	if err != nil {
		return nil, fmt.Errorf("end offsets on %s: %w", c.Name, err)
	}
	var out []UnattendedSource
	for _, topic := range slices.Sorted(slices.Values(topics)) {
		if n := records(first, last, topic); n > 0 {
			out = append(out, UnattendedSource{Cluster: c.Name, Topic: topic, Records: n})
		}
	}
	return out, nil
}
