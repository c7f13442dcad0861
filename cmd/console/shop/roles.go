package shop

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5"

	"oncemore/consumer/pgstore"
)

// ErrNoRoles means that the server gives the demo no roles of its own.
var ErrNoRoles = errors.New("the user of the database may not make roles, or they may not sign in with a password")

// Access is how the console reaches the ledger: a role that only reads, and one
// that repairs. The addresses hold secrets.
type Access struct{ Reader, Writer string }

// RoleNames are the roles of a database; roles belong to the whole server.
func RoleNames(database string) (reader, writer string) {
	return database + "_reader", database + "_writer"
}

const (
	sqlRoleThere   = `select exists (select from pg_roles where rolname = $1)`
	sqlGrantReader = `grant select on payment, points_ledger, ` + pgstore.Table + ` to %s`
	sqlGrantWriter = `grant select, insert on points_ledger, ` + pgstore.Table + ` to %s; grant select on payment to %[1]s`
)

// Grant makes both roles where they are missing, with new passwords. Error:
// ErrNoRoles.
func (s *Shop) Grant(ctx context.Context) (a Access, err error) {
	config := s.pool.Config().ConnConfig
	reader, writer := RoleNames(config.Database)
	if a.Reader, err = s.role(ctx, reader, sqlGrantReader); err != nil {
		return a, err
	}
	a.Writer, err = s.role(ctx, writer, sqlGrantWriter)
	return a, err
}

// role makes a role that signs in, and returns its address once it has.
func (s *Shop) role(ctx context.Context, name, grant string) (string, error) {
	address, err := url.Parse(s.pool.Config().ConnString())
	if err != nil {
		return "", fmt.Errorf("address of the shop's database: %w", err)
	}
	var there bool
	if err := s.pool.QueryRow(ctx, sqlRoleThere, name).Scan(&there); err != nil {
		return "", fmt.Errorf("look for role %s: %w", name, err)
	}
	act := "create"
	if there {
		act = "alter"
	}
	password, quoted := rand.Text(), pgx.Identifier{name}.Sanitize()
	for _, sql := range []string{act + " role " + quoted + " login password '" + password + "'", fmt.Sprintf(grant, quoted)} {
		if _, err := s.pool.Exec(ctx, sql); err != nil {
			return "", fmt.Errorf("%w: %s: %w", ErrNoRoles, name, err)
		}
	}
	address.User = url.UserPassword(name, password)
	conn, err := pgx.Connect(ctx, address.String())
	if err != nil {
		return "", fmt.Errorf("%w: %s: %s", ErrNoRoles, name, strings.ReplaceAll(err.Error(), password, "…"))
	}
	return address.String(), conn.Close(ctx)
}
