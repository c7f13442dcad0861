package shop

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// TestRoles: one reads, one repairs, and a user who may not make roles is told so.
func TestRoles(t *testing.T) {
	t.Parallel()
	p := openPoints(t)
	database := p.shop.pool.Config().ConnConfig.Database
	reader, writer := RoleNames(database)
	humble := database + "_humble"
	t.Cleanup(func() {
		for _, name := range []string{reader, writer, humble} {
			for _, drop := range []string{"drop owned by ", "drop role "} {
				if _, err := p.shop.pool.Exec(context.Background(), drop+pgx.Identifier{name}.Sanitize()); err != nil {
					t.Error(err)
				}
			}
		}
	})
	first, err := p.shop.Grant(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	second, err := p.shop.Grant(t.Context()) // the next start of the demo
	if err != nil || second == first {
		t.Fatalf("the second start: %v", err)
	}
	const write = "insert into points_ledger (event_id, amount, currency, booked_by) values ('x', 1, 'CNY', 'x')"
	for address, may := range map[string]bool{second.Reader: false, second.Writer: true} {
		conn, err := pgx.Connect(t.Context(), address)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Exec(t.Context(), write); (err == nil) != may {
			t.Errorf("writes: %v, want %v", err, may)
		}
		if _, err := conn.Exec(t.Context(), "select from payment"); err != nil {
			t.Error(err)
		}
		conn.Close(t.Context())
	}
	if _, err := p.shop.pool.Exec(t.Context(), "create role "+pgx.Identifier{humble}.Sanitize()+" login password 'humble'"); err != nil {
		t.Fatal(err)
	}
	config := p.shop.pool.Config().Copy()
	config.ConnConfig.User, config.ConnConfig.Password = humble, "humble"
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if _, err := (&Shop{pool: pool}).Grant(t.Context()); !errors.Is(err, ErrNoRoles) {
		t.Errorf("a user who may not make roles: %v", err)
	}
}
