package testkit_test

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"oncemore/internal/testkit"
)

func TestFakeKafkaTakesRecords(t *testing.T) {
	t.Parallel()
	addr := testkit.FakeKafkaAddr(t)
	topic := testkit.Topic(t, addr, "kit", 2)
	client := testkit.Client(t, addr, kgo.ConsumeTopics(topic))
	sent := &kgo.Record{Topic: topic, Value: []byte("v")}
	if err := client.ProduceSync(t.Context(), sent).FirstErr(); err != nil {
		t.Fatal(err)
	}
	var got []*kgo.Record
	testkit.Eventually(t, 5*time.Second, func() bool {
		got = append(got, client.PollFetches(t.Context()).Records()...)
		return len(got) > 0
	}, "the record comes back")
	if string(got[0].Value) != "v" {
		t.Errorf("value %q", got[0].Value)
	}
}

func TestFreePortIsFree(t *testing.T) {
	t.Parallel()
	if testkit.FreePort(t) == 0 {
		t.Error("port 0")
	}
}
