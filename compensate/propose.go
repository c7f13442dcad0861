package compensate

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"oncemore/internal/access"
	"oncemore/internal/audit"
	"oncemore/reconcile"
)

// Propose asks for one repair of each break by an action; the actor's reason is
// why. All of them are proposed or none. Errors: ErrNoAction, ErrNotFor,
// ErrTwice, ErrLimit, ErrInput, access.ErrReasonRequired.
func (c *Compensations) Propose(ctx context.Context, actor access.Actor, action string, breaks []int64) ([]int64, error) {
	if err := actor.Check(access.ProposeCompensation); err != nil {
		return nil, err
	}
	if actor.Reason == "" {
		return nil, access.ErrReasonRequired
	}
	def, a, err := c.current(ctx, action)
	if err != nil {
		return nil, err
	}
	breaks = slices.Compact(slices.Sorted(slices.Values(breaks)))
	if a.Limits.PerBatch > 0 && len(breaks) > a.Limits.PerBatch {
		return nil, fmt.Errorf("%w: %d at once, and limits.per_batch is %d", ErrLimit, len(breaks), a.Limits.PerBatch)
	}
	plans, err := c.plans(ctx, def, a, breaks)
	if err != nil {
		return nil, err
	}
	var ids []int64
	err = pgx.BeginFunc(ctx, c.Pool, func(tx pgx.Tx) error {
		for _, p := range plans {
			id, err := c.add(ctx, tx, actor, p, 0)
			if err != nil {
				return err
			}
			ids = append(ids, id)
		}
		return audit.Write(ctx, tx, actor, asked(action, ids, breaks))
	})
	if err != nil {
		return nil, err
	}
	return ids, nil
}

func asked(action string, ids, breaks []int64) audit.Entry {
	b, _ := json.Marshal(ids) //nolint:errchkjson // integers always marshal
	target := fmt.Sprintf("compensations/%x", sha256.Sum256(b))
	if len(ids) == 1 {
		target = fmt.Sprintf("compensation/%d", ids[0])
	}
	return audit.Entry{Action: "compensation.proposed", Target: target, Detail: map[string]any{"action": action, "count": len(ids), "ids": ids, "breaks": breaks}}
}

func (c *Compensations) current(ctx context.Context, action string) (Definition, *Action, error) {
	def, err := c.Actions.Current(ctx, action)
	if err != nil {
		return def, nil, err
	}
	a, err := def.Parse()
	return def, a, err
}

func (c *Compensations) plans(ctx context.Context, def Definition, a *Action, breaks []int64) ([]plan, error) {
	var plans []plan
	keys := map[string][]string{} // by job
	for _, id := range breaks {
		b, err := c.Breaks.Get(ctx, id)
		if err != nil {
			return nil, err
		}
		if err := a.fits(b); err != nil {
			return nil, err
		}
		if keys[b.Job] == nil {
			if keys[b.Job], err = c.keyOf(ctx, b.Job); err != nil {
				return nil, err
			}
		}
		p, err := c.plan(def, a, b, keys[b.Job])
		if err != nil {
			return nil, err
		}
		plans = append(plans, p)
	}
	return plans, nil
}

// fits reports whether the action may repair the break. Timing closes by itself.
func (a *Action) fits(b reconcile.Break) error {
	switch {
	case b.Type == reconcile.Timing, len(a.AppliesTo) > 0 && !slices.Contains(a.AppliesTo, b.Type):
		return fmt.Errorf("%w: %s is not for %s, which break %d is", ErrNotFor, a.Name, b.Type, b.ID)
	case !b.State.Outstanding() || b.State == reconcile.Compensating:
		return fmt.Errorf("%w: break %d is %s", ErrNotFor, b.ID, b.State)
	case a.Kind == ReplayEvent && b.EventID == nil:
		return fmt.Errorf("%w: break %d names no event", ErrNotFor, b.ID)
	}
	return nil
}

const sqlAdd = `
INSERT INTO compensation (action, version, job, break_id, key_text, event_id, group_name, currency, amount, inputs, effect, hash,
  attempt_group, asked_by, reason, checkers, expires_at)
VALUES (@action, @version, @job, @break, @key, @event, nullif(@group, ''), @currency, @amount::numeric, @inputs, @effect, @hash,
  @attempt_group, @by, @reason, @checkers, @expires)
RETURNING id`

// add keeps a proposal. checkers of 0 asks the action: it is for the schedule,
// whose repairs are approved beforehand.
func (c *Compensations) add(ctx context.Context, tx pgx.Tx, actor access.Actor, p plan, checkers int) (id int64, err error) {
	if checkers == 0 {
		checkers = p.action.Approval.checkers(p.b.Amount)
	}
	err = tx.QueryRow(ctx, sqlAdd, pgx.NamedArgs{
		"action": p.action.Name, "version": p.def.Version, "job": p.b.Job, "break": p.b.ID, "key": p.b.Key, "event": p.b.EventID,
		"group": p.action.Group, "currency": p.b.Currency, "amount": p.b.Amount.String(), "inputs": p.inputs, "effect": p.effect, "hash": p.hash,
		"attempt_group": p.b.Returns + 1, "by": actor.User, "reason": actor.Reason, "checkers": checkers, "expires": c.Clock().Add(p.action.Approval.Expires),
	}).Scan(&id)
	if violated, ok := errors.AsType[*pgconn.PgError](err); ok && violated.Code == "23505" {
		return 0, fmt.Errorf("%w: break %d by %s", ErrTwice, p.b.ID, p.action.Name)
	}
	if err != nil {
		return 0, fmt.Errorf("propose %s for break %d: %w", p.action.Name, p.b.ID, err)
	}
	return id, tell(ctx, tx, id, actor.User, "proposed", actor.Reason, nil)
}
