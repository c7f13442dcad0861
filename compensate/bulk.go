package compensate

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"oncemore/dlq"
	"oncemore/internal/access"
	"oncemore/internal/audit"
	"oncemore/reconcile"
)

// MostSelected bounds a selection whose action has no limits.per_batch.
const MostSelected = 10_000

// Selection names what is to be repaired; exactly one is set. Filters take what
// they match at the request: the set is frozen before anything is proposed.
type Selection struct {
	Breaks      []int64                `json:"breaks,omitempty"`
	Letters     []uuid.UUID            `json:"letters,omitempty"`
	BreakFilter *reconcile.BreakFilter `json:"break_filter,omitempty"`
	Letter      *dlq.LetterFilter      `json:"letter_filter,omitempty"` // open letters of it
}

// ErrSelection is returned for a selection that names nothing, or several things.
var ErrSelection = errors.New("compensate: a selection names breaks, letters or one filter")

// BulkState is where a proposal for a selection stands.
type BulkState int

// The states of a proposal for a selection.
const (
	BulkProposing BulkState = iota + 1
	BulkDone
)

// String is the state's name in the API.
func (s BulkState) String() string { return [...]string{"", "proposing", "done"}[s] }

// Bulk is a proposal for a frozen set, one compensation for each of it.
type Bulk struct {
	ID         int64
	Action     string
	Version    int
	Selection  json.RawMessage // as it was asked for
	AskedBy    string
	Reason     string
	CreatedAt  time.Time
	FinishedAt *time.Time
	State      BulkState
	Total      int
	Proposed   int
	PassedOver int    // nothing could be proposed for those; BulkItems says why
	Digest     []byte // SHA-256 over the frozen set
}

// Left is how many of the set wait for their turn.
func (b Bulk) Left() int { return b.Total - b.Proposed - b.PassedOver }

const sqlBulk = `
SELECT id, action, version, selection, asked_by, reason, created_at, finished_at, state, total, proposed, passed_over, digest
FROM compensation_bulk `

// Bulk reads one proposal for a selection. Error: ErrNotFound. What it asked for
// is List and Totals with Filter.Bulk.
func (c *Compensations) Bulk(ctx context.Context, id int64) (Bulk, error) {
	all, err := c.bulks(ctx, sqlBulk+`WHERE id = @id`, pgx.NamedArgs{"id": id})
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("%w: selection %d", ErrNotFound, id)
	}
	if err != nil {
		return Bulk{}, err
	}
	return all[0], nil
}

// Bulks lists the latest proposals for selections, newest first, at most 50.
func (c *Compensations) Bulks(ctx context.Context) ([]Bulk, error) {
	return c.bulks(ctx, sqlBulk+`ORDER BY id DESC LIMIT 50`, nil)
}

func (c *Compensations) bulks(ctx context.Context, sql string, args pgx.NamedArgs) ([]Bulk, error) {
	rows, err := c.Pool.Query(ctx, sql, args)
	if err != nil {
		return nil, fmt.Errorf("query selections: %w", err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Bulk])
	if err != nil {
		return nil, fmt.Errorf("read selections: %w", err)
	}
	return all, nil
}

// BulkItem is one of a frozen set.
type BulkItem struct {
	No             int
	BreakID        *int64
	LetterID       *uuid.UUID
	CompensationID *int64
	Why            *string // why nothing was proposed for it
}

const sqlBulkItems = `
SELECT no, break_id, letter_id, compensation_id, why FROM compensation_bulk_item
WHERE bulk_id = @id AND no > @after AND (why IS NOT NULL OR NOT @passed_over) ORDER BY no LIMIT @limit`

// BulkItems lists a frozen set from after one number on; passedOver leaves out
// what was proposed.
func (c *Compensations) BulkItems(ctx context.Context, id int64, passedOver bool, after, limit int) ([]BulkItem, error) {
	rows, err := c.Pool.Query(ctx, sqlBulkItems, pgx.NamedArgs{"id": id, "passed_over": passedOver, "after": after, "limit": limit})
	if err != nil {
		return nil, fmt.Errorf("query items of selection %d: %w", id, err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[BulkItem])
	if err != nil {
		return nil, fmt.Errorf("read items of selection %d: %w", id, err)
	}
	return all, nil
}

const (
	sqlAddBulk = `
INSERT INTO compensation_bulk (action, version, selection, request_key, asked_by, role, via, from_addr, reason, total, digest)
VALUES (@action, @version, @selection, nullif(@key, ''), @by, @role, @via, @from, @reason, @total, @digest)
ON CONFLICT (request_key) DO NOTHING RETURNING id`
	sqlBulkOfKey   = `SELECT id FROM compensation_bulk WHERE request_key = @key`
	sqlAddBulkItem = `
INSERT INTO compensation_bulk_item (bulk_id, no, break_id, letter_id)
SELECT @id, n, b, l FROM unnest(@breaks::bigint[], @letters::uuid[]) WITH ORDINALITY u(b, l, n)`
)

// ProposeMany asks for one repair of each of a selection by an action. The set is
// frozen at once; what is proposed follows in steps, one for each that fits, and
// the others say why not. The same requestKey of the same user gives the proposal
// that it made; "" none. Errors: ErrNoAction, ErrSelection, ErrLimit,
// access.ErrForbidden, access.ErrReasonRequired, *dlq.ErrBadFilter.
func (c *Compensations) ProposeMany(ctx context.Context, actor access.Actor, action string, sel Selection, requestKey string) (Bulk, error) {
	if err := actor.Check(access.ProposeCompensation); err != nil {
		return Bulk{}, err
	}
	if actor.Reason == "" {
		return Bulk{}, access.ErrReasonRequired
	}
	def, a, err := c.current(ctx, action)
	if err != nil {
		return Bulk{}, err
	}
	set, err := c.freeze(ctx, a, sel)
	if err != nil {
		return Bulk{}, err
	}
	if requestKey != "" {
		requestKey = actor.User + "/" + requestKey
	}
	id, err := c.addBulk(ctx, actor, def, sel, set, requestKey)
	if err != nil {
		return Bulk{}, err
	}
	return c.Bulk(ctx, id)
}

// frozen is a set, breaks or letters.
type frozen struct {
	breaks  []int64
	letters []uuid.UUID
}

func (f frozen) size() int { return max(len(f.breaks), len(f.letters)) }

func (f frozen) digest() []byte {
	b, _ := json.Marshal([]any{f.breaks, f.letters}) //nolint:errchkjson // numbers and ids always marshal
	sum := sha256.Sum256(b)
	return sum[:]
}

// freeze reads the ids of a selection, and refuses one that is too large.
func (c *Compensations) freeze(ctx context.Context, a *Action, sel Selection) (f frozen, err error) {
	most := MostSelected
	if a.Limits.PerBatch > 0 {
		most = a.Limits.PerBatch
	}
	more := false
	switch {
	case len(sel.Breaks) > 0 && len(sel.Letters) == 0 && sel.BreakFilter == nil && sel.Letter == nil:
		f.breaks = slices.Compact(slices.Sorted(slices.Values(sel.Breaks)))
	case len(sel.Letters) > 0 && len(sel.Breaks) == 0 && sel.BreakFilter == nil && sel.Letter == nil:
		f.letters = unique(sel.Letters)
	case sel.BreakFilter != nil && len(sel.Breaks)+len(sel.Letters) == 0 && sel.Letter == nil:
		f.breaks, more, err = c.breaksOf(ctx, *sel.BreakFilter, most)
	case sel.Letter != nil && len(sel.Breaks)+len(sel.Letters) == 0 && c.Letters != nil:
		filter := *sel.Letter
		filter.State = dlq.Open
		f.letters, more, err = c.Letters.IDs(ctx, filter, most)
	default:
		return f, ErrSelection
	}
	switch {
	case err != nil:
		return f, err
	case more || f.size() > most:
		return f, fmt.Errorf("%w: more than %d at once, which is limits.per_batch or the most that a selection may have: narrow it", ErrLimit, most)
	case f.size() == 0:
		return f, fmt.Errorf("%w: it matches nothing", ErrSelection)
	}
	return f, nil
}

func unique(ids []uuid.UUID) []uuid.UUID {
	sorted := slices.SortedFunc(slices.Values(ids), func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) })
	return slices.Compact(sorted)
}

// breaksOf lists what a filter matches, the oldest first.
func (c *Compensations) breaksOf(ctx context.Context, f reconcile.BreakFilter, most int) (ids []int64, more bool, err error) {
	if len(f.States) == 0 {
		f.States = []reconcile.BreakState{reconcile.Open, reconcile.Assigned, reconcile.Reopened}
	}
	f.Limit, f.Before, more = 500, 0, true
	for more && len(ids) <= most {
		var page []reconcile.Break
		if page, more, err = c.Breaks.List(ctx, f, c.Clock()); err != nil {
			return nil, false, err
		}
		for _, b := range page {
			ids = append(ids, b.ID)
			f.Before = b.ID
		}
	}
	slices.Sort(ids)
	return ids, more || len(ids) > most, nil
}

func (c *Compensations) addBulk(ctx context.Context, actor access.Actor, def Definition, sel Selection, set frozen, key string) (id int64, err error) {
	args := pgx.NamedArgs{
		"action": def.Action, "version": def.Version, "selection": sel, "key": key, "by": actor.User, "role": string(actor.Role), "via": actor.Via,
		"from": actor.From, "reason": actor.Reason, "total": set.size(), "digest": set.digest(), "breaks": padded(set.breaks, set.size()), "letters": padded(set.letters, set.size()),
	}
	err = pgx.BeginFunc(ctx, c.Pool, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, sqlAddBulk, args).Scan(&id)
		if errors.Is(err, pgx.ErrNoRows) {
			return tx.QueryRow(ctx, sqlBulkOfKey, args).Scan(&id)
		}
		if err != nil {
			return fmt.Errorf("add selection for %s: %w", def.Action, err)
		}
		args["id"] = id
		if _, err := tx.Exec(ctx, sqlAddBulkItem, args); err != nil {
			return fmt.Errorf("freeze selection %d: %w", id, err)
		}
		if err := c.enqueueBulk(ctx, tx, bulkArgs{Bulk: id}); err != nil {
			return err
		}
		detail := map[string]any{"action": def.Action, "version": def.Version, "count": set.size(), "digest": fmt.Sprintf("%x", set.digest())}
		return audit.Write(ctx, tx, actor, audit.Entry{Action: "compensations.proposed", Target: fmt.Sprintf("compensations/%d", id), Detail: detail})
	})
	return id, err
}

// padded makes an array of nulls where a set has none of that kind.
func padded[T any](ids []T, size int) []*T {
	all := make([]*T, size)
	for i := range ids {
		all[i] = &ids[i]
	}
	return all
}
