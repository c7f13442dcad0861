package dlq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	tokenLock  = 7_113_204_104 // one process at a time indexes
	tokenBatch = 2000          // letters in one transaction
)

// TokenLag is how far the index stays behind: a letter's id is older than its
// commit, so a walk that followed more closely could pass one by.
const TokenLag = 60 * time.Second

const (
	sqlTokenPlace = `
SELECT coalesce((SELECT last_id FROM letter_token_position), '00000000-0000-0000-0000-000000000000'), now()`
	sqlToIndex = `
SELECT d.id, d.event_id, d.event_id_alt, c.name, d.error_message, b.key, b.value, b.headers
FROM (SELECT id, event_id, event_id_alt, error_message, class_id FROM dead_letter
  WHERE id > @after AND id < @before ORDER BY id LIMIT @batch) d
LEFT JOIN dead_letter_body b ON b.id = d.id
LEFT JOIN letter_name c ON c.id = d.class_id
ORDER BY d.id`
	sqlMoveTokens = `
INSERT INTO letter_token_position AS p (last_id, moved_at) VALUES (@last, now())
ON CONFLICT (one) DO UPDATE SET last_id = excluded.last_id, moved_at = excluded.moved_at`
)

// IndexTokens adds the next letters to the index of exact search, as far as those
// that arrived lag ago by the database's clock. It returns how many it added;
// another process at it means 0.
func IndexTokens(ctx context.Context, pool *pgxpool.Pool, lag time.Duration) (int, error) {
	n := 0
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		var mine bool
		if err := tx.QueryRow(ctx, "SELECT pg_try_advisory_xact_lock($1)", tokenLock).Scan(&mine); err != nil || !mine {
			return err
		}
		rows, last, err := toIndex(ctx, tx, lag)
		if err != nil || len(rows) == 0 {
			return err
		}
		n = len(rows)
		if _, err := tx.CopyFrom(ctx, pgx.Identifier{"letter_token"}, []string{"letter_id", "tokens"}, pgx.CopyFromRows(rows)); err != nil {
			return fmt.Errorf("copy tokens: %w", err)
		}
		_, err = tx.Exec(ctx, sqlMoveTokens, pgx.NamedArgs{"last": last})
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("index tokens: %w", err)
	}
	return n, nil
}

func toIndex(ctx context.Context, tx pgx.Tx, lag time.Duration) (rows [][]any, last uuid.UUID, err error) {
	var now time.Time
	if err := tx.QueryRow(ctx, sqlTokenPlace).Scan(&last, &now); err != nil {
		return nil, last, fmt.Errorf("read place: %w", err)
	}
	before := idAt(now.Add(-lag).UnixMilli())
	letters, err := tx.Query(ctx, sqlToIndex, pgx.NamedArgs{"after": last, "before": before, "batch": tokenBatch})
	if err != nil {
		return nil, last, fmt.Errorf("query letters: %w", err)
	}
	var s searchable
	_, err = pgx.ForEachRow(letters, []any{&last, &s.EventID, &s.EventIDAlt, &s.Class, &s.Message, &s.Key, &s.Value, &s.Headers}, func() error {
		rows = append(rows, []any{[16]byte(last), s.tokens()})
		return nil
	})
	if err != nil {
		return nil, last, fmt.Errorf("read letters: %w", err)
	}
	return rows, last, nil
}

// RunTokens indexes until ctx ends, resting for every when nothing waits. Any
// number of processes may run it.
func RunTokens(ctx context.Context, pool *pgxpool.Pool, log *slog.Logger, every time.Duration) {
	failing := false
	for ctx.Err() == nil {
		n, err := IndexTokens(ctx, pool, TokenLag)
		if err != nil && !failing && ctx.Err() == nil && !errors.Is(err, context.Canceled) { // once per outage
			log.WarnContext(ctx, "letters not indexed for search", "error", err)
		}
		failing = err != nil
		if n < tokenBatch {
			wait(ctx, every)
		}
	}
}
