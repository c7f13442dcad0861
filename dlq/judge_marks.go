package dlq

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// marks are what the console's own database knows of an event in a group, beside
// what evidence says.
type marks struct {
	claim       *claim
	compensated *compensation
	unsettled   *send // of another form of the event
}

// compensation is one that has repaired the effect.
type compensation struct {
	id int64
	at time.Time
}

// send is one of another form of the event, the original or another revision,
// that may still take effect.
type send struct {
	replay   int64
	revision int
}

// sqlByIndex and the lateral look-ups below make the statements of a batch find
// each event by index: these tables fill from nothing within minutes, faster than
// their statistics are made, and a plan for an empty one reads all of it.
const sqlByIndex = `SELECT set_config('enable_seqscan', 'off', true)`

// sqlClaims reads the active claims.
const sqlClaims = `
SELECT c.event_id, coalesce(g.name, ''), c.kind, c.holder_id, c.claimed_at
FROM (SELECT DISTINCT unnest(@events::text[]) AS id) e
CROSS JOIN LATERAL (SELECT * FROM event_claim c WHERE c.event_id = e.id OFFSET 0) c
LEFT JOIN letter_name g ON g.id = c.group_id`

const sqlCompensated = `
SELECT c.event_id, coalesce(g.name, ''), c.compensation_id, c.at
FROM (SELECT DISTINCT unnest(@events::text[]) AS id) e
CROSS JOIN LATERAL (SELECT * FROM letter_compensated c WHERE c.event_id = e.id OFFSET 0) c
LEFT JOIN letter_name g ON g.id = c.group_id`

// sqlRevisedSends are the edited forms that were sent and that no outcome has
// settled: none was told, or one after which the copy may still arrive.
const sqlRevisedSends = `
SELECT i.item_key, coalesce(n.name, ''), i.replay_id, i.revision
FROM (SELECT DISTINCT unnest(@events::text[]) AS id) e
CROSS JOIN LATERAL (SELECT * FROM replay_item i WHERE i.item_key = e.id AND i.revision <> 0 AND i.state IN (1, 2, 5) OFFSET 0) i
JOIN replay_target t ON t.id = i.target_id CROSS JOIN unnest(t.groups) AS reached(id)
LEFT JOIN letter_name n ON n.id = reached.id
LEFT JOIN replay_outcome o ON o.replay_id = i.replay_id AND o.item_no = i.no AND o.group_id = reached.id
WHERE o.outcome IS NULL OR o.outcome = ANY(@unsettled)
ORDER BY i.replay_id`

// sqlPlainSends are the same for the form that arrived. It is asked only where a
// revision is to be sent.
const sqlPlainSends = `
SELECT i.item_key, coalesce(n.name, ''), i.replay_id, 0
FROM dead_letter d
JOIN replay_item_letter l ON l.letter_id = d.id
JOIN replay_item i ON i.replay_id = l.replay_id AND i.no = l.no
JOIN replay_target t ON t.id = i.target_id CROSS JOIN unnest(t.groups) AS reached(id)
LEFT JOIN letter_name n ON n.id = reached.id
LEFT JOIN replay_outcome o ON o.replay_id = i.replay_id AND o.item_no = i.no AND o.group_id = reached.id
WHERE d.event_id = ANY(@events) AND i.revision = 0 AND i.state IN (1, 2, 5)
  AND (o.outcome IS NULL OR o.outcome = ANY(@unsettled))
ORDER BY i.replay_id`

// unsettled are the outcomes after which what was sent may still take effect.
var unsettled = []int16{int16(Pending), int16(NotSeen), int16(Unverified), int16(Unconfirmed)}

// marksOf reads what is known of the subjects' events.
type marksOf struct {
	claims      map[question]claim
	compensated map[question]compensation
	sends       map[question][]send
}

func (j *Judge) marks(ctx context.Context, subjects []Subject) (marksOf, error) {
	m := marksOf{map[question]claim{}, map[question]compensation{}, map[question][]send{}}
	var events, edited []string
	for _, s := range subjects {
		events = append(events, s.ids()...)
		if s.Revision != 0 {
			edited = append(edited, s.ids()...)
		}
	}
	if len(events) == 0 {
		return m, nil
	}
	b := &pgx.Batch{}
	b.Queue(sqlByIndex)
	b.Queue(sqlClaims, pgx.NamedArgs{"events": events}).Query(m.scanClaims)
	b.Queue(sqlCompensated, pgx.NamedArgs{"events": events}).Query(m.scanCompensated)
	b.Queue(sqlRevisedSends, pgx.NamedArgs{"events": events, "unsettled": unsettled}).Query(m.scanSends)
	if len(edited) > 0 {
		b.Queue(sqlPlainSends, pgx.NamedArgs{"events": edited, "unsettled": unsettled}).Query(m.scanSends)
	}
	if err := j.pool.SendBatch(ctx, b).Close(); err != nil {
		return m, fmt.Errorf("read claims and earlier sends: %w", err)
	}
	return m, nil
}

func (m marksOf) scanClaims(rows pgx.Rows) error {
	var q question
	var c claim
	_, err := pgx.ForEachRow(rows, []any{&q.event, &q.group, &c.kind, &c.holder, &c.at}, func() error {
		m.claims[q] = c
		return nil
	})
	return err
}

func (m marksOf) scanCompensated(rows pgx.Rows) error {
	var q question
	var c compensation
	_, err := pgx.ForEachRow(rows, []any{&q.event, &q.group, &c.id, &c.at}, func() error {
		m.compensated[q] = c
		return nil
	})
	return err
}

func (m marksOf) scanSends(rows pgx.Rows) error {
	var q question
	var s send
	_, err := pgx.ForEachRow(rows, []any{&q.event, &q.group, &s.replay, &s.revision}, func() error {
		m.sends[q] = append(m.sends[q], s)
		return nil
	})
	return err
}

// in gives the marks of a subject in a group; what the asking replay itself holds
// and has sent is none.
func (m marksOf) in(s Subject, group string) (found marks) {
	for _, id := range s.ids() {
		q := question{id, group}
		if c, ok := m.claims[q]; ok && !(c.kind == 1 && c.holder == s.Holder) {
			found.claim = &c
		}
		if c, ok := m.compensated[q]; ok {
			found.compensated = &c
		}
		for _, sent := range m.sends[q] {
			if sent.revision != s.Revision && sent.replay != s.Holder {
				found.unsettled = &sent
			}
		}
	}
	return found
}
