package check

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"oncemore/internal/access"
	"oncemore/internal/audit"
)

// Errors of commands.
var (
	ErrNoFinding = errors.New("check: no such finding")
	ErrBadMute   = errors.New("check: a finding is muted until a time to come, at most a year ahead")
)

// longestMute is how far ahead a finding may be muted: nobody remembers longer.
const longestMute = 366 * 24 * time.Hour

const (
	sqlMute = `
INSERT INTO check_mute (code, subject, until, reason, by, at)
SELECT f.code, f.subject, @until, @reason, @by, @at FROM check_finding f
WHERE f.code = @code AND f.subject = @subject AND f.severity <> @passed
ON CONFLICT (code, subject) DO UPDATE SET until = excluded.until, reason = excluded.reason, by = excluded.by, at = excluded.at`

	sqlUnmute = `DELETE FROM check_mute WHERE code = @code AND subject = @subject`
)

// Mute keeps a finding out of counts and alerts until then; it stays on the page.
// Errors: ErrNoFinding, ErrBadMute, access.ErrForbidden, access.ErrReasonRequired.
func (s *Store) Mute(ctx context.Context, actor access.Actor, code, subject string, until, now time.Time) error {
	switch err := actor.Check(access.MuteCheck); {
	case err != nil:
		return err
	case strings.TrimSpace(actor.Reason) == "":
		return access.ErrReasonRequired
	case !until.After(now) || until.Sub(now) > longestMute:
		return ErrBadMute
	}
	return s.change(ctx, actor, sqlMute, audit.Entry{Action: "check.muted", Target: "check/" + code + "/" + subject, Detail: map[string]any{"until": until.UTC()}},
		pgx.NamedArgs{"code": code, "subject": subject, "until": until, "reason": actor.Reason, "by": actor.User, "at": now, "passed": int16(Passed)})
}

// Unmute takes a mute back. Errors: ErrNoFinding where there is none,
// access.ErrForbidden.
func (s *Store) Unmute(ctx context.Context, actor access.Actor, code, subject string) error {
	if err := actor.Check(access.MuteCheck); err != nil {
		return err
	}
	return s.change(ctx, actor, sqlUnmute, audit.Entry{Action: "check.unmuted", Target: "check/" + code + "/" + subject}, pgx.NamedArgs{"code": code, "subject": subject})
}

// change runs one statement that has to touch a row, with its audit row.
func (s *Store) change(ctx context.Context, actor access.Actor, sql string, entry audit.Entry, args pgx.NamedArgs) error {
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, sql, args)
		if err != nil {
			return fmt.Errorf("%s %s: %w", entry.Action, entry.Target, err)
		}
		if tag.RowsAffected() == 0 {
			return ErrNoFinding
		}
		return audit.Write(ctx, tx, actor, entry)
	})
}

// Ran writes down who pressed the button. Errors: access.ErrForbidden.
func (s *Store) Ran(ctx context.Context, actor access.Actor) error {
	if err := actor.Check(access.RunChecks); err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		return audit.Write(ctx, tx, actor, audit.Entry{Action: "checks.run", Target: "checks"})
	})
}

// Change is one answer of a check that differed from the one before.
type Change struct {
	Severity Severity
	Sentence Text
	At       time.Time
}

const sqlHistory = `
SELECT severity, sentence, at FROM check_history
WHERE code = @code AND subject = @subject ORDER BY id DESC LIMIT @limit`

// History lists how the answer of a check about an object changed, latest first,
// at most limit; none for one that was never asked.
func (s *Store) History(ctx context.Context, code, subject string, limit int) ([]Change, error) {
	rows, _ := s.pool.Query(ctx, sqlHistory, pgx.NamedArgs{"code": code, "subject": subject, "limit": limit}) // its error comes with the rows
	changes, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Change])
	if err != nil {
		return nil, fmt.Errorf("read history of %s about %s: %w", code, subject, err)
	}
	return changes, nil
}
