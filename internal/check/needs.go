package check

import (
	"cmp"
	"context"
	"time"
)

// Computed as a Consumer's Retention: its records are kept as long as they are
// needed, and no longer.
const Computed = time.Duration(-2)

// Endless is needed for events that may come back at any time. It is negative:
// compare it before any other.
const Endless = endless

// Need is how long the consume records of a group are needed.
type Need struct {
	Group string
	For   time.Duration // Endless: for ever
	Known bool          // false: a broker could not say
	Lines []string      // what is added up, for people
}

// Needs adds up for each consumer of in how late its events may come back, as
// the check retention.promise does.
func Needs(ctx context.Context, in Input) []Need {
	r := &run{in: in}
	clusters := r.clusters(ctx)
	var all []Need
	for _, c := range in.Consumers {
		need, lines, known := r.need(c.kept(), clusters)
		all = append(all, Need{c.Group, need, known, lines})
	}
	return all
}

// LeastNeed is what records are needed for at least, whatever the brokers keep:
// for a verdict that must not take a dropped record for a missing one. Endless
// where letters are kept for ever.
func LeastNeed(letters time.Duration) time.Duration {
	if letters == 0 {
		return endless
	}
	return letters + defaultRecovery + defaultMargin
}

func (c Consumer) kept() kept {
	topics := c.Topics
	if len(topics) > 0 { // what is replayed waits there
		topics = append(topics[:len(topics):len(topics)], c.replay())
	}
	k := kept{group: c.Group, cluster: c.Cluster, topics: topics, deadLetters: c.deadLetters(), maxRetry: c.MaxRetry, retention: c.Retention}
	if c.Queue != "" {
		k.queue, k.horizon, k.deadLetters = c.Queue, c.Horizon, []string{cmp.Or(c.DeadLetter, c.Queue+".dlq")}
	}
	return k
}
