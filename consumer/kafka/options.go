// Package kafka runs consumers on Kafka by franz-go.
package kafka

import (
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Options is what a consumer needs of Kafka. There is no option for automatic
// commits: an offset moves only after the database has committed.
type Options struct {
	Topics []string // what the group consumes; <group>.replay is added

	// Client holds seed brokers and, where needed, TLS, SASL and the client id.
	// Options that would change how the consumer commits, subscribes, balances
	// or produces are refused by New.
	Client []kgo.Opt

	// DeadLetterTopic takes what the group gives up on; "" is <topic>.DLT of
	// the topic that the record came from (for <group>.replay: of the first topic).
	DeadLetterTopic string

	// CreateTopics makes missing dead-letter topics and <group>.replay at start,
	// with the partition count of the (first) topic and the broker's default
	// replication. Without it a missing dead-letter topic is an error that the
	// consumer waits on, and a missing replay topic is picked up once it exists.
	CreateTopics bool

	SessionTimeout   time.Duration // 0 is 45 s
	RebalanceTimeout time.Duration // 0 is 60 s
	// FinishTimeout bounds how long transactions under way may go on after a
	// partition was revoked or the consumer was told to stop; 0 is 10 s. What is
	// not finished is rolled back and delivered again.
	FinishTimeout time.Duration
}

// ReplayTopic is where replays reach only this group.
func ReplayTopic(group string) string { return group + ".replay" }
