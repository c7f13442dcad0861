package dialect_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"oncemore/consumer"
	"oncemore/consumer/consumertest"
	"oncemore/consumer/kafka"
	"oncemore/dlq/dialect"
	"oncemore/internal/testkit"
)

// Our own consumer gives an event up after three retry topics: its letter, and
// what lies in a retry topic, are read with origin, attempts and event id.
func TestOwnRecordsOfRetryTopics(t *testing.T) {
	t.Parallel()
	addr := testkit.FakeKafkaAddr(t)
	topic, group := testkit.Topic(t, addr, "order.paid", 3), testkit.Name("points")
	pause := 20 * time.Millisecond
	runFailing(t, addr, topic, group, pause)
	sent := &kgo.Record{Topic: topic, Partition: 2, Key: []byte("10001"), Value: []byte(`{"eventId":"payment-success-10001"}`),
		Headers: []kgo.RecordHeader{{Key: "trace", Value: []byte("t-1")}}}
	producer := testkit.Client(t, addr, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err := producer.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Partition: 2, Value: []byte(`{"eventId":"first"}`)}, sent).FirstErr(); err != nil {
		t.Fatal(err)
	}
	for place, want := range map[string]struct {
		dialect  string
		attempts int32
	}{
		topic + ".DLT":                   {"spring-kafka-dlpr", 4},
		kafka.RetryTopic(topic, pause):   {"spring-kafka-retry-topic", 1},
		kafka.RetryTopic(topic, 2*pause): {"spring-kafka-retry-topic", 2},
	} {
		checkOwn(t, second(t, addr, place), topic, group, want.dialect, want.attempts, sent)
	}
}

func checkOwn(t *testing.T, r *kgo.Record, topic, group, name string, attempts int32, sent *kgo.Record) {
	t.Helper()
	set := builtin(t)
	msg := &dialect.Message{Broker: dialect.Kafka, From: dialect.Place{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, TimestampMS: r.Timestamp.UnixMilli()}, Key: r.Key, Value: r.Value}
	for _, h := range r.Headers {
		msg.Headers = append(msg.Headers, dialect.Header{Name: h.Key, Value: h.Value})
	}
	got := set.Read(msg, dialect.Configured{EventIDJSON: "$.eventId"})
	if got.Dialect != name {
		t.Errorf("%s: dialect %s, want %s", r.Topic, got.Dialect, name)
	}
	equal(t, r.Topic+" origin topic", got.OriginTopic, topic)
	equal(t, r.Topic+" partition", got.OriginPartition, 2)
	equal(t, r.Topic+" offset", got.OriginOffset, 1)
	equal(t, r.Topic+" time", got.OriginTime, sent.Timestamp.Truncate(time.Millisecond).UTC())
	equal(t, r.Topic+" group", got.Group, group)
	equal(t, r.Topic+" attempts", got.Attempts, attempts)
	equal(t, r.Topic+" class", got.ExceptionClass, "*errors.errorString")
	equal(t, r.Topic+" message", got.ExceptionMessage, "shop is closed")
	equal(t, r.Topic+" event id", got.EventID, "payment-success-10001")
	if left, err := set.Strip(name, msg.Headers); err != nil || len(left) == 0 || left[0].Name != "trace" || string(r.Key) != "10001" || string(r.Value) != string(sent.Value) {
		t.Errorf("%s: a replay would carry %v, %v", r.Topic, left, err)
	}
}

func runFailing(t *testing.T, addr, topic, group string, pause time.Duration) {
	t.Helper()
	c, err := kafka.New(consumer.Config[struct{}]{
		Group: group, Store: consumertest.NewMemory(struct{}{}), EventID: consumer.EventIDSource{JSON: "$.eventId"},
		Handler: func(context.Context, struct{}, consumer.Event) error { return errors.New("shop is closed") },
		Retry:   consumer.RetryPolicy{Initial: pause, Jitter: -1},
	}, kafka.Options{Topics: []string{topic}, Client: []kgo.Opt{kgo.SeedBrokers(addr)}, CreateTopics: true, RetryTopics: &kafka.RetryTopics{}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// second waits for the second record of a topic.
func second(t *testing.T, addr, topic string) *kgo.Record {
	t.Helper()
	client := testkit.Client(t, addr, kgo.ConsumeTopics(topic), kgo.MetadataMaxAge(100*time.Millisecond), kgo.MetadataMinAge(50*time.Millisecond))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var all []*kgo.Record
	for len(all) < 2 && ctx.Err() == nil {
		all = append(all, client.PollFetches(ctx).Records()...)
	}
	if len(all) < 2 {
		t.Fatalf("%d records in %s", len(all), topic)
	}
	return all[1]
}
