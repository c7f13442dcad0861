package compensate

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"oncemore/consumer/barrier"
	"oncemore/dlq"
	"oncemore/internal/access"
	"oncemore/reconcile"
)

// Preview is what an action would do about one break or letter, before anybody
// asks for it.
type Preview struct {
	Break    reconcile.Break // of a letter: none
	LetterID *uuid.UUID      // nil: it is a break
	EventID  *string
	Currency string
	Amount   reconcile.Amount
	Effect   Effect
	Hash     []byte
	Checkers int       // how many have to approve it
	Counted  []Counted // statements; nil where they were not counted
	Problem  error     // ErrNotFor, ErrTwice, ErrInput: why it cannot be proposed; nil: it can
	Already  int64     // the compensation that repairs it already; 0 none
}

// Counted is how many rows a statement would affect now.
type Counted struct {
	Step  string
	Rows  int64
	Want  int64  // any other number rolls back
	Error string // it could not be counted; "" it was
}

// Preview renders what an action would do about breaks, and counts the rows of
// the first count of them. Nothing is kept or sent. Errors: ErrNoAction,
// reconcile.ErrNoBreak, access.ErrForbidden; what is wrong with one is in its Problem.
func (c *Compensations) Preview(ctx context.Context, actor access.Actor, action string, breaks []int64, count int) ([]Preview, error) {
	if err := actor.Check(access.ProposeCompensation); err != nil {
		return nil, err
	}
	def, a, err := c.current(ctx, action)
	if err != nil {
		return nil, err
	}
	active, err := c.active(ctx, action, breaks)
	if err != nil {
		return nil, err
	}
	keys := map[string][]string{}
	all := make([]Preview, 0, len(breaks))
	for i, id := range breaks {
		p, err := c.preview(ctx, def, a, id, keys)
		if err != nil {
			return nil, err
		}
		if p.Already = active[id]; p.Already != 0 && p.Problem == nil {
			p.Problem = fmt.Errorf("%w: break %d by C-%d", ErrTwice, id, p.Already)
		}
		if p.Problem == nil && i < count {
			p.Counted = c.counted(ctx, a, inputsOf(p.Break, keys[p.Break.Job]))
		}
		all = append(all, p)
	}
	return all, nil
}

func (c *Compensations) preview(ctx context.Context, def Definition, a *Action, id int64, keys map[string][]string) (p Preview, err error) {
	if p.Break, err = c.Breaks.Get(ctx, id); err != nil {
		return p, err
	}
	p.EventID, p.Currency, p.Amount = p.Break.EventID, p.Break.Currency, p.Break.Amount
	if p.Problem = a.fits(p.Break); p.Problem != nil {
		return p, nil
	}
	job := p.Break.Job
	if keys[job] == nil {
		if keys[job], err = c.keyOf(ctx, job); err != nil {
			return p, err
		}
	}
	made, err := c.plan(def, a, p.Break, keys[job])
	if errors.Is(err, ErrInput) || errors.Is(err, errBase) {
		p.Problem, err = err, nil
	}
	p.Effect, p.Hash, p.Checkers = made.effect, made.hash, a.Approval.checkers(p.Break.Amount)
	return p, err
}

// PreviewLetters is Preview for letters. Errors: ErrNoAction, dlq.ErrNotFound,
// access.ErrForbidden.
func (c *Compensations) PreviewLetters(ctx context.Context, actor access.Actor, action string, letters []uuid.UUID, count int) ([]Preview, error) {
	if err := actor.Check(access.ProposeCompensation); err != nil {
		return nil, err
	}
	def, a, err := c.current(ctx, action)
	if err != nil {
		return nil, err
	}
	all := make([]Preview, 0, len(letters))
	for i, id := range letters {
		p, err := c.previewLetter(ctx, def, a, id, i < count)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

func (c *Compensations) previewLetter(ctx context.Context, def Definition, a *Action, id uuid.UUID, count bool) (p Preview, err error) {
	p.LetterID = &id
	s, err := c.letter(ctx, def, a, id)
	if errors.Is(err, dlq.ErrNotFound) {
		return p, err
	}
	var made plan
	if err == nil {
		made, err = c.planFor(def, a, s)
	}
	p.EventID, p.Currency, p.Amount = s.eventID, s.currency, s.amount
	if err != nil {
		why, failed := unfit(err)
		if why != "" {
			p.Problem = err
		}
		return p, failed
	}
	p.Effect, p.Hash, p.Checkers = made.effect, made.hash, a.Approval.checkers(s.amount)
	if count {
		p.Counted = c.counted(ctx, a, s.inputs)
	}
	return p, nil
}

const sqlActive = `
SELECT break_id, max(id) FROM compensation WHERE break_id = ANY(@breaks) AND action = @action AND state NOT IN (5, 6, 8, 9, 10, 11) GROUP BY 1`

// active finds what repairs the breaks by the action already.
func (c *Compensations) active(ctx context.Context, action string, breaks []int64) (map[int64]int64, error) {
	rows, err := c.Pool.Query(ctx, sqlActive, pgx.NamedArgs{"breaks": breaks, "action": action})
	if err != nil {
		return nil, fmt.Errorf("query what is being repaired: %w", err)
	}
	by := map[int64]int64{}
	var one, id int64
	_, err = pgx.ForEachRow(rows, []any{&one, &id}, func() error { by[one] = id; return nil })
	if err != nil {
		return nil, fmt.Errorf("read what is being repaired: %w", err)
	}
	return by, nil
}

// counted asks for each statement how many rows it would affect: by its guard
// query, or by running it in a transaction that is rolled back.
func (c *Compensations) counted(ctx context.Context, a *Action, in Inputs) (all []Counted) {
	for _, s := range a.Steps {
		if s.Kind != SQL {
			continue
		}
		n := Counted{Step: s.ID, Want: s.Statement.Rows}
		ctx, cancel := context.WithTimeout(ctx, s.Timeout)
		n.Rows, n.Error = c.countRows(ctx, s, in)
		cancel()
		all = append(all, n)
	}
	return all
}

func (c *Compensations) countRows(ctx context.Context, s Step, in Inputs) (int64, string) {
	target, ok := c.Targets[s.Statement.Connection]
	if !ok {
		return 0, fmt.Sprintf("there is no connection %s that compensations may write to", s.Statement.Connection)
	}
	if s.Statement.Guard != "" {
		n, err := target.count(ctx, s.Statement, s.Statement.Guard, in)
		if err != nil {
			return 0, err.Error()
		}
		return n, ""
	}
	a := target.execute(ctx, s.Statement, in, barrier.Mark{}, true)
	if a.Rows == nil || a.Error != "" {
		return 0, a.Error
	}
	return *a.Rows, ""
}

// Present is what a compensation would do now, beside what was asked for.
type Present struct {
	Version int
	Inputs  Inputs
	Effect  Effect
	Break   *reconcile.Break // as it is now; nil: it repairs none
	Counted []Counted
	Changed bool   // an approval of what was asked for would be void
	Problem string // why it can no longer be rendered; "" it can
}

// Present renders a compensation anew and counts its rows. Errors are of the
// console's database.
func (c *Compensations) Present(ctx context.Context, comp *Compensation) (p Present, err error) {
	def, a, err := c.current(ctx, comp.Action)
	if err != nil {
		return p, err
	}
	p.Version, p.Inputs, p.Effect = def.Version, comp.Inputs, comp.Effect
	s, err := c.again(ctx, def, a, comp)
	if err == nil && comp.BreakID != nil {
		b, err := c.Breaks.Get(ctx, *comp.BreakID)
		if err != nil {
			return p, err
		}
		p.Break = &b
	}
	var made plan
	if err == nil {
		made, err = c.planFor(def, a, s)
	}
	if err != nil {
		p.Changed = true
		p.Problem, err = unfit(err)
		return p, err
	}
	p.Inputs, p.Effect, p.Changed = made.inputs, made.effect, !bytes.Equal(made.hash, comp.Hash)
	p.Counted = c.counted(ctx, a, p.Inputs)
	return p, nil
}
