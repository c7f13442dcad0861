package alert

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
)

// Kind is what a message is about.
type Kind int16

// The kinds of messages.
const (
	Firing   Kind = iota + 1 // something began, or goes on and nobody has acknowledged it
	Reminder                 // all of it was told before
	Resolved                 // what was told has ended
	Trial                    // somebody pressed the button
)

var kindNames = map[Kind]string{Firing: "firing", Reminder: "reminder", Resolved: "resolved", Trial: "test"}

// String is the kind's name in payloads.
func (k Kind) String() string { return kindNames[k] }

const (
	sqlChannel     = `INSERT INTO alert_channel (name) VALUES (@channel) ON CONFLICT DO NOTHING`
	sqlLockChannel = `SELECT told_at FROM alert_channel WHERE name = @channel FOR UPDATE`

	// News, of the channel's rules and bad enough for it: what it was not told, what
	// it was told long ago and nobody has acknowledged, and what has ended.
	sqlNews = `
SELECT a.id, CASE WHEN a.resolved_at IS NOT NULL THEN 3 WHEN t.alert_id IS NULL THEN 1 ELSE 2 END
FROM alert a LEFT JOIN alert_told t ON t.alert_id = a.id AND t.channel = @channel
WHERE a.severity <= @least AND a.rule = ANY(@rules::text[]) AND CASE
  WHEN a.resolved_at IS NOT NULL THEN NOT t.ended AND a.rule <> ALL(@momentary::text[])
  WHEN a.acked_at IS NOT NULL THEN false
  ELSE t.alert_id IS NULL OR t.told_at <= @repeat AND a.rule <> ALL(@momentary::text[]) END
ORDER BY a.severity, a.id LIMIT 1000`

	sqlTold = `
INSERT INTO alert_told AS t (alert_id, channel, told_at, ended)
SELECT u.id, @channel, @at, u.ended FROM unnest(@ids::bigint[], @ended::boolean[]) u(id, ended)
ON CONFLICT (alert_id, channel) DO UPDATE SET told_at = excluded.told_at, ended = excluded.ended`

	sqlChannelTold = `UPDATE alert_channel SET told_at = @at WHERE name = @channel`
)

// news is an alert that a channel has to hear of.
type news struct {
	ID   int64
	Kind Kind
}

// tell makes one message of all that the channel has to hear, unless it was told
// something a moment ago: then all of it waits and goes together.
func (e *Engine) tell(ctx context.Context, c Channel, now time.Time) error {
	err := pgx.BeginFunc(ctx, e.pool, func(tx pgx.Tx) error {
		told, err := lockChannel(ctx, tx, c.Name)
		if err != nil {
			return err
		}
		if told != nil && now.Sub(*told) < e.opts.Throttle {
			return nil
		}
		rows, err := tx.Query(ctx, sqlNews, pgx.NamedArgs{
			"channel": c.Name, "least": int16(cmp.Or(c.Least, Note)), "rules": e.ruleNames(c.takes),
			"momentary": e.ruleNames(func(r Rule) bool { return r.Momentary }), "repeat": now.Add(-e.opts.Repeat),
		})
		if err != nil {
			return err
		}
		all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[news])
		if err != nil || len(all) == 0 {
			return err
		}
		if err := markTold(ctx, tx, c.Name, all, now); err != nil {
			return err
		}
		return e.deliverLater(ctx, tx, c.Name, kindOf(all), all, now)
	})
	if err != nil {
		return fmt.Errorf("tell channel %s: %w", c.Name, err)
	}
	return nil
}

func lockChannel(ctx context.Context, tx pgx.Tx, name string) (told *time.Time, err error) {
	if _, err := tx.Exec(ctx, sqlChannel, pgx.NamedArgs{"channel": name}); err != nil {
		return nil, err
	}
	err = tx.QueryRow(ctx, sqlLockChannel, pgx.NamedArgs{"channel": name}).Scan(&told)
	return told, err
}

// kindOf is the message's: what began outweighs the rest.
func kindOf(all []news) Kind {
	kinds := make([]Kind, len(all))
	for i, n := range all {
		kinds[i] = n.Kind
	}
	return slices.Min(kinds)
}

func markTold(ctx context.Context, tx pgx.Tx, channel string, all []news, now time.Time) error {
	ids, ended := make([]int64, len(all)), make([]bool, len(all))
	for i, n := range all {
		ids[i], ended[i] = n.ID, n.Kind == Resolved
	}
	args := pgx.NamedArgs{"channel": channel, "ids": ids, "ended": ended, "at": now}
	b := &pgx.Batch{}
	b.Queue(sqlTold, args)
	b.Queue(sqlChannelTold, args)
	return tx.SendBatch(ctx, b).Close()
}

const sqlDelivery = `
INSERT INTO alert_delivery (channel, kind, alerts, created_at) VALUES (@channel, @kind, @alerts, @at) RETURNING id`

// deliverLater leaves the sending to a job of the same transaction.
func (e *Engine) deliverLater(ctx context.Context, tx pgx.Tx, channel string, kind Kind, all []news, now time.Time) error {
	ids := make([]int64, len(all))
	for i, n := range all {
		ids[i] = n.ID
	}
	var id int64
	err := tx.QueryRow(ctx, sqlDelivery, pgx.NamedArgs{"channel": channel, "kind": int16(kind), "alerts": ids, "at": now}).Scan(&id)
	if err != nil {
		return fmt.Errorf("keep delivery: %w", err)
	}
	if _, err := e.jobs.InsertTx(ctx, tx, deliveryArgs{id}, &river.InsertOpts{}); err != nil {
		return fmt.Errorf("insert delivery job: %w", err)
	}
	return nil
}
