package dlq

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// eldersLooked is how many open letters of the plan's groups are looked at for
// elders, the oldest first; eldersKept is how many are kept by name.
const (
	eldersLooked = 100_000
	eldersKept   = 1000
)

const sqlElderCandidates = `
SELECT d.id, g.name, d.key_hash, coalesce(d.origin_partition, -1), coalesce(d.origin_offset, -1)
FROM (SELECT id, group_id, key_hash, origin_partition, origin_offset FROM dead_letter
      WHERE group_id = ANY(@groups) AND state = 1 ORDER BY id LIMIT @limit) d
JOIN letter_name g ON g.id = d.group_id
WHERE d.key_hash = ANY(@keys)`

const sqlOpenOfGroups = `
SELECT count(*) > @limit FROM (SELECT FROM dead_letter WHERE group_id = ANY(@groups) AND state = 1 LIMIT @limit + 1) d`

// siblingKey is what makes letters siblings: one message key in one group.
type siblingKey struct {
	group string
	key   int64
}

// sibling is a letter of a plan that may have elders.
type sibling struct {
	item int
	planLetter
}

// findElders notes the open letters that came before an item of the same key and
// group and are not sent with it: what they carry would be applied after it.
func (r *Replays) findElders(ctx context.Context, set *planSet) error {
	mine, sent := set.siblings()
	if len(mine) == 0 {
		return nil
	}
	names, keys := map[string]bool{}, map[int64]bool{}
	for k := range mine {
		names[k.group], keys[k.key] = true, true
	}
	groups, err := groupIDs(ctx, r.pool, slices.Collect(maps.Keys(names)))
	if err != nil {
		return err
	}
	args := pgx.NamedArgs{"groups": slices.Collect(maps.Values(groups)), "keys": slices.Collect(maps.Keys(keys)), "limit": eldersLooked}
	if err := r.pool.QueryRow(ctx, sqlOpenOfGroups, args).Scan(&set.bounded); err != nil {
		return fmt.Errorf("count open letters of the plan's groups: %w", err)
	}
	rows, err := r.pool.Query(ctx, sqlElderCandidates, args)
	if err != nil {
		return fmt.Errorf("query elders: %w", err)
	}
	set.elders = map[int][]uuid.UUID{}
	kept := 0
	var e planLetter
	_, err = pgx.ForEachRow(rows, []any{&e.id, &e.group, &e.key, &e.partition, &e.offset}, func() error {
		if sent[e.id] {
			return nil
		}
		for _, younger := range mine[siblingKey{e.group, e.key}] {
			if e.before(younger.planLetter) && kept < eldersKept {
				set.elders[younger.item] = append(set.elders[younger.item], e.id)
				kept++
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read elders: %w", err)
	}
	return nil
}

// siblings are the set's letters with a key, by group and key, and all its ids.
func (s *planSet) siblings() (mine map[siblingKey][]sibling, sent map[uuid.UUID]bool) {
	mine, sent = map[siblingKey][]sibling{}, map[uuid.UUID]bool{}
	for i, it := range s.items {
		for _, l := range it.letters {
			sent[l.id] = true
			if l.key != 0 && l.group != "" {
				k := siblingKey{l.group, l.key}
				mine[k] = append(mine[k], sibling{i, l})
			}
		}
	}
	return mine, sent
}

// before reports whether l was published before another letter: by their offsets
// where they are of one partition, else by when they arrived here.
func (l planLetter) before(other planLetter) bool {
	if l.partition >= 0 && l.partition == other.partition && l.offset >= 0 && other.offset >= 0 {
		return l.offset < other.offset
	}
	return slices.Compare(l.id[:], other.id[:]) < 0
}

const sqlElders = `
SELECT e.no, i.item_key, e.letter_id, d.event_id
FROM replay_elder e
JOIN replay_item i ON i.replay_id = e.replay_id AND i.no = e.no
JOIN dead_letter d ON d.id = e.letter_id AND d.state = 1
WHERE e.replay_id = @id ORDER BY e.no, e.letter_id LIMIT @limit`

// Elder is an open letter of the same key and group that came before an item of a
// replay and is not part of it.
type Elder struct {
	No       int // of the item
	ItemKey  string
	LetterID uuid.UUID
	EventID  *string
}

// Elders lists the elders of a replay's items that are still open, at most limit.
func (r *Replays) Elders(ctx context.Context, id int64, limit int) ([]Elder, error) {
	rows, err := r.pool.Query(ctx, sqlElders, pgx.NamedArgs{"id": id, "limit": limit})
	if err != nil {
		return nil, fmt.Errorf("query elders of replay %d: %w", id, err)
	}
	elders, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Elder])
	if err != nil {
		return nil, fmt.Errorf("read elders of replay %d: %w", id, err)
	}
	return elders, nil
}
