package dlq

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
)

// OriginalState is what became of the record that a letter came from.
type OriginalState int16

// The states of an original.
const (
	OriginalNotNamed OriginalState = iota + 1 // the letter does not name an origin record
	OriginalGone                              // not retained any more, or something else stands there; Reason says which
	OriginalUnread                            // the broker could not be asked now; Reason
	OriginalEqual                             // key and value are the letter's, byte for byte
	OriginalDiffers                           // key or value differ
)

// Original is the record that a letter came from, if it is still there.
type Original struct {
	State     OriginalState
	Reason    Reason    // for NotNamed, Gone, Unread
	Body      Body      // for Equal and Differs: the origin record's own bytes
	Timestamp time.Time // of the origin record
	Letter    Body      // the dead letter's bytes, for Equal and Differs
	// what differs, for Differs
	KeyDiffers, ValueDiffers bool
}

// Usable reports whether a replay may use the origin's bytes.
func (o Original) Usable() bool { return o.State == OriginalEqual || o.State == OriginalDiffers }

// Origins reads the records that letters came from.
type Origins struct {
	pool *pgxpool.Pool
	topo *Topology
}

// NewOrigins reads through the topology's clusters.
func NewOrigins(pool *pgxpool.Pool, topo *Topology) *Origins {
	return &Origins{pool: pool, topo: topo}
}

// Original reads one letter's original, bounded by 3 s, and saves what it found:
// the flags and, where the record is there, the event's time. Errors: ErrNotFound.
func (o *Origins) Original(ctx context.Context, letterID uuid.UUID) (Original, error) {
	return Original{}, errors.ErrUnsupported
}

// Originals reads those of many letters, grouped by partition. Each subject has
// an answer. Nothing is saved.
func (o *Origins) Originals(ctx context.Context, subjects []Subject) (map[uuid.UUID]Original, error) {
	return nil, errors.ErrUnsupported
}
