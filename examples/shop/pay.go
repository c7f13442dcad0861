package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// createTopic makes order.paid, unless it is there.
func createTopic(ctx context.Context, brokers kgo.Opt) error {
	client, err := kgo.NewClient(brokers)
	if err != nil {
		return fmt.Errorf("connect to Kafka: %w", err)
	}
	defer client.Close()
	if _, err := kadm.NewClient(client).CreateTopic(ctx, 3, -1, nil, topic); err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		return fmt.Errorf("create topic %s: %w", topic, err)
	}
	return nil
}

// pay publishes a payment of 100 points. The event id names the business fact,
// never the message: paying again for the same order is the same event.
func pay(ctx context.Context, brokers kgo.Opt, order string) error {
	client, err := kgo.NewClient(brokers, kgo.RequiredAcks(kgo.AllISRAcks()))
	if err != nil {
		return fmt.Errorf("connect to Kafka: %w", err)
	}
	defer client.Close()
	p := payment{EventID: "payment-success-" + order, OrderID: order, Points: 100}
	value, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("payment of %s: %w", order, err)
	}
	record := &kgo.Record{
		Topic: topic, Key: []byte(order), Value: value,
		Headers: []kgo.RecordHeader{{Key: "event-id", Value: []byte(p.EventID)}},
	}
	if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
		return fmt.Errorf("publish %s: %w", p.EventID, err)
	}
	return nil
}
