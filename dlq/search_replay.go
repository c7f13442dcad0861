package dlq

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// FoundItem is an item of a replay that a search found.
type FoundItem struct {
	ReplayID int64
	No       int32
	State    string // of the item: waiting | sending | sent | left_out | not_sent | unconfirmed
	To       string // topic or queue, with its exchange
	SentAt   *time.Time
	Before   string    // cursor of the item list, tab all, that starts with this item; "" at its head
	Outcomes []Outcome // different ones of its groups; empty before it was sent
}

// sqlFindItems goes from the letters to the items, so that the index by letter
// serves and replay_item needs none by event.
const sqlFindItems = `
SELECT l.replay_id, l.no, i.state, CASE WHEN t.exchange = '' THEN t.topic ELSE t.exchange || ' → ' || t.topic END, i.sent_at,
  array(SELECT DISTINCT o.outcome FROM replay_outcome o WHERE o.replay_id = l.replay_id AND o.item_no = l.no ORDER BY 1)
FROM (SELECT DISTINCT replay_id, no FROM replay_item_letter WHERE letter_id = ANY(@letters) ORDER BY replay_id DESC, no LIMIT @limit) l
JOIN replay_item i ON i.replay_id = l.replay_id AND i.no = l.no
JOIN replay_target t ON t.id = i.target_id
ORDER BY l.replay_id DESC, l.no`

// Find gives the items of replays that hold any of these letters, newest replay
// first, at most so many, and whether there are more.
func (r *Replays) Find(ctx context.Context, letters []uuid.UUID, most int) (found []FoundItem, more bool, err error) {
	rows, err := r.pool.Query(ctx, sqlFindItems, pgx.NamedArgs{"letters": letters, "limit": most + 1})
	if err != nil {
		return nil, false, fmt.Errorf("query replays of %d letters: %w", len(letters), err)
	}
	found, err = pgx.CollectRows(rows, scanFoundItem)
	if err != nil {
		return nil, false, fmt.Errorf("read replays of %d letters: %w", len(letters), err)
	}
	return found[:min(len(found), most)], len(found) > most, nil
}

func scanFoundItem(row pgx.CollectableRow) (it FoundItem, err error) {
	var state int16
	var outcomes []int16
	err = row.Scan(&it.ReplayID, &it.No, &state, &it.To, &it.SentAt, &outcomes)
	it.State = itemStateNames[state]
	if it.No > 1 {
		it.Before = cursor{direction: older, sort: int64(it.No) - 1}.encode(ItemFilter{Tab: "all"})
	}
	for _, o := range outcomes {
		it.Outcomes = append(it.Outcomes, Outcome(o))
	}
	return it, err
}
