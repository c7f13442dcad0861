package shop

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"
)

const sqlBook = `
insert into points_ledger (event_id, amount, currency, booked_by)
select event_id, @amount::numeric, currency, 'points-api' from payment where event_id = @event`

var positive = regexp.MustCompile(`^\d{1,12}(\.\d{1,2})?$`)

// credit books points for a payment.
func credit(ctx context.Context, tx pgx.Tx, call pointsCall) (int, pointsAnswer, error) {
	if !positive.MatchString(call.Amount.String()) || strings.Trim(call.Amount.String(), "0.") == "" {
		return refused(http.StatusUnprocessableEntity, "amount has to be more than 0, with at most two decimals")
	}
	tag, err := tx.Exec(ctx, sqlBook, pgx.NamedArgs{"event": call.EventID, "amount": call.Amount.String()})
	if err != nil {
		return 0, pointsAnswer{}, fmt.Errorf("credit %s: %w", call.EventID, err)
	}
	if tag.RowsAffected() == 0 {
		return refused(http.StatusUnprocessableEntity, "no payment has that event id")
	}
	answer, err := balance(ctx, tx, call.EventID)
	return http.StatusCreated, answer, err
}

// reverse takes points back, at most what is credited. Where nothing is, there is
// nothing to do: a saga may reverse what never happened.
func reverse(ctx context.Context, tx pgx.Tx, call pointsCall) (int, pointsAnswer, error) {
	if !positive.MatchString(call.Amount.String()) {
		return refused(http.StatusUnprocessableEntity, "amount has to be at least 0, with at most two decimals")
	}
	if _, err := tx.Exec(ctx, sqlLockPayment, call.EventID); err != nil {
		return 0, pointsAnswer{}, fmt.Errorf("reverse %s: %w", call.EventID, err)
	}
	var more bool
	if err := tx.QueryRow(ctx, sqlMore, pgx.NamedArgs{"event": call.EventID, "amount": call.Amount.String()}).Scan(&more); err != nil {
		return 0, pointsAnswer{}, fmt.Errorf("reverse %s: %w", call.EventID, err)
	}
	now, err := balance(ctx, tx, call.EventID)
	switch {
	case err != nil || now.Entries == 0 || now.Amount == "0.00":
		now.Done = false
		return http.StatusOK, now, err
	case more:
		return refused(http.StatusUnprocessableEntity, "only "+now.Amount+" "+now.Currency+" is credited")
	}
	if _, err := tx.Exec(ctx, sqlBook, pgx.NamedArgs{"event": call.EventID, "amount": "-" + call.Amount.String()}); err != nil {
		return 0, pointsAnswer{}, fmt.Errorf("reverse %s: %w", call.EventID, err)
	}
	now, err = balance(ctx, tx, call.EventID)
	return http.StatusOK, now, err
}

const (
	sqlLockPayment = `select from payment where event_id = $1 for update`
	sqlMore        = `select @amount::numeric > coalesce(sum(amount), 0) from points_ledger where event_id = @event`
	sqlBalance     = `select coalesce(sum(amount), 0)::numeric(18, 2)::text, coalesce(min(currency), ''), count(*) from points_ledger where event_id = @event`
)

type queryRow interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func balance(ctx context.Context, db queryRow, event string) (pointsAnswer, error) {
	a := pointsAnswer{EventID: event, Done: true}
	if err := db.QueryRow(ctx, sqlBalance, pgx.NamedArgs{"event": event}).Scan(&a.Amount, &a.Currency, &a.Entries); err != nil {
		return a, fmt.Errorf("balance of %s: %w", event, err)
	}
	return a, nil
}

const (
	sqlStumble  = `delete from broken_handler where name = any($1) returning name`
	sqlAnnounce = `insert into notification_log (event_id, channel) values ($1, 'points') on conflict do nothing`
)

// What makes the next announcement fail, as a row of broken_handler: once with
// 503, which may be tried again, or once with 422, which may not.
const (
	StumbleAnnounce = "announce"
	RefuseAnnounce  = "announce-refused"
)

// announce tells the customer of their points.
func announce(ctx context.Context, tx pgx.Tx, call pointsCall) (int, pointsAnswer, error) {
	rows, err := tx.Query(ctx, sqlStumble, []string{StumbleAnnounce, RefuseAnnounce})
	if err != nil {
		return 0, pointsAnswer{}, fmt.Errorf("announce %s: %w", call.EventID, err)
	}
	broken, err := pgx.CollectRows(rows, pgx.RowTo[string])
	switch {
	case err != nil:
		return 0, pointsAnswer{}, fmt.Errorf("announce %s: %w", call.EventID, err)
	case len(broken) > 0 && broken[0] == RefuseAnnounce:
		return refused(http.StatusUnprocessableEntity, "the customer has no address for news")
	case len(broken) > 0:
		return refused(http.StatusServiceUnavailable, "the carrier does not answer")
	}
	if _, err := tx.Exec(ctx, sqlAnnounce, call.EventID); err != nil {
		return 0, pointsAnswer{}, fmt.Errorf("announce %s: %w", call.EventID, err)
	}
	return http.StatusOK, pointsAnswer{EventID: call.EventID, Done: true}, nil
}
