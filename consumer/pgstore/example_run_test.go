package pgstore_test

import (
	"testing"

	"oncemore/internal/testkit"
	"oncemore/migrations/pgtest"
)

// The example of the package does what it says, on a real database.
func TestExample(t *testing.T) {
	t.Setenv("DATABASE_URL", pgtest.Empty(t))
	if got := testkit.Printed(t, Example); got != "100 points for two deliveries, 1 duplicate\n" {
		t.Errorf("the example prints %q", got)
	}
}
