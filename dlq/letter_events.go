package dlq

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// EventLetter is what is known of an event's letter without reading it.
type EventLetter struct {
	EventID string
	ID      uuid.UUID
	FaultID int32
	State   State
	Verdict Verdict // as last judged; 0: not judged yet
}

const sqlLettersOfEvents = `
SELECT event_id, id, fault_id, state, verdict FROM dead_letter WHERE event_id = ANY(@ids) ORDER BY id DESC LIMIT @limit`

// OfEvents finds the letters of events, newest first, at most CountLimit.
func (l *Letters) OfEvents(ctx context.Context, events []string) ([]EventLetter, error) {
	rows, err := l.pool.Query(ctx, sqlLettersOfEvents, pgx.NamedArgs{"ids": events, "limit": CountLimit})
	if err != nil {
		return nil, fmt.Errorf("query letters of %d events: %w", len(events), err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[EventLetter])
	if err != nil {
		return nil, fmt.Errorf("read letters of %d events: %w", len(events), err)
	}
	return all, nil
}
