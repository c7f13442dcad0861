package mysqlstore

import (
	"context"
	"database/sql"
	"fmt"
)

// Table is where the consume records are.
const Table = "mq_consume_record"

// uniqueKey tells a record that is there already from other violations.
const uniqueKey = "uk_event_consumer"

// DDL creates the table of consume records. It may run again. Event ids compare
// by bytes (utf8mb4_bin): EVT-1 and evt-1 are two events. consumed_at is UTC.
const DDL = `
CREATE TABLE IF NOT EXISTS mq_consume_record (
	id             BIGINT PRIMARY KEY AUTO_INCREMENT,
	event_id       VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
	consumer_group VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
	consumed_at    DATETIME NOT NULL,
	UNIQUE KEY uk_event_consumer (event_id, consumer_group)
) ENGINE = InnoDB`

// Migrate creates the table of consume records in the business database unless
// it is there. The user needs CREATE. Any pool will do.
func Migrate(ctx context.Context, db *sql.DB) error {
	if _, err := db.ExecContext(ctx, DDL); err != nil {
		return fmt.Errorf("create %s: %w", Table, err)
	}
	return nil
}
