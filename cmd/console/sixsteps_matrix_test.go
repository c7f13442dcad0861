package main

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"oncemore/consumer/mysqlstore"
	"oncemore/consumer/pgstore"
	"oncemore/dlq"
	"oncemore/internal/access"
	"oncemore/internal/config"
	"oncemore/internal/testkit"
	"oncemore/migrations/pgtest"
)

// TestSixStepsOfEveryStrategy takes every strategy through the six steps on every
// kind of broker and database: one console for each pair, one group per strategy.
func TestSixStepsOfEveryStrategy(t *testing.T) {
	t.Parallel()
	databases := map[string]func(*testing.T) matrixShop{"postgres": newPostgresShop, "mariadb": newMySQLShop}
	brokers := map[string]func(*testing.T) matrixBroker{
		"kafka":    newMatrixKafka,
		"rabbit 3": func(t *testing.T) matrixBroker { return newMatrixRabbit(t, testkit.Rabbit(t)) },
		"rabbit 4": func(t *testing.T) matrixBroker { return newMatrixRabbit(t, testkit.Rabbit4(t)) },
	}
	for _, pair := range []struct{ broker, database string }{
		{"kafka", "postgres"}, {"kafka", "mariadb"}, {"rabbit 4", "postgres"}, {"rabbit 3", "mariadb"},
	} {
		t.Run(pair.broker+" and "+pair.database, func(t *testing.T) {
			t.Parallel()
			runMatrix(t, brokers[pair.broker](t), databases[pair.database](t))
		})
	}
}

// matrixStrategy is one of the strategies on a table of its own.
type matrixStrategy struct {
	config string // of the consumer; the upsert and the insert differ by database
	table  string // of its evidence
	effect string // how often order %s took effect
}

var matrixStrategies = map[string]matrixStrategy{
	"consume_record": {"effect: {sql: %[1]q}", "", "select points / 100 from user_points where order_id = '%s'"},
	"unique_key":     {"effect: {%[2]s}", "notification_log", "select count(*) from notification_log where event_id = 'payment-success-%s'"},
	"state": {`effect:
      sql: update payment_task set status = 'PROCESSED', event_id = :event_id where order_id = :orderId and status = 'PENDING'
      verify: select status = 'PROCESSED' from payment_task where order_id = :orderId`,
		"payment_task", "select count(*) from payment_task where order_id = '%s' and status = 'PROCESSED'"},
	"lock": {`lock_keys: {order: ":orderId"}
    effect:
      sql: insert into grants (order_id, event_id) values (:orderId, :event_id)
      verify: select exists (select 1 from grants where order_id = :orderId)`,
		"grants", "select count(*) from grants where order_id = '%s'"},
	"version": {`effect:
      sql: update balance set points = points + 100, version = version + 1, event_id = :event_id where order_id = :orderId and version = :version
      verify: select event_id = :event_id, version from balance where order_id = :orderId`,
		"balance", "select version from balance where order_id = '%s'"},
}

// matrixTables take the same statements in both databases.
var matrixTables = []string{
	"create table user_points (order_id varchar(20) primary key, points bigint not null)",
	"create table notification_log (event_id varchar(64) not null, channel varchar(16) not null, constraint uk_event_channel unique (event_id, channel))",
	"create table payment_task (order_id varchar(20) primary key, status varchar(16) not null, event_id varchar(64))",
	"create table grants (order_id varchar(20) not null, event_id varchar(64))",
	"create table balance (order_id varchar(20) primary key, points bigint not null, version int not null, event_id varchar(64))",
	"insert into user_points values ('10001', 0), ('10002', 0), ('10003', 0)",
	"insert into payment_task values ('10001', 'PENDING', null), ('10002', 'PENDING', null), ('10003', 'PENDING', null)",
	"insert into balance values ('10001', 0, 0, null), ('10002', 0, 0, null), ('10003', 0, 0, null)",
	"create table switch (broken int not null)",
	"insert into switch values (0)",
}

// matrixWrites says what each statement does to its table. The rules refuse just
// before that, and count the attempts, which no rollback undoes.
var matrixWrites = map[string]string{
	"user_points": "insert", "notification_log": "insert", "payment_task": "update", "grants": "insert", "balance": "update",
}

// matrixShop is a business database.
type matrixShop struct {
	kind, url      string
	exec           func(statement string)
	number         func(query string) int64
	upsert, unique string // effects that differ
}

func newPostgresShop(t *testing.T) matrixShop {
	address := pgtest.Empty(t)
	pool := pgtest.Open(t, address)
	if err := pgstore.Migrate(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	shop := postgresShop(t, pool)
	shop.url = address
	for _, text := range matrixTables {
		shop.exec(text)
	}
	shop.exec(`create sequence attempt;
create function rules() returns trigger language plpgsql as $$
begin
  if (select broken from switch) = 1 then perform nextval('attempt'); raise exception 'rules: not available'; end if;
  return new;
end $$`)
	for table, does := range matrixWrites {
		shop.exec(fmt.Sprintf("create trigger rules before %s on %s for each row execute function rules()", does, table))
	}
	return shop
}

func postgresShop(t *testing.T, pool *pgxpool.Pool) matrixShop {
	return matrixShop{
		kind: "postgres",
		exec: func(statement string) {
			t.Helper()
			if _, err := pool.Exec(t.Context(), statement); err != nil {
				t.Fatalf("%s: %v", statement, err)
			}
		},
		number: func(query string) int64 {
			t.Helper()
			var n *int64
			if err := pool.QueryRow(t.Context(), "select ("+strings.ReplaceAll(query, "ATTEMPTS", "select case when is_called then last_value else 0 end from attempt")+")::bigint").Scan(&n); err != nil {
				t.Fatalf("%s: %v", query, err)
			}
			if n == nil {
				return 0
			}
			return *n
		},
		upsert: "insert into user_points (order_id, points) values (:orderId, :points) on conflict (order_id) do update set points = user_points.points + excluded.points",
		unique: `sql: "insert into notification_log (event_id, channel) values (:event_id, 'EMAIL') on conflict (event_id, channel) do nothing"`,
	}
}

func newMySQLShop(t *testing.T) matrixShop {
	cfg := testkit.MySQL(t)
	db, err := mysqlstore.OpenPool(cfg, mysqlstore.PoolOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	if err := mysqlstore.Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	shop := mysqlShop(t, db)
	shop.url = (&url.URL{Scheme: "mysql", User: url.UserPassword(cfg.User, cfg.Passwd), Host: cfg.Addr, Path: cfg.DBName}).String()
	for _, text := range matrixTables {
		shop.exec(text)
	}
	shop.exec("create table attempt (n int not null) engine = MyISAM") // which knows no rollback
	shop.exec("insert into attempt values (0)")
	for table, does := range matrixWrites {
		shop.exec(fmt.Sprintf(`create trigger rules_%[1]s before %[2]s on %[1]s for each row
begin
  if (select broken from switch) = 1 then
    update attempt set n = n + 1;
    signal sqlstate '45000' set message_text = 'rules: not available';
  end if;
end`, table, does))
	}
	return shop
}

func mysqlShop(t *testing.T, db *sql.DB) matrixShop {
	return matrixShop{
		kind: "mysql",
		exec: func(statement string) {
			t.Helper()
			if _, err := db.ExecContext(t.Context(), statement); err != nil {
				t.Fatalf("%s: %v", statement, err)
			}
		},
		number: func(query string) int64 {
			t.Helper()
			var n sql.NullFloat64
			if err := db.QueryRowContext(t.Context(), "select ("+strings.ReplaceAll(query, "ATTEMPTS", "select n from attempt")+")").Scan(&n); err != nil {
				t.Fatalf("%s: %v", query, err)
			}
			return int64(n.Float64)
		},
		upsert: "insert into user_points (order_id, points) values (:orderId, :points) on duplicate key update points = points + :points",
		unique: `sql: "insert into notification_log (event_id, channel) values (:event_id, 'EMAIL')", unique_key: uk_event_channel`,
	}
}

// matrixBroker is where orders come from.
type matrixBroker interface {
	config(t *testing.T, groups map[string]string) string // clusters and sources; groups by strategy
	source(strategy string) string                        // topics or queue of the strategy's group
	deliver(t *testing.T, order string)                   // to every group
	acknowledged(a *app, group string, n int) bool
	again() dlq.Outcome   // of a replay that does nothing
	settled(t *testing.T) // after the end: nothing was left
}

// matrix is a console with one group per strategy.
type matrix struct {
	*testing.T
	shop   matrixShop
	broker matrixBroker
	app    *app
	groups map[string]string // by strategy
}

func runMatrix(t *testing.T, broker matrixBroker, shop matrixShop) {
	m := &matrix{T: t, shop: shop, broker: broker, groups: map[string]string{}}
	t.Cleanup(func() { broker.settled(t) })
	m.serve()

	// 1 and 2: nothing at first, then the same event twice.
	m.effects("at first", "10001", 0)
	broker.deliver(t, "10001")
	broker.deliver(t, "10001")
	m.acknowledged(2)
	m.effects("of two deliveries", "10001", 1)

	// 3: an error before the effect leaves nothing behind.
	shop.exec("update switch set broken = 1")
	broker.deliver(t, "10002")
	testkit.Eventually(t, 30*time.Second, func() bool { return shop.number("ATTEMPTS") >= int64(len(matrixStrategies)) }, "the handlers fail")
	m.effects("after the error", "10002", 0)
	for name, group := range m.groups {
		if !broker.acknowledged(m.app, group, 2) {
			t.Errorf("%s: the failed delivery is acknowledged", name)
		}
	}
	if got := m.records(); got != 1 {
		t.Errorf("%d records after the error, want 1", got)
	}

	// 4: delivered again, it works.
	shop.exec("update switch set broken = 0")
	m.acknowledged(3)
	m.effects("after the retry", "10002", 1)

	// 5: retries exhausted, a letter; its replay takes effect.
	shop.exec("update switch set broken = 1")
	broker.deliver(t, "10003")
	letters := map[string]uuid.UUID{}
	for strategy, group := range m.groups {
		letters[strategy] = m.letter(strategy, group)
	}
	m.effects("after the letter", "10003", 0)
	shop.exec("update switch set broken = 0")
	m.replay(letters, dlq.Safe, dlq.Applied)
	m.effects("after the first replay", "10003", 1)

	// 6: a second replay does nothing.
	m.replay(letters, dlq.AlreadyApplied, broker.again())
	m.effects("after the second replay", "10003", 1)
	if got := m.records(); got != 3 {
		t.Errorf("%d records in the end, want 3: only consume_record keeps any", got)
	}
}

const matrixConfig = `
environment: test
database: {url_file: %q}
connections: {shop: {kind: %s, url_file: %q}}
%s
`

func (m *matrix) serve() {
	m.Helper()
	since := time.Now().Add(-24 * time.Hour).UTC().Format(time.RFC3339)
	groups, consumers := "groups:\n", "consumers:\n"
	for _, name := range slices.Sorted(maps.Keys(matrixStrategies)) {
		s, group := matrixStrategies[name], testkit.Name(strings.ReplaceAll(name, "_", "-"))
		m.groups[name] = group
		columns := ", consumer_group: none, consumed_at: none"
		if s.table == "" {
			columns = ""
		}
		groups += fmt.Sprintf("  %s: {evidence: {connection: shop, table: %s%s, complete_since: %q}}\n", group, cmp.Or(s.table, pgstore.Table), columns, since)
		effect := s.config
		if strings.Contains(effect, "%[") {
			effect = strings.NewReplacer("%[1]q", fmt.Sprintf("%q", m.shop.upsert), "%[2]s", m.shop.unique).Replace(effect)
		}
		consumers += fmt.Sprintf("  - group: %s\n    cluster: c\n    %s\n    connection: shop\n    strategy: %s\n    %s\n    retry: {attempts: 10, initial: 300ms, multiplier: 1, max: 300ms}\n",
			group, m.broker.source(name), name, effect)
	}
	text := fmt.Sprintf(matrixConfig, secretFile(m.T, pgtest.URL(m.T)), m.shop.kind, secretFile(m.T, m.shop.url), m.broker.config(m.T, m.groups))
	conf, err := config.Parse("test.yaml", []byte(text+groups+consumers))
	if err != nil {
		m.Fatal(err)
	}
	if m.app, err = openApp(m.Context(), conf, slog.New(slog.NewTextHandler(m.Output(), &slog.HandlerOptions{Level: slog.LevelError}))); err != nil {
		m.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.app.serve(ctx, roles{Drain: true, Consume: true, Jobs: true}, nil, extras{}) }()
	m.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			m.Errorf("serve: %v", err)
		}
		m.app.close()
	})
}

func (m *matrix) records() int64 { return m.shop.number("select count(*) from mq_consume_record") }

// effects asks how often an order took effect, whatever recognises it.
func (m *matrix) effects(when, order string, want int64) {
	m.Helper()
	for name, s := range matrixStrategies {
		if got := m.shop.number(fmt.Sprintf(s.effect, order)); got != want {
			m.Errorf("%s: order %s took effect %d times %s, want %d", name, order, got, when, want)
		}
	}
}

func (m *matrix) acknowledged(n int) {
	m.Helper()
	for name, group := range m.groups {
		testkit.Eventually(m, time.Minute, func() bool { return m.broker.acknowledged(m.app, group, n) }, "%s: %d deliveries are acknowledged", name, n)
	}
}

// letter waits for the open letter of order 10003 in a group.
func (m *matrix) letter(strategy, group string) (id uuid.UUID) {
	m.Helper()
	testkit.Eventually(m, time.Minute, func() bool {
		page, err := m.app.letters.List(m.Context(), dlq.LetterFilter{State: dlq.Open, EventID: "payment-success-10003", Group: group}, dlq.Page{})
		if err != nil {
			m.Fatal(err)
		}
		if len(page.Items) == 1 {
			id = page.Items[0].ID
		}
		return len(page.Items) == 1
	}, "%s: a letter", strategy)
	return id
}

// replay replays every group's letter, all at once, to the group alone. Each is
// judged by the declared evidence.
func (m *matrix) replay(letters map[string]uuid.UUID, verdict dlq.Verdict, outcome dlq.Outcome) {
	m.Helper()
	actor := access.Actor{User: "ada", Role: access.Operator, Via: "test", Reason: "six steps"}
	started := map[string]int64{}
	for strategy, letter := range letters {
		plan, err := m.app.replays.Plan(m.Context(), actor, dlq.PlanRequest{Selection: dlq.Selection{LetterIDs: []uuid.UUID{letter}}, Target: dlq.ToGroup})
		if err == nil && first(plan.Verdicts) != verdict {
			m.Errorf("%s: verdicts %v, want %v", strategy, plan.Verdicts, verdict)
		}
		if err == nil {
			err = m.app.replays.Start(m.Context(), actor, plan.ID)
		}
		if err != nil {
			m.Fatalf("%s: %v", strategy, err)
		}
		started[strategy] = plan.ID
	}
	for strategy, id := range started {
		var r dlq.Replay
		testkit.Eventually(m, time.Minute, func() bool {
			var err error
			r, err = m.app.replays.Get(m.Context(), id)
			return err == nil && r.State == dlq.Done
		}, "%s: replay R-%d is done", strategy, id)
		if first(r.Outcomes) != outcome {
			m.Errorf("%s: outcomes %v, want %v", strategy, r.Outcomes, outcome)
		}
	}
}

// finished is what the group's consumers say they have done with effect or as duplicates.
func finished(a *app, group string) int64 {
	g, err := a.fleet.Group(context.Background(), group)
	if err != nil || g.Consumed == nil || g.Duplicates == nil {
		return 0
	}
	return *g.Consumed + *g.Duplicates
}

// matrixKafka is a topic that all groups read.
type matrixKafka struct {
	addr, topic string
	client      *kgo.Client
}

func newMatrixKafka(t *testing.T) matrixBroker {
	addr := testkit.Kafka(t)
	return &matrixKafka{addr, testkit.Topic(t, addr, "order.paid", 2), testkit.Client(t, addr)}
}

func (k *matrixKafka) config(*testing.T, map[string]string) string {
	return fmt.Sprintf("clusters: {c: {kafka: {brokers: [%q]}}}\nsources: [{cluster: c, pattern: %q, event_id: {header: event-id}}]", k.addr, k.topic+".DLT")
}

func (k *matrixKafka) source(string) string {
	return fmt.Sprintf("topics: [%q]\n    event_id: {header: event-id}", k.topic)
}

func orderPaid(order string) []byte {
	return fmt.Appendf(nil, `{"eventId":"payment-success-%[1]s","orderId":%[1]q,"points":100}`, order)
}

func (k *matrixKafka) deliver(t *testing.T, order string) {
	t.Helper()
	record := &kgo.Record{Topic: k.topic, Key: []byte(order), Value: orderPaid(order),
		Headers: []kgo.RecordHeader{{Key: "event-id", Value: []byte("payment-success-" + order)}}}
	if err := k.client.ProduceSync(t.Context(), record).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func (k *matrixKafka) acknowledged(_ *app, group string, n int) bool {
	offsets, err := kadm.NewClient(k.client).FetchOffsets(context.Background(), group)
	done := int64(0)
	offsets.Each(func(o kadm.OffsetResponse) {
		if o.Topic == k.topic {
			done += max(o.At, 0)
		}
	})
	return err == nil && done == int64(n)
}

func (k *matrixKafka) again() dlq.Outcome { return dlq.Duplicate }

func (k *matrixKafka) settled(*testing.T) {}

// matrixRabbit is an exchange with a queue for each group.
type matrixRabbit struct {
	server   testkit.RabbitServer
	channel  *amqp.Channel
	exchange string
}

func newMatrixRabbit(t *testing.T, server testkit.RabbitServer) matrixBroker {
	r := &matrixRabbit{server, rabbitChannel(t, server.URL), testkit.Name("order")}
	if err := r.channel.ExchangeDeclare(r.exchange, "fanout", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	for strategy := range matrixStrategies {
		if _, err := r.channel.QueueDeclare(r.queue(strategy), true, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
		if err := r.channel.QueueBind(r.queue(strategy), "", r.exchange, false, nil); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func (r *matrixRabbit) queue(strategy string) string { return r.exchange + "." + strategy }

func (r *matrixRabbit) config(t *testing.T, groups map[string]string) string {
	text := fmt.Sprintf("clusters: {c: {rabbit: {url_file: %q, management_url_file: %q}}}\nsources:\n", secretFile(t, r.server.URL), secretFile(t, r.server.Management))
	for strategy, group := range groups {
		text += fmt.Sprintf("  - {cluster: c, pattern: %q, group: %s, event_id: {message_id: true}}\n", r.queue(strategy)+".dlq", group)
	}
	return text
}

func (r *matrixRabbit) source(strategy string) string {
	return fmt.Sprintf("queue: %q\n    event_id: {message_id: true}", r.queue(strategy))
}

func (r *matrixRabbit) deliver(t *testing.T, order string) {
	t.Helper()
	if err := r.channel.Publish(r.exchange, "", false, false, amqp.Publishing{MessageId: "payment-success-" + order, Timestamp: time.Now(), Body: orderPaid(order)}); err != nil {
		t.Fatal(err)
	}
}

func (r *matrixRabbit) acknowledged(a *app, group string, n int) bool {
	return finished(a, group) == int64(n)
}

// again: a queue has no offset that would show that the group took it.
func (r *matrixRabbit) again() dlq.Outcome { return dlq.DuplicateExpected }

// settled runs when the consumers have ended: what they had not acknowledged
// would be back.
func (r *matrixRabbit) settled(t *testing.T) {
	conn, err := amqp.Dial(r.server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	channel, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	for strategy := range matrixStrategies {
		for _, name := range []string{r.queue(strategy), r.queue(strategy) + ".dlq"} {
			if left, err := channel.QueueDelete(name, false, false, false); err != nil || left != 0 {
				t.Errorf("%s: %d messages were left, %v", name, left, err)
			}
		}
	}
	channel.ExchangeDelete(r.exchange, false, false) //nolint:errcheck // only tidying up
}
