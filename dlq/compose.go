package dlq

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"oncemore/dlq/dialect"
)

// bytesFrom says whose bytes a message carries.
type bytesFrom int16

const (
	fromLetter bytesFrom = iota + 1
	fromOrigin
	fromRevision
)

var bytesFromNames = map[bytesFrom]string{fromLetter: "letter", fromOrigin: "origin", fromRevision: "revision"}

// String is the source's name in the API.
func (b bytesFrom) String() string { return bytesFromNames[b] }

// message is what an item sends.
type message struct {
	cluster   string
	record    *kgo.Record    // Kafka; Partition -1: the key decides
	rabbit    *rabbitMessage // RabbitMQ
	bytesFrom bytesFrom
	byKey     bool // the partition it came from is not there
}

// composeChunk makes the message of each item that goes: the origin record's
// bytes where it can be read, else the letter's own, without the headers that
// the framework added. An item that cannot be composed is left out.
func (s *step) composeChunk(ctx context.Context, c *chunk) error {
	bodies, err := s.bodies(ctx, c)
	if err != nil {
		return err
	}
	originals, err := s.originals(ctx, c, bodies)
	if err != nil {
		return err
	}
	revised, err := s.revisions(ctx, c)
	if err != nil {
		return err
	}
	for _, it := range c.items {
		if !it.goes() {
			continue
		}
		from, body := fromLetter, bodies[it.letter].body
		if o, ok := originals[it.letter]; ok && o.Usable() {
			from, body = fromOrigin, o.Body
		}
		if it.revision > 0 {
			form, there := revised[letterRevision{it.letter, it.revision}]
			if !there {
				it.leave(replayReason("reason.revision.missing", "no", it.revision))
				continue
			}
			from, body = fromRevision, form.on(body)
		}
		s.compose(it, composing{s.r.opts.Dialects, s.id, c.targets[it.targetID], bodies[it.letter], body, from})
	}
	return nil
}

// composing is what an item's message is made of.
type composing struct {
	dialects *dialect.Set
	replay   int64
	target   sendTarget
	stored   storedBody
	body     Body
	from     bytesFrom
}

// compose makes the message, as the target's broker takes it.
func (s *step) compose(it *sendItem, of composing) {
	cluster := s.r.clusters[of.target.Cluster]
	switch {
	case of.stored.err != nil:
		it.leave(replayReason("reason.letter.body", "error", of.stored.err.Error()))
	case cluster == nil:
		it.leave(reason("reason.unknown.no_cluster", "cluster", of.target.Cluster))
	default:
		cluster.broker.compose(it, of)
	}
}

// storedBody is what the tables hold of a letter to be sent.
type storedBody struct {
	body      Body
	dialect   string
	source    string
	partition *int32 // of the origin
	err       error  // the body cannot be read
}

const sqlBodies = `
SELECT d.id, b.id IS NOT NULL, b.key, b.value, b.headers, b.amqp, coalesce(n.name, ''), d.origin_partition, s.name
FROM dead_letter d
JOIN letter_source s ON s.id = d.source_id
LEFT JOIN dead_letter_body b ON b.id = d.id
LEFT JOIN letter_name n ON n.id = d.dialect_id
WHERE d.id = ANY(@ids)`

func (s *step) bodies(ctx context.Context, c *chunk) (map[uuid.UUID]storedBody, error) {
	var ids []uuid.UUID
	for _, it := range c.items {
		if it.goes() {
			ids = append(ids, it.letter)
		}
	}
	rows, err := s.r.pool.Query(ctx, sqlBodies, pgx.NamedArgs{"ids": ids})
	if err != nil {
		return nil, fmt.Errorf("query bodies: %w", err)
	}
	defer rows.Close()
	bodies := make(map[uuid.UUID]storedBody, len(ids))
	for rows.Next() {
		var id uuid.UUID
		var there bool
		var headers []byte
		var b storedBody
		if err := rows.Scan(&id, &there, &b.body.Key, &b.body.Value, &headers, &b.body.AMQP, &b.dialect, &b.partition, &b.source); err != nil {
			return nil, fmt.Errorf("read bodies: %w", err)
		}
		if b.body.Headers, b.err = DecodeHeaders(headers); !there {
			b.err = ErrNotFound
		}
		bodies[id] = b
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read bodies: %w", err)
	}
	return bodies, nil
}

func (s *step) originals(ctx context.Context, c *chunk, bodies map[uuid.UUID]storedBody) (map[uuid.UUID]Original, error) {
	var asked []Subject
	letters := map[uuid.UUID]Body{}
	for _, it := range c.items {
		if !it.goes() {
			continue
		}
		for _, sub := range it.subjects {
			if sub.LetterID == it.letter && sub.Published == nil { // a queue keeps no original
				asked, letters[it.letter] = append(asked, sub), bodies[it.letter].body
			}
		}
	}
	if len(asked) == 0 {
		return nil, nil
	}
	originals, err := s.r.origins.OriginalsOf(ctx, asked, letters)
	if err != nil {
		return nil, fmt.Errorf("read originals: %w", err)
	}
	return originals, nil
}
