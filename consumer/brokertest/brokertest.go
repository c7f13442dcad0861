// Package brokertest is the conformance suite for broker adapters. It runs real
// consumers on a real PostgreSQL and looks at what they leave behind.
package brokertest

import (
	"testing"
	"time"

	"oncemore/consumer"
	"oncemore/consumer/pgstore"
)

// Message is what a test publishes, or reads back.
type Message struct {
	Partition int // where the broker has partitions; -1: by key
	Key       []byte
	Value     []byte
	Headers   []consumer.Header
}

// Letter is a dead letter as another tool would read it.
type Letter struct {
	Message                // with the application's headers only
	Topic           string // origin
	OriginPartition int
	Offset          int64
	Group           string
	Class           string
	Text            string
	Trace           string
	Attempt         int
	EventID         string // "" if none was found
}

// Features are what brokers differ in.
type Features struct {
	// Partitions: a destination has partitions, each with a worker of its own, also
	// within one member, and a position. Without them it is one queue: members
	// compete for it, each is one worker, and a single one keeps its order.
	Partitions bool
	// Records: messages have a key and may have a null value, and headers are a
	// list in which names repeat. Without that they are read back sorted by name.
	Records bool
}

// Broker is a broker and its adapter as the suite needs them.
type Broker interface {
	Features() Features
	// Topic makes a destination of that many partitions with its dead-letter
	// destination, both empty, until the test ends.
	Topic(t *testing.T, partitions int) string
	// Publish returns when all messages are confirmed, in their order.
	Publish(t *testing.T, topic string, messages ...Message)
	// Letters reads what lies in the dead-letter destination, in order per partition.
	Letters(t *testing.T, topic string) []Letter
	// Acked is how many messages of topic the group has acknowledged.
	Acked(t *testing.T, group, topic string) int
	// Group names a consumer group that nobody else uses.
	Group(t *testing.T) string
	// New makes a consumer of topic. Its finish time-out is 2 s. From a queue it
	// takes no more ahead than its batch size, where that is set.
	New(t *testing.T, topic string, cfg consumer.Config[pgstore.Tx]) consumer.Runner
}

// settle is how long a condition may take to come about: a rebalance on a real
// broker takes seconds.
const settle = 60 * time.Second

// Run runs the suite. emptyDatabase makes a PostgreSQL database and returns its
// address; the suite's user must be a superuser of it.
func Run(t *testing.T, broker Broker, emptyDatabase func(testing.TB) string) {
	cases := []struct {
		name string
		run  func(*shop)
	}{
		{"six steps of the specification", sixSteps},
		{"order holds within a partition, also through retries", orderHolds},
		{"a duplicate in the batch takes no effect", duplicateInBatch},
		{"a duplicate across batches takes no effect", duplicateAcross},
		{"ten thousand copies of one event take effect once", manyCopies},
		{"permanent goes to the dead letter at once", permanent},
		{"exhausted retries go to the dead letter", exhausted},
		{"a message without event id is a dead letter", missingEventID},
		{"an event id too long for the column is a dead letter", longEventID},
		{"dead letters are byte-identical", byteIdentical},
		{"a poison message that panics is a dead letter", poison},
		{"a discarded event leaves nothing", discarded},
		{"opposite lock orders never become letters", oppositeOrders},
		{"a duplicate that waits for a claim never becomes a letter", waitingDuplicate},
		{"a store outage never makes a letter", storeOutage},
		{"a lost answer to COMMIT is no second effect", lostAnswer},
		{"a dependency's outage never makes a letter", dependencyOutage},
		{"traces go on through retries and dead letters", tracesGoOn},
		{"members come and go, effects happen once", churn},
		{"a pause holds back and resume goes on", pauseAndResume},
		{"shutdown is bounded and undoes what is under way", boundedShutdown},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(openShop(t, broker, emptyDatabase(t)))
		})
	}
}
