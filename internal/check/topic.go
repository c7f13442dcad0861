package check

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"oncemore/consumer/rabbit"
)

// brokers is what one cluster says of its topics.
type brokers struct {
	topics  kadm.TopicDetails
	configs map[string]map[string]string // topic, key
	queues  map[string]rabbit.Queue      // of RabbitMQ, in place of topics
	major   int                          // of RabbitMQ's version
}

func (b *brokers) has(topic string) bool { return b.topics.Has(topic) && b.topics[topic].Err == nil }

var errNoClient = errors.New("no client is configured")

// clusters checks each cluster and returns those that answer, with the
// configuration of the topics that matter.
func (r *run) clusters(ctx context.Context) map[string]*brokers {
	out := map[string]*brokers{}
	for _, c := range r.in.Clusters {
		subject := "cluster/" + c.Name
		if c.Rabbit {
			if b := r.askRabbit(ctx, c, subject); b != nil {
				out[c.Name] = b
			}
			continue
		}
		b, err := r.ask(ctx, c)
		if err != nil {
			r.say("cluster.reach.down", subject, values{"name": c.Name}, reason(err))
			continue
		}
		r.say("cluster.reach.ok", subject, values{"name": c.Name}, fmt.Sprintf("%d topics", len(b.topics)))
		out[c.Name] = b
	}
	return out
}

func (r *run) ask(ctx context.Context, c Cluster) (*brokers, error) {
	switch {
	case c.Err != nil:
		return nil, c.Err
	case c.Admin == nil:
		return nil, errNoClient
	}
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	topics, err := c.Admin.ListTopics(ctx)
	if err != nil {
		return nil, err
	}
	b := &brokers{topics: topics, configs: map[string]map[string]string{}}
	return b, b.describe(ctx, c.Admin, r.topicsOn(c.Name))
}

func (b *brokers) describe(ctx context.Context, admin *kadm.Client, names []string) error {
	names = slices.DeleteFunc(names, func(name string) bool { return !b.has(name) })
	if len(names) == 0 {
		return nil
	}
	described, err := admin.DescribeTopicConfigs(ctx, names...)
	if err != nil {
		return err
	}
	for _, d := range described {
		if d.Err != nil {
			continue // its absence is "not checked" where it is asked for
		}
		b.configs[d.Name] = map[string]string{}
		for _, c := range d.Configs {
			b.configs[d.Name][c.Key] = c.MaybeValue()
		}
	}
	return nil
}

// topicsOn lists the topics that the config names on a cluster, dead-letter and
// replay topics included.
func (r *run) topicsOn(cluster string) []string {
	names := map[string]bool{}
	for _, c := range r.in.Consumers {
		if c.Cluster == cluster {
			for _, topic := range slices.Concat(c.Topics, c.deadLetters(), []string{c.replay()}) {
				names[topic] = true
			}
		}
	}
	for _, e := range r.in.Evidence {
		if e.Cluster == cluster || e.Cluster == "" {
			for _, topic := range e.Topics {
				names[topic] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

func (c Consumer) replay() string { return c.Group + ".replay" }

func (c Consumer) deadLetters() []string {
	if c.DeadLetter != "" {
		return []string{c.DeadLetter}
	}
	names := make([]string, len(c.Topics))
	for i, topic := range c.Topics {
		names[i] = topic + ".DLT"
	}
	return names
}

// acks says what an acknowledgement of all in-sync replicas is worth, on the
// topics that we or the producers write to.
func (r *run) acks(clusters map[string]*brokers) {
	for _, c := range r.in.Clusters {
		if c.Rabbit {
			continue // its publishers are confirmed by a queue's majority
		}
		subject, v := "cluster/"+c.Name, values{"cluster": c.Name}
		b := clusters[c.Name]
		if b == nil {
			r.say("topic.acks.unknown", subject, v)
			continue
		}
		weak, unread := b.weak(r.topicsOn(c.Name))
		switch {
		case len(weak) > 0:
			r.say("topic.acks.weak", subject, v, weak...)
		case len(unread) > 0:
			r.say("topic.acks.unknown", subject, v, unread...)
		default:
			r.say("topic.acks.ok", subject, v)
		}
	}
}

func (b *brokers) weak(topics []string) (weak, unread []string) {
	for _, topic := range topics {
		if !b.has(topic) {
			continue
		}
		replicas := b.topics[topic].Partitions.NumReplicas()
		insync, err := strconv.Atoi(b.configs[topic]["min.insync.replicas"])
		switch {
		case err != nil:
			unread = append(unread, topic+": min.insync.replicas not readable")
		case replicas < 2 || insync < 2:
			weak = append(weak, fmt.Sprintf("%s: replication %d, min.insync.replicas %d", topic, replicas, insync))
		}
	}
	return weak, unread
}

// endless is a retention without an end.
const endless = time.Duration(-1)

// retention is how long records stay on a topic; endless for −1 and for topics
// that are only compacted. ok is false if the broker did not say.
func (b *brokers) retention(topic string) (keep time.Duration, ok bool) {
	config := b.configs[topic]
	ms, err := strconv.ParseInt(config["retention.ms"], 10, 64)
	switch {
	case err != nil:
		return 0, false
	case ms < 0, ms > int64(1<<63-1)/int64(time.Millisecond):
		return endless, true
	case config["cleanup.policy"] != "" && !strings.Contains(config["cleanup.policy"], "delete"):
		return endless, true
	}
	return time.Duration(ms) * time.Millisecond, true
}
