package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"oncemore/consumer"
	"oncemore/consumer/consumertest"
	"oncemore/consumer/pgstore"
	"oncemore/internal/testkit"
	"oncemore/migrations/pgtest"
)

func database(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool := pgtest.Open(t, pgtest.Empty(t))
	if err := migrate(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	return pool
}

func pointsOf(t *testing.T, pool *pgxpool.Pool, order string) string {
	t.Helper()
	var points int64
	if err := pool.QueryRow(t.Context(), "select coalesce(sum(points), 0) from user_points where order_id = $1", order).Scan(&points); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(points)
}

// The handler by itself: no broker is needed.
func TestPointsAreGivenOnce(t *testing.T) {
	t.Parallel()
	pool := database(t)
	kit := consumertest.New(t, config(pool, slog.New(slog.DiscardHandler)))
	kit.OnlyOnce(consumertest.JSON(topic, `{"eventId":"payment-success-10001","orderId":"10001","points":100}`),
		func() string { return pointsOf(t, pool, "10001") })
	if got := pointsOf(t, pool, "10001"); got != "100" {
		t.Errorf("%s points, want 100", got)
	}
}

// The groups without consume records, through failures, a lost commit and
// further deliveries.
func TestOtherStrategiesTakeEffectOnce(t *testing.T) {
	t.Parallel()
	pool := database(t)
	if _, err := pool.Exec(t.Context(), `insert into payment_task values ('10001', 'PENDING'), ('10002', 'CANCELLED')`); err != nil {
		t.Fatal(err)
	}
	text := func(sql string) func() string {
		return func() (got string) {
			if err := pool.QueryRow(t.Context(), sql).Scan(&got); err != nil {
				t.Fatal(err)
			}
			return got
		}
	}
	log := slog.New(slog.DiscardHandler)
	paid := consumertest.JSON(topic, `{"eventId":"payment-success-10001","orderId":"10001","memberId":7}`)
	consumertest.New(t, notifyConfig(pool, log)).OnlyOnce(paid, text(`select count(*)::text from notification_log`))
	tasks := consumertest.New(t, taskConfig(pool, log))
	tasks.OnlyOnce(paid, text(`select status from payment_task where order_id = '10001'`))
	r := tasks.Deliver(consumertest.JSON(topic, `{"eventId":"payment-success-10002","orderId":"10002"}`))
	if len(r.Letters) != 1 || consumer.ErrorClass(r.Letters[0].Err) != "oncemore.AnomalyError" {
		t.Errorf("a cancelled task: %+v", r)
	}
}

func TestWhatIsNoPaymentIsADeadLetter(t *testing.T) {
	t.Parallel()
	kit := consumertest.New(t, config(database(t), slog.New(slog.DiscardHandler)))
	r := kit.Deliver(
		consumertest.JSON(topic, `{"eventId":"a","orderId":7}`),
		consumertest.JSON(topic, `{"eventId":"b"}`),
		consumertest.JSON(topic, `{"orderId":"10001","points":100}`),
	)
	if len(r.Letters) != 3 || r.Retried != 0 || !errors.Is(r.Letters[2].Err, consumer.ErrNoEventID) {
		t.Errorf("%+v", r)
	}
}

// All three groups on a broker in memory, while their processes die and every
// delivery comes twice: each payment takes effect once in each.
func TestGroupsThroughDeaths(t *testing.T) {
	t.Parallel()
	const orders = 40
	pool, log := database(t), slog.New(slog.DiscardHandler)
	if _, err := pool.Exec(t.Context(), `insert into payment_task select o::text, 'PENDING' from generate_series(1, 40) o`); err != nil {
		t.Fatal(err)
	}
	broker := consumertest.NewBroker(3)
	broker.EveryDeliveryTwice()
	for order := range orders {
		broker.Publish(consumertest.JSON(topic, fmt.Sprintf(`{"eventId":"payment-success-%d","orderId":"%d","memberId":7,"points":100}`, order+1, order+1)))
	}
	for _, cfg := range []consumer.Config[pgstore.Tx]{config(pool, log), notifyConfig(pool, log), taskConfig(pool, log)} {
		cfg.BatchSize = 5
		member := consumertest.Start(t, broker, cfg, topic)
		member.Crash(consumertest.BeforeCommit, 2)
		member.Crash(consumertest.AfterCommit, 2)
		member.Crash(consumertest.DuringAck, 2)
	}
	broker.Settled(t)
	var points, most, notified, processed int
	err := pool.QueryRow(t.Context(), `select (select sum(points) from user_points), (select max(points) from user_points),
		(select count(*) from notification_log), (select count(*) from payment_task where status = 'PROCESSED')`).Scan(&points, &most, &notified, &processed)
	if err != nil || points != 100*orders || most != 100 || notified != orders || processed != orders || len(broker.Letters(topic)) != 0 {
		t.Errorf("%d points, at most %d, %d notified, %d processed, letters %v, %v", points, most, notified, processed, broker.Letters(topic), err)
	}
}

// The whole service: paid twice, restarted, paid again.
func TestServe(t *testing.T) {
	t.Parallel()
	pool, addr := database(t), testkit.FakeKafkaAddr(t)
	brokers := kgo.SeedBrokers(addr)
	for range 2 { // the second finds it there
		if err := createTopic(t.Context(), brokers); err != nil {
			t.Fatal(err)
		}
	}
	publish := func(orders ...string) {
		t.Helper()
		for _, order := range orders {
			if err := pay(t.Context(), brokers, order); err != nil {
				t.Fatal(err)
			}
		}
	}
	publish("10001", "10001", "10002")
	for run := range 2 {
		stop := start(t, pool, brokers)
		last := fmt.Sprint("2000", run)
		publish("10001", last)
		testkit.Eventually(t, 30*time.Second, func() bool { return pointsOf(t, pool, last) == "100" && pointsOf(t, pool, "10002") == "100" }, "points of %s", last)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	}
	publish("10001")
	stop := start(t, pool, brokers)
	publish("30000")
	testkit.Eventually(t, 30*time.Second, func() bool { return pointsOf(t, pool, "30000") == "100" }, "points of 30000")
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if got := pointsOf(t, pool, "10001"); got != "100" {
		t.Errorf("order 10001 has %s points after five payment events, want 100", got)
	}
}

// start runs the service and returns what ends it.
func start(t *testing.T, pool *pgxpool.Pool, brokers kgo.Opt) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- runAll(ctx, pool, brokers, slog.New(slog.DiscardHandler)) }()
	return func() error { cancel(); return <-ended }
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"pay"}, {"serve", "x"}, {"refund", "1"}} {
		if err := run(t.Context(), args); err == nil {
			t.Errorf("run(%v) gave no error", args)
		}
	}
}
