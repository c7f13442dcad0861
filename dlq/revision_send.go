package dlq

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// letterRevision names an edited form of a letter.
type letterRevision struct {
	letter uuid.UUID
	no     int
}

// on gives the edited form of a message: its key, value and headers; where a
// RabbitMQ message was published, and its properties, stay.
func (b Body) on(original Body) Body {
	original.Key, original.Value, original.Headers = b.Key, b.Value, b.Headers
	return original
}

const sqlRevisionBodies = `
SELECT letter_id, no, key, value, headers FROM letter_revision
WHERE (letter_id, no) IN (SELECT * FROM unnest(@letters::uuid[], @nos::int[]))`

// revisions reads the edited forms that the chunk sends.
func (s *step) revisions(ctx context.Context, c *chunk) (map[letterRevision]Body, error) {
	var letters []uuid.UUID
	var nos []int
	for _, it := range c.items {
		if it.goes() && it.revision > 0 {
			letters, nos = append(letters, it.letter), append(nos, it.revision)
		}
	}
	if len(letters) == 0 {
		return nil, nil
	}
	rows, err := s.r.pool.Query(ctx, sqlRevisionBodies, pgx.NamedArgs{"letters": letters, "nos": nos})
	if err != nil {
		return nil, fmt.Errorf("query revisions: %w", err)
	}
	defer rows.Close()
	forms := map[letterRevision]Body{}
	for rows.Next() {
		var of letterRevision
		var b Body
		var headers []byte
		if err := rows.Scan(&of.letter, &of.no, &b.Key, &b.Value, &headers); err != nil {
			return nil, fmt.Errorf("read revisions: %w", err)
		}
		if b.Headers, err = DecodeHeaders(headers); err != nil {
			return nil, fmt.Errorf("revision %d of letter %s: %w", of.no, of.letter, err)
		}
		forms[of] = b
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read revisions: %w", err)
	}
	return forms, nil
}

const sqlNewestRevisions = `SELECT letter_id, max(no) FROM letter_revision WHERE letter_id = ANY(@ids) GROUP BY letter_id`

// leaveRevised leaves out items of which a letter was edited after the plan. The
// letters are locked, as they are while one is edited: none comes in between.
func leaveRevised(ctx context.Context, tx pgx.Tx, c *chunk, letters []uuid.UUID) error {
	rows, err := tx.Query(ctx, sqlNewestRevisions, pgx.NamedArgs{"ids": letters})
	if err != nil {
		return fmt.Errorf("query newest revisions: %w", err)
	}
	newest := map[uuid.UUID]int{}
	var id uuid.UUID
	var no int
	if _, err := pgx.ForEachRow(rows, []any{&id, &no}, func() error { newest[id] = no; return nil }); err != nil {
		return fmt.Errorf("read newest revisions: %w", err)
	}
	for _, it := range c.items {
		for _, letter := range it.letters {
			if newest[letter] > it.newest {
				it.leave(replayReason("reason.revision.newer", "newest", newest[letter]))
			}
		}
	}
	return nil
}
