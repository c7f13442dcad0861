package check

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Store keeps the latest answer of each check, so that a page can show it
// without asking every database and broker again, and say since when it holds.
type Store struct{ pool *pgxpool.Pool }

// NewStore makes a store on the console's database.
func NewStore(pool *pgxpool.Pool) *Store { return &Store{pool: pool} }

// since starts anew when the severity changes.
const sqlSave = `
INSERT INTO check_finding AS f (code, subject, severity, finding, since, checked_at)
VALUES (@code, @subject, @severity, @finding, @at, @at)
ON CONFLICT (code, subject) DO UPDATE SET
  severity = excluded.severity, finding = excluded.finding, checked_at = excluded.checked_at,
  since = CASE WHEN f.severity = excluded.severity THEN f.since ELSE excluded.since END
WHERE f.checked_at <= excluded.checked_at`

// sqlChanged keeps an answer that differs from the last one.
const sqlChanged = `
INSERT INTO check_history (code, subject, severity, sentence, at)
SELECT @code, @subject, @severity, @sentence, @at
WHERE NOT EXISTS (SELECT FROM check_finding f WHERE f.code = @code AND f.subject = @subject AND (f.severity = @severity OR f.checked_at > @at))`

const (
	sqlForget        = `DELETE FROM check_finding WHERE checked_at < @at`
	sqlForgetHistory = `DELETE FROM check_history WHERE at < @at::timestamptz - interval '1 year'`
	sqlForgetMutes   = `DELETE FROM check_mute WHERE until < @at`
)

// saveLock lets one run be saved after the other, so that a change is kept once.
const saveLock = 7_113_204_118

// Save replaces what is kept by the findings of one run. The answers of an older
// run that is still under way elsewhere do not overwrite newer ones.
func (s *Store) Save(ctx context.Context, findings []Finding) error {
	if len(findings) == 0 {
		return nil
	}
	at := findings[0].CheckedAt
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", saveLock); err != nil {
			return err
		}
		batch := &pgx.Batch{}
		for _, f := range sorted(findings) {
			f.Mute = nil
			finding, err := json.Marshal(f)
			if err != nil {
				return err
			}
			args := pgx.NamedArgs{"code": f.Code, "subject": f.Subject, "severity": int16(f.Severity), "finding": finding, "sentence": f.Sentence, "at": at}
			batch.Queue(sqlChanged, args)
			batch.Queue(sqlSave, args)
		}
		for _, sql := range []string{sqlForget, sqlForgetHistory, sqlForgetMutes} {
			batch.Queue(sql, pgx.NamedArgs{"at": at})
		}
		return tx.SendBatch(ctx, batch).Close()
	})
	if err != nil {
		return fmt.Errorf("save %d findings: %w", len(findings), err)
	}
	return nil
}

// sorted is one order for all who save at once, so that they wait instead of
// deadlocking.
func sorted(findings []Finding) []Finding {
	return slices.SortedStableFunc(slices.Values(findings), func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Code, b.Code), cmp.Compare(a.Subject, b.Subject))
	})
}

const sqlFindings = `
SELECT f.finding, f.since, f.checked_at, m.until, coalesce(m.reason, ''), coalesce(m.by, ''), m.at
FROM check_finding f LEFT JOIN check_mute m ON m.code = f.code AND m.subject = f.subject
ORDER BY f.severity, f.finding->>'area', f.subject, f.code`

// Findings returns the latest answers, worst first. None: nothing was checked yet.
func (s *Store) Findings(ctx context.Context) ([]Finding, error) {
	rows, _ := s.pool.Query(ctx, sqlFindings) // its error comes with the rows
	findings, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Finding, error) {
		var f Finding
		var since, at time.Time
		var until, mutedAt *time.Time
		var m Mute
		err := row.Scan(&f, &since, &at, &until, &m.Reason, &m.By, &mutedAt)
		f.Since, f.CheckedAt = since.UTC(), at.UTC()
		if until != nil {
			m.Until, m.At = until.UTC(), mutedAt.UTC()
			f.Mute = &m
		}
		return f, err
	})
	if err != nil {
		return nil, fmt.Errorf("read findings: %w", err)
	}
	return findings, nil
}
