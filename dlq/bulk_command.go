package dlq

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"oncemore/internal/access"
	"oncemore/internal/audit"
)

// BulkRequest asks for a command on letters.
type BulkRequest struct {
	Selection  Selection
	Owner      string // of an assignment; "": nobody's
	RequestKey string // idempotency key of the form; "" none
}

// bulkOrder is a command as it is carried out.
type bulkOrder struct {
	BulkRequest
	kind   BulkKind
	undoes *int64
	state  State // that the letters have to be in; 0: any
}

// Discard closes the open letters of a selection: they stay readable, and come
// back when their failure does. Up to 2,000 letters are done at once, more go on
// step by step. Errors: access.ErrForbidden, access.ErrReasonRequired,
// ErrBadSelection, ErrKeyReused, *ErrBadFilter, ErrNotFound.
func (b *Bulks) Discard(ctx context.Context, actor access.Actor, req BulkRequest) (Bulk, error) {
	if err := actor.Check(access.DiscardLetters); err != nil {
		return Bulk{}, err
	}
	if strings.TrimSpace(actor.Reason) == "" {
		return Bulk{}, access.ErrReasonRequired
	}
	return b.start(ctx, actor, bulkOrder{BulkRequest: req, kind: BulkDiscard, state: Open})
}

// Restore opens discarded letters of a selection again. Errors as of Discard;
// no reason is asked.
func (b *Bulks) Restore(ctx context.Context, actor access.Actor, req BulkRequest) (Bulk, error) {
	if err := actor.Check(access.DiscardLetters); err != nil {
		return Bulk{}, err
	}
	return b.start(ctx, actor, bulkOrder{BulkRequest: req, kind: BulkRestore, state: Discarded})
}

// Undo opens again exactly what a discarding closed, without what was opened or
// discarded by somebody else since. Errors: access.ErrForbidden, ErrNotFound,
// ErrBulkRunning, ErrNotUndoable.
func (b *Bulks) Undo(ctx context.Context, actor access.Actor, id int64) (Bulk, error) {
	if err := actor.Check(access.DiscardLetters); err != nil {
		return Bulk{}, err
	}
	was, err := b.Get(ctx, id)
	switch {
	case err != nil:
		return Bulk{}, err
	case was.Kind != BulkDiscard:
		return Bulk{}, ErrNotUndoable
	case was.State != BulkDone:
		return Bulk{}, ErrBulkRunning
	}
	order := bulkOrder{kind: BulkRestore, state: Discarded, undoes: &id}
	if was.FaultID != nil {
		order.Selection.FaultID = *was.FaultID
	}
	return b.start(ctx, actor, order)
}

// Assign makes letters somebody's, or nobody's. Whether such an account exists
// is the caller's to know. Errors as of Discard; no reason is asked.
func (b *Bulks) Assign(ctx context.Context, actor access.Actor, req BulkRequest) (Bulk, error) {
	if err := actor.Check(access.TriageFaults); err != nil {
		return Bulk{}, err
	}
	if req.Owner == OwnerNone {
		req.Owner = ""
	}
	return b.start(ctx, actor, bulkOrder{BulkRequest: req, kind: BulkAssign})
}

func (b *Bulks) start(ctx context.Context, actor access.Actor, order bulkOrder) (Bulk, error) {
	if err := order.check(); err != nil {
		return Bulk{}, err
	}
	if id := order.Selection.FaultID; id != 0 && order.undoes == nil {
		if _, err := NewFaults(b.pool).Get(ctx, id); err != nil {
			return Bulk{}, err
		}
	}
	if order.RequestKey != "" {
		done, err := b.repeated(ctx, actor, order)
		if !errors.Is(err, ErrNotFound) {
			return done, err
		}
	}
	id, err := b.insert(ctx, actor, order)
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.ConstraintName == "letter_bulk_request_key_key" { // the same form, sent twice at once
		return b.repeated(ctx, actor, order)
	}
	if err != nil {
		return Bulk{}, fmt.Errorf("%s letters: %w", order.kind, err)
	}
	return b.Get(ctx, id)
}

func (o bulkOrder) check() error {
	s, ways := o.Selection, 0
	for _, set := range []bool{len(s.LetterIDs) > 0, s.Filter != nil, s.FaultID != 0} {
		if set {
			ways++
		}
	}
	if s.RedoOf != 0 || ways != 1 && o.undoes == nil {
		return ErrBadSelection
	}
	if len(s.LetterIDs) > bulkChunk {
		return &ErrTooManyLetters{Limit: bulkChunk}
	}
	return o.filter().check()
}

// filter finds the letters of a selection that is not by name.
func (o bulkOrder) filter() LetterFilter {
	f := LetterFilter{FaultID: o.Selection.FaultID}
	if o.Selection.Filter != nil {
		f = *o.Selection.Filter
	}
	if o.state != 0 {
		f.State = o.state
	}
	return f
}

// fault is the fault that the whole selection lies in, nil where that is not known.
func (o bulkOrder) fault() *int32 {
	id := o.Selection.FaultID
	if o.Selection.Filter != nil {
		id = o.Selection.Filter.FaultID
	}
	if id == 0 {
		return nil
	}
	return &id
}

const sqlBulkByKey = `SELECT id, kind, created_by, filter = @filter::jsonb FROM letter_bulk WHERE request_key = @key`

// repeated gives the command that the same request made before. Errors: ErrNotFound, ErrKeyReused.
func (b *Bulks) repeated(ctx context.Context, actor access.Actor, order bulkOrder) (Bulk, error) {
	var id int64
	var kind BulkKind
	var by string
	var same bool
	err := b.pool.QueryRow(ctx, sqlBulkByKey, pgx.NamedArgs{"key": order.key(actor), "filter": order.asked()}).Scan(&id, &kind, &by, &same)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return Bulk{}, ErrNotFound
	case err != nil:
		return Bulk{}, fmt.Errorf("look up request: %w", err)
	case kind != order.kind || !same:
		return Bulk{}, ErrKeyReused
	}
	return b.Get(ctx, id)
}

func (o bulkOrder) key(actor access.Actor) *string {
	if o.RequestKey == "" {
		return nil
	}
	key := actor.User + "/" + o.RequestKey
	return &key
}

// bulkAsked is a selection as it is kept for the reader.
type bulkAsked struct {
	LetterIDs []uuid.UUID   `json:"letter_ids,omitempty"`
	FaultID   int32         `json:"fault_id,omitempty"`
	Filter    *LetterFilter `json:"filter,omitempty"`
	Undoes    *int64        `json:"undoes,omitempty"`
}

func (o bulkOrder) asked() []byte {
	a := bulkAsked{LetterIDs: o.Selection.LetterIDs, FaultID: o.Selection.FaultID, Filter: o.Selection.Filter, Undoes: o.undoes}
	b, err := json.Marshal(a)
	if err != nil {
		panic(fmt.Sprintf("dlq: selection: %v", err)) // plain structs only
	}
	return b
}

const sqlNewBulk = `
INSERT INTO letter_bulk (kind, filter, fault_id, owner_id, undoes, upper_id, reason, created_by, request_key)
VALUES (@kind, @filter, @fault, @owner, @undoes, @upper, @reason, @by, @key) RETURNING id`

// nextID is above all letters that have arrived by the database's clock.
func (b *Bulks) nextID(ctx context.Context) (uuid.UUID, error) {
	var now time.Time
	if err := b.pool.QueryRow(ctx, "SELECT now()").Scan(&now); err != nil {
		return uuid.Nil, fmt.Errorf("read the database's clock: %w", err)
	}
	return idAt(now.UnixMilli() + 1), nil
}

// insert writes the command and does its first part: all of it where it is small.
func (b *Bulks) insert(ctx context.Context, actor access.Actor, order bulkOrder) (id int64, err error) {
	owner, err := ownerID(ctx, b.pool, order.Owner)
	if err != nil {
		return 0, err
	}
	upper, err := b.nextID(ctx)
	if err != nil {
		return 0, err
	}
	ids, whole, err := b.firstPart(ctx, order, upper)
	if err != nil {
		return 0, err
	}
	err = pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		w := bulkWork{kind: order.kind, undoes: order.undoes, owner: owner, upper: upper}
		args := pgx.NamedArgs{"kind": order.kind, "filter": order.asked(), "fault": order.fault(), "owner": owner, "undoes": order.undoes, "upper": upper,
			"reason": storableText(actor.Reason), "by": actor.User, "key": order.key(actor)}
		if err := tx.QueryRow(ctx, sqlNewBulk, args).Scan(&w.id); err != nil {
			return fmt.Errorf("insert command: %w", err)
		}
		id = w.id
		if err := w.freeze(ctx, tx, ids, whole); err != nil {
			return err
		}
		entry := audit.Entry{Action: "letters." + order.kind.did(), Target: fmt.Sprintf("bulk/%d", id), Detail: map[string]any{
			"selection": json.RawMessage(order.asked()), "letters": w.total, "digest": hex.EncodeToString(w.digest), "owner": order.Owner}}
		if !whole {
			entry.Action = "letters." + order.kind.String() + "_asked"
			delete(entry.Detail.(map[string]any), "digest")
			delete(entry.Detail.(map[string]any), "letters")
		}
		if err := audit.Write(ctx, tx, actor, entry); err != nil {
			return err
		}
		if !whole {
			return b.insertStep(ctx, tx, bulkArgs{Bulk: id})
		}
		for w.state != BulkDone {
			if err := w.apply(ctx, tx, b.opts.Chunk); err != nil {
				return err
			}
		}
		return nil
	})
	return id, err
}

// did is the kind as the audit log tells it.
func (k BulkKind) did() string {
	return map[BulkKind]string{BulkDiscard: "discarded", BulkRestore: "restored", BulkAssign: "assigned"}[k]
}

// firstPart gives the first letters of the set in id order, and whether these are all.
func (b *Bulks) firstPart(ctx context.Context, order bulkOrder, upper uuid.UUID) (ids []uuid.UUID, whole bool, err error) {
	switch {
	case order.undoes != nil:
		ids, err = bulkItems(ctx, b.pool, *order.undoes, uuid.Nil, b.opts.Chunk)
		return ids, len(ids) < b.opts.Chunk, err
	case len(order.Selection.LetterIDs) > 0:
		ids, err = b.named(ctx, order.Selection.LetterIDs)
		return ids, true, err
	}
	return b.part(ctx, order.filter(), uuid.Nil, upper)
}

// part gives the next letters of a filter.
func (b *Bulks) part(ctx context.Context, f LetterFilter, after, upper uuid.UUID) (ids []uuid.UUID, whole bool, err error) {
	whole = true
	err = b.letters.eachMatch(ctx, f, after, upper, b.opts.Chunk, func(more []uuid.UUID) (bool, error) {
		left := b.opts.Chunk - len(ids)
		ids = append(ids, more[:min(left, len(more))]...)
		whole = len(more) <= left && len(ids) < b.opts.Chunk
		return whole, nil
	})
	return ids, whole, err
}

const sqlLettersThere = `SELECT id FROM dead_letter WHERE id = ANY(@ids) ORDER BY id`

// named checks letters that were named one by one. Errors: *ErrLettersNotFound.
func (b *Bulks) named(ctx context.Context, ids []uuid.UUID) ([]uuid.UUID, error) {
	rows, err := b.pool.Query(ctx, sqlLettersThere, pgx.NamedArgs{"ids": ids})
	if err != nil {
		return nil, fmt.Errorf("query letters: %w", err)
	}
	there, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return nil, fmt.Errorf("read letters: %w", err)
	}
	missing := slices.DeleteFunc(slices.Clone(ids), func(id uuid.UUID) bool { return slices.Contains(there, id) })
	if len(missing) > 0 {
		return nil, &ErrLettersNotFound{IDs: missing}
	}
	return there, nil
}

const sqlOwnerID = `
WITH made AS (INSERT INTO letter_name (kind, name) VALUES (4, @name) ON CONFLICT (kind, name) DO NOTHING RETURNING id)
SELECT id FROM made UNION ALL SELECT id FROM letter_name WHERE kind = 4 AND name = @name LIMIT 1`

// ownerID is nil for nobody.
func ownerID(ctx context.Context, db querier, name string) (*int32, error) {
	if name == "" {
		return nil, nil
	}
	var id int32
	for range 2 { // somebody else may have made it between snapshot and insert
		err := db.QueryRow(ctx, sqlOwnerID, pgx.NamedArgs{"name": name}).Scan(&id)
		if err == nil {
			return &id, nil
		}
		if !errors.Is(err, pgx.ErrNoRows) {
			return nil, fmt.Errorf("look up owner %s: %w", name, err)
		}
	}
	return nil, fmt.Errorf("look up owner %s: %w", name, ErrNotFound)
}
