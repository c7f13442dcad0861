package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
)

// pay publishes a payment of 100 points. The event id names the business fact,
// never the message: paying again for the same order is the same event.
func pay(ctx context.Context, brokers kgo.Opt, order string) error {
	client, err := kgo.NewClient(brokers, kgo.RequiredAcks(kgo.AllISRAcks()), kgo.AllowAutoTopicCreation())
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
