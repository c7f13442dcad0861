package migrations_test

import (
	"testing"

	"oncemore/migrations"
	"oncemore/migrations/pgtest"
)

func TestUpMayBeRepeated(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	if err := migrations.Up(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	pending, err := migrations.Pending(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	if pending != 0 {
		t.Errorf("%d migrations pending after Up", pending)
	}
}
