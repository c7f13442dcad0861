package dlq

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kadm"

	"oncemore/consumer/rabbit"
)

// DeadPlace is a topic or queue that may hold dead letters.
type DeadPlace struct {
	Name     string
	Messages int64 // that it holds
	Likely   bool  // by its name, or because queues dead-letter to it
}

// FindPlaces lists the cluster's topics or queues, those that look like dead
// letters first, the fullest of them first. It only reads. Errors: the broker's;
// rabbit.ErrNoManagement, without which queues cannot be listed.
func (c *Cluster) FindPlaces(ctx context.Context) ([]DeadPlace, error) {
	find := c.topicPlaces
	if c.rabbit != nil {
		find = c.queuePlaces
	}
	all, err := find(ctx)
	if err != nil {
		return nil, fmt.Errorf("cluster %s: %w", c.Name, err)
	}
	slices.SortFunc(all, func(a, b DeadPlace) int {
		return cmp.Or(likelyFirst(a.Likely, b.Likely), cmp.Compare(b.Messages, a.Messages), cmp.Compare(a.Name, b.Name))
	})
	return all, nil
}

func likelyFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

func (c *Cluster) topicPlaces(ctx context.Context) ([]DeadPlace, error) {
	topics, err := c.Admin.ListTopics(ctx)
	if err != nil {
		return nil, err
	}
	first, err := c.Admin.ListStartOffsets(ctx, topics.Names()...)
	if err != nil {
		return nil, err
	}
	last, err := c.Admin.ListEndOffsets(ctx, topics.Names()...)
	if err != nil {
		return nil, err
	}
	var all []DeadPlace
	for _, topic := range topics.Names() {
		all = append(all, DeadPlace{topic, records(first, last, topic), deadLetterName.MatchString(topic)})
	}
	return all, nil
}

// records counts what a topic holds, in the partitions that answered.
func records(first, last kadm.ListedOffsets, topic string) (n int64) {
	for partition, end := range last[topic] {
		if start, ok := first.Lookup(topic, partition); ok && start.Err == nil && end.Err == nil {
			n += end.Offset - start.Offset
		}
	}
	return n
}

func (c *Cluster) queuePlaces(ctx context.Context) ([]DeadPlace, error) {
	if err := c.rabbit.signIn(ctx); err != nil {
		return nil, err
	}
	if c.rabbit.api == nil {
		return nil, rabbit.ErrNoManagement
	}
	view := &rabbitView{}
	if err := view.load(ctx, c.rabbit.api); err != nil {
		return nil, fmt.Errorf("management API: %w", err)
	}
	dead := view.deadTargets()
	var all []DeadPlace
	for name, q := range view.queues {
		if !q.IsStream() {
			all = append(all, DeadPlace{name, q.Ready + q.Unacked, dead[name] || deadLetterName.MatchString(name)})
		}
	}
	return all, nil
}

// signIn opens a channel, which the broker lets only those do who may.
func (b *rabbitBroker) signIn(ctx context.Context) error {
	return b.ask(ctx, func(*amqp.Channel) error { return nil })
}
