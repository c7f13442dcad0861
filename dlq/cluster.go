package dlq

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Cluster is a named Kafka connection: a producer for replays and an admin
// client. Consumers of it are made with NewClient.
type Cluster struct {
	Name     string
	Producer *kgo.Client // acks from all in-sync replicas, idempotent, never creates topics
	Admin    *kadm.Client
	opts     []kgo.Opt
}

// NewCluster connects lazily: an unreachable broker is no error here. opts hold
// the seed brokers and, where needed, TLS and SASL.
func NewCluster(name string, opts ...kgo.Opt) (*Cluster, error) {
	producer, err := kgo.NewClient(append(opts[:len(opts):len(opts)],
		kgo.RequiredAcks(kgo.AllISRAcks()),
	)...)
	if err != nil {
		return nil, fmt.Errorf("cluster %s: %w", name, err)
	}
	return &Cluster{Name: name, Producer: producer, Admin: kadm.NewClient(producer), opts: opts}, nil
}

// NewClient makes a client of its own on the cluster, for a consumer.
func (c *Cluster) NewClient(opts ...kgo.Opt) (*kgo.Client, error) {
	cl, err := kgo.NewClient(append(c.opts[:len(c.opts):len(c.opts)], opts...)...)
	if err != nil {
		return nil, fmt.Errorf("cluster %s: %w", c.Name, err)
	}
	return cl, nil
}

// Close ends the cluster's own client.
func (c *Cluster) Close() { c.Producer.Close() }
