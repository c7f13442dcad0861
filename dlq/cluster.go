package dlq

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Cluster is a named connection to a broker: to Kafka, with a producer and an
// admin client, or to RabbitMQ, where both are nil. Consumers of Kafka are made
// with NewClient.
type Cluster struct {
	Name     string
	Producer *kgo.Client // acks from all in-sync replicas, idempotent, never creates topics
	Admin    *kadm.Client
	opts     []kgo.Opt

	searchFor time.Duration // how long one search for lost messages goes on; 0: searchTime

	rabbit *rabbitBroker // nil: Kafka
	broker broker
}

// NewCluster connects to Kafka, lazily: an unreachable broker is no error here.
// opts hold the seed brokers and, where needed, TLS and SASL.
func NewCluster(name string, opts ...kgo.Opt) (*Cluster, error) {
	producer, err := kgo.NewClient(append(opts[:len(opts):len(opts)],
		kgo.RequiredAcks(kgo.AllISRAcks()),
	)...)
	if err != nil {
		return nil, fmt.Errorf("cluster %s: %w", name, err)
	}
	c := &Cluster{Name: name, Producer: producer, Admin: kadm.NewClient(producer), opts: opts}
	c.broker = kafkaBroker{c}
	return c, nil
}

// NewRabbitCluster connects to RabbitMQ, lazily. Errors: a URL that cannot be used.
func NewRabbitCluster(name string, opts RabbitOptions) (*Cluster, error) {
	b, err := newRabbitBroker(name, opts)
	if err != nil {
		return nil, fmt.Errorf("cluster %s: %w", name, err)
	}
	return &Cluster{Name: name, rabbit: b, broker: b}, nil
}

// IsRabbit reports a cluster of RabbitMQ.
func (c *Cluster) IsRabbit() bool { return c.rabbit != nil }

// NewClient makes a client of its own on a Kafka cluster, for a consumer.
func (c *Cluster) NewClient(opts ...kgo.Opt) (*kgo.Client, error) {
	cl, err := kgo.NewClient(append(c.opts[:len(c.opts):len(c.opts)], opts...)...)
	if err != nil {
		return nil, fmt.Errorf("cluster %s: %w", c.Name, err)
	}
	return cl, nil
}

// Close ends the cluster's own connections.
func (c *Cluster) Close() { c.broker.close() }
