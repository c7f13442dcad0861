package main

import (
	"log/slog"
	"maps"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"oncemore/compensate"
	"oncemore/internal/access"
	"oncemore/internal/config"
	"oncemore/migrations/pgtest"
)

const alertAction = `
action: credit
applies_to: [missing_effect]
kind: http
url: "{{points-api}}/credit"
limits: {amount_per_day: "50"}
`

// repairDesk is a console whose people look at repairs.
type repairDesk struct {
	*testing.T
	*app
	now time.Time
}

func openRepairDesk(t *testing.T) *repairDesk {
	t.Helper()
	d := &repairDesk{T: t, now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}
	rules := map[string]config.AlertRule{"approval_age": {Above: -1, OlderThan: 2 * time.Hour}}
	d.app = &app{pool: pgtest.New(t), conf: &config.Config{Alerts: config.Alerts{Rules: rules}}, clock: func() time.Time { return d.now }}
	var err error
	d.compensations, err = compensate.New(compensate.Config{Pool: d.pool, Actions: compensate.NewActions(d.pool), Clock: d.clock, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	action, err := compensate.ParseAction("credit.yaml", []byte(alertAction))
	if err == nil {
		err = pgx.BeginFunc(t.Context(), d.pool, func(tx pgx.Tx) error {
			_, err := d.compensations.Actions.Keep(t.Context(), tx, action, alertAction, "test")
			return err
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// has adds a compensation that was asked for some time ago.
func (d *repairDesk) has(state compensate.State, amount string, ago time.Duration) {
	d.Helper()
	_, err := d.pool.Exec(d.Context(), `INSERT INTO compensation (action, version, inputs, effect, hash, state, asked_by, asked_at, reason, checkers, currency, amount)
		VALUES ('credit', 1, '{}', '[]', '', $1, 'max', $2, 'x', 1, 'CNY', $3::text::numeric)`, state, d.now.Add(-ago), amount)
	if err != nil {
		d.Fatal(err)
	}
}

// told is what the rules of compensation find, in words.
func (d *repairDesk) told() map[string]string {
	d.Helper()
	found := map[string]string{}
	for _, r := range d.alertRules() {
		switch r.Name {
		case "needs_attention", "approval_age", "kill_switch", "day_limit":
		default:
			continue
		}
		conditions, err := r.Look(d.Context())
		if err != nil {
			d.Fatal(err)
		}
		for _, c := range conditions {
			found[r.Name+" "+c.Key+" "+c.Href] = alertWords("en", "alert."+r.Name+".says", c.Args)
		}
	}
	return found
}

func (d *repairDesk) wants(when string, want map[string]string) {
	d.Helper()
	if got := d.told(); !maps.Equal(got, want) {
		d.Errorf("%s: told %q, want %q", when, got, want)
	}
}

// What has to be told of repairs: one has stopped, an approval is late, the
// schedule is stopped, a day's limit is used up; each ends by itself.
func TestPeopleAreToldOfRepairs(t *testing.T) {
	t.Parallel()
	d := openRepairDesk(t)
	d.has(compensate.Proposed, "5", 2*time.Hour) // not longer than two hours
	d.has(compensate.Approved, "40", time.Hour)
	d.has(compensate.Running, "400", 48*time.Hour)
	d.wants("nothing is wrong", map[string]string{})

	d.has(compensate.NeedsAttention, "1", 26*time.Hour)
	d.has(compensate.NeedsAttention, "1", time.Minute)
	d.has(compensate.Proposed, "5", 3*time.Hour)
	d.has(compensate.Approved, "45", time.Hour)
	if _, err := d.pool.Exec(t.Context(), "INSERT INTO compensation_day VALUES ('credit', $1, 'CNY', 10.01, 2), ('credit', $2, 'CNY', 50, 9)", d.now, d.now.AddDate(0, 0, -1)); err != nil {
		t.Fatal(err)
	}
	operator, approver := access.Actor{User: "max", Role: access.Operator, Reason: "it credits twice"}, access.Actor{User: "cleo", Role: access.Approver, Reason: "mended"}
	if err := d.compensations.Stop(t.Context(), operator); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{
		"needs_attention action/credit /compensations?state=needs_attention&action=credit":     "2 compensations by credit have stopped and need a person, the oldest since 1 d 2 h.",
		"approval_age action/credit /compensations?state=awaiting_approval&action=credit":      "2 compensations by credit wait for an approval, the oldest for 3 h.",
		"kill_switch compensations /compensations":                                             "max has stopped all scheduled compensations: it credits twice",
		"day_limit action/credit/CNY /compensations?state=approved&action=credit&currency=CNY": "credit has started 10.01 CNY of 50.00 CNY today. C-2 and what comes after it starts tomorrow.",
	}
	d.wants("all is wrong", all)

	if err := d.compensations.Go(t.Context(), approver); err != nil {
		t.Fatal(err)
	}
	if _, err := d.pool.Exec(t.Context(), "UPDATE compensation SET state = 9, finished_at = now() WHERE state IN (1, 7)"); err != nil {
		t.Fatal(err)
	}
	d.now = d.now.AddDate(0, 0, 1) // a new day has its own limit
	d.wants("all is mended", map[string]string{})
}
