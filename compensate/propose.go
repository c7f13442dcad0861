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
	def, a, err := c.mayPropose(ctx, actor, action, len(breaks))
	if err != nil {
		return nil, err
	}
	plans, err := c.plans(ctx, def, a, slices.Compact(slices.Sorted(slices.Values(breaks))))
	if err != nil {
		return nil, err
	}
	return c.addAll(ctx, actor, action, plans)
}

// mayPropose refuses who may not, and too many at once.
func (c *Compensations) mayPropose(ctx context.Context, actor access.Actor, action string, n int) (def Definition, a *Action, err error) {
	if err := actor.Check(access.ProposeCompensation); err != nil {
		return def, nil, err
	}
	if actor.Reason == "" {
		return def, nil, access.ErrReasonRequired
	}
	if def, a, err = c.current(ctx, action); err != nil {
		return def, nil, err
	}
	if a.Limits.PerBatch > 0 && n > a.Limits.PerBatch {
		return def, nil, fmt.Errorf("%w: %d at once, and limits.per_batch is %d", ErrLimit, n, a.Limits.PerBatch)
	}
	return def, a, nil
}

func (c *Compensations) addAll(ctx context.Context, actor access.Actor, action string, plans []plan) (ids []int64, err error) {
	err = pgx.BeginFunc(ctx, c.Pool, func(tx pgx.Tx) error {
		for _, p := range plans {
			id, err := c.add(ctx, tx, actor, p, origin{})
			if err != nil {
				return err
			}
			ids = append(ids, id)
		}
		return audit.Write(ctx, tx, actor, asked(action, ids, plans))
	})
	if err != nil {
		return nil, err
	}
	return ids, nil
}

func asked(action string, ids []int64, plans []plan) audit.Entry {
	b, _ := json.Marshal(ids) //nolint:errchkjson // integers always marshal
	target := fmt.Sprintf("compensations/%x", sha256.Sum256(b))
	if len(ids) == 1 {
		target = fmt.Sprintf("compensation/%d", ids[0])
	}
	of := make([]string, len(plans))
	for i, p := range plans {
		of[i] = p.subject.String()
	}
	return audit.Entry{Action: "compensation.proposed", Target: target, Detail: map[string]any{"action": action, "count": len(ids), "ids": ids, "of": of}}
}

func (c *Compensations) current(ctx context.Context, action string) (Definition, *Action, error) {
	def, err := c.Actions.Current(ctx, action)
	if err != nil {
		return def, nil, err
	}
	a, err := c.defined(ctx, def)
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
		p, err := c.planBreak(ctx, def, a, b, keys)
		if err != nil {
			return nil, err
		}
		plans = append(plans, p)
	}
	return plans, nil
}

// planBreak plans what fits; keys are kept by job.
func (c *Compensations) planBreak(ctx context.Context, def Definition, a *Action, b reconcile.Break, keys map[string][]string) (p plan, err error) {
	if err := a.fits(b); err != nil {
		return p, err
	}
	if keys[b.Job] == nil {
		if keys[b.Job], err = c.keyOf(ctx, b.Job); err != nil {
			return p, err
		}
	}
	return c.plan(def, a, b, keys[b.Job])
}

const sqlAdd = `
INSERT INTO compensation (action, version, job, break_id, letter_id, key_text, event_id, group_name, currency, amount, inputs, effect, hash,
  attempt_group, asked_by, asked_at, reason, checkers, expires_at, approve_by, bulk_id, automatic)
VALUES (@action, @version, @job, @break, @letter, @key, @event, nullif(@group, ''), @currency, @amount::numeric, @inputs, @effect, @hash,
  @attempt_group, @by, @now, @reason, @checkers, @expires, @expires, nullif(@bulk::bigint, 0), @automatic)
RETURNING id`

// origin is where a proposal comes from.
type origin struct {
	bulk      int64 // 0: by itself
	automatic bool  // the schedule's own, approved beforehand
}

// add keeps a proposal. Error: ErrTwice.
func (c *Compensations) add(ctx context.Context, tx pgx.Tx, actor access.Actor, p plan, from origin) (id int64, err error) {
	checkers, now := p.action.Approval.checkers(p.amount), c.Clock()
	if from.automatic {
		checkers = 0
	}
	err = tx.QueryRow(ctx, sqlAdd, pgx.NamedArgs{
		"action": p.action.Name, "version": p.def.Version, "job": p.job, "break": p.breakID, "letter": p.letterID, "key": p.key, "event": p.eventID,
		"group": p.group, "currency": p.currency, "amount": p.amount.String(), "inputs": p.inputs, "effect": p.effect, "hash": p.hash,
		"attempt_group": p.turn, "by": actor.User, "now": now, "reason": actor.Reason, "checkers": checkers, "expires": now.Add(p.action.Approval.Expires),
		"bulk": from.bulk, "automatic": from.automatic,
	}).Scan(&id)
	if violated, ok := errors.AsType[*pgconn.PgError](err); ok && violated.Code == "23505" {
		return 0, fmt.Errorf("%w: %s by %s", ErrTwice, p.subject, p.action.Name)
	}
	if err != nil {
		return 0, fmt.Errorf("propose %s for %s: %w", p.action.Name, p.subject, err)
	}
	return id, tell(ctx, tx, id, actor.User, "proposed", actor.Reason, nil)
}
