package check

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"oncemore/consumer/rabbit"
)

// queueSource checks the queues of a source: that there are some, that they can be
// drained or copied, and that none drops dead letters by itself.
func (r *run) queueSource(s Source, b *brokers, subject string, v values) {
	if b == nil {
		r.say("source.queue.unknown", subject, v)
		return
	}
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(b.queues)), func(name string) bool { return !s.Match(name) })
	if len(names) == 0 {
		r.say("source.queue.none", subject, v)
		return
	}
	r.say("source.queue.ok", subject, with(v, "n", strconv.Itoa(len(names))), names[:min(len(names), 10)]...)
	var streams, limited, lines, dropping []string
	for _, name := range names {
		q := b.queues[name]
		if q.IsStream() {
			streams = append(streams, name)
			continue
		}
		if limit := q.DeliveryLimit(b.major); s.Copy && limit >= 0 {
			limited = append(limited, name)
		}
		if why := drops(q, b.major); len(why) > 0 {
			dropping, lines = append(dropping, name), append(lines, why...)
		}
	}
	r.sayOf("source.stream", subject, v, streams, nil)
	r.sayOf("source.limit", subject, v, limited, nil)
	r.sayOf("source.drops", subject, v, dropping, lines)
}

// sayOf says that a check found queues, or nothing to say if it did not.
func (r *run) sayOf(code, subject string, v values, queues, lines []string) {
	if len(queues) > 0 {
		r.say(code+".found", subject, with(v, "queues", strings.Join(queues, ", ")), lines...)
	}
}

func drops(q rabbit.Queue, major int) (lines []string) {
	for _, why := range q.Drops(major) {
		lines = append(lines, q.Name+": "+why)
	}
	return lines
}

// queueConsumer checks the queue of a consumer, and what becomes of its dead
// letters.
func (r *run) queueConsumer(c Consumer, b *brokers, subject string, v values) {
	v = with(v, "queue", c.Queue)
	if b == nil {
		r.say("consumer.queue.unknown", subject, v)
		return
	}
	q, there := b.queues[c.Queue]
	if !there {
		r.say("consumer.queue.missing", subject, v)
		return
	}
	r.say("consumer.queue.ok", subject, v, fmt.Sprintf("%s: %s, %d ready, %d unacknowledged, %d consumers", q.Name, q.Type, q.Ready, q.Unacked, q.Consumers))
	lines := drops(q, b.major)
	dead := c.DeadLetter
	if dead == "" {
		dead = c.Queue + ".dlq"
	}
	if d, there := b.queues[dead]; there {
		lines = append(lines, drops(d, b.major)...)
	}
	if len(lines) > 0 {
		r.say("consumer.drops.found", subject, v, lines...)
	}
	drains := func(s Source) bool { return s.Cluster == c.Cluster && s.Match != nil && s.Match(dead) }
	if !slices.ContainsFunc(r.in.Sources, drains) {
		r.say("consumer.dead_queue.undrained", subject, with(v, "dead", dead))
		return
	}
	r.say("consumer.dead_queue.ok", subject, with(v, "dead", dead))
}

// onRabbit reports a cluster of RabbitMQ.
func (r *run) onRabbit(cluster string) bool {
	return slices.ContainsFunc(r.in.Clusters, func(c Cluster) bool { return c.Name == cluster && c.Rabbit })
}
