package check

import (
	"context"
	"fmt"
	"time"

	"oncemore/consumer/rabbit"
)

// askRabbit reads the queues of a cluster; nil where it cannot.
func (r *run) askRabbit(ctx context.Context, c Cluster, subject string) *brokers {
	v := values{"name": c.Name}
	if c.Err == nil && c.Queues == nil {
		r.say("cluster.queues.unset", subject, v)
		return nil
	}
	queues, err := listQueues(ctx, c)
	major := 0
	if err == nil {
		major, err = c.Queues.Major(ctx)
	}
	if err != nil {
		r.say("cluster.queues.down", subject, v, reason(err))
		return nil
	}
	r.say("cluster.queues.ok", subject, v, fmt.Sprintf("%d queues", len(queues)))
	return &brokers{queues: queues, major: major}
}

func listQueues(ctx context.Context, c Cluster) (map[string]rabbit.Queue, error) {
	if c.Err != nil {
		return nil, c.Err
	}
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	all, err := c.Queues.Queues(ctx)
	if err != nil {
		return nil, err
	}
	queues := make(map[string]rabbit.Queue, len(all))
	for _, q := range all {
		queues[q.Name] = q
	}
	return queues, nil
}

// wait is how long a message may lie in a queue: its time to live, unless what
// expires goes on to another queue, from where it may be brought back; else what
// the config declares; else for ever. A limit of its length bounds no time. A
// queue that does not exist yet holds nothing. known is false where nobody says.
func (b *brokers) wait(queue string, horizon time.Duration) (keep time.Duration, known bool) {
	if b == nil {
		return horizon, horizon > 0
	}
	q, there := b.queues[queue]
	if !there {
		return horizon, b.queues != nil
	}
	ttl, expires := q.Setting("message-ttl")
	_, goesOn := q.Setting("dead-letter-exchange")
	ms, number := ttl.(float64)
	switch {
	case expires && number && !goesOn:
		return time.Duration(ms) * time.Millisecond, true
	case horizon > 0:
		return horizon, true
	case expires && goesOn:
		return 0, false
	}
	return endless, true
}
