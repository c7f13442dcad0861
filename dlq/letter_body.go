package dlq

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

const sqlBody = `SELECT key, value, headers, amqp FROM dead_letter_body WHERE id = @id`

const sqlOccurrenceBody = `
SELECT b.key, b.value, b.headers, b.amqp FROM dead_letter_body b
WHERE b.id = @body AND EXISTS (SELECT FROM letter_occurrence o WHERE o.letter_id = @letter AND o.body_id = @body)`

// Body reads what the letter carried when it first arrived. Errors: ErrNotFound.
func (l *Letters) Body(ctx context.Context, id uuid.UUID) (Body, error) {
	return l.body(ctx, id, sqlBody, pgx.NamedArgs{"id": id})
}

// OccurrenceBody reads the bytes of an occurrence that differ from its letter's.
// bodyID is Occurrence.OwnBody. Errors: ErrNotFound, also when the body is
// another letter's.
func (l *Letters) OccurrenceBody(ctx context.Context, letterID, bodyID uuid.UUID) (Body, error) {
	return l.body(ctx, bodyID, sqlOccurrenceBody, pgx.NamedArgs{"letter": letterID, "body": bodyID})
}

func (l *Letters) body(ctx context.Context, id uuid.UUID, sql string, args pgx.NamedArgs) (Body, error) {
	var b Body
	var headers []byte
	err := l.pool.QueryRow(ctx, sql, args).Scan(&b.Key, &b.Value, &headers, &b.AMQP)
	if errors.Is(err, pgx.ErrNoRows) {
		return Body{}, fmt.Errorf("body %s: %w", id, ErrNotFound)
	}
	if err != nil {
		return Body{}, fmt.Errorf("read body %s: %w", id, err)
	}
	if b.Headers, err = DecodeHeaders(headers); err != nil {
		return Body{}, fmt.Errorf("body %s: %w", id, err)
	}
	return b, nil
}
