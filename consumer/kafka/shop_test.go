package kafka

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"oncemore/consumer"
	"oncemore/consumer/brokertest"
	"oncemore/consumer/pgstore"
	"oncemore/internal/testkit"
	"oncemore/migrations/pgtest"
)

// shop is a topic, a group and a business database for tests that brokertest
// cannot ask of every broker.
type shop struct {
	*testing.T
	broker
	url          string
	pool         *pgxpool.Pool
	topic, group string
}

func openShop(t *testing.T, addr string, partitions int) *shop {
	t.Helper()
	s := &shop{T: t, broker: broker{addr}, url: pgtest.Empty(t), group: testkit.Name("points")}
	s.pool = pgtest.Open(t, s.url)
	if err := pgstore.Migrate(t.Context(), s.pool); err != nil {
		t.Fatal(err)
	}
	if _, err := s.pool.Exec(t.Context(), `CREATE TABLE user_points (order_id varchar(64) PRIMARY KEY, points int NOT NULL)`); err != nil {
		t.Fatal(err)
	}
	if partitions > 0 {
		s.topic = s.Topic(t, partitions)
	}
	return s
}

type order struct {
	EventID string `json:"eventId"`
	OrderID int    `json:"orderId"`
	Points  int    `json:"points"`
}

func payment(no int) brokertest.Message { return paymentOn(no, 0) }

func paymentOn(no, partition int) brokertest.Message {
	value, _ := json.Marshal(order{fmt.Sprintf("payment-success-%d", no), no, 100})
	return brokertest.Message{Partition: partition, Value: value}
}

func (s *shop) publish(messages ...brokertest.Message) {
	s.Helper()
	s.Publish(s.T, s.topic, messages...)
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

func shopConfig(group string, pool *pgxpool.Pool) consumer.Config[pgstore.Tx] {
	return consumer.Config[pgstore.Tx]{
		Group: group, Store: pgstore.New(pool, pgstore.Options{}), Handler: addPoints,
		EventID: consumer.EventIDSource{JSON: "$.eventId"},
		Retry:   consumer.RetryPolicy{Initial: 5 * time.Millisecond},
		Outage:  320 * time.Millisecond,
		Logger:  slog.New(slog.DiscardHandler),
	}
}

func (s *shop) config() consumer.Config[pgstore.Tx] { return shopConfig(s.group, s.pool) }

type member struct {
	*Consumer[pgstore.Tx]
	stop func()
}

func (s *shop) run(cfg consumer.Config[pgstore.Tx]) *member {
	s.Helper()
	return s.runWith(cfg, options(s.addr, s.topic))
}

func (s *shop) runWith(cfg consumer.Config[pgstore.Tx], opts Options) *member {
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

func (s *shop) acked() int {
	s.Helper()
	return s.Acked(s.T, s.group, s.topic)
}

func (s *shop) settled(n int) {
	s.Helper()
	s.await("everything is acknowledged", func() bool { return s.acked() == n })
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

func (s *shop) letters() []*kgo.Record {
	s.Helper()
	return readAll(s.T, s.addr, s.topic+".DLT")
}
