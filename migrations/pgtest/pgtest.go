// Package pgtest gives each test a private, migrated PostgreSQL database.
package pgtest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/internal/embedded"
	"oncemore/migrations"
)

// New returns a pool on a migrated database that is dropped when the test ends.
func New(t testing.TB) *pgxpool.Pool {
	t.Helper()
	return Open(t, URL(t))
}

// URL makes a migrated database for the test and returns its address.
func URL(t testing.TB) string {
	t.Helper()
	return create(t, template(t))
}

// Empty makes an empty database, such as a service's own, and returns its address.
func Empty(t testing.TB) string {
	t.Helper()
	return create(t, "template1")
}

// Open connects to url until the test ends.
func Open(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatalf("connect to test database: %v", err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// server is the administrator's address of the test server: ONCEMORE_POSTGRES_URL,
// else a server of this process.
var server = sync.OnceValues(func() (string, error) {
	if u := os.Getenv("ONCEMORE_POSTGRES_URL"); u != "" {
		return u, nil
	}
	if os.Getenv("ONCEMORE_SERVICES") == "required" {
		return "", fmt.Errorf("ONCEMORE_SERVICES=required, but ONCEMORE_POSTGRES_URL is not set: run make test")
	}
	return embedded.TestPostgres()
})

func admin(t testing.TB) (*pgx.Conn, string) {
	t.Helper()
	u, err := server()
	if err != nil {
		t.Fatalf("no PostgreSQL for tests: %v", err)
	}
	conn, err := pgx.Connect(context.Background(), u)
	if err != nil {
		t.Fatalf("connect to PostgreSQL at ONCEMORE_POSTGRES_URL: %v", err)
	}
	return conn, u
}

func create(t testing.TB, tmpl string) string {
	t.Helper()
	conn, u := admin(t)
	defer conn.Close(context.Background())
	name := "t_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	if _, err := conn.Exec(context.Background(), fmt.Sprintf("create database %s template %s", name, tmpl)); err != nil {
		t.Fatalf("create test database: %v", err)
	}
	t.Cleanup(func() { drop(t, name) })
	return withDatabase(u, name)
}

func drop(t testing.TB, name string) {
	conn, _ := admin(t)
	defer conn.Close(context.Background())
	if _, err := conn.Exec(context.Background(), "drop database if exists "+name+" with (force)"); err != nil {
		t.Errorf("drop test database: %v", err)
	}
}

func withDatabase(addr, name string) string {
	u, err := url.Parse(addr)
	if err != nil {
		panic(fmt.Sprintf("pgtest: address of PostgreSQL: %v", err))
	}
	u.Path = "/" + name
	return u.String()
}

// template makes the migrated template once per set of migrations; test
// binaries that run side by side share it.
func template(t testing.TB) string {
	t.Helper()
	conn, u := admin(t)
	defer conn.Close(context.Background())
	name := "oncemore_template_" + fingerprint()
	ctx := context.Background()
	if _, err := conn.Exec(ctx, "select pg_advisory_lock(7113204002)"); err != nil {
		t.Fatalf("lock test template: %v", err)
	}
	var there bool
	if err := conn.QueryRow(ctx, "select exists (select from pg_database where datname = $1 and datistemplate)", name).Scan(&there); err != nil {
		t.Fatalf("look for test template: %v", err)
	}
	if !there {
		makeTemplate(t, conn, u, name)
	}
	return name
}

func makeTemplate(t testing.TB, conn *pgx.Conn, u, name string) {
	t.Helper()
	ctx := context.Background()
	if _, err := conn.Exec(ctx, "drop database if exists "+name); err != nil {
		t.Fatalf("drop half-made template: %v", err)
	}
	if _, err := conn.Exec(ctx, "create database "+name); err != nil {
		t.Fatalf("create test template: %v", err)
	}
	pool, err := pgxpool.New(ctx, withDatabase(u, name))
	if err != nil {
		t.Fatalf("connect to test template: %v", err)
	}
	err = migrations.Up(ctx, pool)
	pool.Close()
	if err != nil {
		t.Fatalf("migrate test template: %v", err)
	}
	if _, err := conn.Exec(ctx, "alter database "+name+" is_template true"); err != nil {
		t.Fatalf("mark test template: %v", err)
	}
}

func fingerprint() string {
	h := sha256.New()
	entries, err := fs.ReadDir(migrations.Files, ".")
	if err != nil {
		panic(fmt.Sprintf("pgtest: embedded migrations: %v", err))
	}
	for _, e := range entries {
		b, err := migrations.Files.ReadFile(e.Name())
		if err != nil {
			panic(fmt.Sprintf("pgtest: embedded migrations: %v", err))
		}
		h.Write(b)
	}
	return hex.EncodeToString(h.Sum(nil))[:12]
}
