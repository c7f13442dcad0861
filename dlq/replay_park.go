package dlq

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"oncemore/internal/access"
	"oncemore/internal/audit"
)

const sqlReplayed = `
SELECT d.replay_count - coalesce(u.replays, 0) FROM dead_letter d
LEFT JOIN letter_unpark u ON u.letter_id = d.id WHERE d.id = @letter`

// Parked reports whether a letter was replayed as often as is allowed, so that no
// plan takes it until Unpark, and how often that was. Errors: ErrNotFound.
func (r *Replays) Parked(ctx context.Context, letter uuid.UUID) (parked bool, replays int, err error) {
	err = r.pool.QueryRow(ctx, sqlReplayed, pgx.NamedArgs{"letter": letter}).Scan(&replays)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, 0, fmt.Errorf("letter %s: %w", letter, ErrNotFound)
	}
	if err != nil {
		return false, 0, fmt.Errorf("count replays of letter %s: %w", letter, err)
	}
	return replays >= r.opts.ReplayCap, replays, nil
}

const sqlUnpark = `
INSERT INTO letter_unpark (letter_id, replays, reason, created_by)
SELECT id, replay_count, @reason, @by FROM dead_letter WHERE id = @letter
ON CONFLICT (letter_id) DO UPDATE SET replays = excluded.replays, reason = excluded.reason, created_by = excluded.created_by, created_at = now()`

// Unpark allows a parked letter as many replays again. Errors:
// access.ErrForbidden, access.ErrReasonRequired, ErrNotFound.
func (r *Replays) Unpark(ctx context.Context, actor access.Actor, letter uuid.UUID) error {
	if err := actor.Check(access.PlanReplay); err != nil {
		return err
	}
	if blank(actor.Reason) {
		return access.ErrReasonRequired
	}
	return pgx.BeginFunc(ctx, r.pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, sqlUnpark, pgx.NamedArgs{"letter": letter, "reason": storableText(actor.Reason), "by": actor.User})
		if err != nil {
			return fmt.Errorf("unpark letter %s: %w", letter, err)
		}
		if tag.RowsAffected() == 0 {
			return fmt.Errorf("letter %s: %w", letter, ErrNotFound)
		}
		return audit.Write(ctx, tx, actor, audit.Entry{Action: "letter.unparked", Target: "letter/" + letter.String()})
	})
}

const sqlReplayFilter = `SELECT filter FROM replay WHERE id = @id AND (filter IS NOT NULL OR fault_id IS NOT NULL)`

// Arrived counts the open letters that joined a replay's fault or filter after
// its set was frozen; they are not part of it. bounded: there are more. A replay
// of letters named one by one has none.
func (r *Replays) Arrived(ctx context.Context, p Replay) (n int64, bounded bool, err error) {
	var filter *LetterFilter
	err = r.pool.QueryRow(ctx, sqlReplayFilter, pgx.NamedArgs{"id": p.ID}).Scan(&filter)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("read filter of replay %d: %w", p.ID, err)
	}
	return NewLetters(r.pool).Count(ctx, p.ArrivedFilter(filter))
}

// ArrivedFilter finds the letters that Arrived counts. filter is the replay's own;
// nil: its fault.
func (p Replay) ArrivedFilter(filter *LetterFilter) LetterFilter {
	f := LetterFilter{}
	if filter != nil {
		f = *filter
	} else if p.FaultID != nil {
		f.FaultID = *p.FaultID
	}
	f.State = Open
	if f.Since.Before(p.CreatedAt) {
		f.Since = p.CreatedAt
	}
	return f
}
