package dlq

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// ItemFilter chooses the items of a replay by tab: "" or all; worth, what
// somebody should look at; waiting, sending, sent, left_out; or the name of an
// outcome.
type ItemFilter struct{ Tab string }

// ItemPage is a part of a replay's items, in the order of sending.
type ItemPage struct {
	Items []ReplayItem
	Next  string // "" at the end
}

var itemStateNames = map[int16]string{
	itemWaiting: "waiting", itemSending: "sending", itemSent: "sent", itemLeftOut: "left_out",
	itemNotSent: "not_sent", itemUnconfirmed: "unconfirmed",
}

// itemTabs are the conditions of the tabs. @outcomes and @state are of the tab.
const (
	tabAll     = `true`
	tabState   = `i.state = @state`
	tabPending = `i.state IN (1, 2) AND EXISTS (SELECT FROM event_claim c WHERE c.kind = 1 AND c.holder_id = i.replay_id AND c.item_no = i.no)`
	tabOutcome = `EXISTS (SELECT FROM replay_outcome o WHERE o.replay_id = i.replay_id AND o.item_no = i.no AND o.outcome = ANY(@outcomes))`
	tabWorth   = `(i.state IN (3, 4, 5) OR ` + tabOutcome + `)`
)

// worthALook are the outcomes that nobody hoped for.
var worthALook = []int16{int16(FailedAgain), int16(Swallowed), int16(NotSeen), int16(Unverified), int16(NotSent), int16(Unconfirmed)}

func (f ItemFilter) condition() (sql string, args pgx.NamedArgs, err error) {
	args = pgx.NamedArgs{"outcomes": worthALook, "state": int16(0)}
	switch f.Tab {
	case "", "all":
		return tabAll, args, nil
	case "worth":
		return tabWorth, args, nil
	case "pending":
		return tabPending, args, nil
	}
	for outcome, name := range outcomeNames {
		if name == f.Tab {
			args["outcomes"] = []int16{int16(outcome)}
			return tabOutcome, args, nil
		}
	}
	for state, name := range itemStateNames {
		if name == f.Tab {
			args["state"] = state
			return tabState, args, nil
		}
	}
	return "", nil, &ErrBadFilter{Field: "tab", Reason: "must be all, worth, waiting, sending, sent, left_out or an outcome"}
}

const sqlItemPage = `
SELECT i.no, i.item_key, i.verdict, i.state, i.sent_at, CASE WHEN t.exchange = '' THEN t.topic ELSE t.exchange || ' → ' || t.topic END, i.sent_partition, i.sent_offset, coalesce(i.bytes_from, 0),
  i.reason, i.reason_key, i.reason_args, b.key, i.revision,
  array(SELECT l.letter_id FROM replay_item_letter l WHERE l.replay_id = i.replay_id AND l.no = i.no ORDER BY l.letter_id)
FROM replay_item i
JOIN replay_target t ON t.id = i.target_id
LEFT JOIN dead_letter_body b ON b.id = i.letter_id
WHERE i.replay_id = @id AND i.no > @after AND %s
ORDER BY i.no LIMIT @limit`

// Items gives one page of a replay's items. Errors: ErrNotFound, *ErrBadFilter.
func (r *Replays) Items(ctx context.Context, id int64, f ItemFilter, p Page) (ItemPage, error) {
	cond, args, err := f.condition()
	if err != nil {
		return ItemPage{}, err
	}
	limit, after, err := p.place(f, 0)
	if err != nil {
		return ItemPage{}, err
	}
	if _, err := r.Changed(ctx, id); err != nil {
		return ItemPage{}, err
	}
	args["id"], args["after"], args["limit"] = id, after, limit+1
	rows, err := r.pool.Query(ctx, fmt.Sprintf(sqlItemPage, cond), args)
	if err != nil {
		return ItemPage{}, fmt.Errorf("query items of replay %d: %w", id, err)
	}
	found, err := pgx.CollectRows(rows, scanItem)
	if err != nil {
		return ItemPage{}, fmt.Errorf("read items of replay %d: %w", id, err)
	}
	page := ItemPage{Items: found[:min(len(found), limit)]}
	if len(found) > limit {
		page.Next = cursor{direction: older, sort: int64(page.Items[limit-1].No)}.encode(f)
	}
	return page, r.fillGroups(ctx, id, page.Items)
}

func scanItem(row pgx.CollectableRow) (ReplayItem, error) {
	var it ReplayItem
	var state int16
	var from bytesFrom
	var key string
	var text, reasonKey *string
	var reasonArgs []byte
	err := row.Scan(&it.No, &key, &it.Verdict, &state, &it.SentAt, &it.Topic, &it.Partition, &it.Offset, &from,
		&text, &reasonKey, &reasonArgs, &it.Key, &it.Revision, &it.LetterIDs)
	it.State, it.BytesFrom, it.Reason = itemStateNames[state], from.String(), loadReason(text, reasonKey, reasonArgs)
	if len(key) == 0 || key[0] != '\x01' {
		it.EventID = &key
	}
	return it, err
}

// sqlItemGroups has a row for each group of each item: its outcome; while it has
// a claim, pending; before that, what the plan meant to reach.
const sqlItemGroups = `
SELECT i.no, coalesce(g.name, ''), coalesce(o.verdict, c.verdict, 0), coalesce(o.outcome, CASE WHEN c.item_no IS NOT NULL THEN 1 END, 0),
  o.at, o.reason, o.reason_key, o.reason_args
FROM replay_item i
JOIN replay_target t ON t.id = i.target_id
CROSS JOIN LATERAL (
  SELECT unnest(t.groups) WHERE i.state IN (0, 3)
  UNION SELECT c.group_id FROM event_claim c WHERE c.kind = 1 AND c.holder_id = i.replay_id AND c.item_no = i.no
  UNION SELECT o.group_id FROM replay_outcome o WHERE o.replay_id = i.replay_id AND o.item_no = i.no) u(group_id)
LEFT JOIN letter_name g ON g.id = u.group_id AND u.group_id <> 0
LEFT JOIN event_claim c ON c.event_id = i.item_key AND c.group_id = u.group_id AND c.kind = 1 AND c.holder_id = i.replay_id AND c.item_no = i.no
LEFT JOIN replay_outcome o ON o.replay_id = i.replay_id AND o.item_no = i.no AND o.group_id = u.group_id
WHERE i.replay_id = @id AND i.no = ANY(@nos)
ORDER BY i.no, 2`

func (r *Replays) fillGroups(ctx context.Context, id int64, items []ReplayItem) error {
	by := make(map[int]*ReplayItem, len(items))
	nos := make([]int, len(items))
	for i := range items {
		by[items[i].No], nos[i] = &items[i], items[i].No
	}
	rows, err := r.pool.Query(ctx, sqlItemGroups, pgx.NamedArgs{"id": id, "nos": nos})
	if err != nil {
		return fmt.Errorf("query groups of items: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var no int
		var g ItemGroup
		var text, key *string
		var args []byte
		if err := rows.Scan(&no, &g.Group, &g.Verdict, &g.Outcome, &g.At, &text, &key, &args); err != nil {
			return fmt.Errorf("read groups of items: %w", err)
		}
		g.Reason = loadReason(text, key, args)
		by[no].Groups = append(by[no].Groups, g)
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read groups of items: %w", err)
	}
	return nil
}

// RefusedPage is a part of what a plan refused.
type RefusedPage struct {
	Items []Refusal
	Next  string // "" at the end
}

const sqlRefusedPage = `
SELECT f.letter_id, d.event_id, f.group_id, coalesce(g.name, ''), f.verdict, f.reason, f.reason_key, f.reason_args
FROM replay_refused f
LEFT JOIN dead_letter d ON d.id = f.letter_id
LEFT JOIN letter_name g ON g.id = f.group_id AND f.group_id <> 0
WHERE f.replay_id = @id AND (f.letter_id, f.group_id) > (@letter, @group)
ORDER BY f.letter_id, f.group_id LIMIT @limit`

// Refused gives one page of what the plan refused, by letter and group. Errors:
// ErrNotFound, *ErrBadFilter.
func (r *Replays) Refused(ctx context.Context, id int64, p Page) (RefusedPage, error) {
	limit, err := p.rows()
	if err != nil {
		return RefusedPage{}, err
	}
	after, group := uuid.Nil, int64(-1)
	if p.Cursor != "" {
		c, err := decodeCursor(p.Cursor, id)
		if err != nil {
			return RefusedPage{}, err
		}
		after, group = c.id, c.sort
	}
	if _, err := r.Changed(ctx, id); err != nil {
		return RefusedPage{}, err
	}
	rows, err := r.pool.Query(ctx, sqlRefusedPage, pgx.NamedArgs{"id": id, "letter": after, "group": group, "limit": limit + 1})
	if err != nil {
		return RefusedPage{}, fmt.Errorf("query refusals of replay %d: %w", id, err)
	}
	var groups []int32
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Refusal, error) {
		var f Refusal
		var group int32
		var text, key string
		var args []byte
		err := row.Scan(&f.LetterID, &f.EventID, &group, &f.Group, &f.Verdict, &text, &key, &args)
		f.Reason, groups = loadReason(&text, &key, args), append(groups, group)
		return f, err
	})
	if err != nil {
		return RefusedPage{}, fmt.Errorf("read refusals of replay %d: %w", id, err)
	}
	page := RefusedPage{Items: found[:min(len(found), limit)]}
	if len(found) > limit {
		page.Next = cursor{direction: older, id: page.Items[limit-1].LetterID, sort: int64(groups[limit-1])}.encode(id)
	}
	return page, nil
}

// LetterOutcome is what one replay did for one letter in one group.
type LetterOutcome struct {
	ReplayID int64
	Group    string
	Outcome  Outcome
	At       *time.Time // nil while pending
	Reason   Reason
}

const sqlReplaysOfLetter = `
SELECT l.replay_id, coalesce(g.name, ''), x.outcome, x.at, x.reason, x.reason_key, x.reason_args
FROM replay_item_letter l
CROSS JOIN LATERAL (
  SELECT o.group_id, o.outcome, o.at, o.reason, o.reason_key, o.reason_args
  FROM replay_outcome o WHERE o.replay_id = l.replay_id AND o.item_no = l.no
  UNION ALL
  SELECT c.group_id, 1::smallint, NULL, NULL, NULL, NULL
  FROM event_claim c WHERE c.kind = 1 AND c.holder_id = l.replay_id AND c.item_no = l.no) x
LEFT JOIN letter_name g ON g.id = x.group_id AND x.group_id <> 0
WHERE l.letter_id = @letter
ORDER BY l.replay_id DESC, 2 LIMIT 500`

// OfLetter says what the replays of a letter did, newest first.
func (r *Replays) OfLetter(ctx context.Context, letter uuid.UUID) ([]LetterOutcome, error) {
	rows, err := r.pool.Query(ctx, sqlReplaysOfLetter, pgx.NamedArgs{"letter": letter})
	if err != nil {
		return nil, fmt.Errorf("query outcomes of letter %s: %w", letter, err)
	}
	outcomes, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (LetterOutcome, error) {
		var o LetterOutcome
		var text, key *string
		var args []byte
		err := row.Scan(&o.ReplayID, &o.Group, &o.Outcome, &o.At, &text, &key, &args)
		o.Reason = loadReason(text, key, args)
		return o, err
	})
	if err != nil {
		return nil, fmt.Errorf("read outcomes of letter %s: %w", letter, err)
	}
	return outcomes, nil
}
