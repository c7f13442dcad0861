package rabbit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	amqp "github.com/rabbitmq/amqp091-go"

	"oncemore/consumer"
	"oncemore/consumer/pgstore"
	"oncemore/internal/testkit"
	"oncemore/migrations/pgtest"
)

// shop is a queue, a group and a business database for tests that brokertest
// cannot ask of every broker.
type shop struct {
	*testing.T
	*broker
	*queue
	pool  *pgxpool.Pool
	name  string
	group string
	dead  string
	logs  *syncBuffer
}

// openShop makes the shop's queue with a dead-letter queue.
func openShop(t *testing.T, b *broker) *shop {
	t.Helper()
	s := openBareShop(t, b)
	s.declare(t, s.dead, nil)
	return s
}

// openBareShop leaves the dead-letter queue out.
func openBareShop(t *testing.T, b *broker) *shop {
	t.Helper()
	s := &shop{T: t, broker: b, name: testkit.Name("order.paid"), group: testkit.Name("points"), logs: &syncBuffer{}}
	s.dead = s.name + ".dlq"
	s.pool = pgtest.Open(t, pgtest.Empty(t))
	if err := pgstore.Migrate(t.Context(), s.pool); err != nil {
		t.Fatal(err)
	}
	if _, err := s.pool.Exec(t.Context(), `CREATE TABLE user_points (order_id varchar(64) PRIMARY KEY, points int NOT NULL)`); err != nil {
		t.Fatal(err)
	}
	b.declare(t, s.name, nil)
	s.queue = b.add(t, s.name)
	return s
}

type order struct {
	EventID string `json:"eventId"`
	OrderID int    `json:"orderId"`
	Points  int    `json:"points"`
}

func payment(no int) amqp.Publishing {
	value, _ := json.Marshal(order{fmt.Sprintf("payment-success-%d", no), no, 100})
	return amqp.Publishing{Body: value, DeliveryMode: amqp.Persistent}
}

func paymentID(no int) string { return fmt.Sprintf("payment-success-%d", no) }

// pay publishes the payments of orders from 1 to n.
func (s *shop) pay(n int) {
	s.Helper()
	for i := range n {
		s.send(s.T, s.name, payment(i+1))
	}
}

func addPoints(_ context.Context, tx pgstore.Tx, ev consumer.Event) error {
	var o order
	if err := json.Unmarshal(ev.Value, &o); err != nil {
		return consumer.Permanent(err)
	}
	tx.Queue(`INSERT INTO user_points VALUES ($1, $2) ON CONFLICT (order_id) DO UPDATE SET points = user_points.points + excluded.points`,
		fmt.Sprint(o.OrderID), o.Points)
	return nil
}

var errBoom = errors.New("boom")

func (s *shop) config(h consumer.Handler[pgstore.Tx]) consumer.Config[pgstore.Tx] {
	return consumer.Config[pgstore.Tx]{
		Group: s.group, Store: pgstore.New(s.pool, pgstore.Options{LockTimeout: 500 * time.Millisecond}), Handler: h,
		EventID: consumer.EventIDSource{JSON: "$.eventId"},
		Retry:   consumer.RetryPolicy{Initial: 5 * time.Millisecond, Max: 20 * time.Millisecond},
		Outage:  320 * time.Millisecond,
		Logger:  slog.New(slog.NewTextHandler(s.logs, nil)),
	}
}

func (s *shop) opts() Options { return s.options(s.name, 0) }

type member struct {
	*Consumer[pgstore.Tx]
	stop func()
}

func (s *shop) run(cfg consumer.Config[pgstore.Tx], opts Options) *member {
	s.Helper()
	c, err := New(cfg, opts)
	if err != nil {
		s.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	m := &member{c, sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				s.Errorf("consumer ended with %v", err)
			}
		case <-time.After(30 * time.Second):
			s.Error("consumer does not stop")
		}
	})}
	s.Cleanup(m.stop)
	return m
}

func (s *shop) points(no int) int {
	s.Helper()
	return s.count(`SELECT coalesce(sum(points), 0)::int FROM user_points WHERE order_id = $1`, fmt.Sprint(no))
}

func (s *shop) records() int {
	s.Helper()
	return s.count(`SELECT count(*)::int FROM mq_consume_record WHERE consumer_group = $1`, s.group)
}

func (s *shop) count(sql string, args ...any) int {
	s.Helper()
	var n int
	if err := s.pool.QueryRow(s.Context(), sql, args...).Scan(&n); err != nil {
		s.Fatal(err)
	}
	return n
}

// ready is how many messages of a queue nobody holds.
func ready(t *testing.T, ch *amqp.Channel, name string) int {
	t.Helper()
	q, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
	if err != nil {
		t.Fatalf("look up %s: %v", name, err)
	}
	return q.Messages
}

func (s *shop) ready(name string) int {
	s.Helper()
	return ready(s.T, s.publish, name)
}

// effectsOnce fails unless each order from 1 to n has exactly its hundred points.
func (s *shop) effectsOnce(n int) {
	s.Helper()
	wrong := s.count(`SELECT count(*)::int FROM generate_series(1, $1) o LEFT JOIN user_points ON order_id = o::text WHERE points IS DISTINCT FROM 100`, n)
	if wrong != 0 || s.records() != n {
		s.Errorf("%d orders without exactly 100 points, %d records of %d", wrong, s.records(), n)
	}
}

func (s *shop) settled(n int) {
	s.Helper()
	s.await("everything is acknowledged", func() bool { return s.wire.Acked() == n })
}

func (s *shop) await(what string, ok func() bool) {
	s.Helper()
	testkit.Eventually(s.T, time.Minute, ok, "%s", what)
}

// holds fails if the condition breaks within d.
func (s *shop) holds(d time.Duration, what string, ok func() bool) {
	s.Helper()
	for deadline := time.Now().Add(d); time.Now().Before(deadline); {
		if !ok() {
			s.Fatalf("does not hold: %s", what)
		}
		<-time.After(20 * time.Millisecond)
	}
}

// syncBuffer keeps a log.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *syncBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *syncBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
