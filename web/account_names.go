package web

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"oncemore/dlq"
)

const sqlAccountNames = `SELECT name FROM app_user WHERE disabled_at IS NULL ORDER BY name`

// Names lists who may own something: the accounts that are not disabled.
func (a *Accounts) Names(ctx context.Context) ([]string, error) {
	rows, err := a.pool.Query(ctx, sqlAccountNames)
	if err != nil {
		return nil, fmt.Errorf("query names of accounts: %w", err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("read names of accounts: %w", err)
	}
	return names, nil
}

// checkOwnerName refuses who has no account; "" and none are nobody.
func (s *Server) checkOwnerName(ctx context.Context, name string) error {
	if name == "" || name == dlq.OwnerNone {
		return nil
	}
	names, err := s.accounts.Names(ctx)
	if err != nil {
		return err
	}
	if !slices.Contains(names, name) {
		return &dlq.ErrBadTriage{Field: "owner", Reason: "is no account that can sign in"}
	}
	return nil
}
