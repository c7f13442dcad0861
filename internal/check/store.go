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

const sqlForget = `
DELETE FROM check_finding WHERE checked_at < @at`

// Save replaces what is kept by the findings of one run. The answers of an older
// run that is still under way elsewhere do not overwrite newer ones.
func (s *Store) Save(ctx context.Context, findings []Finding) error {
	if len(findings) == 0 {
		return nil
	}
	at := findings[0].CheckedAt
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		batch := &pgx.Batch{}
		for _, f := range sorted(findings) {
			finding, err := json.Marshal(f)
			if err != nil {
				return err
			}
			batch.Queue(sqlSave, pgx.NamedArgs{"code": f.Code, "subject": f.Subject, "severity": int16(f.Severity), "finding": finding, "at": at})
		}
		batch.Queue(sqlForget, pgx.NamedArgs{"at": at})
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
SELECT finding, since, checked_at
FROM check_finding
ORDER BY severity, finding->>'area', subject, code`

// Findings returns the latest answers, worst first. None: nothing was checked yet.
func (s *Store) Findings(ctx context.Context) ([]Finding, error) {
	rows, _ := s.pool.Query(ctx, sqlFindings) // its error comes with the rows
	findings, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Finding, error) {
		var f Finding
		var since, at time.Time
		err := row.Scan(&f, &since, &at)
		f.Since, f.CheckedAt = since.UTC(), at.UTC()
		return f, err
	})
	if err != nil {
		return nil, fmt.Errorf("read findings: %w", err)
	}
	return findings, nil
}
