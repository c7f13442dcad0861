package dlq

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// sqlLineage finds the letters of items that are live: sent, or perhaps sent, with
// no outcome that ends them in the letter's group, and the letter not sent anew by
// a later replay.
const sqlLineage = `
SELECT i.replay_id, i.no, i.sent_partition, i.sent_offset, t.topic, d.id, d.id = i.letter_id, d.event_id, g.name, o.name
FROM unnest(@replays::bigint[], @items::int[]) u(replay, item)
JOIN replay_item i ON i.replay_id = u.replay AND i.no = u.item AND i.state IN (1, 2, 5)
JOIN replay_target t ON t.id = i.target_id AND t.cluster = @cluster
JOIN replay_item_letter l ON l.replay_id = i.replay_id AND l.no = i.no
JOIN dead_letter d ON d.id = l.letter_id
LEFT JOIN letter_name g ON g.id = d.group_id
LEFT JOIN letter_name o ON o.id = d.origin_id
LEFT JOIN replay_outcome c ON c.replay_id = i.replay_id AND c.item_no = i.no AND c.group_id = d.group_id
WHERE (c.outcome IS NULL OR c.outcome <> ALL(@ended))
  AND NOT EXISTS (
    SELECT FROM replay_item_letter nl JOIN replay_item ni ON ni.replay_id = nl.replay_id AND ni.no = nl.no
    WHERE nl.letter_id = d.id AND nl.replay_id > i.replay_id AND ni.state IN (1, 2, 5))
ORDER BY i.replay_id, i.no, d.id`

// endedOutcomes are those after which a failure is not this item's any more.
var endedOutcomes = []int16{int16(Applied), int16(Duplicate), int16(DuplicateExpected), int16(NotSent)}

// lineageKey names an item of a replay.
type lineageKey struct {
	replay int64
	no     int32
}

// liveItem is a letter of a live item.
type liveItem struct {
	key       lineageKey
	partition *int32 // where it was sent; nil: not recorded yet
	offset    *int64
	topic     string
	letter    uuid.UUID
	chief     bool // the letter that stands for the item
	eventID   *string
	group     *string
	origin    *string
}

// joinLineage gives arrivals that are failures of a replayed item the letter that
// they belong to. Four things must hold: the arrival carries the item's headers;
// event id and group are the letter's; its origin is where the item was sent; and
// the item is live. Headers alone prove nothing: they may be copied or forged.
func joinLineage(ctx context.Context, tx pgx.Tx, cluster string, arrivals []*arrival) error {
	var replays []int64
	var items []int32
	asked := map[lineageKey]bool{}
	for _, a := range arrivals {
		if key := a.item(); a.replayID > 0 && a.itemNo > 0 && !asked[key] {
			asked[key] = true
			replays, items = append(replays, key.replay), append(items, key.no)
		}
	}
	if len(replays) == 0 {
		return nil
	}
	rows, err := tx.Query(ctx, sqlLineage, pgx.NamedArgs{"replays": replays, "items": items, "cluster": cluster, "ended": endedOutcomes})
	if err != nil {
		return fmt.Errorf("query lineage: %w", err)
	}
	live := map[lineageKey][]liveItem{}
	var l liveItem
	into := []any{&l.key.replay, &l.key.no, &l.partition, &l.offset, &l.topic, &l.letter, &l.chief, &l.eventID, &l.group, &l.origin}
	if _, err := pgx.ForEachRow(rows, into, func() error { live[l.key] = append(live[l.key], l); return nil }); err != nil {
		return fmt.Errorf("read lineage: %w", err)
	}
	for _, a := range arrivals {
		a.joinOne(live[a.item()])
	}
	return nil
}

func (a *arrival) item() lineageKey { return lineageKey{a.replayID, a.itemNo} }

// joinOne prefers the letter that stands for the item where several fit.
func (a *arrival) joinOne(candidates []liveItem) {
	a.lineage = uuid.Nil
	for _, c := range candidates {
		if equalText(a.read.EventID, c.eventID) && equalText(a.read.Group, c.group) && a.cameFrom(c) &&
			(a.lineage == uuid.Nil || c.chief) {
			a.lineage = c.letter
		}
	}
}

func equalText(a, b *string) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}

// cameFrom reports that the arrival's origin is where the item was sent. Sent to
// a retry topic, it may name the topic before that, which is the letter's own
// origin; the position there is then another record's.
func (a *arrival) cameFrom(c liveItem) bool {
	if a.from.broker == brokerRabbit {
		return a.cameFromQueue(c)
	}
	r := a.read
	if r.OriginTopic == nil || r.OriginGuessed {
		return false
	}
	if *r.OriginTopic != c.topic {
		return c.origin != nil && *r.OriginTopic == *c.origin
	}
	return (c.partition == nil || r.OriginPartition == nil || *c.partition == *r.OriginPartition) &&
		(c.offset == nil || r.OriginOffset == nil || *c.offset == *r.OriginOffset)
}

// cameFromQueue is the same of a queue, which has no places: the arrival failed in
// the queue that the item was sent to, or where its letter had failed. Letters
// that name no queue have only the rest to go by.
func (a *arrival) cameFromQueue(c liveItem) bool {
	from := a.origin()
	return from != nil && *from == c.topic || equalText(from, c.origin)
}
