package embedded

import (
	"context"
	"fmt"
	"net/url"

	"github.com/jackc/pgx/v5"
)

// EnsureDatabase makes the database where it is missing and returns its address.
// server is an address of the same server whose user may create databases.
func EnsureDatabase(ctx context.Context, server, name string) (string, error) {
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		return "", fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var there bool
	if err := conn.QueryRow(ctx, "select exists (select from pg_database where datname = $1)", name).Scan(&there); err != nil {
		return "", fmt.Errorf("look for database %s: %w", name, err)
	}
	if !there {
		if _, err := conn.Exec(ctx, "create database "+pgx.Identifier{name}.Sanitize()); err != nil {
			return "", fmt.Errorf("create database %s: %w", name, err)
		}
	}
	return inDatabase(server, name)
}

// DropDatabase removes the database, cutting its sessions.
func DropDatabase(ctx context.Context, server, name string) error {
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		return fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, "drop database if exists "+pgx.Identifier{name}.Sanitize()+" with (force)"); err != nil {
		return fmt.Errorf("drop database %s: %w", name, err)
	}
	return nil
}

// DropRoles removes roles that own nothing any more.
func DropRoles(ctx context.Context, server string, names ...string) error {
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		return fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for _, name := range names {
		if _, err := conn.Exec(ctx, "drop role if exists "+pgx.Identifier{name}.Sanitize()); err != nil {
			return fmt.Errorf("drop role %s: %w", name, err)
		}
	}
	return nil
}

// inDatabase is the same server's address with another database.
func inDatabase(server, name string) (string, error) {
	u, err := url.Parse(server)
	if err != nil || u.Scheme == "" {
		return "", fmt.Errorf("DATABASE_URL has to be an address such as postgres://user:password@host/database")
	}
	u.Path = "/" + name
	return u.String(), nil
}
