package alert

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"oncemore/internal/access"
	"oncemore/internal/audit"
)

const (
	sqlAlertColumns = `
SELECT id, rule, key, severity, args, href, first_at, last_at, resolved_at, coalesce(acked_by, ''), acked_at, coalesce(ack_reason, '')
FROM alert `
	sqlAlertsByID = sqlAlertColumns + `WHERE id = ANY(@ids) ORDER BY resolved_at IS NOT NULL, severity, id`
	sqlLasting    = sqlAlertColumns + `WHERE resolved_at IS NULL ORDER BY acked_at IS NOT NULL, severity, first_at DESC, id DESC LIMIT @limit`
	sqlOver       = sqlAlertColumns + `WHERE resolved_at IS NOT NULL ORDER BY resolved_at DESC, id DESC LIMIT @limit`
)

// Text is an alert's sentence in a language.
func (e *Engine) Text(language string, a Alert) string {
	return e.opts.Words(language, "alert."+a.Rule+".says", a.Args)
}

// Lasting lists what is there now, unacknowledged first, worst first; at most limit.
func (e *Engine) Lasting(ctx context.Context, limit int) ([]Alert, error) {
	return e.alerts(ctx, sqlLasting, pgx.NamedArgs{"limit": limit})
}

// Over lists what has ended, latest first; at most limit.
func (e *Engine) Over(ctx context.Context, limit int) ([]Alert, error) {
	return e.alerts(ctx, sqlOver, pgx.NamedArgs{"limit": limit})
}

func (e *Engine) alerts(ctx context.Context, sql string, args pgx.NamedArgs) ([]Alert, error) {
	rows, _ := e.pool.Query(ctx, sql, args) // its error comes with the rows
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Alert, error) {
		var a Alert
		var values []byte
		err := row.Scan(&a.ID, &a.Rule, &a.Key, &a.Severity, &values, &a.Href, &a.FirstAt, &a.LastAt, &a.ResolvedAt, &a.AckedBy, &a.AckedAt, &a.AckReason)
		if err != nil {
			return a, err
		}
		a.Args, err = readArgs(values)
		return a, err
	})
	if err != nil {
		return nil, fmt.Errorf("read alerts: %w", err)
	}
	return all, nil
}

// readArgs keeps whole numbers whole.
func readArgs(values []byte) (map[string]any, error) {
	var args map[string]any
	if err := json.Unmarshal(values, &args); err != nil {
		return nil, err
	}
	for name, v := range args {
		if f, ok := v.(float64); ok && f == float64(int64(f)) {
			args[name] = int64(f)
		}
	}
	return args, nil
}

const sqlCount = `
SELECT severity, count(*) FILTER (WHERE acked_at IS NULL), count(*) FROM alert WHERE resolved_at IS NULL GROUP BY severity`

// Counts are how many alerts last, by severity.
type Counts struct{ New, All map[Severity]int64 } // New: nobody has acknowledged them

// Unacknowledged is their number, of all severities.
func (c Counts) Unacknowledged() (n int64) {
	for _, of := range c.New {
		n += of
	}
	return n
}

// Count counts what lasts.
func (e *Engine) Count(ctx context.Context) (Counts, error) {
	c := Counts{map[Severity]int64{}, map[Severity]int64{}}
	rows, _ := e.pool.Query(ctx, sqlCount) // its error comes with the rows
	var s Severity
	var fresh, all int64
	_, err := pgx.ForEachRow(rows, []any{&s, &fresh, &all}, func() error { c.New[s], c.All[s] = fresh, all; return nil })
	if err != nil {
		return c, fmt.Errorf("count alerts: %w", err)
	}
	return c, nil
}

const sqlByRule = `SELECT rule, severity, count(*) FROM alert WHERE resolved_at IS NULL GROUP BY 1, 2`

// RuleCount is how many alerts of a rule and severity last.
type RuleCount struct {
	Rule     string
	Severity Severity
	N        int64
}

// CountByRule counts what lasts, acknowledged or not. Rules without alerts are missing.
func (e *Engine) CountByRule(ctx context.Context) ([]RuleCount, error) {
	rows, _ := e.pool.Query(ctx, sqlByRule) // its error comes with the rows
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[RuleCount])
	if err != nil {
		return nil, fmt.Errorf("count alerts by rule: %w", err)
	}
	return all, nil
}

const sqlLooks = `SELECT rule, at, coalesce(error, ''), error_since FROM alert_look`

// Looks is when each rule last looked, by name. A rule that never did is missing.
func (e *Engine) Looks(ctx context.Context) (map[string]Look, error) {
	rows, _ := e.pool.Query(ctx, sqlLooks) // its error comes with the rows
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Look])
	if err != nil {
		return nil, fmt.Errorf("read looks: %w", err)
	}
	looks := map[string]Look{}
	for _, l := range all {
		looks[l.Rule] = l
	}
	return looks, nil
}

// Delivery is one message to one channel.
type Delivery struct {
	ID        int64
	Channel   string
	Kind      Kind
	Alerts    int // how many it tells of
	State     DeliveryState
	Tries     int
	Error     string // of the last try; "" none
	CreatedAt time.Time
	DoneAt    *time.Time
}

// DeliveryState is how the sending went.
type DeliveryState int16

// The states of a delivery.
const (
	Sending     DeliveryState = iota + 1 // or waiting for the next try
	Sent                                 // the receiver has taken it
	Undelivered                          // given up
)

var deliveryNames = map[DeliveryState]string{Sending: "sending", Sent: "sent", Undelivered: "failed"}

// String is the state's name.
func (s DeliveryState) String() string { return deliveryNames[s] }

const sqlDeliveries = `
SELECT id, channel, kind, cardinality(alerts), state, tries, coalesce(error, ''), created_at, done_at
FROM alert_delivery ORDER BY id DESC LIMIT @limit`

// Deliveries lists the latest messages, newest first; at most limit.
func (e *Engine) Deliveries(ctx context.Context, limit int) ([]Delivery, error) {
	rows, _ := e.pool.Query(ctx, sqlDeliveries, pgx.NamedArgs{"limit": limit}) // its error comes with the rows
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Delivery])
	if err != nil {
		return nil, fmt.Errorf("read deliveries: %w", err)
	}
	return all, nil
}

// Errors of commands.
var (
	ErrNoAlert   = errors.New("alert: no such alert lasts, or somebody has acknowledged it")
	ErrNoChannel = errors.New("alert: no such channel")
)

const sqlAcknowledge = `
UPDATE alert SET acked_by = @by, acked_at = @at, ack_reason = nullif(@reason, '')
WHERE id = ANY(@ids) AND resolved_at IS NULL AND acked_at IS NULL RETURNING id, rule, key`

// Acknowledge says that the actor is on it: nobody is reminded of these alerts any
// more. That they ended is told all the same. Those that are over, or acknowledged,
// are passed by. Errors: ErrNoAlert where all are, access.ErrForbidden.
func (e *Engine) Acknowledge(ctx context.Context, actor access.Actor, ids ...int64) error {
	if err := actor.Check(access.AckAlert); err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, e.pool, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, sqlAcknowledge, pgx.NamedArgs{"ids": ids, "by": actor.User, "at": e.opts.Clock(), "reason": actor.Reason})
		if err != nil {
			return fmt.Errorf("acknowledge alerts %v: %w", ids, err)
		}
		acked, err := pgx.CollectRows(rows, pgx.RowToStructByPos[struct {
			ID        int64
			Rule, Key string
		}])
		if err != nil {
			return fmt.Errorf("acknowledge alerts %v: %w", ids, err)
		}
		if len(acked) == 0 {
			return ErrNoAlert
		}
		for _, a := range acked {
			entry := audit.Entry{Action: "alert.acknowledged", Target: fmt.Sprintf("alert/%d", a.ID), Detail: map[string]string{"rule": a.Rule, "key": a.Key}}
			if err := audit.Write(ctx, tx, actor, entry); err != nil {
				return err
			}
		}
		return nil
	})
}

// Test sends a message that says it is a test, past the throttle. Errors: ErrNoChannel, access.ErrForbidden.
func (e *Engine) Test(ctx context.Context, actor access.Actor, channel string) error {
	if err := actor.Check(access.TestAlert); err != nil {
		return err
	}
	if _, known := e.channel(channel); !known {
		return ErrNoChannel
	}
	return pgx.BeginFunc(ctx, e.pool, func(tx pgx.Tx) error {
		if err := e.deliverLater(ctx, tx, channel, Trial, nil, e.opts.Clock()); err != nil {
			return err
		}
		return audit.Write(ctx, tx, actor, audit.Entry{Action: "alert.tested", Target: "channel/" + channel})
	})
}
