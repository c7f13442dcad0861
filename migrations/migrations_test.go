package migrations_test

import (
	"errors"
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

func TestADatabaseOfANewerConsoleIsLeftAlone(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	if _, err := pool.Exec(t.Context(), "insert into goose_db_version (version_id, is_applied) values (99990101000000, true)"); err != nil {
		t.Fatal(err)
	}
	if err := migrations.Up(t.Context(), pool); !errors.Is(err, migrations.ErrNewer) {
		t.Errorf("Up: %v", err)
	}
	if n, err := migrations.Pending(t.Context(), pool); !errors.Is(err, migrations.ErrNewer) {
		t.Errorf("Pending: %d, %v", n, err)
	}
}

func TestPendingCountsWhatIsMissing(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	if _, err := pool.Exec(t.Context(), "delete from river_migration where version = (select max(version) from river_migration)"); err != nil {
		t.Fatal(err)
	}
	if n, err := migrations.Pending(t.Context(), pool); err != nil || n != 1 {
		t.Errorf("without River's last: %d, %v", n, err)
	}
	all, err := migrations.Pending(t.Context(), pgtest.Open(t, pgtest.Empty(t)))
	if err != nil || all < 2 {
		t.Errorf("of an empty database: %d, %v", all, err)
	}
}
