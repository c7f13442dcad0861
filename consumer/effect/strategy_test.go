package effect_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"oncemore/consumer"
	"oncemore/consumer/consumertest"
	"oncemore/consumer/effect"
	"oncemore/consumer/pgstore"
)

const guardTables = `
create table notification_log (id bigint generated always as identity primary key, event_id varchar(64) not null, member_id bigint not null,
	channel varchar(16) not null, created_at timestamptz not null default now(), constraint uk_event_channel unique (event_id, channel));
create table payment_task (order_id bigint primary key, status text not null);
create table points (user_id bigint primary key, points int not null, version int not null default 0, last_order bigint);
create table grants (user_id bigint not null, order_id bigint not null)`

// guards are the specification's examples, each with what its effect shows.
var guards = map[string]struct {
	config effect.GuardConfig
	keys   map[string][]string
	effect string
}{
	"unique key of two columns": {
		config: effect.GuardConfig{Strategy: consumer.ByUniqueKey, SQL: `
			insert into notification_log (event_id, member_id, channel) values (:event_id, :userId, 'EMAIL')
			on conflict (event_id, channel) do nothing`},
		effect: `select count(*)::text from notification_log`,
	},
	"unique key that other writes depend on": {
		config: effect.GuardConfig{Strategy: consumer.ByUniqueKey, SQL: `
			with fresh as (insert into notification_log (event_id, member_id, channel) values (:event_id, :userId, 'POINTS')
				on conflict on constraint uk_event_channel do nothing returning member_id)
			update points set points = points + 100 from fresh where user_id = member_id`},
		effect: `select points::text from points where user_id = 7`,
	},
	"state": {
		config: effect.GuardConfig{Strategy: consumer.ByState,
			SQL:    `update payment_task set status = 'PROCESSED' where order_id = :orderId and status = 'PENDING'`,
			Verify: `select status = 'PROCESSED' from payment_task where order_id = :orderId`},
		effect: `select status from payment_task where order_id = 10001`,
	},
	"lock on rows that are not there yet": {
		config: effect.GuardConfig{Strategy: consumer.ByLock,
			SQL:    `insert into grants values (:userId, :orderId)`,
			Verify: `select exists (select from grants where user_id = :userId and order_id = :orderId)`},
		keys:   map[string][]string{"user": {":userId"}, "order": {":orderId"}},
		effect: `select count(*)::text from grants`,
	},
	"version": {
		config: effect.GuardConfig{Strategy: consumer.ByVersion,
			SQL: `update points set points = points + 100, version = version + 1, last_order = :orderId
				where user_id = :userId and version = :version`,
			Verify: `select last_order = :orderId, version from points where user_id = :userId`},
		effect: `select points || ' v' || version from points where user_id = 7`,
	},
}

func guarded(t *testing.T, c effect.GuardConfig) *effect.Guarded {
	t.Helper()
	g, err := effect.NewGuarded(c)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func guardBench(t *testing.T) bench {
	t.Helper()
	b := setup(t)
	_, err := b.pool.Exec(t.Context(), guardTables+`;
		insert into payment_task values (10001, 'PENDING'), (10002, 'CANCELLED');
		insert into points values (7, 0), (8, 0)`)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (b bench) guardKit(t *testing.T, c effect.GuardConfig, keys map[string][]string) *consumertest.Kit[pgstore.Tx] {
	t.Helper()
	g := guarded(t, c)
	if err := g.Prepare(t.Context(), b.pool); err != nil {
		t.Fatal(err)
	}
	cfg := consumer.Config[pgstore.Tx]{Group: "g", Strategy: c.Strategy, Store: b.store, Handler: g.Handler(), EventID: consumer.EventIDSource{JSON: "$.eventId"}}
	if keys != nil {
		var err error
		if cfg.Keys, err = effect.NewKeys(keys); err != nil {
			t.Fatal(err)
		}
	}
	return consumertest.New(t, cfg)
}

func forOrder(order, user int) consumer.Event {
	return consumertest.JSON("order.paid", fmt.Sprintf(`{"eventId":"payment-success-%d","orderId":%d,"userId":%d}`, order, order, user))
}

func TestGuardsTakeEffectOnce(t *testing.T) {
	t.Parallel()
	for name, c := range guards {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := guardBench(t)
			b.guardKit(t, c.config, c.keys).OnlyOnce(forOrder(10001, 7), func() string { return b.query(t, c.effect) })
			if got := b.query(t, `select count(*)::text from mq_consume_record`); got != "0" {
				t.Errorf("%s consume records, but the strategy keeps none", got)
			}
		})
	}
}

// Twenty deliveries of an event and of its neighbour by eight workers at once.
func TestGuardsUnderConcurrency(t *testing.T) {
	t.Parallel()
	for name, c := range guards {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := guardBench(t)
			if _, err := b.pool.Exec(t.Context(), `update payment_task set status = 'PENDING'`); err != nil {
				t.Fatal(err)
			}
			kits := make([]*consumertest.Kit[pgstore.Tx], 8)
			for i := range kits {
				kits[i] = b.guardKit(t, c.config, c.keys)
			}
			var wg sync.WaitGroup
			for i, kit := range kits {
				wg.Go(func() {
					one, other := forOrder(10001, 7), forOrder(10002, 8)
					if i%2 == 1 {
						one, other = other, one
					}
					for range 10 {
						if r := kit.Deliver(one, other); len(r.Letters) != 0 {
							t.Errorf("letter: %v", r.Letters[0].Err)
						}
					}
				})
			}
			wg.Wait()
			for table, want := range map[string]string{
				"unique key of two columns":              "select count(*) = 2 from notification_log",
				"unique key that other writes depend on": "select bool_and(points = 100) from points",
				"state":                                  "select bool_and(status = 'PROCESSED') from payment_task",
				"lock on rows that are not there yet":    "select count(*) = 2 and count(distinct user_id) = 2 from grants",
				"version":                                "select bool_and(points = 100 and version = 1) from points",
			} {
				if table == name && b.query(t, "select ("+want+")::text") != "true" {
					t.Errorf("not true: %s", want)
				}
			}
		})
	}
}

// An anomaly is never acknowledged: it becomes a letter that says so, and its
// neighbours in the batch take effect.
func TestStateAnomalyIsALetter(t *testing.T) {
	t.Parallel()
	b := guardBench(t)
	kit := b.guardKit(t, guards["state"].config, nil)
	r := kit.Deliver(forOrder(10001, 7), forOrder(10002, 7), forOrder(10003, 7), forOrder(10001, 7))
	if len(r.Letters) != 2 || r.Consumed != 1 || r.Duplicates != 1 {
		t.Fatalf("%+v", r)
	}
	for _, l := range r.Letters {
		if class := consumer.ErrorClass(l.Err); class != "oncemore.AnomalyError" || l.Attempt != 4 {
			t.Errorf("letter of class %s after %d attempts", class, l.Attempt)
		}
	}
	if got := b.query(t, `select status from payment_task where order_id = 10002`); got != "CANCELLED" {
		t.Errorf("status %s", got)
	}
}

func TestVersionGivesUp(t *testing.T) {
	t.Parallel()
	b := guardBench(t)
	never := guards["version"].config
	never.SQL += " and false"
	r := b.guardKit(t, never, nil).Deliver(forOrder(10001, 7))
	if len(r.Letters) != 1 || !errors.Is(r.Letters[0].Err, consumer.ErrVersion) || r.Retried != 3 {
		t.Errorf("%+v", r)
	}
	r = b.guardKit(t, guards["version"].config, nil).Deliver(forOrder(10003, 99))
	if len(r.Letters) != 1 || !strings.Contains(r.Letters[0].Err.Error(), "no row to read") {
		t.Errorf("%+v", r)
	}
}

// A key that is held elsewhere is contention: no attempt is counted, and the
// event takes effect when it is free.
func TestLockTimeOutIsContention(t *testing.T) {
	t.Parallel()
	b := guardBench(t)
	b.store = pgstore.New(b.pool, pgstore.Options{LockTimeout: 50 * time.Millisecond})
	holder, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Rollback(t.Context()) //nolint:errcheck // harmless after Commit
	if _, err := holder.Exec(t.Context(), `select pg_advisory_xact_lock(hashtextextended('user/7', 0))`); err != nil {
		t.Fatal(err)
	}
	c := guards["lock on rows that are not there yet"]
	result := make(chan consumertest.Result, 1)
	kit := b.guardKit(t, c.config, c.keys)
	go func() { result <- kit.Deliver(forOrder(10001, 7)) }()
	select {
	case r := <-result:
		t.Fatalf("went past a held key: %+v", r)
	case <-time.After(300 * time.Millisecond):
	}
	if err := holder.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := <-result; r.Consumed != 1 || r.Retried != 0 || len(r.Letters) != 0 {
		t.Errorf("%+v", r)
	}
}

func TestKeysOfAnEvent(t *testing.T) {
	t.Parallel()
	keys, err := effect.NewKeys(map[string][]string{"account": {":from", ":to"}, "shop": {"all"}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := keys(paid("e", `{"from":2,"to":"1"}`))
	if err != nil || fmt.Sprint(got) != "[account/2 account/1 shop/all]" {
		t.Errorf("%v, %v", got, err)
	}
	for _, payload := range []string{`{"from":2}`, `{"from":2,"to":null}`, `no`} {
		if _, err := keys(paid("e", payload)); consumer.OutcomeOf(err) != consumer.OutcomePermanent {
			t.Errorf("%s: %v", payload, err)
		}
	}
}

func TestGuardRefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		config effect.GuardConfig
		want   string
	}{
		"no conflict clause":      {effect.GuardConfig{Strategy: consumer.ByUniqueKey, SQL: "insert into t values (:a)"}, "ON CONFLICT"},
		"any conflict":            {effect.GuardConfig{Strategy: consumer.ByUniqueKey, SQL: "insert into t values (:a) on conflict do nothing"}, "without the columns"},
		"update on conflict":      {effect.GuardConfig{Strategy: consumer.ByUniqueKey, SQL: "insert into t values (:a) on conflict (a) do update set b = 1"}, "DO NOTHING"},
		"unique key with verify":  {effect.GuardConfig{Strategy: consumer.ByUniqueKey, SQL: "insert into t values (:a) on conflict (a) do nothing", Verify: "select true"}, "no verify"},
		"state without verify":    {effect.GuardConfig{Strategy: consumer.ByState, SQL: "update t set a = 1"}, "needs verify"},
		"verify that writes":      {effect.GuardConfig{Strategy: consumer.ByLock, SQL: "update t set a = 1", Verify: "delete from t"}, "needs verify"},
		"version without version": {effect.GuardConfig{Strategy: consumer.ByVersion, SQL: "update t set a = 1", Verify: "select true, 1"}, ":version"},
		"consume record":          {effect.GuardConfig{Strategy: consumer.ByRecord, SQL: "update t set a = 1"}, "does not rest"},
		"two verify statements":   {effect.GuardConfig{Strategy: consumer.ByState, SQL: "update t set a = 1", Verify: "select true; select false"}, "verify: "},
	} {
		if _, err := effect.NewGuarded(c.config); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	b := guardBench(t)
	wrong := guards["version"].config
	wrong.Verify = `select version, last_order from points where user_id = :userId`
	if err := guarded(t, wrong).Prepare(t.Context(), b.pool); err == nil || !strings.Contains(err.Error(), "first of them boolean") {
		t.Errorf("prepare: %v", err)
	}
}
