package outboxes_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/consumer/outbox"
	"oncemore/internal/access"
	"oncemore/internal/outboxes"
	"oncemore/migrations/pgtest"
)

type bundle struct {
	*outboxes.Outboxes
	t        *testing.T
	console  *pgxpool.Pool
	business *pgxpool.Pool
}

const name = "shop/outbox_message"

// setup has a dead row 1, and two rows of its key behind it.
func setup(t *testing.T) bundle {
	t.Helper()
	b := bundle{t: t, console: pgtest.New(t), business: pgtest.Open(t, pgtest.Empty(t))}
	b.must(outbox.DefaultTable.Migrate(t.Context(), b.business))
	tx, err := b.business.Begin(t.Context())
	b.must(err)
	for _, id := range []string{"dead", "second", "third"} {
		b.must(outbox.Add(t.Context(), tx, outbox.Message{EventID: id, Target: "orders", AggregateKey: "k"}))
	}
	b.must(tx.Commit(t.Context()))
	b.exec(`UPDATE outbox_message SET state = 4, attempts = 10, last_error = 'refused' WHERE id = 1`)
	box, err := outbox.Postgres(b.business, outbox.DefaultTable)
	b.must(err)
	b.Outboxes = outboxes.New(b.console, []outboxes.Outbox{{Connection: "shop", Cluster: "shop-kafka", Read: box, Write: box}}, slog.New(slog.DiscardHandler))
	return b
}

func (b bundle) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b bundle) exec(sql string) {
	b.t.Helper()
	_, err := b.business.Exec(b.t.Context(), sql)
	b.must(err)
}

func (b bundle) state(id int64) outbox.State {
	b.t.Helper()
	row, err := b.All()[0].Read.Get(b.t.Context(), id)
	b.must(err)
	return row.State
}

// audited counts the rows of the audit log with that action.
func (b bundle) audited(action string) (n int) {
	b.t.Helper()
	b.must(b.console.QueryRow(b.t.Context(), `SELECT count(*) FROM audit_log WHERE action = $1`, action).Scan(&n))
	return n
}

func who(role access.Role, user string) access.Actor {
	return access.Actor{User: user, Role: role, Via: "session", Reason: "the topic is there now"}
}

func TestRetry(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c, err := b.Retry(t.Context(), who(access.Operator, "olga"), name, 1)
	b.must(err)
	if c.EventID != "dead" || c.Releases != 2 || b.state(1) != outbox.Failing || b.audited("outbox.retried") != 1 {
		t.Errorf("command %+v, row is %s", c, b.state(1))
	}
	if got, err := b.Get(t.Context(), c.ID); err != nil || got.State != outboxes.Done || got.By != "olga" {
		t.Errorf("kept as %+v, %v", got, err)
	}
	if _, err := b.Retry(t.Context(), who(access.Operator, "olga"), name, 1); !errors.Is(err, outbox.ErrNotDead) {
		t.Errorf("again: %v", err)
	}
}

func TestSkipNeedsSomebodyElse(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c, err := b.AskSkip(t.Context(), who(access.Admin, "ada"), name, 1)
	b.must(err)
	if b.state(1) != outbox.Dead {
		t.Fatal("the row was skipped without approval")
	}
	if _, err := b.AskSkip(t.Context(), who(access.Operator, "olga"), name, 1); !errors.Is(err, outboxes.ErrConflict) {
		t.Errorf("asked twice: %v", err)
	}
	if _, err := b.Retry(t.Context(), who(access.Operator, "olga"), name, 1); !errors.Is(err, outboxes.ErrConflict) {
		t.Errorf("retried while a skip waits: %v", err)
	}
	if _, err := b.Approve(t.Context(), who(access.Admin, "ada"), c.ID); !errors.Is(err, outboxes.ErrOwnApproval) {
		t.Errorf("own approval: %v", err)
	}
	if _, err := b.Approve(t.Context(), who(access.Operator, "olga"), c.ID); !errors.Is(err, access.ErrForbidden) {
		t.Errorf("approval by an operator: %v", err)
	}
	_, err = b.Approve(t.Context(), who(access.Approver, "ann"), c.ID)
	b.must(err)
	if b.state(1) != outbox.Skipped || b.audited("outbox.skip_asked") != 1 || b.audited("outbox.skip_approved") != 1 {
		t.Errorf("row is %s", b.state(1))
	}
	if _, err := b.Reject(t.Context(), who(access.Approver, "ann"), c.ID); !errors.Is(err, outboxes.ErrConflict) {
		t.Errorf("decided twice: %v", err)
	}
}

func TestRejectLeavesTheRow(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c, err := b.AskSkip(t.Context(), who(access.Operator, "olga"), name, 1)
	b.must(err)
	_, err = b.Reject(t.Context(), who(access.Approver, "ann"), c.ID)
	b.must(err)
	open, err := b.Open(t.Context(), name)
	b.must(err)
	if b.state(1) != outbox.Dead || len(open) != 0 || b.audited("outbox.skip_rejected") != 1 {
		t.Errorf("row is %s, open %v", b.state(1), open)
	}
	if _, err := b.Retry(t.Context(), who(access.Operator, "olga"), name, 1); err != nil {
		t.Errorf("retry after a rejection: %v", err)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	b := setup(t)
	silent := who(access.Operator, "olga")
	silent.Reason = " "
	for what, c := range map[string]struct {
		actor access.Actor
		name  string
		row   int64
		want  error
	}{
		"viewer":     {who(access.Viewer, "vera"), name, 1, access.ErrForbidden},
		"no reason":  {silent, name, 1, access.ErrReasonRequired},
		"no outbox":  {who(access.Operator, "olga"), "shop/other", 1, outboxes.ErrUnknown},
		"no row":     {who(access.Operator, "olga"), name, 99, outbox.ErrNotFound},
		"not a dead": {who(access.Operator, "olga"), name, 2, outbox.ErrNotDead},
	} {
		if _, err := b.Retry(t.Context(), c.actor, c.name, c.row); !errors.Is(err, c.want) {
			t.Errorf("%s: retry: %v", what, err)
		}
		if _, err := b.AskSkip(t.Context(), c.actor, c.name, c.row); !errors.Is(err, c.want) {
			t.Errorf("%s: skip: %v", what, err)
		}
	}
	if n := b.audited("outbox.retried") + b.audited("outbox.skip_asked"); n != 0 {
		t.Errorf("%d refused commands in the audit log as done", n)
	}
}

// What was decided while the business database refused is carried out later; a
// row that somebody changed meanwhile stays as it is.
func TestFinishCarriesOutWhatWasLeft(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'down'; END $$`)
	b.exec(`CREATE TRIGGER refuse BEFORE UPDATE ON outbox_message FOR EACH ROW EXECUTE FUNCTION refuse()`)
	if _, err := b.Retry(t.Context(), who(access.Operator, "olga"), name, 1); err == nil {
		t.Fatal("the retry went through")
	}
	b.exec(`DROP TRIGGER refuse ON outbox_message`)
	age := func() {
		_, err := b.console.Exec(context.WithoutCancel(t.Context()), `UPDATE outbox_command SET decided_at = decided_at - interval '1 minute'`)
		b.must(err)
	}
	age()
	b.must(b.Finish(t.Context()))
	if b.state(1) != outbox.Failing {
		t.Errorf("row is %s", b.state(1))
	}
	b.exec(`UPDATE outbox_message SET state = 2, done_at = now() WHERE id = 1`)
	_, err := b.console.Exec(t.Context(), `UPDATE outbox_command SET state = 2, done_at = NULL`)
	b.must(err)
	b.must(b.Finish(t.Context()))
	var state outboxes.State
	b.must(b.console.QueryRow(t.Context(), `SELECT state FROM outbox_command`).Scan(&state))
	if state != outboxes.Void || b.state(1) != outbox.Sent {
		t.Errorf("command is %s, row is %s", state, b.state(1))
	}
}
