package mysqlstore_test

import (
	"net/url"
	"testing"

	"oncemore/internal/testkit"
)

// The example of the package does what it says, on a real database.
func TestExample(t *testing.T) {
	cfg := testkit.MySQL(t)
	address := url.URL{Scheme: "mysql", User: url.UserPassword(cfg.User, cfg.Passwd), Host: cfg.Addr, Path: "/" + cfg.DBName}
	t.Setenv("DATABASE_URL", address.String())
	if got := testkit.Printed(t, Example); got != "100 points for two deliveries, 1 duplicate\n" {
		t.Errorf("the example prints %q", got)
	}
}
