package embedded

import (
	"context"
	"log/slog"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"oncemore/internal/testkit"
)

func TestKafkaKeepsRecordsAndOffsets(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	k, err := StartKafka(dir, 0, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := k.CreateTopic("order.paid", 4); err != nil {
		t.Fatal(err)
	}
	if err := k.CreateTopic("order.paid", 4); err != nil {
		t.Fatalf("a topic that is there: %v", err)
	}
	consumeOne(t, k.Addr, "order.paid", "first")
	k.Stop()

	_, port, _ := net.SplitHostPort(k.Addr)
	want, _ := strconv.Atoi(port)
	again, err := StartKafka(dir, want, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer again.Stop()
	if again.Addr != k.Addr {
		t.Errorf("address %s, was %s", again.Addr, k.Addr)
	}
	consumeOne(t, again.Addr, "order.paid", "second") // "first" again would be a lost offset
}

func TestKafkaMakesTopicsForAnyClient(t *testing.T) {
	t.Parallel()
	k, err := StartKafka(t.TempDir(), 0, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer k.Stop()
	client := testkit.Client(t, k.Addr, kgo.AllowAutoTopicCreation())
	if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: "mine.DLT", Value: []byte("x")}).FirstErr(); err != nil {
		t.Error(err)
	}
}

// consumeOne sends value and reads on in the group from where it stands.
func consumeOne(t *testing.T, addr, topic, value string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumerGroup("g"), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Key: []byte("k"), Value: []byte(value)}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	records := client.PollFetches(ctx).Records()
	if len(records) != 1 || string(records[0].Value) != value {
		t.Fatalf("got %d records, want only %q", len(records), value)
	}
	if err := client.CommitRecords(ctx, records...); err != nil {
		t.Fatal(err)
	}
}
