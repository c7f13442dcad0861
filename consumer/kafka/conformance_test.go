package kafka

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"oncemore/consumer"
	"oncemore/consumer/brokertest"
	"oncemore/consumer/pgstore"
	"oncemore/internal/testkit"
	"oncemore/migrations/pgtest"
)

// onBoth runs a test on kfake and on a real Kafka.
func onBoth(t *testing.T, run func(t *testing.T, addr string)) {
	t.Run("kfake", func(t *testing.T) {
		t.Parallel()
		run(t, fake(t).ListenAddrs()[0])
	})
	t.Run("kafka", func(t *testing.T) {
		t.Parallel()
		run(t, testkit.Kafka(t))
	})
}

// fake is a broker that makes no topics by itself.
func fake(t *testing.T, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	cluster, err := kfake.NewCluster(append(opts, kfake.NumBrokers(1), kfake.GroupMinSessionTimeout(time.Second))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	return cluster
}

func TestConformance(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, addr string) {
		brokertest.Run(t, broker{addr}, pgtest.Empty)
	})
}

// broker is Kafka as brokertest needs it.
type broker struct{ addr string }

func (b broker) client(t *testing.T, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	return testkit.Client(t, b.addr, opts...)
}

func (b broker) Topic(t *testing.T, partitions int) string {
	t.Helper()
	topic := testkit.Topic(t, b.addr, "order.paid", int32(partitions))
	testkit.MakeTopic(t, b.addr, topic+".DLT", int32(partitions))
	return topic
}

func (b broker) Features() brokertest.Features {
	return brokertest.Features{Partitions: true, Records: true}
}

func (b broker) Group(*testing.T) string { return testkit.Name("points") }

func (b broker) Publish(t *testing.T, topic string, messages ...brokertest.Message) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(b.addr), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	records := make([]*kgo.Record, len(messages))
	for i, m := range messages {
		records[i] = &kgo.Record{Topic: topic, Partition: int32(m.Partition), Key: m.Key, Value: m.Value}
		for _, h := range m.Headers {
			records[i].Headers = append(records[i].Headers, kgo.RecordHeader{Key: h.Name, Value: h.Value})
		}
	}
	if err := client.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatalf("publish to %s: %v", topic, err)
	}
}

func (b broker) Acked(t *testing.T, group, topic string) int {
	t.Helper()
	n := int64(0)
	for _, at := range committed(t, b.client(t), group, topic) {
		n += at
	}
	return int(n)
}

// committed are the group's offsets on a topic, where it has any.
func committed(t *testing.T, client *kgo.Client, group, topic string) map[int32]int64 {
	t.Helper()
	defer client.Close()
	offsets, err := kadm.NewClient(client).FetchOffsets(t.Context(), group)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) { // nothing was committed yet
		t.Fatalf("offsets of %s: %v", group, err)
	}
	at := map[int32]int64{}
	for _, o := range offsets[topic] {
		at[o.Partition] = o.At
	}
	return at
}

func (b broker) Letters(t *testing.T, topic string) []brokertest.Letter {
	t.Helper()
	var letters []brokertest.Letter
	for _, r := range readAll(t, b.addr, topic+".DLT") {
		letters = append(letters, letterOf(r))
	}
	return letters
}

// readAll reads a topic from its start to where it ends now.
func readAll(t *testing.T, addr, topic string) []*kgo.Record {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumeTopics(topic), kgo.FetchMaxWait(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ends, err := kadm.NewClient(client).ListEndOffsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	missing := int64(0)
	ends.Each(func(o kadm.ListedOffset) { missing += o.Offset })
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var all []*kgo.Record
	for int64(len(all)) < missing {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("read %d of %d records of %s", len(all), missing, topic)
		}
		all = append(all, fetches.Records()...)
	}
	return all
}

func letterOf(r *kgo.Record) brokertest.Letter {
	l := brokertest.Letter{Message: brokertest.Message{Partition: int(r.Partition), Key: r.Key, Value: r.Value}}
	for i, h := range r.Headers {
		text := string(h.Value)
		switch h.Key {
		case "kafka_dlt-original-topic":
			l.Topic = text
		case "kafka_dlt-original-partition":
			l.OriginPartition = int(binary.BigEndian.Uint32(h.Value))
		case "kafka_dlt-original-offset":
			l.Offset = int64(binary.BigEndian.Uint64(h.Value))
		case "kafka_dlt-original-consumer-group":
			l.Group = text
		case "kafka_dlt-exception-fqcn":
			l.Class = text
		case "kafka_dlt-exception-message":
			l.Text = text
		case "kafka_dlt-exception-stacktrace":
			l.Trace = text
		case "kafka_deliveryAttempt":
			l.Attempt = int(binary.BigEndian.Uint32(h.Value))
		default:
			if h.Key == "event-id" {
				l.EventID = text
			}
			added := h.Key == "event-id" && i == len(r.Headers)-1
			if !added && !strings.HasPrefix(h.Key, "kafka_dlt-") {
				l.Headers = append(l.Headers, consumer.Header{Name: h.Key, Value: h.Value})
			}
		}
	}
	return l
}

func (b broker) New(t *testing.T, topic string, cfg consumer.Config[pgstore.Tx]) consumer.Runner {
	t.Helper()
	c, err := New(cfg, Options{
		Topics: []string{topic}, Client: []kgo.Opt{kgo.SeedBrokers(b.addr)},
		SessionTimeout: session(b.addr), RebalanceTimeout: 8 * time.Second, FinishTimeout: 2 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}
