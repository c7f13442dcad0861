package dlq

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// unackedDays is how long what was stored and perhaps not acknowledged is compared
// with: an acknowledgement that was not known to arrive has arrived most often, and
// an equal message that comes much later is another one.
const unackedDays = 1

const (
	// Rows are locked in order, so that two consoles that get parts of one batch
	// again wait for each other.
	sqlUnacked = `
SELECT id, hashes FROM drain_unacked
WHERE cluster = @cluster AND queue = @queue AND session <> @session AND (copied OR stored_at > now() - make_interval(days => @days))
ORDER BY id FOR UPDATE`
	sqlKeepUnacked = `UPDATE drain_unacked SET hashes = @hashes WHERE id = @id`
	sqlAddUnacked  = `
INSERT INTO drain_unacked (cluster, queue, session, copied, hashes) VALUES (@cluster, @queue, @session, @copied, @hashes) RETURNING id`
	sqlDropUnacked = `DELETE FROM drain_unacked WHERE id = ANY(@ids)`
	sqlOldUnacked  = `
DELETE FROM drain_unacked WHERE cluster = @cluster AND queue = @queue AND NOT copied AND stored_at < now() - make_interval(days => @days)`
	sqlClock = `SELECT clock_timestamp()`
)

// queueHold is one channel's part in a queue: what it has stored and not yet seen
// acknowledged.
type queueHold struct {
	cluster, queue string
	session        uuid.UUID
	copies         bool
	settled        []int64 // rows whose deliveries are known to be acknowledged: the next commit drops them
}

// take gives the database's time and the arrivals that are not stored already.
// Those that are come again because their acknowledgement was lost; what is kept
// of them moves to this channel. row is the batch's own.
func (h *queueHold) take(batch []*queueArrival, row *int64) taking {
	return func(ctx context.Context, tx pgx.Tx, arrivals []*arrival) (now time.Time, keep []*arrival, err error) {
		if err := tx.QueryRow(ctx, sqlClock).Scan(&now); err != nil {
			return now, nil, err
		}
		if err := h.drop(ctx, tx); err != nil {
			return now, nil, err
		}
		known, err := h.known(ctx, tx, batch)
		if err != nil {
			return now, nil, err
		}
		hashes := make([]byte, 0, len(batch)*len(messageHash{}))
		for _, a := range batch {
			hashes = append(hashes, a.hash[:]...)
			if !known[a] {
				keep = append(keep, a.arrival)
			}
		}
		args := h.args()
		args["hashes"], args["copied"] = hashes, h.copies
		if err := tx.QueryRow(ctx, sqlAddUnacked, args).Scan(row); err != nil {
			return now, nil, fmt.Errorf("note deliveries of %s: %w", h.queue, err)
		}
		return now, keep, nil
	}
}

func (h *queueHold) args() pgx.NamedArgs {
	return pgx.NamedArgs{"cluster": h.cluster, "queue": h.queue, "session": h.session, "days": unackedDays}
}

// drop forgets what is settled, once its transaction commits.
func (h *queueHold) drop(ctx context.Context, tx pgx.Tx) error {
	if len(h.settled) == 0 {
		return nil
	}
	if _, err := tx.Exec(ctx, sqlDropUnacked, pgx.NamedArgs{"ids": h.settled}); err != nil {
		return fmt.Errorf("forget acknowledged deliveries of %s: %w", h.queue, err)
	}
	return nil
}

// known finds the redelivered arrivals that are stored already. Each stored one
// stands for one arrival: two equal messages are two letters.
func (h *queueHold) known(ctx context.Context, tx pgx.Tx, batch []*queueArrival) (map[*queueArrival]bool, error) {
	wanted := map[messageHash][]*queueArrival{}
	for _, a := range batch {
		if a.redelivered {
			wanted[a.hash] = append(wanted[a.hash], a)
		}
	}
	if len(wanted) == 0 {
		return nil, nil
	}
	rows, err := tx.Query(ctx, sqlUnacked, h.args())
	if err != nil {
		return nil, fmt.Errorf("query stored deliveries of %s: %w", h.queue, err)
	}
	type unacked struct {
		ID     int64
		Hashes []byte
	}
	stored, err := pgx.CollectRows(rows, pgx.RowToStructByPos[unacked])
	if err != nil {
		return nil, fmt.Errorf("read stored deliveries of %s: %w", h.queue, err)
	}
	known := map[*queueArrival]bool{}
	for _, s := range stored {
		left := without(s.Hashes, wanted, known)
		if len(left) == len(s.Hashes) {
			continue
		}
		sql, args := sqlKeepUnacked, pgx.NamedArgs{"id": s.ID, "hashes": left}
		if len(left) == 0 {
			sql, args = sqlDropUnacked, pgx.NamedArgs{"ids": []int64{s.ID}}
		}
		if _, err := tx.Exec(ctx, sql, args); err != nil {
			return nil, fmt.Errorf("take over stored deliveries of %s: %w", h.queue, err)
		}
	}
	return known, nil
}

// without takes out the hashes of arrivals that are wanted, and notes these as
// known.
func without(hashes []byte, wanted map[messageHash][]*queueArrival, known map[*queueArrival]bool) []byte {
	left := make([]byte, 0, len(hashes))
	for ; len(hashes) >= len(messageHash{}); hashes = hashes[len(messageHash{}):] {
		hash := messageHash(hashes[:len(messageHash{})])
		same := wanted[hash]
		if len(same) == 0 {
			left = append(left, hash[:]...)
			continue
		}
		known[same[0]], wanted[hash] = true, same[1:]
	}
	return left
}
