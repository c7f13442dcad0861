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
			id, err := c.add(ctx, tx, actor, p, origin{})
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
