package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// booking writes what a run finds into breaks, their history and the ledger.
type booking struct {
	run int64
	job string
	key []string
}

func newBooking(run int64, job string, key []string) booking { return booking{run, job, key} }

// What a run says of a break.
const (
	saidNew = iota + 1
	saidThere
	saidWhole
	saidBack
	saidExplained
)

// known is a break as it stands before a finding is booked.
type known struct {
	Key      []byte
	Type     Type
	ID       int64
	State    BreakState
	Currency string
	Amount   Amount
}

const (
	lockOfJob      = `SELECT pg_advisory_xact_lock(hashtextextended('reconcile_movement ' || job, 0)) `
	sqlLockBooking = lockOfJob + `FROM (SELECT @job::text AS job) one`
)

// alone lets one transaction at a time move a job's breaks. Two runs would book
// one break twice, and a roll-forward would miss what has a lower number than
// it, and is not yet committed. It comes before the locks of breaks.
func alone(ctx context.Context, tx pgx.Tx, job string) error {
	if _, err := tx.Exec(ctx, sqlLockBooking, pgx.NamedArgs{"job": job}); err != nil {
		return fmt.Errorf("wait for other bookings of %s: %w", job, err)
	}
	return nil
}

// mostKey is how many bytes of a key an index can hold beside the rest.
const mostKey = 2000

var errUnkept = errors.New("a difference cannot be kept")

// keepable reports what the console's database could not hold.
func (f Finding) keepable() error {
	if len(f.Encoded) > mostKey {
		return fmt.Errorf("%w: a key has %d bytes; the query and the look-up can give md5 of it", errUnkept, len(f.Encoded))
	}
	for _, part := range f.Key {
		if !isText(part) {
			return fmt.Errorf("%w: key %q is no text; the query and the look-up can give it in hex", errUnkept, part)
		}
	}
	return nil
}

const sqlKnown = `
SELECT b.key, b.type, b.id, b.state, b.currency, b.amount::text
FROM reconcile_break b WHERE b.job = @job AND b.key = ANY(@keys)
ORDER BY b.id FOR UPDATE`

// book takes findings that are not whole: new breaks, such that are still
// there, and such that came back.
func (b booking) book(ctx context.Context, tx pgx.Tx, found []Finding) error {
	keys := make([][]byte, len(found))
	for i, f := range found {
		if err := f.keepable(); err != nil {
			return err
		}
		keys[i] = f.Encoded
	}
	rows, err := tx.Query(ctx, sqlKnown, pgx.NamedArgs{"job": b.job, "keys": keys})
	if err != nil {
		return fmt.Errorf("query known breaks: %w", err)
	}
	before, err := pgx.CollectRows(rows, pgx.RowToStructByPos[known])
	if err != nil {
		return fmt.Errorf("read known breaks: %w", err)
	}
	have := map[string]known{}
	for _, k := range before {
		have[string(k.Key)+"\x00"+string(k.Type)] = k
	}
	batch := &pgx.Batch{}
	for _, f := range found {
		if k, ok := have[string(f.Encoded)+"\x00"+string(f.Type)]; ok {
			b.again(batch, f, k)
		} else {
			b.fresh(batch, f)
		}
	}
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("book breaks: %w", err)
	}
	return nil
}

const sqlFresh = `
WITH b AS (
  INSERT INTO reconcile_break (job, key, type, key_text, event_id, currency, amount, sides, opened_run, seen_run)
  VALUES (@job, @key, @type, @key_text, @event_id, @currency, @amount::numeric, @sides, @run, @run) RETURNING id
), m AS (
  INSERT INTO reconcile_movement (job, break_id, run_id, kind, currency, amount, items)
  SELECT @job, id, @run, 'opened', @currency, @amount::numeric, 1 FROM b
), n AS (
  INSERT INTO reconcile_note (break_id, by, kind, detail) SELECT id, 'system', 'opened', jsonb_build_object('run', @run::bigint) FROM b
)
INSERT INTO reconcile_run_break (run_id, break_id, what, type, currency, amount, sides)
SELECT @run, id, 1, @type, @currency, @amount::numeric, @sides FROM b`

func (b booking) args(f Finding) pgx.NamedArgs {
	args := pgx.NamedArgs{
		"job": b.job, "run": b.run, "key": f.Encoded, "type": f.Type, "key_text": f.Key, "event_id": nil,
		"currency": f.Currency, "amount": f.Difference.String(), "sides": f.Sides, "gone": f.gone(),
	}
	if i := slices.Index(b.key, "event_id"); i >= 0 {
		args["event_id"] = f.Key[i]
	}
	return args
}

func (b booking) fresh(batch *pgx.Batch, f Finding) { batch.Queue(sqlFresh, b.args(f)) }

const sqlAgain = `
UPDATE reconcile_break SET seen_at = now(), seen_run = @run, amount = @amount::numeric, currency = @currency,
  sides = CASE WHEN @gone THEN sides ELSE @sides END, state = @state, closed_at = NULL, closed_run = NULL, closed_how = NULL, returns = returns + @returns
WHERE id = @id`

const sqlSaid = `
INSERT INTO reconcile_run_break (run_id, break_id, what, type, currency, amount, sides)
VALUES (@run, @id, @what, @type, @currency, @amount::numeric, @sides)
ON CONFLICT (run_id, break_id) DO UPDATE SET amount = excluded.amount, currency = excluded.currency, sides = excluded.sides,
  what = CASE WHEN excluded.what IN (3, 4) THEN excluded.what ELSE reconcile_run_break.what END`

// again books a finding that is known: it is as it was, or another amount, or
// it has come back after it was closed, or explained for another amount.
func (b booking) again(batch *pgx.Batch, f Finding, k known) {
	args := b.args(f)
	args["id"], args["state"], args["returns"], args["what"] = k.ID, k.State, 0, saidThere
	same := k.Amount.Equal(f.Difference) && k.Currency == f.Currency
	switch {
	case k.State.Done() || k.State == Explained && !same:
		args["state"], args["returns"], args["what"] = Reopened, 1, saidBack
		b.move(batch, k.ID, MovedReopened, f.Currency, f.Difference, 1)
		b.tell(batch, k.ID, "reopened")
	case k.State == Explained:
		args["what"] = saidExplained
	case !same:
		b.move(batch, k.ID, MovedChanged, k.Currency, k.Amount.Neg(), 0)
		b.move(batch, k.ID, MovedChanged, f.Currency, f.Difference, 0)
		b.tell(batch, k.ID, "changed")
	}
	batch.Queue(sqlAgain, args)
	batch.Queue(sqlSaid, args)
}

const sqlMove = `
INSERT INTO reconcile_movement (job, break_id, run_id, kind, currency, amount, items)
VALUES (@job, @id, @run, @kind, @currency, @amount::numeric, @items)`

func (b booking) move(batch *pgx.Batch, id int64, kind Movement, currency string, amount Amount, items int) {
	batch.Queue(sqlMove, pgx.NamedArgs{"job": b.job, "id": id, "run": b.run, "kind": kind, "currency": currency, "amount": amount.String(), "items": items})
}

const sqlTell = `
INSERT INTO reconcile_note (break_id, by, kind, detail) VALUES (@id, 'system', @kind, jsonb_build_object('run', @run::bigint))`

func (b booking) tell(batch *pgx.Batch, id int64, kind string) {
	batch.Queue(sqlTell, pgx.NamedArgs{"id": id, "kind": kind, "run": b.run})
}

const sqlClose = `
UPDATE reconcile_break SET state = 6, closed_at = now(), closed_run = @run, closed_how = @how, seen_at = now(), seen_run = @run, sides = @sides
WHERE id = @id`

// close books a break that was found whole, or to be of another type.
func (b booking) close(batch *pgx.Batch, f Finding, k known) {
	how := "whole"
	if f.Type != "" {
		how = string(f.Type)
	}
	args := pgx.NamedArgs{"id": k.ID, "run": b.run, "how": how, "sides": f.Sides, "what": saidWhole, "type": k.Type, "currency": k.Currency, "amount": k.Amount.String()}
	batch.Queue(sqlClose, args)
	batch.Queue(sqlSaid, args)
	if k.State.Outstanding() {
		b.move(batch, k.ID, MovedAutoClosed, k.Currency, k.Amount.Neg(), -1)
	}
	b.tell(batch, k.ID, "closed")
}
