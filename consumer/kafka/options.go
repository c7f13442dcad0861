// Package kafka runs consumers on Kafka by franz-go.
package kafka

import (
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Options is what a consumer needs of Kafka. There is no option for automatic
// commits: an offset moves only after the database has committed.
type Options struct {
	Topics []string // what the group consumes; <group>.replay is added

	// Client holds how to connect: seed brokers and, where needed, TLS, SASL,
	// client id. New refuses every kgo option that belongs to a group, consumer
	// or producer: commits, subscription, balance and acks are the runtime's.
	Client []kgo.Opt

	// DeadLetterTopic takes what the group gives up on; "" is <topic>.DLT of
	// the topic that the record came from (for <group>.replay: of the first topic).
	DeadLetterTopic string

	// RetryTopics makes retries non-blocking, at the price of order; nil: the
	// partition waits for its retries and keeps its order.
	RetryTopics *RetryTopics

	// CreateTopics makes missing dead-letter topics, <group>.replay and retry
	// topics at start, with the partition count of the first topic (retry topics:
	// of theirs) and the broker's default replication. Without it a missing dead-letter topic is an error that the
	// consumer waits on, and a missing replay topic is picked up once it exists.
	CreateTopics bool

	// SessionTimeout is when a member that has gone silent loses its partitions; 0 is
	// 15 s. Heartbeats go out every 3 s whatever handlers and retries do, so that only
	// a process that is dead, suspended or cut off misses five of them. Losing a
	// membership costs a rebalance and duplicates, which are recognised; a longer time
	// costs that the partitions of a killed process lie still for as long.
	SessionTimeout time.Duration
	// RebalanceTimeout is what members get to finish and give back when partitions
	// move; 0 is 30 s. It bounds how long a rebalance waits for one that is gone.
	RebalanceTimeout time.Duration
	// FinishTimeout bounds how long transactions under way may go on after a
	// partition was revoked or the consumer was told to stop; 0 is 10 s, at most
	// half the rebalance time-out. What is not finished is rolled back and
	// delivered again.
	FinishTimeout time.Duration
}

// ReplayTopic is where replays reach only this group.
func ReplayTopic(group string) string { return group + ".replay" }

func (o Options) complete(group string) (Options, error) {
	if o.SessionTimeout == 0 {
		o.SessionTimeout = 15 * time.Second
	}
	if o.RebalanceTimeout == 0 {
		o.RebalanceTimeout = 30 * time.Second
	}
	if o.FinishTimeout == 0 {
		o.FinishTimeout = min(10*time.Second, o.RebalanceTimeout/2)
	}
	return o, o.validate(group)
}

// topicName is what Kafka takes as a topic's name.
var topicName = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)

func (o Options) validate(group string) error {
	if replay := ReplayTopic(group); !topicName.MatchString(replay) {
		return fmt.Errorf("%q is no topic name, but replays to this group need it: use letters, digits, '.', '_' and '-', at most 242 of them", replay)
	}
	if len(o.Topics) == 0 {
		return errors.New("a topic is required")
	}
	for _, t := range o.Topics {
		if !topicName.MatchString(t) {
			return fmt.Errorf("%q is no topic name", t)
		}
	}
	if o.FinishTimeout < 0 || o.FinishTimeout > o.RebalanceTimeout/2 {
		return fmt.Errorf("finish time-out must be between 0 and half the rebalance time-out of %s", o.RebalanceTimeout)
	}
	return refuseOptions(o.Client)
}

// refuseOptions lets only connection options through. kgo's option kinds are
// interfaces of their own, so this holds for options that kgo will add, too.
func refuseOptions(opts []kgo.Opt) error {
	for i, opt := range opts {
		switch opt.(type) {
		case kgo.GroupOpt:
			return fmt.Errorf("client option %d is a group option: commits and membership belong to the runtime", i+1)
		case kgo.ConsumerOpt:
			return fmt.Errorf("client option %d is a consumer option: subscription and fetching belong to the runtime", i+1)
		case kgo.ProducerOpt:
			return fmt.Errorf("client option %d is a producer option: acks and idempotence belong to the runtime", i+1)
		}
	}
	probe, err := kgo.NewClient(opts...) // connects to nothing by itself
	if err != nil {
		return fmt.Errorf("client options: %w", err)
	}
	defer probe.Close()
	if probe.OptValue(kgo.AllowAutoTopicCreation) == true {
		return errors.New("client option AllowAutoTopicCreation: topics are not created by looking at them")
	}
	return nil
}

// deadLetterTopic is where a record of topic goes that the group gives up on.
func (o Options) deadLetterTopic(group, topic string) string {
	switch {
	case o.DeadLetterTopic != "":
		return o.DeadLetterTopic
	case topic == ReplayTopic(group):
		return o.Topics[0] + ".DLT"
	}
	return topic + ".DLT"
}
