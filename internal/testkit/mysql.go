package testkit

import (
	"context"
	"database/sql"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/google/uuid"
)

// MySQL makes a database of the test's own on the server (MySQL or MariaDB) at
// ONCEMORE_MYSQL_URL (mysql://user:password@host:port/database), and drops it
// when the test ends. Without a server the test is skipped, or fails under
// ONCEMORE_SERVICES=required.
func MySQL(t testing.TB) *mysql.Config {
	t.Helper()
	cfg := mysqlServer(t)
	admin, err := sql.Open("mysql", cfg.FormatDSN())
	if err != nil {
		t.Fatalf("open %s: %v", cfg.Addr, err)
	}
	cfg.DBName = "t_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	if _, err := admin.ExecContext(t.Context(), "CREATE DATABASE "+cfg.DBName+" CHARACTER SET utf8mb4"); err != nil {
		t.Fatalf("create database: %v", err)
	}
	t.Cleanup(func() {
		defer admin.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if _, err := admin.ExecContext(ctx, "DROP DATABASE "+cfg.DBName); err != nil {
			t.Logf("drop database %s: %v", cfg.DBName, err)
		}
	})
	return cfg
}

func mysqlServer(t testing.TB) *mysql.Config {
	t.Helper()
	address := service(t, "ONCEMORE_MYSQL_URL", "a MySQL or MariaDB")
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "mysql" {
		t.Fatalf("ONCEMORE_MYSQL_URL is not mysql://user:password@host:port/database: %v", err)
	}
	cfg := mysql.NewConfig()
	cfg.User, cfg.Net, cfg.Addr, cfg.DBName = u.User.Username(), "tcp", u.Host, strings.TrimPrefix(u.Path, "/")
	cfg.Passwd, _ = u.User.Password()
	return cfg
}

// Redis returns the URL of a real Redis, from ONCEMORE_REDIS_URL
// (redis://host:port/0). Without one the test is skipped, or fails under
// ONCEMORE_SERVICES=required. It is shared: prefix keys by Name.
func Redis(t testing.TB) string {
	t.Helper()
	return service(t, "ONCEMORE_REDIS_URL", "a Redis")
}

// service returns what the variable names.
func service(t testing.TB, variable, what string) string {
	t.Helper()
	if address := os.Getenv(variable); address != "" {
		return address
	}
	if Required() {
		t.Fatalf("ONCEMORE_SERVICES=required, but %s is not set: run make test", variable)
	}
	t.Skipf("needs %s: set %s, or run make test", what, variable)
	return ""
}
