package compensate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"oncemore/internal/access"
	"oncemore/internal/audit"
	"oncemore/internal/schedule"
	"oncemore/reconcile"
)

// The kinds of entries in the schedule.
const (
	scheduleAutomatic = "compensate"
	scheduleSweep     = "compensate_sweep"
)

// sweepEvery is how often what is too old is put aside.
const sweepEvery = time.Minute

// Schedule tells the scheduler what entries of ours do.
func (c *Compensations) Schedule(s *schedule.Scheduler) {
	s.Handle(scheduleAutomatic, c.automaticDue)
	s.Handle(scheduleSweep, c.sweepDue)
}

// Plan puts every action that runs by itself into the schedule, and takes out
// the others.
func (c *Compensations) Plan(ctx context.Context, actions []*Action) error {
	return pgx.BeginFunc(ctx, c.Pool, func(tx pgx.Tx) error {
		for _, a := range actions {
			if err := c.planAction(ctx, tx, a); err != nil {
				return err
			}
		}
		return schedule.Put(ctx, tx, scheduleSweep, "", c.Clock())
	})
}

func (c *Compensations) planAction(ctx context.Context, tx pgx.Tx, a *Action) error {
	if a.Automatic == nil {
		return schedule.Drop(ctx, tx, scheduleAutomatic, a.Name)
	}
	due, err := schedule.NextCron(a.Automatic.Schedule, a.Zone, c.Clock())
	if err != nil {
		return fmt.Errorf("action %s: %w", a.Name, err)
	}
	return schedule.Put(ctx, tx, scheduleAutomatic, a.Name, due)
}

// automaticArgs is one turn of an action that runs by itself.
type automaticArgs struct {
	Action string    `json:"action"`
	At     time.Time `json:"at"`
}

// Kind is River's name of the job.
func (automaticArgs) Kind() string { return "compensation_automatic" }

// InsertOpts gives up after a few tries: the next turn comes anyway.
func (automaticArgs) InsertOpts() river.InsertOpts {
	return river.InsertOpts{Queue: Queue, MaxAttempts: 5}
}

// automaticDue asks for one turn, which reads business databases and therefore
// is a step of its own.
func (c *Compensations) automaticDue(ctx context.Context, tx pgx.Tx, name string, at time.Time) (time.Time, error) {
	_, a, err := c.current(ctx, name)
	if errors.Is(err, ErrNoAction) || err == nil && a.Automatic == nil {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, err
	}
	if _, err := c.river.InsertTx(ctx, tx, automaticArgs{name, at}, nil); err != nil {
		return time.Time{}, fmt.Errorf("insert turn of %s: %w", name, err)
	}
	return schedule.NextCron(a.Automatic.Schedule, a.Zone, c.Clock())
}

type automaticWorker struct {
	river.WorkerDefaults[automaticArgs]
	compensations *Compensations
}

// Work proposes what the action is trusted with.
func (w *automaticWorker) Work(ctx context.Context, job *river.Job[automaticArgs]) error {
	_, err := w.compensations.Automatic(ctx, job.Args.Action)
	return err
}

// scheduler is who proposes by itself.
func scheduler(name string) access.Actor {
	actor := access.System()
	actor.Via, actor.Reason = "schedule", "automatic by "+name
	return actor
}

// Automatic does one turn of an action by itself: it proposes and approves its
// breaks, oldest first, below its caps per repair, per run and per day. It does
// nothing while the kill switch is thrown, or the present version is not trusted.
// It returns what it proposed.
func (c *Compensations) Automatic(ctx context.Context, name string) (ids []int64, err error) {
	def, a, err := c.current(ctx, name)
	if err != nil {
		return nil, err
	}
	stop, err := c.Switch(ctx)
	if err != nil || stop.StoppedBy != nil || a.Automatic == nil || !def.Trusted() {
		return nil, err
	}
	plans, err := c.automaticPlans(ctx, def, a)
	if err != nil || len(plans) == 0 {
		return nil, err
	}
	err = pgx.BeginFunc(ctx, c.Pool, func(tx pgx.Tx) error {
		ids, err = c.addAutomatic(ctx, tx, a, plans)
		return err
	})
	return ids, err
}

// automaticPlans are the repairs that the action would make next.
func (c *Compensations) automaticPlans(ctx context.Context, def Definition, a *Action) (plans []plan, err error) {
	filter := reconcile.BreakFilter{
		States: []reconcile.BreakState{reconcile.Open, reconcile.Assigned, reconcile.Reopened}, OlderThan: a.Automatic.OlderThan,
	}
	breaks, _, err := c.breaksOf(ctx, filter, MostSelected)
	if err != nil {
		return nil, err
	}
	active, err := c.active(ctx, a.Name, breaks)
	if err != nil {
		return nil, err
	}
	keys := map[string][]string{}
	for _, id := range breaks {
		if active[id] != 0 || len(plans) == a.Automatic.PerRun {
			continue
		}
		b, err := c.Breaks.Get(ctx, id)
		if err != nil {
			return nil, err
		}
		if b.Amount.Abs().Cmp(a.Automatic.Below) >= 0 {
			continue
		}
		p, err := c.planBreak(ctx, def, a, b, keys)
		switch {
		case err == nil:
			plans = append(plans, p)
		case !passesOver(err):
			return nil, err
		}
	}
	return plans, nil
}

const (
	sqlLockAutomatic = `SELECT pg_advisory_xact_lock(hashtextextended('compensation_automatic ' || @action, 0))`
	sqlAutomaticDay  = `
SELECT currency, sum(abs(amount))::text FROM compensation
WHERE action = @action AND automatic AND asked_at >= @since AND state NOT IN (8, 9, 10, 11) GROUP BY 1`
)

// addAutomatic proposes as much as the day's cap allows, one replica at a time.
func (c *Compensations) addAutomatic(ctx context.Context, tx pgx.Tx, a *Action, plans []plan) (ids []int64, err error) {
	if stop, err := readSwitch(ctx, tx); err != nil || stop.StoppedBy != nil {
		return nil, err
	}
	spent, err := c.automaticSpent(ctx, tx, a)
	if err != nil {
		return nil, err
	}
	actor := scheduler(a.Name)
	for _, p := range plans {
		after := spent[p.currency].Add(p.amount.Abs())
		if after.Cmp(a.Automatic.AmountPerDay) > 0 {
			continue
		}
		id, err := c.addApproved(ctx, tx, actor, p)
		if errors.Is(err, ErrTwice) {
			continue // a person was faster
		}
		if err != nil {
			return nil, err
		}
		ids, spent[p.currency] = append(ids, id), after
	}
	if len(ids) == 0 {
		return nil, nil
	}
	detail := map[string]any{"action": a.Name, "count": len(ids), "ids": ids}
	return ids, audit.Write(ctx, tx, actor, audit.Entry{Action: "compensations.automatic", Target: "action/" + a.Name, Detail: detail})
}

// automaticSpent locks the action's caps and reads what they were used for on
// this day of its zone, by currency.
func (c *Compensations) automaticSpent(ctx context.Context, tx pgx.Tx, a *Action) (map[string]reconcile.Amount, error) {
	local := c.Clock().In(a.Zone)
	since := time.Date(local.Year(), local.Month(), local.Day(), 0, 0, 0, 0, a.Zone)
	args := pgx.NamedArgs{"action": a.Name, "since": since}
	if _, err := tx.Exec(ctx, sqlLockAutomatic, args); err != nil {
		return nil, err
	}
	rows, err := tx.Query(ctx, sqlAutomaticDay, args)
	if err != nil {
		return nil, fmt.Errorf("query what %s has done today: %w", a.Name, err)
	}
	spent := map[string]reconcile.Amount{}
	var currency string
	var amount reconcile.Amount
	_, err = pgx.ForEachRow(rows, []any{&currency, &amount}, func() error { spent[currency] = amount; return nil })
	return spent, err
}

// addApproved proposes one that needs no further approval, and lets it start.
func (c *Compensations) addApproved(ctx context.Context, tx pgx.Tx, actor access.Actor, p plan) (id int64, err error) {
	err = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
		if id, err = c.add(ctx, tx, actor, p, origin{automatic: true}); err != nil {
			return err
		}
		comp, err := get(ctx, tx, sqlGet, id)
		if err != nil {
			return err
		}
		return c.ready(ctx, tx, comp)
	})
	return id, err
}

const sqlTooOld = `SELECT` + columns + ` FROM compensation WHERE state = 1 AND approve_by <= @now ORDER BY id LIMIT 500 FOR UPDATE SKIP LOCKED`

// sqlLost finds what a step should have taken on: its process died and its job
// with it, or was given up.
const sqlLost = `
SELECT id FROM compensation WHERE state IN (2, 3, 4) AND paused_by IS NULL AND lease_until < @lost ORDER BY id LIMIT 100`

// sweepDue ends what nobody approved in time, and takes on what no step is at.
func (c *Compensations) sweepDue(ctx context.Context, tx pgx.Tx, _ string, _ time.Time) (time.Time, error) {
	rows, err := tx.Query(ctx, sqlTooOld, pgx.NamedArgs{"now": c.Clock()})
	if err != nil {
		return time.Time{}, fmt.Errorf("query what nobody approved: %w", err)
	}
	old, err := pgx.CollectRows(rows, pgx.RowToAddrOfStructByPos[Compensation])
	if err != nil {
		return time.Time{}, fmt.Errorf("read what nobody approved: %w", err)
	}
	for _, comp := range old {
		if err := c.end(ctx, tx, comp, Expired, "system", "nobody approved it in time"); err != nil {
			return time.Time{}, err
		}
	}
	rows, err = tx.Query(ctx, sqlLost, pgx.NamedArgs{"lost": time.Now().Add(-2 * c.Lease)})
	if err != nil {
		return time.Time{}, fmt.Errorf("query what no step is at: %w", err)
	}
	lost, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return time.Time{}, fmt.Errorf("read what no step is at: %w", err)
	}
	for _, id := range slices.Sorted(slices.Values(lost)) {
		if err := c.enqueue(ctx, tx, id, c.Clock()); err != nil {
			return time.Time{}, err
		}
	}
	return c.Clock().Add(sweepEvery), nil
}
