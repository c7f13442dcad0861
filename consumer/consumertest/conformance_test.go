package consumertest

import (
	"slices"
	"strings"
	"testing"

	"oncemore/consumer"
	"oncemore/consumer/brokertest"
	"oncemore/consumer/pgstore"
	"oncemore/internal/testkit"
	"oncemore/migrations/pgtest"
)

// What users test their handlers on behaves as the brokers do: it passes the suite
// that Kafka and RabbitMQ pass.
func TestConformance(t *testing.T) {
	t.Parallel()
	brokertest.Run(t, suite{NewBroker(1)}, pgtest.Empty)
}

// suite is a Broker as brokertest needs it.
type suite struct{ *Broker }

func (suite) Features() brokertest.Features {
	return brokertest.Features{Partitions: true, Records: true}
}

func (s suite) Topic(t *testing.T, partitions int) string {
	t.Helper()
	topic := testkit.Name("order.paid")
	if err := s.CreateTopic(topic, partitions); err != nil {
		t.Fatal(err)
	}
	return topic
}

func (suite) Group(*testing.T) string { return testkit.Name("points") }

func (s suite) Publish(_ *testing.T, topic string, messages ...brokertest.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range messages {
		s.put(topic, m.Partition, consumer.Event{Key: m.Key, Value: m.Value, Headers: m.Headers})
	}
	s.tell()
}

func (s suite) Acked(_ *testing.T, group, topic string) int { return s.Acknowledged(group, topic) }

func (s suite) Letters(_ *testing.T, topic string) []brokertest.Letter {
	var all []brokertest.Letter
	letters := s.Broker.Letters(topic)
	slices.SortStableFunc(letters, func(a, b consumer.Letter) int { return int(a.Partition - b.Partition) })
	for _, l := range letters {
		all = append(all, brokertest.Letter{
			Message: brokertest.Message{Partition: int(l.Partition), Key: l.Key, Value: l.Value, Headers: l.Headers},
			Topic:   l.Topic, OriginPartition: int(l.Partition), Offset: l.Offset, Group: l.Group, Class: consumer.ErrorClass(l.Err),
			Text: l.Err.Error(), Trace: strings.TrimSpace(consumer.ErrorTrace(l.Err)), Attempt: l.Attempt, EventID: l.ID,
		})
	}
	return all
}

func (s suite) New(t *testing.T, topic string, cfg consumer.Config[pgstore.Tx]) consumer.Runner {
	t.Helper()
	c, err := NewConsumer(s.Broker, cfg, topic)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
