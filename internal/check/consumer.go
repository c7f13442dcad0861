package check

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"oncemore/consumer"
)

// consumer checks one group that the console runs.
func (r *run) consumer(ctx context.Context, c Consumer, pools map[string]database, clusters map[string]*brokers) {
	subject := "consumer/" + c.Group
	v := values{"group": c.Group, "cluster": c.Cluster, "connection": c.Connection, "topic": c.replay()}
	if err := consumer.ValidateEventIDSource(consumer.EventIDSource{Header: c.Header, MessageID: c.MessageID, JSON: c.JSON}); err != nil {
		r.say("consumer.event_id.bad", subject, v, reason(err))
	} else {
		r.say("consumer.event_id.ok", subject, v)
	}
	r.statement(ctx, c, pools[c.Connection], subject, v)
	b := clusters[c.Cluster]
	if c.Queue != "" {
		r.queueConsumer(c, b, subject, v)
		return
	}
	if b == nil {
		r.say("consumer.topic.unknown", subject, v)
		return
	}
	r.topics(c, b, subject, v)
	r.deadLetter(c, b, subject, v)
}

func (r *run) statement(ctx context.Context, c Consumer, db database, subject string, v values) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	var err error
	switch {
	case c.Prepare == nil && c.PrepareMySQL == nil:
		return
	case c.Prepare != nil && db.postgres != nil:
		err = c.Prepare(ctx, db.postgres)
	case c.PrepareMySQL != nil && db.mysql != nil:
		err = c.PrepareMySQL(ctx, db.mysql)
	default:
		r.say("consumer.statement.down", subject, v)
		return
	}
	if err != nil {
		r.say("consumer.statement.bad", subject, v, reason(err))
		return
	}
	r.say("consumer.statement.ok", subject, v)
}

// topics checks that they exist and that <group>.replay has as many partitions,
// so that a replay keeps its key's partition.
func (r *run) topics(c Consumer, b *brokers, subject string, v values) {
	var missing, counts []string
	sizes := map[int]bool{}
	for _, topic := range c.Topics {
		if !b.has(topic) {
			missing = append(missing, topic)
			continue
		}
		n := len(b.topics[topic].Partitions)
		sizes[n] = true
		counts = append(counts, fmt.Sprintf("%s: %d partitions", topic, n))
	}
	if len(missing) > 0 {
		r.say("consumer.topic.missing", subject, with(v, "topics", strings.Join(missing, ", ")))
		return
	}
	r.say("consumer.topic.ok", subject, v, counts...)
	switch have := len(b.topics[c.replay()].Partitions); {
	case !b.has(c.replay()):
		r.say("consumer.replay.missing", subject, v)
	case len(sizes) > 1:
		r.say("consumer.replay.differ", subject, v, counts...)
	case !sizes[have]:
		want := slices.Collect(maps.Keys(sizes))
		r.say("consumer.replay.partitions", subject, with(with(v, "n", strconv.Itoa(have)), "want", fmt.Sprint(want[0])))
	default:
		r.say("consumer.replay.ok", subject, v)
	}
}

func (r *run) deadLetter(c Consumer, b *brokers, subject string, v values) {
	var missing, undrained []string
	for _, topic := range c.deadLetters() {
		if !b.has(topic) {
			missing = append(missing, topic)
		}
		drains := func(s Source) bool { return s.Cluster == c.Cluster && s.Match != nil && s.Match(topic) }
		if !slices.ContainsFunc(r.in.Sources, drains) {
			undrained = append(undrained, topic)
		}
	}
	switch {
	case len(undrained) > 0:
		r.say("consumer.dead_letter.undrained", subject, with(v, "topics", strings.Join(undrained, ", ")))
	case len(missing) > 0:
		r.say("consumer.dead_letter.missing", subject, with(v, "topics", strings.Join(missing, ", ")))
	default:
		r.say("consumer.dead_letter.ok", subject, v)
	}
}

// source checks that a pattern matches something and where its ids come from.
func (r *run) source(s Source, clusters map[string]*brokers) {
	subject := "source/" + s.Cluster + "/" + s.Pattern
	v := values{"pattern": s.Pattern, "cluster": s.Cluster}
	if s.Header != "" || s.JSON != "" {
		if err := consumer.ValidateEventIDSource(consumer.EventIDSource{Header: s.Header, JSON: s.JSON}); err != nil {
			r.say("source.event_id.bad", subject, v, reason(err))
		} else {
			r.say("source.event_id.ok", subject, v)
		}
	}
	b := clusters[s.Cluster]
	if r.onRabbit(s.Cluster) && s.Match != nil {
		r.queueSource(s, b, subject, v)
		return
	}
	if b == nil || s.Match == nil {
		r.say("source.match.unknown", subject, v)
		return
	}
	matches := slices.DeleteFunc(b.topics.Names(), func(name string) bool { return !s.Match(name) })
	if len(matches) == 0 {
		r.say("source.match.none", subject, v)
		return
	}
	r.say("source.match.ok", subject, with(v, "n", strconv.Itoa(len(matches))), matches[:min(len(matches), 10)]...)
}

// httpKeys refuses that two effects send equal idempotency keys to one service:
// it would take the second for a repeat of the first. Keys made of the event id
// alone are equal when the groups read the same events; that cannot be ruled out.
func (r *run) httpKeys() {
	groups := map[string][]string{}
	for _, c := range r.in.Consumers {
		if c.HTTPBase == "" {
			continue
		}
		base := strings.ToLower(strings.TrimRight(c.HTTPBase, "/"))
		groups[base] = append(groups[base], c.Group)
		if c.HTTPKey == "effect" { // <eventId>:<group>:<effect> is its own
			groups[base] = groups[base][:len(groups[base])-1]
		}
	}
	for _, base := range slices.Sorted(maps.Keys(groups)) {
		v := values{"base": base, "groups": strings.Join(groups[base], ", ")}
		if len(groups[base]) > 1 {
			r.say("consumer.http_key.equal", "url/"+base, v, groups[base]...)
			continue
		}
		r.say("consumer.http_key.ok", "url/"+base, v)
	}
}
