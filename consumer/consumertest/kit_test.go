package consumertest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/consumer"
	"oncemore/consumer/consumertest"
	"oncemore/consumer/pgstore"
	"oncemore/migrations/pgtest"
)

const payload = `{"eventId":"payment-success-10001","orderId":"10001","points":100}`

// shop is a business database with points and the ways to give them.
type shop struct{ pool *pgxpool.Pool }

func newShop(t *testing.T) shop {
	t.Helper()
	pool := pgtest.Open(t, pgtest.Empty(t))
	if err := pgstore.Migrate(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), "create table user_points (order_id text primary key, points int not null)"); err != nil {
		t.Fatal(err)
	}
	return shop{pool}
}

const sqlAdd = `
insert into user_points values ('10001', 100)
on conflict (order_id) do update set points = user_points.points + 100`

func inside(ctx context.Context, tx pgstore.Tx, _ consumer.Event) error {
	_, err := tx.Exec(ctx, sqlAdd)
	return err
}

// outside is the mistake that the kit has to find.
func (s shop) outside(ctx context.Context, _ pgstore.Tx, _ consumer.Event) error {
	_, err := s.pool.Exec(ctx, sqlAdd)
	return err
}

func (s shop) points(t testing.TB) func() string {
	return func() string {
		var points int
		if err := s.pool.QueryRow(context.Background(), "select coalesce(sum(points), 0) from user_points").Scan(&points); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(points)
	}
}

func (s shop) kit(t testing.TB, handler consumer.Handler[pgstore.Tx]) *consumertest.Kit[pgstore.Tx] {
	return consumertest.New(t, consumer.Config[pgstore.Tx]{
		Group: "points", Store: pgstore.New(s.pool, pgstore.Options{}), Handler: handler, EventID: consumer.EventIDSource{JSON: "$.eventId"},
	})
}

func TestOnlyOncePassesASoundHandler(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.kit(t, inside).OnlyOnce(consumertest.JSON("order.paid", payload), s.points(t))
	if got := s.points(t)(); got != "100" {
		t.Errorf("%s points, want 100", got)
	}
}

// verdict keeps what a kit says of a handler, instead of failing this test.
type verdict struct {
	testing.TB
	said string
}

func (v *verdict) Helper() {}
func (v *verdict) Fatalf(format string, args ...any) {
	v.said = fmt.Sprintf(format, args...)
	panic(v)
}

// Fatal is Fatalf.
func (v *verdict) Fatal(args ...any) { v.Fatalf("%s", fmt.Sprint(args...)) }

// judge runs do and returns what the kit failed with; "" if it did not.
func judge(t *testing.T, do func(testing.TB)) (said string) {
	v := &verdict{TB: t}
	defer func() {
		if r := recover(); r != nil && r != any(v) {
			panic(r)
		}
		said = v.said
	}()
	do(v)
	return ""
}

func TestOnlyOnceFindsMistakes(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	idle := func(context.Context, pgstore.Tx, consumer.Event) error { return nil }
	broken := func(context.Context, pgstore.Tx, consumer.Event) error { return errors.New("broke") }
	cases := []struct {
		name, want string
		handler    consumer.Handler[pgstore.Tx]
	}{
		{"effect outside of the transaction", "outside of the transaction", s.outside},
		{"no effect", "and still it is", idle},
		{"always fails", "dead-lettered: broke", broken},
	}
	for i, c := range cases { // one after another: they share the points
		ev := consumertest.JSON("order.paid", fmt.Sprintf(`{"eventId":"evt-%d"}`, i))
		said := judge(t, func(tb testing.TB) { s.kit(tb, c.handler).OnlyOnce(ev, s.points(t)) })
		if !strings.Contains(said, c.want) {
			t.Errorf("%s: the kit says %q, want %q", c.name, said, c.want)
		}
	}
}

func TestDeliverReports(t *testing.T) {
	t.Parallel()
	failures := 3 // one in the batch, two alone
	memory := consumertest.NewMemory("tx")
	kit := consumertest.New(t, consumer.Config[string]{
		Group: "points", Store: memory, EventID: consumer.EventIDSource{JSON: "$.eventId"},
		Handler: func(_ context.Context, tx string, ev consumer.Event) error {
			switch {
			case tx != "tx" || ev.Group != "points":
				t.Errorf("tx %q, group %q", tx, ev.Group)
			case ev.ID == "poison":
				return consumer.Permanent(errors.New("poisoned"))
			case ev.ID == "unwanted":
				return consumer.Discard(errors.New("not ours"))
			case ev.ID == "slow" && failures > 0:
				failures--
				return errors.New("not yet")
			}
			return nil
		},
	})
	event := func(id string) consumer.Event { return consumertest.JSON("t", `{"eventId":"`+id+`"}`) }
	r := kit.Deliver(event("a"), event("a"), event("slow"), event("poison"), event("unwanted"), consumertest.JSON("t", "no id"))
	if r.Consumed != 2 || r.Duplicates != 1 || r.Retried != 2 || r.Discarded != 1 || len(r.Letters) != 2 {
		t.Errorf("%+v", r)
	}
	if r.Letters[0].ID != "poison" || !errors.Is(r.Letters[1].Err, consumer.ErrNoEventID) {
		t.Errorf("letters %+v", r.Letters)
	}
	if r = kit.Deliver(event("a")); r.Duplicates != 1 || r.Consumed != 0 || len(r.Letters) != 0 {
		t.Errorf("a second call counts by itself: %+v", r)
	}
	if !memory.Has("points", "a") || memory.Has("points", "poison") || memory.Has("points", "unwanted") {
		t.Error("records do not match what was consumed")
	}
}

func TestFailuresAndLostCommits(t *testing.T) {
	t.Parallel()
	calls := 0
	memory := consumertest.NewMemory(0)
	kit := consumertest.New(t, consumer.Config[int]{
		Group: "points", Store: memory, EventID: consumer.EventIDSource{JSON: "$.eventId"},
		Handler: func(context.Context, int, consumer.Event) error { calls++; return nil },
	})
	kit.FailBeforeCommit(2)
	if r := kit.Deliver(consumertest.JSON("t", `{"eventId":"a"}`)); r.Consumed != 1 || r.Retried != 2 || calls != 3 {
		t.Errorf("two failures before the commit: %+v after %d calls", r, calls)
	}
	kit.LoseCommit(1)
	if r := kit.Deliver(consumertest.JSON("t", `{"eventId":"b"}`)); r.Duplicates != 1 || len(r.Letters) != 0 || calls != 4 {
		t.Errorf("a lost commit: %+v after %d calls", r, calls)
	}
}

func TestMemoryClaimsExclusively(t *testing.T) {
	t.Parallel()
	m := consumertest.NewMemory(0)
	first, err := m.Claim(t.Context(), "g", []string{"b"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Claim(t.Context(), "g", []string{"a", "b"}); consumer.OutcomeOf(err) != consumer.OutcomeContention {
		t.Errorf("a claimed id: %v, want contention", err)
	}
	other, err := m.Claim(t.Context(), "other", []string{"b"})
	if err != nil || !other.Fresh("b") {
		t.Errorf("another group: %v", err)
	}
	first.Rollback(t.Context())
	again, err := m.Claim(t.Context(), "g", []string{"a", "b"})
	if err != nil || !again.Fresh("a") || !again.Fresh("b") {
		t.Errorf("after a rollback: %v", err)
	}
}
