package alert

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
)

// deliveryTries is how often a message is tried: for about an hour and a half.
const deliveryTries = 15

const sendTime = 15 * time.Second

// deliveryArgs is one message to be sent.
type deliveryArgs struct {
	Delivery int64 `json:"delivery"`
}

// Kind is River's name of the job.
func (deliveryArgs) Kind() string { return "alert_delivery" }

// InsertOpts names the queue and how often the job is tried.
func (deliveryArgs) InsertOpts() river.InsertOpts {
	return river.InsertOpts{Queue: Queue, MaxAttempts: deliveryTries}
}

type deliverer struct {
	river.WorkerDefaults[deliveryArgs]
	engine *Engine
}

// AddWorkers lets a River client send what was decided.
func (e *Engine) AddWorkers(workers *river.Workers) {
	river.AddWorker(workers, &deliverer{engine: e})
}

// Timeout bounds one try.
func (d *deliverer) Timeout(*river.Job[deliveryArgs]) time.Duration { return 2 * sendTime }

// NextRetry is the engine's pause.
func (d *deliverer) NextRetry(job *river.Job[deliveryArgs]) time.Time {
	return time.Now().Add(d.engine.opts.Retry(job.Attempt))
}

const (
	sqlPendingDelivery = `SELECT channel, kind, alerts, created_at FROM alert_delivery WHERE id = @id AND state = 1`

	sqlDelivered = `
UPDATE alert_delivery SET state = 2, tries = tries + 1, error = NULL, done_at = @at WHERE id = @id AND state = 1`

	sqlNotDelivered = `
UPDATE alert_delivery SET tries = tries + 1, error = @error,
  state = CASE WHEN @last THEN 3 ELSE 1 END, done_at = CASE WHEN @last THEN @at::timestamptz END
WHERE id = @id AND state = 1`
)

// Work sends one message. A crash between the sending and the note of it sends
// twice: a message too many is better than one too few.
func (d *deliverer) Work(ctx context.Context, job *river.Job[deliveryArgs]) error {
	e := d.engine
	m, channel, err := e.message(ctx, job.Args.Delivery)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil // it was sent
	}
	if err == nil {
		sending, cancel := context.WithTimeout(ctx, sendTime)
		defer cancel()
		err = channel.send(sending, m)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	args := pgx.NamedArgs{"id": job.Args.Delivery, "at": e.opts.Clock()}
	if err == nil {
		_, err = e.pool.Exec(ctx, sqlDelivered, args)
		return err
	}
	why := withoutSecrets(err)
	args["error"], args["last"] = why, job.Attempt >= deliveryTries
	if _, noted := e.pool.Exec(ctx, sqlNotDelivered, args); noted != nil {
		return noted
	}
	e.opts.Log.WarnContext(ctx, "alert not delivered", "channel", channel.Name, "attempt", job.Attempt, "error", why)
	return errors.New(why)
}

// withoutSecrets drops addresses: those of webhooks are secrets.
func withoutSecrets(err error) string {
	var at *url.Error
	if errors.As(err, &at) {
		err = at.Err
	}
	return storable(err)
}

// message reads what a delivery says. Errors: pgx.ErrNoRows when it is done.
func (e *Engine) message(ctx context.Context, id int64) (m Message, c Channel, err error) {
	var channel string
	var ids []int64
	err = e.pool.QueryRow(ctx, sqlPendingDelivery, pgx.NamedArgs{"id": id}).Scan(&channel, &m.Kind, &ids, &m.At)
	if err != nil {
		return m, c, fmt.Errorf("read delivery %d: %w", id, err)
	}
	c, known := e.channel(channel)
	if !known {
		return m, Channel{Name: channel}, fmt.Errorf("channel %s is not in the config any more", channel)
	}
	alerts, err := e.alerts(ctx, sqlAlertsByID, pgx.NamedArgs{"ids": ids})
	if err != nil {
		return m, c, err
	}
	m.fill(e.opts, c, alerts)
	return m, c, nil
}

func (e *Engine) channel(name string) (Channel, bool) {
	for _, c := range e.opts.Channels {
		if c.Name == name {
			return c, true
		}
	}
	return Channel{}, false
}
