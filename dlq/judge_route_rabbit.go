package dlq

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Published is where a message of RabbitMQ was first published, as its letter
// says.
type Published struct {
	Known    bool
	Exchange string // "": the default one
	Key      string
}

// placeName names a place for people: a topic or queue, or an exchange with the
// routing key.
func placeName(exchange, topic string) string {
	if exchange == "" {
		return topic
	}
	return exchange + " → " + topic
}

// resolveQueue chooses the route of a letter of RabbitMQ and lists its groups.
// Through the default exchange only the queue that failed gets the message; through
// the origin exchange all that are bound to it do.
func (j *Judge) resolveQueue(q *inquiry, view *clusterView, target Target) {
	s := q.subject
	if target != ToOrigin {
		q.route, q.noRoute = j.queueRoute(s)
	}
	if target == ToOrigin || q.route == nil && target == ToSafe {
		q.route, q.noRoute = exchangeRoute(s)
	}
	reached := map[string]bool{}
	if s.Group != "" {
		reached[s.Group] = q.route != nil && q.route.Group == s.Group
	}
	switch {
	case q.route == nil && q.blocked != nil: // whether there is a target is not known either
		q.noRoute = *q.blocked
	case q.route == nil || q.blocked != nil:
		reached[s.Group] = q.route != nil
	case q.route.Group != "" && !view.has(q.route.Topic):
		q.blocked = ptr(reason("reason.unknown.queue_missing", "queue", q.route.Topic))
	case q.route.Group == "":
		j.boundGroups(q, view, reached)
	}
	j.ask(q, reached)
}

// queueRoute is the queue that failed, or the configured one.
func (j *Judge) queueRoute(s Subject) (*Route, Reason) {
	if s.Group == "" {
		return nil, reason("reason.no_group_queue")
	}
	known := j.groups.Find(s.Cluster, s.Group)
	switch {
	case known != nil && known.Target != "":
		return &Route{Cluster: s.Cluster, Topic: known.Target, Group: s.Group}, Reason{}
	case s.OriginTopic != "" && s.Flags&FlagOriginGuessed == 0:
		return &Route{Cluster: s.Cluster, Topic: s.OriginTopic, Group: s.Group}, Reason{}
	case s.OriginTopic != "" && known != nil && slices.Contains(known.Topics, s.OriginTopic): // a guess that the config confirms
		return &Route{Cluster: s.Cluster, Topic: s.OriginTopic, Group: s.Group}, Reason{}
	case s.OriginTopic != "":
		return nil, reason("reason.queue_guessed", "queue", s.OriginTopic)
	case known != nil && len(known.Topics) == 1:
		return &Route{Cluster: s.Cluster, Topic: known.Topics[0], Group: s.Group}, Reason{}
	}
	return nil, reason("reason.no_origin_queue")
}

func exchangeRoute(s Subject) (*Route, Reason) {
	if !s.Published.Known {
		return nil, reason("reason.no_exchange")
	}
	return &Route{Cluster: s.Cluster, Exchange: s.Published.Exchange, Topic: s.Published.Key}, Reason{}
}

// boundGroups finds who gets a message through the exchange: the groups of every
// queue that is bound. A queue that no group is known of is a group of its own.
func (j *Judge) boundGroups(q *inquiry, view *clusterView, reached map[string]bool) {
	r := q.route
	queues, err := view.Rabbit.reach(r.Exchange, r.Topic)
	switch {
	case err != nil:
		q.blocked = ptr(reason("reason.unknown.bindings", "exchange", r.Exchange, "key", r.Topic))
		reached[q.subject.Group] = true
		return
	case len(queues) == 0 || r.Exchange == "" && !view.has(r.Topic):
		q.blocked = ptr(reason("reason.unknown.unbound", "exchange", r.Exchange, "key", r.Topic))
		reached[q.subject.Group] = true
		return
	}
	for _, queue := range queues {
		for _, group := range j.groups.Consuming(r.Cluster, queue) {
			reached[group] = true
		}
	}
}

// Consuming lists the groups that consume a queue of RabbitMQ. Where none is
// declared the queue is one, of its own name.
func (b GroupBook) Consuming(cluster, queue string) []string {
	if groups := b.Reading(cluster, queue); len(groups) > 0 {
		return groups
	}
	return []string{queue}
}

const sqlPublished = `
SELECT b.id, b.origin_exchange, b.origin_key FROM dead_letter_body b WHERE b.id = ANY(@ids) AND b.amqp IS NOT NULL`

// readPublished adds where messages of RabbitMQ were published. A letter whose
// origin has a partition is Kafka's and is not asked about.
func readPublished(ctx context.Context, pool *pgxpool.Pool, subjects map[uuid.UUID]Subject) error {
	var ids []uuid.UUID
	for id, s := range subjects {
		if s.OriginPartition == nil {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	rows, err := pool.Query(ctx, sqlPublished, pgx.NamedArgs{"ids": ids})
	if err != nil {
		return fmt.Errorf("query where letters were published: %w", err)
	}
	var id uuid.UUID
	var exchange, key *string
	_, err = pgx.ForEachRow(rows, []any{&id, &exchange, &key}, func() error {
		s := subjects[id]
		s.Published = &Published{Known: exchange != nil && key != nil, Exchange: deref(exchange), Key: deref(key)}
		subjects[id] = s
		return nil
	})
	if err != nil {
		return fmt.Errorf("read where letters were published: %w", err)
	}
	return nil
}
