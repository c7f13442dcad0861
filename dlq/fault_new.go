package dlq

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// newFaultsPerHour is how many faults a source may add in an hour. A message that
// normalise cannot tame would otherwise make a fault of every letter.
const newFaultsPerHour = 500

// otherMessages is the pattern of the fault that takes the rest: one for each
// dialect, origin, group and class, so that a fault's columns stay true for all
// of its letters.
const otherMessages = "(other messages: this source has too many different ones)"

// loadFaults gives every arrival the id of its fault, making new ones.
func (n *names) loadFaults(ctx context.Context, arrivals []*arrival) error {
	if len(n.faults) > maxCached {
		clear(n.faults)
	}
	if err := n.findFaults(ctx, arrivals); err != nil {
		return err
	}
	if err := n.capFaults(ctx, arrivals); err != nil {
		return err
	}
	return n.findFaults(ctx, arrivals)
}

const sqlFaultIDs = `SELECT fingerprint, id FROM fault WHERE fingerprint = ANY(@prints)`

// findFaults fills in what is known; what stays 0 has to be made.
func (n *names) findFaults(ctx context.Context, arrivals []*arrival) error {
	unknown := map[uuid.UUID]bool{}
	for _, a := range arrivals {
		if n.faults[a.print] == 0 {
			unknown[a.print] = true
		}
	}
	if len(unknown) > 0 {
		prints := make([]uuid.UUID, 0, len(unknown))
		for p := range unknown {
			prints = append(prints, p)
		}
		rows, err := n.pool.Query(ctx, sqlFaultIDs, pgx.NamedArgs{"prints": prints})
		if err != nil {
			return fmt.Errorf("query faults: %w", err)
		}
		var print uuid.UUID
		var id int32
		if _, err := pgx.ForEachRow(rows, []any{&print, &id}, func() error { n.faults[print] = id; return nil }); err != nil {
			return fmt.Errorf("read faults: %w", err)
		}
	}
	for _, a := range arrivals {
		a.faultID = n.faults[a.print]
	}
	return nil
}

const sqlNewFaults = `SELECT count(*) FROM fault WHERE source_id = @source AND first_seen > now() - interval '1 hour'`

// capFaults makes the missing faults, as many as each source may still have; the
// other arrivals go to the source's fault for other messages.
func (n *names) capFaults(ctx context.Context, arrivals []*arrival) error {
	left := map[int32]int{}
	made := map[uuid.UUID]*arrival{}
	for _, a := range arrivals {
		if a.faultID != 0 || made[a.print] != nil {
			continue
		}
		if _, asked := left[a.sourceID]; !asked {
			var have int
			if err := n.pool.QueryRow(ctx, sqlNewFaults, pgx.NamedArgs{"source": a.sourceID}).Scan(&have); err != nil {
				return fmt.Errorf("count new faults: %w", err)
			}
			left[a.sourceID] = newFaultsPerHour - have
		}
		if left[a.sourceID]--; left[a.sourceID] < 0 {
			a.pattern = otherMessages
			a.print = a.fingerprint()
		}
		made[a.print] = a
	}
	return n.insertFaults(ctx, made)
}

const sqlAddFaults = `
INSERT INTO fault (fingerprint, source_id, origin_id, group_id, class_id, dialect_id, message, first_seen, last_seen)
SELECT p, s, o, g, c, d, m, now(), now()
FROM unnest(@prints::uuid[], @sources::int[], @origins::int[], @groups::int[], @classes::int[], @dialects::int[], @messages::text[])
  u(p, s, o, g, c, d, m)
ON CONFLICT (fingerprint) DO NOTHING`

func (n *names) insertFaults(ctx context.Context, made map[uuid.UUID]*arrival) error {
	if len(made) == 0 {
		return nil
	}
	list := make([]*arrival, 0, len(made))
	for _, a := range made {
		list = append(list, a)
	}
	slices.SortFunc(list, func(a, b *arrival) int { return bytes.Compare(a.print[:], b.print[:]) })
	var prints []uuid.UUID
	var sources, origins, groups, classes, dialects []int32
	var messages []string
	for _, a := range list {
		prints, messages = append(prints, a.print), append(messages, a.pattern)
		sources, origins, groups = append(sources, a.sourceID), append(origins, a.originID), append(groups, a.groupID)
		classes, dialects = append(classes, a.classID), append(dialects, a.dialectID)
	}
	_, err := n.pool.Exec(ctx, sqlAddFaults, pgx.NamedArgs{"prints": prints, "sources": sources, "origins": origins,
		"groups": groups, "classes": classes, "dialects": dialects, "messages": messages})
	if err != nil {
		return fmt.Errorf("add faults: %w", err)
	}
	return nil
}
