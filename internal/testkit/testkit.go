// Package testkit holds what tests of several packages share: where the real
// servers are, and waiting for a condition with a deadline.
package testkit

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Kafka returns the address of a real broker, from ONCEMORE_KAFKA. Without one
// the test is skipped, or fails under ONCEMORE_SERVICES=required.
func Kafka(t testing.TB) string {
	t.Helper()
	addr := os.Getenv("ONCEMORE_KAFKA")
	if addr != "" {
		return addr
	}
	if Required() {
		t.Fatal("ONCEMORE_SERVICES=required, but ONCEMORE_KAFKA is not set: run make test")
	}
	t.Skip("needs a real Kafka: set ONCEMORE_KAFKA=host:port, or run make test")
	return ""
}

// Required reports whether a missing service must fail the run.
func Required() bool { return os.Getenv("ONCEMORE_SERVICES") == "required" }

// Soak skips the test unless ONCEMORE_SOAK is set: it takes minutes.
func Soak(t testing.TB) {
	t.Helper()
	if os.Getenv("ONCEMORE_SOAK") == "" {
		t.Skip("takes minutes: set ONCEMORE_SOAK=1, or run make soak")
	}
}

// FakeKafka starts an in-process broker until the test ends. Topics have one
// partition unless they are made with more; they are made on first use.
func FakeKafka(t testing.TB, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	opts = append([]kfake.Opt{kfake.NumBrokers(1), kfake.AllowAutoTopicCreation(), kfake.DefaultNumPartitions(1)}, opts...)
	cluster, err := kfake.NewCluster(opts...)
	if err != nil {
		t.Fatalf("start fake Kafka: %v", err)
	}
	t.Cleanup(cluster.Close)
	return cluster
}

// FakeKafkaAddr starts an in-process broker and returns its address.
func FakeKafkaAddr(t testing.TB, opts ...kfake.Opt) string {
	t.Helper()
	return FakeKafka(t, opts...).ListenAddrs()[0]
}

// Topic makes a topic with a unique name that begins with prefix, on the broker
// at addr, and deletes it when the test ends.
func Topic(t testing.TB, addr, prefix string, partitions int32) string {
	t.Helper()
	name := Name(prefix)
	MakeTopic(t, addr, name, partitions)
	return name
}

// MakeTopic makes the topic and deletes it when the test ends.
func MakeTopic(t testing.TB, addr, name string, partitions int32) {
	t.Helper()
	client := Client(t, addr)
	admin := kadm.NewClient(client)
	if _, err := admin.CreateTopic(t.Context(), partitions, 1, nil, name); err != nil {
		t.Fatalf("create topic %s: %v", name, err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		cleaner, err := kgo.NewClient(kgo.SeedBrokers(addr))
		if err != nil {
			return // the broker has gone before us
		}
		defer cleaner.Close()
		if _, err := kadm.NewClient(cleaner).DeleteTopics(ctx, name); err != nil {
			t.Logf("delete topic %s: %v", name, err)
		}
	})
}

// Client connects to addr until the test ends.
func Client(t testing.TB, addr string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(addr)}, opts...)...)
	if err != nil {
		t.Fatalf("connect to Kafka at %s: %v", addr, err)
	}
	t.Cleanup(client.Close)
	return client
}

// Name returns prefix with a random ending: topics and groups are named per test.
func Name(prefix string) string { return prefix + "-" + uuid.NewString()[:8] }

// Eventually waits until ok holds, and fails the test with msg after deadline.
func Eventually(t testing.TB, deadline time.Duration, ok func() bool, msg string, args ...any) {
	t.Helper()
	end := time.Now().Add(deadline)
	for !ok() {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", deadline, fmt.Sprintf(msg, args...))
		}
		select {
		case <-t.Context().Done():
			t.Fatalf("test ended while waiting: %s", fmt.Sprintf(msg, args...))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// FreePort returns a port of the loopback address that nobody listens on. It lies
// below the range from which the system takes ports for outgoing connections,
// which on a busy machine are taken again at once.
func FreePort(t testing.TB) int {
	t.Helper()
	for range 100 {
		port := 11000 + rand.IntN(9000)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		l.Close()
		return port
	}
	t.Fatal("no free port on 127.0.0.1 from 11000 to 19999")
	return 0
}
