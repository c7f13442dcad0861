package effect_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"oncemore/consumer"
	"oncemore/consumer/consumertest"
	"oncemore/consumer/effect"
	"oncemore/consumer/mysqlstore"
)

var mysqlGuardTables = []string{
	`create table notification_log (id bigint auto_increment primary key, event_id varchar(64) collate utf8mb4_bin not null, member_id bigint not null,
		channel varchar(16) not null, ticket varchar(16), unique key uk_event_channel (event_id, channel), unique key uk_ticket (ticket))`,
	`create table payment_task (order_id bigint primary key, status varchar(16) not null)`,
	`create table points (user_id bigint primary key, points int not null, version int not null default 0, last_order bigint)`,
	`create table grants (user_id bigint not null, order_id bigint not null)`,
	`insert into payment_task values (10001, 'PENDING'), (10002, 'PENDING'), (10003, 'CANCELLED')`,
	`insert into points (user_id, points) values (7, 0), (8, 0)`,
}

// mysqlGuards are the specification's examples, each with what its effect shows
// of one event, and of that and its neighbour.
var mysqlGuards = map[string]struct {
	config       effect.GuardConfig
	keys         map[string][]string
	effect, both string
}{
	"unique key": {
		config: effect.GuardConfig{Strategy: consumer.ByUniqueKey, Key: "uk_event_channel",
			SQL: `insert into notification_log (event_id, member_id, channel) values (:event_id, :userId, 'EMAIL')`},
		effect: `select count(*) from notification_log`, both: `select count(*) = 2 from notification_log`,
	},
	"state": {
		config: effect.GuardConfig{Strategy: consumer.ByState,
			SQL:    `update payment_task set status = 'PROCESSED' where order_id = :orderId and status = 'PENDING'`,
			Verify: `select status = 'PROCESSED' from payment_task where order_id = :orderId`},
		effect: `select status from payment_task where order_id = 10001`, both: `select count(*) = 2 from payment_task where status = 'PROCESSED'`,
	},
	"lock on rows that are not there yet": {
		config: effect.GuardConfig{Strategy: consumer.ByLock,
			SQL:    `insert into grants values (:userId, :orderId)`,
			Verify: `select exists (select 1 from grants where user_id = :userId and order_id = :orderId)`},
		keys:   map[string][]string{"user": {":userId"}, "order": {":orderId"}},
		effect: `select count(*) from grants`, both: `select count(*) = 2 and count(distinct user_id) = 2 from grants`,
	},
	"version": {
		config: effect.GuardConfig{Strategy: consumer.ByVersion,
			SQL: `update points set points = points + 100, version = version + 1, last_order = :orderId
				where user_id = :userId and version = :version`,
			Verify: `select last_order = :orderId, version from points where user_id = :userId`},
		effect: `select concat(points, ' v', version) from points where user_id = 7`, both: `select min(points = 100 and version = 1) from points`,
	},
}

func (b mysqlBench) guardKit(t *testing.T, c effect.GuardConfig, keys map[string][]string) *consumertest.Kit[mysqlstore.Tx] {
	t.Helper()
	g, err := effect.NewGuardedMySQL(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Prepare(t.Context(), b.db); err != nil {
		t.Fatal(err)
	}
	cfg := consumer.Config[mysqlstore.Tx]{Group: "g", Strategy: c.Strategy, Store: b.store, Handler: g.Handler(), EventID: consumer.EventIDSource{JSON: "$.eventId"}}
	if keys != nil {
		if cfg.Keys, err = effect.NewKeys(keys); err != nil {
			t.Fatal(err)
		}
	}
	return consumertest.New(t, cfg)
}

func TestMySQLGuardsTakeEffectOnce(t *testing.T) {
	t.Parallel()
	for name, c := range mysqlGuards {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setupMySQL(t, mysqlGuardTables...)
			b.guardKit(t, c.config, c.keys).OnlyOnce(forOrder(10001, 7), func() string { return b.query(t, c.effect) })
			if got := b.query(t, `select count(*) from mq_consume_record`); got != "0" {
				t.Errorf("%s consume records, but the strategy keeps none", got)
			}
		})
	}
}

// Deliveries of an event and of its neighbour by six workers at once, every
// second one in reverse order.
func TestMySQLGuardsUnderConcurrency(t *testing.T) {
	t.Parallel()
	for name, c := range mysqlGuards {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setupMySQL(t, mysqlGuardTables...)
			var wg sync.WaitGroup
			for i := range 6 {
				kit := b.guardKit(t, c.config, c.keys)
				wg.Go(func() {
					one, other := forOrder(10001, 7), forOrder(10002, 8)
					if i%2 == 1 {
						one, other = other, one
					}
					for range 6 {
						if r := kit.Deliver(one, other); len(r.Letters) != 0 {
							t.Errorf("letter: %v", r.Letters[0].Err)
						}
					}
				})
			}
			wg.Wait()
			if b.query(t, c.both) != "1" {
				t.Errorf("not true: %s", c.both)
			}
		})
	}
}

func TestMySQLStateAnomalyIsALetter(t *testing.T) {
	t.Parallel()
	b := setupMySQL(t, mysqlGuardTables...)
	r := b.guardKit(t, mysqlGuards["state"].config, nil).Deliver(forOrder(10001, 7), forOrder(10003, 7), forOrder(10001, 7), forOrder(10099, 7))
	if len(r.Letters) != 2 || r.Consumed != 1 || r.Duplicates != 1 {
		t.Fatalf("%+v", r)
	}
	for _, l := range r.Letters {
		if class := consumer.ErrorClass(l.Err); class != "oncemore.AnomalyError" {
			t.Errorf("letter of class %s", class)
		}
	}
}

// Only the named key makes a duplicate; another violation is an error, and an
// insert that writes nothing is no duplicate either.
func TestMySQLOnlyTheNamedKeyIsADuplicate(t *testing.T) {
	t.Parallel()
	b := setupMySQL(t, mysqlGuardTables...)
	c := mysqlGuards["unique key"].config
	c.SQL = `insert into notification_log (event_id, member_id, channel, ticket) values (:event_id, :userId, 'EMAIL', 'T1')`
	kit := b.guardKit(t, c, nil)
	if r := kit.Deliver(forOrder(1, 7), forOrder(1, 7)); r.Consumed != 1 || r.Duplicates != 1 || len(r.Letters) != 0 {
		t.Errorf("the key: %+v", r)
	}
	if r := kit.Deliver(forOrder(2, 7)); len(r.Letters) != 1 || consumer.ErrorClass(r.Letters[0].Err) != "sql.1062" {
		t.Errorf("another key: %+v", r)
	}
	c.SQL = `insert into notification_log (event_id, member_id, channel) select :event_id, 1, 'EMAIL' from points where user_id = :userId`
	if r := b.guardKit(t, c, nil).Deliver(forOrder(3, 99)); len(r.Letters) != 1 || consumer.ErrorClass(r.Letters[0].Err) != "oncemore.AnomalyError" {
		t.Errorf("no row: %+v", r)
	}
}

func TestMySQLVersionGivesUp(t *testing.T) {
	t.Parallel()
	b := setupMySQL(t, mysqlGuardTables...)
	never := mysqlGuards["version"].config
	never.SQL += " and false"
	if r := b.guardKit(t, never, nil).Deliver(forOrder(10001, 7)); len(r.Letters) != 1 || !errors.Is(r.Letters[0].Err, consumer.ErrVersion) {
		t.Errorf("%+v", r)
	}
}

func TestGuardedMySQLRefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		config effect.GuardConfig
		want   string
	}{
		"ignore":           {effect.GuardConfig{Strategy: consumer.ByUniqueKey, Key: "k", SQL: "insert ignore into t values (:a)"}, "plain INSERT"},
		"on duplicate key": {effect.GuardConfig{Strategy: consumer.ByUniqueKey, Key: "k", SQL: "insert into t values (:a) on duplicate key update a = a"}, "plain INSERT"},
		"replace":          {effect.GuardConfig{Strategy: consumer.ByUniqueKey, Key: "k", SQL: "replace into t values (:a)"}, "plain INSERT"},
		"no key":           {effect.GuardConfig{Strategy: consumer.ByUniqueKey, SQL: "insert into t values (:a)"}, "has to be named"},
		"key of a state":   {effect.GuardConfig{Strategy: consumer.ByState, Key: "k", SQL: "update t set a = 1", Verify: "select 1"}, "has no unique key"},
		"without verify":   {effect.GuardConfig{Strategy: consumer.ByState, SQL: "update t set a = 1"}, "needs verify"},
		"without version":  {effect.GuardConfig{Strategy: consumer.ByVersion, SQL: "update t set a = 1", Verify: "select 1, 1"}, ":version"},
	} {
		if _, err := effect.NewGuardedMySQL(c.config); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	b := setupMySQL(t, mysqlGuardTables...)
	for want, change := range map[string]func(*effect.GuardConfig){
		"first of them a comparison": func(c *effect.GuardConfig) { c.Verify = `select status, 1 from payment_task where order_id = :orderId` },
		"needs 2 columns":            func(c *effect.GuardConfig) { c.Verify = `select version from points where user_id = :userId` },
		"verify: prepare statement":  func(c *effect.GuardConfig) { c.Verify = `select 1, 2 from nowhere` },
		"has a unique key uk_none":   func(c *effect.GuardConfig) { *c = mysqlGuards["unique key"].config; c.Key = "uk_none" },
	} {
		c := mysqlGuards["version"].config
		change(&c)
		g, err := effect.NewGuardedMySQL(c)
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Prepare(t.Context(), b.db); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", fmt.Sprint(want), err)
		}
	}
}
