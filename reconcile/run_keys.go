package reconcile

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// recheckKeys reads the keys that the run was asked for, and books what is wrong
// with them and what no longer is.
func (s *step) recheckKeys(ctx context.Context) error {
	keys := make([][]byte, len(s.row.Keys))
	for i, parts := range s.row.Keys {
		var err error
		if keys[i], err = encodeKey(s.c.kinds, parts); err != nil {
			return err
		}
	}
	found, err := s.c.reread(ctx, keys, everything, s.r.opts.Clock())
	if err != nil {
		return err
	}
	return s.bookOpen(ctx, keys, func(tx pgx.Tx, open []known) error { return s.bookKeys(ctx, tx, open, found) })
}

const sqlOpenOf = `
SELECT key, type, id, state, currency, amount::text FROM reconcile_break
WHERE job = @job AND key = ANY(@keys) AND state NOT IN (5, 6) ORDER BY id FOR UPDATE`

func openOf(ctx context.Context, tx pgx.Tx, job string, keys [][]byte) ([]known, error) {
	rows, err := tx.Query(ctx, sqlOpenOf, pgx.NamedArgs{"job": job, "keys": keys})
	if err != nil {
		return nil, fmt.Errorf("query breaks of keys: %w", err)
	}
	open, err := pgx.CollectRows(rows, pgx.RowToStructByPos[known])
	if err != nil {
		return nil, fmt.Errorf("read breaks of keys: %w", err)
	}
	return open, nil
}

func (s *step) bookKeys(ctx context.Context, tx pgx.Tx, open []known, found []Finding) error {
	now := map[string]Finding{}
	var wrong []Finding
	for _, f := range found {
		now[string(f.Encoded)] = f
		if f.Type != "" {
			wrong = append(wrong, f)
		}
	}
	if err := s.bookRecheck(ctx, tx, open, now); err != nil {
		return err
	}
	return newBooking(s.id, s.job.Name, s.job.Key).book(ctx, tx, wrong)
}
