// Package outboxes is what the console does with the outboxes of business
// databases: it shows them, and carries out what people decided about dead rows.
// It owns outbox_command, in the console's own database: a decision is written
// there, with its audit row, before the business database is asked; what a crash
// left undone is carried out later.
package outboxes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/consumer/outbox"
	"oncemore/internal/access"
	"oncemore/internal/audit"
)

var (
	// ErrUnknown is returned for an outbox that is not configured, or a command
	// that does not exist.
	ErrUnknown = errors.New("outboxes: not known")
	// ErrConflict is returned when a row has an open command, or a command was
	// decided already.
	ErrConflict = errors.New("outboxes: somebody was faster")
	// ErrOwnApproval is returned to who would decide about what they asked for.
	ErrOwnApproval = errors.New("outboxes: somebody else has to decide")
)

// Outbox is a configured outbox. Read and Write differ by their credential.
type Outbox struct {
	Connection, Cluster string
	Read, Write         *outbox.Box
}

// Name is connection/table.
func (o Outbox) Name() string { return o.Connection + "/" + string(o.Read.Table()) }

// Act is what somebody wants done with a dead row.
type Act int16

// The acts, as they are stored.
const (
	Retry Act = 1
	Skip  Act = 2
)

// String is the act's name in lower case.
func (a Act) String() string { return map[Act]string{Retry: "retry", Skip: "skip"}[a] }

// State is where a command stands.
type State int16

// The states, as they are stored. Void: the row was no longer dead when the
// command was to be carried out; nothing was done.
const (
	Asked    State = 1
	Decided  State = 2
	Done     State = 3
	Rejected State = 4
	Void     State = 5
)

// String is the state's name in lower case.
func (s State) String() string {
	return map[State]string{Asked: "asked", Decided: "decided", Done: "done", Rejected: "rejected", Void: "void"}[s]
}

// Command is what somebody wants done with a dead row.
type Command struct {
	ID       int64
	Outbox   string
	RowID    int64
	EventID  string
	Target   string
	Act      Act
	State    State
	Releases int64 // later rows of the key, when it was asked
	AskedBy  string
	Reason   string
	AskedAt  time.Time
	By       string // who decided; "" nobody yet
	ByReason string
	At       *time.Time
}

// Outboxes are the configured ones.
type Outboxes struct {
	pool *pgxpool.Pool
	all  []Outbox
	log  *slog.Logger
}

// New takes the outboxes of the config. pool is the console's own database.
func New(pool *pgxpool.Pool, all []Outbox, log *slog.Logger) *Outboxes {
	return &Outboxes{pool: pool, all: all, log: log}
}

// All lists the outboxes in the config's order.
func (o *Outboxes) All() []Outbox { return o.all }

// Find returns the outbox of that name. Errors: ErrUnknown.
func (o *Outboxes) Find(name string) (Outbox, error) {
	for _, one := range o.all {
		if one.Name() == name {
			return one, nil
		}
	}
	return Outbox{}, fmt.Errorf("outbox %s: %w", name, ErrUnknown)
}

// Retry has a dead row tried again, with a reason. It returns the command.
// Errors: access.ErrForbidden, access.ErrReasonRequired, ErrUnknown, ErrConflict,
// outbox.ErrNotFound, outbox.ErrNotDead.
func (o *Outboxes) Retry(ctx context.Context, actor access.Actor, name string, row int64) (Command, error) {
	c, err := o.ask(ctx, actor, access.RetryOutbox, name, row, Command{Act: Retry, State: Decided})
	if err != nil {
		return c, err
	}
	return c, o.carryOut(ctx, c)
}

// AskSkip asks for a dead row to be given up, which somebody else has to approve.
// Errors as of Retry.
func (o *Outboxes) AskSkip(ctx context.Context, actor access.Actor, name string, row int64) (Command, error) {
	return o.ask(ctx, actor, access.SkipOutbox, name, row, Command{Act: Skip, State: Asked})
}

const sqlAsk = `
INSERT INTO outbox_command (outbox, row_id, event_id, target, act, state, releases, asked_by, reason, decided_by, decided_at)
VALUES (@outbox, @row, @event, @target, @act, @state::smallint, @releases, @by::text, @reason,
        CASE WHEN @state::smallint = 2 THEN @by::text END, CASE WHEN @state::smallint = 2 THEN now() END)
RETURNING id, asked_at`

func (o *Outboxes) ask(ctx context.Context, actor access.Actor, may access.Act, name string, row int64, c Command) (Command, error) {
	if err := actor.Check(may); err != nil {
		return c, err
	}
	if strings.TrimSpace(actor.Reason) == "" {
		return c, access.ErrReasonRequired
	}
	if err := o.look(ctx, name, row, &c); err != nil {
		return c, err
	}
	c.AskedBy, c.Reason = actor.User, actor.Reason
	err := pgx.BeginFunc(ctx, o.pool, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, sqlAsk, pgx.NamedArgs{
			"outbox": c.Outbox, "row": c.RowID, "event": c.EventID, "target": c.Target, "act": c.Act, "state": c.State,
			"releases": c.Releases, "by": actor.User, "reason": actor.Reason,
		}).Scan(&c.ID, &c.AskedAt)
		if err != nil {
			return asConflict(err)
		}
		return audit.Write(ctx, tx, actor, audit.Entry{Action: map[Act]string{Retry: "outbox.retried", Skip: "outbox.skip_asked"}[c.Act], Target: c.target(), Detail: c.detail()})
	})
	if err != nil {
		return c, fmt.Errorf("%s row %d of %s: %w", c.Act, row, name, err)
	}
	return c, nil
}

// look reads the row that the command is about.
func (o *Outboxes) look(ctx context.Context, name string, row int64, c *Command) error {
	box, err := o.Find(name)
	if err != nil {
		return err
	}
	found, err := box.Read.Get(ctx, row)
	if err != nil {
		return err
	}
	if found.State != outbox.Dead {
		return fmt.Errorf("row %d of %s: %w", row, name, outbox.ErrNotDead)
	}
	c.Outbox, c.RowID, c.EventID, c.Target = name, row, found.EventID, found.Target
	c.Releases, err = box.Read.Behind(ctx, row)
	return err
}

func asConflict(err error) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.ConstraintName == "outbox_command_open" {
		return ErrConflict
	}
	return err
}

func (c Command) target() string { return fmt.Sprintf("outbox/%s/%d", c.Outbox, c.RowID) }

func (c Command) detail() map[string]any {
	return map[string]any{"command": c.ID, "event_id": c.EventID, "target": c.Target, "releases": c.Releases}
}

// Approve lets a skip be carried out, by somebody else than who asked for it.
// Errors: access.ErrForbidden, access.ErrReasonRequired, ErrUnknown, ErrConflict,
// ErrOwnApproval, outbox.ErrNotDead.
func (o *Outboxes) Approve(ctx context.Context, actor access.Actor, id int64) (Command, error) {
	c, err := o.decide(ctx, actor, id, Decided, "outbox.skip_approved")
	if err != nil {
		return c, err
	}
	return c, o.carryOut(ctx, c)
}

// Reject leaves the row as it is. Errors as of Approve.
func (o *Outboxes) Reject(ctx context.Context, actor access.Actor, id int64) (Command, error) {
	return o.decide(ctx, actor, id, Rejected, "outbox.skip_rejected")
}

const sqlDecide = `
UPDATE outbox_command SET state = @state, decided_by = @by, decided_reason = @reason, decided_at = now()
WHERE id = @id AND state = @asked
RETURNING ` + columns

func (o *Outboxes) decide(ctx context.Context, actor access.Actor, id int64, to State, action string) (Command, error) {
	if err := actor.Check(access.ApproveOutbox); err != nil {
		return Command{}, err
	}
	if strings.TrimSpace(actor.Reason) == "" {
		return Command{}, access.ErrReasonRequired
	}
	var c Command
	err := pgx.BeginFunc(ctx, o.pool, func(tx pgx.Tx) error {
		was, err := one(ctx, tx, sqlGet, pgx.NamedArgs{"id": id})
		if err != nil {
			return err
		}
		if was.AskedBy == actor.User {
			return ErrOwnApproval
		}
		c, err = one(ctx, tx, sqlDecide, pgx.NamedArgs{"id": id, "state": to, "asked": Asked, "by": actor.User, "reason": actor.Reason})
		if errors.Is(err, ErrUnknown) {
			return ErrConflict
		}
		if err != nil {
			return err
		}
		return audit.Write(ctx, tx, actor, audit.Entry{Action: action, Target: c.target(), Detail: c.detail()})
	})
	if err != nil {
		return c, fmt.Errorf("decide about outbox command %d: %w", id, err)
	}
	return c, nil
}

const sqlFinish = `
UPDATE outbox_command SET state = @state, done_at = now() WHERE id = @id AND state = @decided`

// carryOut does in the business database what was decided, and says so. It may
// run again: a row that is no longer dead stays as it is.
func (o *Outboxes) carryOut(ctx context.Context, c Command) error {
	box, err := o.Find(c.Outbox)
	if err != nil {
		return err
	}
	do, state := box.Write.Retry, Done
	if c.Act == Skip {
		do = box.Write.Skip
	}
	refused := do(ctx, c.RowID)
	switch {
	case errors.Is(refused, outbox.ErrNotDead), errors.Is(refused, outbox.ErrNotFound):
		state = Void
	case refused != nil:
		return refused // it stays decided: Run carries it out later
	}
	if _, err := o.pool.Exec(ctx, sqlFinish, pgx.NamedArgs{"id": c.ID, "state": state, "decided": Decided}); err != nil {
		return fmt.Errorf("note outbox command %d as %s: %w", c.ID, state, err)
	}
	return refused
}

const columns = `id, outbox, row_id, event_id, target, act, state, releases, asked_by, reason, asked_at,
  coalesce(decided_by, ''), coalesce(decided_reason, ''), decided_at`

const sqlGet = `
SELECT ` + columns + ` FROM outbox_command WHERE id = @id`

// Get returns one command. Errors: ErrUnknown.
func (o *Outboxes) Get(ctx context.Context, id int64) (Command, error) {
	return one(ctx, o.pool, sqlGet, pgx.NamedArgs{"id": id})
}

// sqlOpen has all that wait, and the latest of the others.
const sqlOpen = `
SELECT ` + columns + ` FROM outbox_command WHERE outbox = @outbox AND state IN (1, 2) ORDER BY id`

// Open lists the commands on an outbox that wait for somebody, or to be carried out.
func (o *Outboxes) Open(ctx context.Context, name string) ([]Command, error) {
	rows, _ := o.pool.Query(ctx, sqlOpen, pgx.NamedArgs{"outbox": name}) // its error comes with the rows
	all, err := pgx.CollectRows(rows, scan)
	if err != nil {
		return nil, fmt.Errorf("open commands on outbox %s: %w", name, err)
	}
	return all, nil
}

const sqlLeft = `
SELECT ` + columns + ` FROM outbox_command WHERE state = 2 AND decided_at < now() - interval '5 seconds' ORDER BY id LIMIT 100`

// Finish carries out what was decided and left, by a crash or a business database
// that did not answer.
func (o *Outboxes) Finish(ctx context.Context) error {
	rows, _ := o.pool.Query(ctx, sqlLeft) // its error comes with the rows
	left, err := pgx.CollectRows(rows, scan)
	if err != nil {
		return fmt.Errorf("outbox commands left to carry out: %w", err)
	}
	for _, c := range left {
		if failed := o.carryOut(ctx, c); failed != nil && !errors.Is(failed, outbox.ErrNotDead) && !errors.Is(failed, outbox.ErrNotFound) {
			err = errors.Join(err, failed)
		}
	}
	return err
}

// finishEvery is how often Run looks for what was left.
const finishEvery = 10 * time.Second

// Run carries out what was left until ctx ends. An error is logged once until
// it is over.
func (o *Outboxes) Run(ctx context.Context) error {
	tick := time.NewTicker(finishEvery)
	defer tick.Stop()
	for failing := false; ; {
		err := o.Finish(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			o.log.ErrorContext(ctx, "decided outbox commands not carried out", "error", err)
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// querier is a pool or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

func one(ctx context.Context, q querier, sql string, args pgx.NamedArgs) (Command, error) {
	rows, _ := q.Query(ctx, sql, args) // its error comes with the rows
	c, err := pgx.CollectExactlyOneRow(rows, scan)
	if errors.Is(err, pgx.ErrNoRows) {
		return c, fmt.Errorf("outbox command: %w", ErrUnknown)
	}
	return c, err
}

func scan(row pgx.CollectableRow) (c Command, err error) {
	err = row.Scan(&c.ID, &c.Outbox, &c.RowID, &c.EventID, &c.Target, &c.Act, &c.State, &c.Releases, &c.AskedBy, &c.Reason, &c.AskedAt,
		&c.By, &c.ByReason, &c.At)
	return c, err
}
