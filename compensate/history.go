package compensate

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// ApprovalRow is one person's agreement, and to what.
type ApprovalRow struct {
	By     string
	At     time.Time
	Reason string
	Hash   []byte
}

const sqlApprovalRows = `SELECT by, at, reason, hash FROM compensation_approval WHERE compensation_id = @id ORDER BY at`

// Approvals lists who agreed, oldest first.
func (c *Compensations) Approvals(ctx context.Context, id int64) ([]ApprovalRow, error) {
	return history[ApprovalRow](ctx, c, sqlApprovalRows, "approvals", id)
}

// Attempt is one call or statement. Answer and Outcome are nil until it is
// known what came of it.
type Attempt struct {
	ID      int64
	No      int
	Op      Op
	At      time.Time
	TookMs  *int
	Request json.RawMessage // secrets masked
	Answer  json.RawMessage
	Outcome *string // done, retry, refused, unknown, already
}

const sqlAttempts = `
SELECT id, no, op, at, took_ms, request, answer, outcome FROM compensation_attempt WHERE compensation_id = @id ORDER BY id`

// Attempts lists what was tried, oldest first.
func (c *Compensations) Attempts(ctx context.Context, id int64) ([]Attempt, error) {
	return history[Attempt](ctx, c, sqlAttempts, "attempts", id)
}

// NoteRow is one line of a compensation's timeline.
type NoteRow struct {
	At     time.Time
	By     string
	Kind   string // proposed, approved, started, undoing, confirming, executed, paused, skip_asked, …, or the state that it came to
	Text   string
	Detail json.RawMessage
}

const sqlNotes = `SELECT at, by, kind, text, detail FROM compensation_note WHERE compensation_id = @id ORDER BY id`

// Notes is a compensation's timeline, oldest first.
func (c *Compensations) Notes(ctx context.Context, id int64) ([]NoteRow, error) {
	return history[NoteRow](ctx, c, sqlNotes, "notes", id)
}

func history[T any](ctx context.Context, c *Compensations, sql, what string, id int64) ([]T, error) {
	rows, err := c.Pool.Query(ctx, sql, pgx.NamedArgs{"id": id})
	if err != nil {
		return nil, fmt.Errorf("query %s of compensation %d: %w", what, id, err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[T])
	if err != nil {
		return nil, fmt.Errorf("read %s of compensation %d: %w", what, id, err)
	}
	return all, nil
}
