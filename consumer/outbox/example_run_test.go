package outbox_test

import (
	"testing"

	"oncemore/internal/testkit"
	"oncemore/migrations/pgtest"
)

// The example of the package does what it says, on a real database.
func TestExample(t *testing.T) {
	t.Setenv("DATABASE_URL", pgtest.Empty(t))
	const want = `payment 10003 was refused, and so was its event
payment.succeeded payment-success-10001 {"payment":"10001"}
payment.succeeded payment-success-10002 {"payment":"10002"}
`
	if got := testkit.Printed(t, Example); got != want {
		t.Errorf("the example prints\n%s\nwant\n%s", got, want)
	}
}
