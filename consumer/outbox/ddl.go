package outbox

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Flavour is a kind of database.
type Flavour int

// The kinds. MySQL stands for MariaDB, too.
const (
	PostgreSQL Flavour = iota + 1
	MySQL
)

// The identity hands out ids one by one (CACHE 1), so that of two transactions
// that follow each other the second has the larger ones. Rows change their state
// at most a few times and are removed in bulk: the table is vacuumed early.
const sqlDDL = `
CREATE TABLE IF NOT EXISTS outbox_message (
	id         bigint GENERATED ALWAYS AS IDENTITY (CACHE 1) PRIMARY KEY,
	shard      smallint NOT NULL CHECK (shard BETWEEN 0 AND 63),
	event_id   varchar(255) COLLATE "C" NOT NULL,
	exchange   varchar(255) NOT NULL DEFAULT '',
	target     varchar(255) NOT NULL,
	order_key  bytea NOT NULL,
	record_key bytea,
	payload    bytea,
	headers    text NOT NULL,
	bytes      int NOT NULL,
	state      smallint NOT NULL DEFAULT 1 CHECK (state BETWEEN 1 AND 5),
	attempts   int NOT NULL DEFAULT 0,
	next_at    timestamptz,
	last_error text,
	created_at timestamptz NOT NULL DEFAULT now(),
	done_at    timestamptz,
	CHECK ((done_at IS NOT NULL) = (state IN (2, 5)))
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000);
CREATE INDEX IF NOT EXISTS outbox_message_pending ON outbox_message (shard, id) WHERE state = 1;
CREATE INDEX IF NOT EXISTS outbox_message_trouble ON outbox_message (order_key, id) WHERE state IN (3, 4);
CREATE INDEX IF NOT EXISTS outbox_message_done ON outbox_message (done_at) WHERE state IN (2, 5);`

// MySQL has no partial indexes. Times are UTC.
const sqlDDLMySQL = `
CREATE TABLE IF NOT EXISTS outbox_message (
	id         BIGINT PRIMARY KEY AUTO_INCREMENT,
	shard      TINYINT NOT NULL,
	event_id   VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
	exchange   VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '',
	target     VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
	order_key  VARBINARY(255) NOT NULL,
	record_key LONGBLOB,
	payload    LONGBLOB,
	headers    LONGTEXT CHARACTER SET utf8mb4 NOT NULL,
	bytes      INT NOT NULL,
	state      TINYINT NOT NULL DEFAULT 1,
	attempts   INT NOT NULL DEFAULT 0,
	next_at    DATETIME(6),
	last_error TEXT CHARACTER SET utf8mb4,
	created_at DATETIME(6) NOT NULL,
	done_at    DATETIME(6),
	KEY outbox_message_pending (state, shard, id),
	KEY outbox_message_trouble (order_key, state, id),
	KEY outbox_message_done (state, done_at)
) ENGINE = InnoDB`

// DDL creates the outbox. It may run again.
func DDL(f Flavour) string { return DefaultTable.DDL(f) }

// DDL creates this outbox.
func (t Table) DDL(f Flavour) string {
	if f == MySQL {
		return t.sql(sqlDDLMySQL)
	}
	return t.sql(sqlDDL)
}

const sqlLockDDL = `SELECT pg_advisory_xact_lock($1)`

// ddlLock lets several processes migrate one database at once.
const ddlLock = 7_113_204_012

// Migrate creates the outbox unless it is there. The user needs CREATE.
func (t Table) Migrate(ctx context.Context, pool *pgxpool.Pool) error {
	if err := t.Validate(); err != nil {
		return err
	}
	tx, err := pool.Begin(ctx)
	if err != nil {
		return fmt.Errorf("create %s: %w", t, err)
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // harmless after Commit
	if _, err := tx.Exec(ctx, sqlLockDDL, ddlLock); err != nil {
		return fmt.Errorf("create %s: lock: %w", t, err)
	}
	if _, err := tx.Exec(ctx, t.DDL(PostgreSQL)); err != nil {
		return fmt.Errorf("create %s: %w", t, err)
	}
	if err := tx.Commit(ctx); err != nil {
		return fmt.Errorf("create %s: %w", t, err)
	}
	return nil
}

// MigrateMySQL creates the outbox in MySQL or MariaDB unless it is there.
func (t Table) MigrateMySQL(ctx context.Context, db *sql.DB) error {
	if err := t.Validate(); err != nil {
		return err
	}
	if _, err := db.ExecContext(ctx, t.DDL(MySQL)); err != nil {
		return fmt.Errorf("create %s: %w", t, err)
	}
	return nil
}
