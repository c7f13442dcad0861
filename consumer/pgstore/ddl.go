package pgstore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Table is where the consume records are.
const Table = "mq_consume_record"

// DDL creates the table of consume records. It may run again. Event ids compare
// by bytes (collation C): EVT-1 and evt-1 are two events.
const DDL = `
CREATE TABLE IF NOT EXISTS mq_consume_record (
	id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	event_id       varchar(255) COLLATE "C" NOT NULL,
	consumer_group varchar(255) COLLATE "C" NOT NULL,
	consumed_at    timestamptz NOT NULL,
	CONSTRAINT uk_event_consumer UNIQUE (event_id, consumer_group)
)`

// ddlLock lets several processes migrate one database at once: CREATE TABLE IF
// NOT EXISTS alone fails in one of two that race.
const ddlLock = 7_113_204_011

const sqlLockDDL = `SELECT pg_advisory_xact_lock($1)`

// Migrate creates the table of consume records in the business database unless
// it is there. The user needs CREATE on the schema.
func Migrate(ctx context.Context, pool *pgxpool.Pool) error {
	tx, err := pool.Begin(ctx)
	if err != nil {
		return fmt.Errorf("create %s: %w", Table, err)
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // harmless after Commit
	if _, err := tx.Exec(ctx, sqlLockDDL, ddlLock); err != nil {
		return fmt.Errorf("create %s: lock: %w", Table, err)
	}
	if _, err := tx.Exec(ctx, DDL); err != nil {
		return fmt.Errorf("create %s: %w", Table, err)
	}
	if err := tx.Commit(ctx); err != nil {
		return fmt.Errorf("create %s: %w", Table, err)
	}
	return nil
}
