package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// topics looks after the topics that a consumer needs.
type topics struct {
	admin   *kadm.Client
	group   string
	opts    Options
	retries retries
	log     *slog.Logger
}

// subscribed are the topics that the group reads.
func (t topics) subscribed() []string {
	names := append(t.opts.Topics[:len(t.opts.Topics):len(t.opts.Topics)], ReplayTopic(t.group))
	return append(names, t.retries.names()...)
}

// deadLetters are the topics that it may write to.
func (t topics) deadLetters() []string {
	var all []string
	seen := map[string]bool{}
	for _, topic := range t.opts.Topics {
		if dead := t.opts.deadLetterTopic(t.group, topic); !seen[dead] {
			seen[dead] = true
			all = append(all, dead)
		}
	}
	return all
}

// prepare creates what is missing, if it may, and warns of what is not as it
// should be. It fails when the broker cannot be asked.
func (t topics) prepare(ctx context.Context) error {
	found, err := t.admin.ListTopics(ctx, append(t.subscribed(), t.deadLetters()...)...)
	if err != nil {
		return fmt.Errorf("look up topics: %w", err)
	}
	for _, topic := range t.opts.Topics {
		if !found.Has(topic) {
			t.log.Warn("topic does not exist, it is consumed once it does", "topic", topic)
		}
	}
	err = t.provide(ctx, found, append(t.deadLetters(), ReplayTopic(t.group)), t.opts.Topics)
	for _, topic := range t.opts.Topics {
		err = errors.Join(err, t.provide(ctx, found, t.retries.of(topic), []string{topic}))
	}
	return err
}

// provide creates those of names that are missing, with the partitions of the
// first of like that exists, or warns of them.
func (t topics) provide(ctx context.Context, found kadm.TopicDetails, names, like []string) error {
	missing := slices.DeleteFunc(names, found.Has)
	if t.opts.CreateTopics {
		return t.create(ctx, missing, partitionsOf(found, like))
	}
	for _, topic := range missing {
		t.log.Warn("topic does not exist: create it, or let the consumer do so by CreateTopics", "topic", topic)
	}
	return nil
}

// partitionsOf is the partition count of the first topic that exists; -1, the
// broker's default, if none does.
func partitionsOf(found kadm.TopicDetails, names []string) int32 {
	for _, name := range names {
		if found.Has(name) {
			return int32(len(found[name].Partitions))
		}
	}
	return -1
}

func (t topics) create(ctx context.Context, names []string, partitions int32) error {
	for _, name := range names {
		_, err := t.admin.CreateTopic(ctx, partitions, -1, nil, name)
		if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
			return fmt.Errorf("create topic %s: %w", name, err)
		}
		t.log.Info("topic created", "topic", name, "partitions", partitions)
	}
	return nil
}

// warnOfAcks says what acks=all is worth on the dead-letter topics: it waits for
// the replicas in sync, and with min.insync.replicas 1 the leader alone will do.
func (t topics) warnOfAcks(ctx context.Context) error {
	names := t.deadLetters()
	found, err := t.admin.ListTopics(ctx, names...)
	if err != nil {
		return fmt.Errorf("look up replication: %w", err)
	}
	configs, err := t.admin.DescribeTopicConfigs(ctx, names...)
	if err != nil {
		return fmt.Errorf("look up min.insync.replicas: %w", err)
	}
	for _, name := range names {
		config, err := configs.On(name, nil)
		if err != nil || !found.Has(name) {
			continue // missing: warned of already
		}
		if worth := ackWorth(found[name].Partitions.NumReplicas(), minInSync(config)); worth != "" {
			t.log.Warn("acks=all is worth little on this topic", "topic", name, "because", worth)
		}
	}
	return nil
}

func minInSync(config kadm.ResourceConfig) int {
	for _, c := range config.Configs {
		if c.Key == "min.insync.replicas" && c.Value != nil {
			if n, err := strconv.Atoi(*c.Value); err == nil {
				return n
			}
		}
	}
	return 1 // the broker's default
}

// ackWorth says why a confirmed record may be lost or refused; "" if neither is near.
func ackWorth(replicas, minISR int) string {
	switch {
	case replicas <= 1:
		return "there is one replica: the loss of one broker loses confirmed records"
	case minISR <= 1:
		return fmt.Sprintf("min.insync.replicas is %d of %d: with the followers behind, the leader alone confirms and its loss loses records", minISR, replicas)
	case minISR >= replicas:
		return fmt.Sprintf("min.insync.replicas is %d of %d: one broker down stops all writes", minISR, replicas)
	}
	return ""
}
