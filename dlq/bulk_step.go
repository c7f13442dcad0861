package dlq

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"oncemore/internal/access"
	"oncemore/internal/audit"
)

// bulkArgs is one step of a command. A step of an older epoch changes nothing.
type bulkArgs struct {
	Bulk  int64 `json:"bulk"`
	Epoch int   `json:"epoch"`
}

// Kind is River's name of the job.
func (bulkArgs) Kind() string { return "letters_step" }

// InsertOpts lets a step be tried until the database is back.
func (bulkArgs) InsertOpts() river.InsertOpts {
	return river.InsertOpts{Queue: BulkQueue, MaxAttempts: 1000}
}

func (b *Bulks) insertStep(ctx context.Context, tx pgx.Tx, args bulkArgs) error {
	if _, err := b.jobs.InsertTx(ctx, tx, args, nil); err != nil {
		return fmt.Errorf("insert step of command %d: %w", args.Bulk, err)
	}
	return nil
}

type bulkWorker struct {
	river.WorkerDefaults[bulkArgs]
	bulks *Bulks
}

// Timeout leaves a step time for its last chunk.
func (w *bulkWorker) Timeout(*river.Job[bulkArgs]) time.Duration {
	return w.bulks.opts.StepTime + time.Minute
}

// NextRetry is soon: a chunk is whole or did not happen.
func (w *bulkWorker) NextRetry(job *river.Job[bulkArgs]) time.Time {
	return time.Now().Add(min(time.Duration(job.Attempt)*2*time.Second, 30*time.Second))
}

// Work does chunks until the command is done or the step's time is over.
func (w *bulkWorker) Work(ctx context.Context, job *river.Job[bulkArgs]) error {
	b := w.bulks
	for end := time.Now().Add(b.opts.StepTime); ; {
		state, err := b.chunk(ctx, job.Args)
		switch {
		case errors.Is(err, errFenced):
			return nil
		case err != nil:
			return fmt.Errorf("step of command %d: %w", job.Args.Bulk, err)
		case state == BulkDone:
			return nil
		}
		if time.Now().After(end) || ctx.Err() != nil {
			return b.handOn(context.WithoutCancel(ctx), job.Args)
		}
	}
}

const sqlNextEpoch = `UPDATE letter_bulk SET epoch = epoch + 1 WHERE id = @id AND epoch = @epoch`

// handOn asks for the next step and fences this one off.
func (b *Bulks) handOn(ctx context.Context, args bulkArgs) error {
	err := pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, sqlNextEpoch, pgx.NamedArgs{"id": args.Bulk, "epoch": args.Epoch})
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		return b.insertStep(ctx, tx, bulkArgs{Bulk: args.Bulk, Epoch: args.Epoch + 1})
	})
	if err != nil {
		return fmt.Errorf("hand command %d on: %w", args.Bulk, err)
	}
	return nil
}

// chunk freezes or changes the next letters.
func (b *Bulks) chunk(ctx context.Context, args bulkArgs) (BulkState, error) {
	seen, order, err := b.peek(ctx, args)
	if err != nil || seen.state == BulkDone {
		return BulkDone, err
	}
	var ids []uuid.UUID
	var whole bool
	if seen.state == BulkFreezing { // read without a lock: a filter may take its time
		if ids, whole, err = b.nextPart(ctx, seen, order); err != nil {
			return 0, err
		}
	}
	err = pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		w, actor, err := b.lock(ctx, tx, args)
		if err != nil {
			return err
		}
		if w.state != seen.state || w.at != seen.at {
			return errFenced // a doubled job was faster
		}
		if w.state == BulkFreezing {
			if err := w.freeze(ctx, tx, ids, whole); err != nil || !whole {
				return err
			}
			seen.state = w.state
			return b.tellFrozen(ctx, tx, actor, w)
		}
		err = w.apply(ctx, tx, b.opts.Chunk)
		seen.state = w.state
		return err
	})
	return seen.state, err
}

// tellFrozen completes the trace of a command whose set was not known when it came.
func (b *Bulks) tellFrozen(ctx context.Context, tx pgx.Tx, actor access.Actor, w *bulkWork) error {
	return audit.Write(ctx, tx, actor, audit.Entry{Action: "letters." + w.kind.did(), Target: fmt.Sprintf("bulk/%d", w.id),
		Detail: map[string]any{"letters": w.total, "digest": hex.EncodeToString(w.digest)}})
}

const sqlBulkWork = `
SELECT id, kind, state, owner_id, undoes, upper_id, at_id, total, digest, filter, reason, created_by
FROM letter_bulk WHERE id = @id AND epoch = @epoch`

// peek reads where the command stands. Errors: errFenced.
func (b *Bulks) peek(ctx context.Context, args bulkArgs) (bulkWork, bulkOrder, error) {
	w, order, _, err := readWork(ctx, b.pool, sqlBulkWork, args)
	return w, order, err
}

func (b *Bulks) lock(ctx context.Context, tx pgx.Tx, args bulkArgs) (*bulkWork, access.Actor, error) {
	w, _, actor, err := readWork(ctx, tx, sqlBulkWork+" FOR NO KEY UPDATE", args)
	return &w, actor, err
}

func readWork(ctx context.Context, db querier, sql string, args bulkArgs) (w bulkWork, order bulkOrder, actor access.Actor, err error) {
	var asked []byte
	err = db.QueryRow(ctx, sql, pgx.NamedArgs{"id": args.Bulk, "epoch": args.Epoch}).Scan(
		&w.id, &w.kind, &w.state, &w.owner, &w.undoes, &w.upper, &w.at, &w.total, &w.digest, &asked, &actor.Reason, &actor.User)
	if errors.Is(err, pgx.ErrNoRows) {
		return w, order, actor, errFenced
	}
	if err != nil {
		return w, order, actor, fmt.Errorf("read command %d: %w", args.Bulk, err)
	}
	var a bulkAsked
	if err := json.Unmarshal(asked, &a); err != nil {
		return w, order, actor, fmt.Errorf("read selection of command %d: %w", args.Bulk, err)
	}
	order = bulkOrder{kind: w.kind, undoes: w.undoes}
	order.Selection = Selection{LetterIDs: a.LetterIDs, FaultID: a.FaultID, Filter: a.Filter}
	order.state = map[BulkKind]State{BulkDiscard: Open, BulkRestore: Discarded}[w.kind]
	actor.Via = "system"
	return w, order, actor, nil
}

func (b *Bulks) nextPart(ctx context.Context, w bulkWork, order bulkOrder) ([]uuid.UUID, bool, error) {
	if w.undoes != nil {
		ids, err := bulkItems(ctx, b.pool, *w.undoes, w.at, b.opts.Chunk)
		return ids, len(ids) < b.opts.Chunk, err
	}
	return b.part(ctx, order.filter(), w.at, w.upper)
}

const sqlBulkItems = `
SELECT letter_id FROM letter_bulk_item WHERE bulk_id = @bulk AND letter_id > @after ORDER BY letter_id LIMIT @n`

func bulkItems(ctx context.Context, db querier, bulk int64, after uuid.UUID, n int) ([]uuid.UUID, error) {
	rows, err := db.Query(ctx, sqlBulkItems, pgx.NamedArgs{"bulk": bulk, "after": after, "n": n})
	if err != nil {
		return nil, fmt.Errorf("query letters of command %d: %w", bulk, err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return nil, fmt.Errorf("read letters of command %d: %w", bulk, err)
	}
	return ids, nil
}

// bulkWork is a command whose row this transaction holds.
type bulkWork struct {
	id     int64
	kind   BulkKind
	state  BulkState
	owner  *int32
	undoes *int64
	upper  uuid.UUID
	at     uuid.UUID
	total  int64
	digest []byte
}

const (
	sqlFreezeLetters = `
INSERT INTO letter_bulk_item (bulk_id, letter_id) SELECT @bulk, id FROM unnest(@ids::uuid[]) u(id) ON CONFLICT DO NOTHING`
	sqlFrozen = `
UPDATE letter_bulk SET state = @state::smallint, at_id = @at, total = @total, digest = @digest,
  finished_at = CASE WHEN @state::smallint = 3 THEN now() END
WHERE id = @bulk`
)

// freeze adds letters to the set; whole ends it.
func (w *bulkWork) freeze(ctx context.Context, tx pgx.Tx, ids []uuid.UUID, whole bool) error {
	if _, err := tx.Exec(ctx, sqlFreezeLetters, pgx.NamedArgs{"bulk": w.id, "ids": ids}); err != nil {
		return fmt.Errorf("freeze letters: %w", err)
	}
	h := sha256.New()
	h.Write(w.digest)
	for _, id := range ids {
		h.Write(id[:])
	}
	w.digest, w.total = h.Sum(nil), w.total+int64(len(ids))
	if len(ids) > 0 {
		w.at = ids[len(ids)-1]
	}
	w.state = BulkFreezing
	if whole {
		w.state, w.at = BulkRunning, uuid.Nil
	}
	if whole && w.total == 0 {
		w.state = BulkDone
	}
	_, err := tx.Exec(ctx, sqlFrozen, pgx.NamedArgs{"bulk": w.id, "state": w.state, "at": w.at, "total": w.total, "digest": w.digest})
	if err != nil {
		return fmt.Errorf("keep the set of command %d: %w", w.id, err)
	}
	return nil
}

// The changes lock their letters in id order; what moved a letter's state moves
// the counters of its fault in the same transaction. ids are a part of the set.
// was is read under the lock, so that the counters move by what is true then.
const (
	sqlPickLetters = `
WITH pick AS MATERIALIZED (
  SELECT d.id, d.verdict AS was FROM dead_letter d WHERE d.id = ANY(@ids) AND d.id >= @from AND d.id <= @to AND %s
  ORDER BY d.id FOR NO KEY UPDATE)`
	sqlDiscard = `,
upd AS (
  UPDATE dead_letter d SET state = 4, state_at = now(), bulk_id = @bulk
  FROM pick WHERE d.id = pick.id RETURNING d.fault_id, d.verdict),
moved AS (
  INSERT INTO fault_delta (fault_id, state, verdict, n)
  SELECT u.fault_id, s.state, u.verdict, s.sign * count(*)
  FROM upd u CROSS JOIN (VALUES (1::smallint, -1), (4::smallint, 1)) s(state, sign)
  GROUP BY u.fault_id, s.state, u.verdict, s.sign)
SELECT count(*) FROM upd`
	// What is opened again is judged anew: what was true of it may not be now.
	sqlRestore = `,
upd AS (
  UPDATE dead_letter d SET state = 1, state_at = now(), bulk_id = @bulk, verdict = 0, verdict_at = NULL
  FROM pick WHERE d.id = pick.id RETURNING d.fault_id, pick.was AS verdict),
moved AS (
  INSERT INTO fault_delta (fault_id, state, verdict, n)
  SELECT u.fault_id, s.state, CASE s.state WHEN 4 THEN u.verdict ELSE 0 END, s.sign * count(*)
  FROM upd u CROSS JOIN (VALUES (4::smallint, -1), (1::smallint, 1)) s(state, sign)
  GROUP BY u.fault_id, s.state, u.verdict, s.sign)
SELECT count(*) FROM upd`
	sqlAssign = `,
upd AS (UPDATE dead_letter d SET owner_id = @owner FROM pick WHERE d.id = pick.id RETURNING d.id)
SELECT count(*) FROM upd`
	sqlBulkMoved = `
UPDATE letter_bulk SET at_id = @at, changed = changed + @changed, passed_over = passed_over + @passed, state = @state::smallint,
  finished_at = CASE WHEN @state::smallint = 3 THEN now() END
WHERE id = @bulk`
)

// apply changes the next letters of the frozen set.
func (w *bulkWork) apply(ctx context.Context, tx pgx.Tx, n int) error {
	ids, err := bulkItems(ctx, tx, w.id, w.at, n)
	if err != nil {
		return err
	}
	changed := int64(0)
	if len(ids) > 0 {
		if changed, err = w.change(ctx, tx, ids); err != nil {
			return fmt.Errorf("%s %d letters: %w", w.kind, len(ids), err)
		}
		w.at = ids[len(ids)-1]
	}
	if len(ids) < n {
		w.state = BulkDone
	}
	_, err = tx.Exec(ctx, sqlBulkMoved, pgx.NamedArgs{"bulk": w.id, "at": w.at, "changed": changed, "passed": int64(len(ids)) - changed, "state": w.state})
	if err != nil {
		return fmt.Errorf("keep the place of command %d: %w", w.id, err)
	}
	return nil
}

func (w *bulkWork) change(ctx context.Context, tx pgx.Tx, ids []uuid.UUID) (changed int64, err error) {
	args := pgx.NamedArgs{"bulk": w.id, "ids": ids, "from": ids[0], "to": ids[len(ids)-1], "owner": w.owner, "undoes": w.undoes}
	var which, change string
	switch {
	case w.kind == BulkDiscard:
		which, change = "d.state = 1", sqlDiscard
	case w.kind == BulkRestore && w.undoes != nil:
		which, change = "d.state = 4 AND d.bulk_id = @undoes", sqlRestore
	case w.kind == BulkRestore:
		which, change = "d.state = 4", sqlRestore
	default:
		which, change = "d.owner_id IS DISTINCT FROM @owner::int", sqlAssign
	}
	err = tx.QueryRow(ctx, fmt.Sprintf(sqlPickLetters, which)+change, args).Scan(&changed)
	return changed, err
}
