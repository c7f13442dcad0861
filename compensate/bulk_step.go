package compensate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"oncemore/dlq"
	"oncemore/internal/access"
	"oncemore/reconcile"
)

// bulkChunk is how many are proposed in one transaction.
const bulkChunk = 50

// bulkArgs is one step of a proposal for a selection. A step of an older epoch
// changes nothing.
type bulkArgs struct {
	Bulk  int64 `json:"bulk"`
	Epoch int   `json:"epoch"`
}

// Kind is River's name of the job.
func (bulkArgs) Kind() string { return "compensation_bulk" }

// InsertOpts lets a step be tried until the console's database is back.
func (bulkArgs) InsertOpts() river.InsertOpts {
	return river.InsertOpts{Queue: Queue, MaxAttempts: 1000}
}

func (c *Compensations) enqueueBulk(ctx context.Context, tx pgx.Tx, args bulkArgs) error {
	if _, err := c.river.InsertTx(ctx, tx, args, nil); err != nil {
		return fmt.Errorf("insert step of selection %d: %w", args.Bulk, err)
	}
	return nil
}

type bulkWorker struct {
	river.WorkerDefaults[bulkArgs]
	compensations *Compensations
}

// Timeout leaves a step time for its last chunk.
func (w *bulkWorker) Timeout(*river.Job[bulkArgs]) time.Duration {
	return w.compensations.StepTime + 10*time.Second
}

// NextRetry is soon: a chunk is whole or did not happen.
func (w *bulkWorker) NextRetry(job *river.Job[bulkArgs]) time.Time {
	return w.compensations.Clock().Add(min(time.Duration(job.Attempt)*2*time.Second, 30*time.Second))
}

// Work proposes chunk after chunk until the set is through or the step's time is
// over.
func (w *bulkWorker) Work(ctx context.Context, job *river.Job[bulkArgs]) error {
	c := w.compensations
	for args, end := job.Args, time.Now().Add(c.StepTime); ; args.Epoch++ {
		more, err := c.bulkChunk(ctx, args)
		switch {
		case errors.Is(err, errFenced):
			return nil
		case err != nil:
			return fmt.Errorf("step of selection %d: %w", args.Bulk, err)
		case !more:
			return nil
		case time.Now().After(end) || ctx.Err() != nil:
			args.Epoch++
			return pgx.BeginFunc(context.WithoutCancel(ctx), c.Pool, func(tx pgx.Tx) error { return c.enqueueBulk(ctx, tx, args) })
		}
	}
}

const (
	sqlBulkAt = `
SELECT action, version, asked_by, role, via, from_addr, reason, proposed + passed_over FROM compensation_bulk
WHERE id = @id AND epoch = @epoch AND state = 1`
	sqlBulkNext = `
UPDATE compensation_bulk SET epoch = epoch + 1, proposed = proposed + @proposed, passed_over = passed_over + @passed_over,
  state = CASE WHEN @more THEN 1 ELSE 2 END, finished_at = CASE WHEN @more THEN NULL ELSE @now::timestamptz END
WHERE id = @id AND epoch = @epoch AND state = 1`
	sqlBulkItemIs = `UPDATE compensation_bulk_item SET compensation_id = @compensation, why = @why WHERE bulk_id = @id AND no = @no`
)

// bulkAt is where a proposal stands, and for whom it is made.
type bulkAt struct {
	action  string
	version int
	actor   access.Actor
	done    int
}

// bulkChunk proposes the next of a frozen set. The effects are rendered before
// the transaction; its epoch fences a doubled step.
func (c *Compensations) bulkChunk(ctx context.Context, args bulkArgs) (more bool, err error) {
	at, err := c.bulkAt(ctx, args)
	if err != nil {
		return false, err
	}
	items, err := c.BulkItems(ctx, args.Bulk, false, at.done, bulkChunk)
	if err != nil {
		return false, err
	}
	plans, err := c.bulkPlans(ctx, at, items)
	if err != nil {
		return false, err
	}
	more = len(items) == bulkChunk
	return more, pgx.BeginFunc(ctx, c.Pool, func(tx pgx.Tx) error { return c.addChunk(ctx, tx, args, at.actor, plans, more) })
}

func (c *Compensations) bulkAt(ctx context.Context, args bulkArgs) (at bulkAt, err error) {
	err = c.Pool.QueryRow(ctx, sqlBulkAt, pgx.NamedArgs{"id": args.Bulk, "epoch": args.Epoch}).
		Scan(&at.action, &at.version, &at.actor.User, &at.actor.Role, &at.actor.Via, &at.actor.From, &at.actor.Reason, &at.done)
	if errors.Is(err, pgx.ErrNoRows) {
		return at, errFenced
	}
	if err != nil {
		return at, fmt.Errorf("read selection %d: %w", args.Bulk, err)
	}
	return at, nil
}

// bulkPlan is what is proposed for one of a set, or why nothing is.
type bulkPlan struct {
	no   int
	plan plan
	why  error
}

func (c *Compensations) bulkPlans(ctx context.Context, at bulkAt, items []BulkItem) ([]bulkPlan, error) {
	def, err := c.Actions.Version(ctx, at.action, at.version)
	if err != nil {
		return nil, err
	}
	a, err := c.defined(ctx, def)
	if err != nil {
		return nil, err
	}
	keys, all := map[string][]string{}, make([]bulkPlan, len(items))
	for i, item := range items {
		p, err := c.bulkPlan(ctx, def, a, item, keys)
		if err != nil && !passesOver(err) {
			return nil, err
		}
		all[i] = bulkPlan{item.No, p, err}
	}
	return all, nil
}

func (c *Compensations) bulkPlan(ctx context.Context, def Definition, a *Action, item BulkItem, keys map[string][]string) (p plan, err error) {
	if item.LetterID != nil {
		s, err := c.letter(ctx, def, a, *item.LetterID)
		if err != nil {
			return p, err
		}
		return c.planFor(def, a, s)
	}
	b, err := c.Breaks.Get(ctx, *item.BreakID)
	if err != nil {
		return p, err
	}
	return c.planBreak(ctx, def, a, b, keys)
}

// passesOver reports whether an error is about one of the set.
func passesOver(err error) bool {
	for _, known := range []error{ErrNotFor, ErrTwice, ErrInput, ErrLimit, errBase, reconcile.ErrNoBreak, dlq.ErrNotFound} {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}

func (c *Compensations) addChunk(ctx context.Context, tx pgx.Tx, args bulkArgs, actor access.Actor, plans []bulkPlan, more bool) error {
	passed := 0
	for _, p := range plans {
		var id *int64
		why := p.why
		if why == nil {
			id, why = c.addOne(ctx, tx, actor, p.plan, args.Bulk)
		}
		if why != nil && !passesOver(why) {
			return why
		}
		var text *string
		if why != nil {
			passed++
			sentence := why.Error()
			text = &sentence
		}
		if _, err := tx.Exec(ctx, sqlBulkItemIs, pgx.NamedArgs{"id": args.Bulk, "no": p.no, "compensation": id, "why": text}); err != nil {
			return fmt.Errorf("item %d of selection %d: %w", p.no, args.Bulk, err)
		}
	}
	tag, err := tx.Exec(ctx, sqlBulkNext, pgx.NamedArgs{
		"id": args.Bulk, "epoch": args.Epoch, "proposed": len(plans) - passed, "passed_over": passed, "more": more, "now": c.Clock(),
	})
	if err == nil && tag.RowsAffected() == 0 {
		err = errFenced
	}
	return err
}

// addOne proposes one in a savepoint, so that one that is there already does not
// end the others.
func (c *Compensations) addOne(ctx context.Context, tx pgx.Tx, actor access.Actor, p plan, bulk int64) (*int64, error) {
	var id int64
	err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) (err error) {
		id, err = c.add(ctx, tx, actor, p, origin{bulk: bulk})
		return err
	})
	if err != nil {
		return nil, err
	}
	return &id, nil
}

// ProposeLetters asks for one repair of each letter by an action, all of them or
// none. Errors are those of Propose, and dlq.ErrNotFound.
func (c *Compensations) ProposeLetters(ctx context.Context, actor access.Actor, action string, letters []uuid.UUID) ([]int64, error) {
	def, a, err := c.mayPropose(ctx, actor, action, len(letters))
	if err != nil {
		return nil, err
	}
	var plans []plan
	for _, id := range unique(letters) {
		s, err := c.letter(ctx, def, a, id)
		if err != nil {
			return nil, err
		}
		p, err := c.planFor(def, a, s)
		if err != nil {
			return nil, err
		}
		plans = append(plans, p)
	}
	return c.addAll(ctx, actor, action, plans)
}
