package brokertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/consumer"
	"oncemore/consumer/pgstore"
)

// shop is a business: its database, a topic and a group that gives points.
type shop struct {
	*testing.T
	broker    Broker
	url       string
	pool      *pgxpool.Pool // of the test, never cut
	topic     string
	group     string
	published int
}

const sqlSchema = `
CREATE TABLE user_points (order_id varchar(64) PRIMARY KEY, points int NOT NULL DEFAULT 0);
CREATE TABLE applied (seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, event_id text, part int, pos bigint)`

func openShop(t *testing.T, broker Broker, url string) *shop {
	s := &shop{T: t, broker: broker, url: url, pool: connect(t, url, nil), group: broker.Group(t)}
	if err := pgstore.Migrate(t.Context(), s.pool); err != nil {
		t.Fatal(err)
	}
	s.exec(sqlSchema)
	return s
}

func connect(t *testing.T, url string, dial func(context.Context, string, string) (net.Conn, error)) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	if dial != nil {
		cfg.ConnConfig.DialFunc = dial
	}
	cfg.MaxConns = 8
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func (s *shop) exec(sql string, args ...any) {
	s.Helper()
	if _, err := s.pool.Exec(s.Context(), sql, args...); err != nil {
		s.Fatalf("%s: %v", sql, err)
	}
}

func column[V any](s *shop, sql string, args ...any) []V {
	s.Helper()
	rows, _ := s.pool.Query(s.Context(), sql, args...)
	all, err := pgx.CollectRows(rows, pgx.RowTo[V])
	if err != nil {
		s.Fatalf("%s: %v", sql, err)
	}
	return all
}

func (s *shop) points(order string) int {
	s.Helper()
	return column[int](s, `SELECT coalesce(sum(points), 0)::int FROM user_points WHERE order_id = $1`, order)[0]
}

func (s *shop) records(event string) int {
	s.Helper()
	return column[int](s, `SELECT count(*)::int FROM mq_consume_record WHERE event_id = $1 AND consumer_group = $2`, event, s.group)[0]
}

// paid is the specification's message.
type paid struct {
	EventID string `json:"eventId"`
	OrderID string `json:"orderId"`
	Points  int    `json:"points"`
}

func (p paid) on(partition int) Message {
	b, _ := json.Marshal(p)
	return Message{Partition: partition, Key: []byte(p.OrderID), Value: b}
}

// order is the payment of one order: a hundred points.
func order(no int) paid {
	return paid{fmt.Sprintf("payment-success-%d", no), fmt.Sprint(no), 100}
}

func (s *shop) publish(messages ...Message) {
	s.Helper()
	if s.topic == "" {
		s.open(1)
	}
	s.broker.Publish(s.T, s.topic, messages...)
	s.published += len(messages)
}

// open makes the shop's topic.
func (s *shop) open(partitions int) { s.topic = s.broker.Topic(s.T, partitions) }

const sqlAddPoints = `
INSERT INTO user_points (order_id, points) VALUES ($1, $2)
ON CONFLICT (order_id) DO UPDATE SET points = user_points.points + excluded.points`

const sqlApplied = `INSERT INTO applied (event_id, part, pos) VALUES ($1, $2, $3)`

// addPoints is the handler of all cases: points, and a line that says in which
// order events took effect.
func addPoints(_ context.Context, tx pgstore.Tx, ev consumer.Event) error {
	var p paid
	if err := json.Unmarshal(ev.Value, &p); err != nil {
		return consumer.Permanent(err)
	}
	tx.Queue(sqlAddPoints, p.OrderID, p.Points)
	tx.Queue(sqlApplied, ev.ID, ev.Partition, number(ev))
	return nil
}

// number is the number of an order's event.
func number(ev consumer.Event) int {
	n, _ := strconv.Atoi(strings.TrimPrefix(ev.ID, "payment-success-"))
	return n
}

// config is quick: pauses in milliseconds.
func (s *shop) config(h consumer.Handler[pgstore.Tx]) consumer.Config[pgstore.Tx] {
	return consumer.Config[pgstore.Tx]{
		Group: s.group, Handler: h,
		Store:   pgstore.New(connect(s.T, s.url, nil), pgstore.Options{LockTimeout: 500 * time.Millisecond}),
		EventID: consumer.EventIDSource{Header: "x-event", JSON: "$.eventId"},
		Retry:   consumer.RetryPolicy{Initial: 5 * time.Millisecond, Max: 20 * time.Millisecond},
		Outage:  320 * time.Millisecond,
		Logger:  slog.New(slog.DiscardHandler),
	}
}

// member is a running consumer.
type member struct {
	consumer.Runner
	s    *shop
	stop func()
}

// run starts a consumer that is stopped when the test ends, at the latest.
func (s *shop) run(cfg consumer.Config[pgstore.Tx]) *member {
	s.Helper()
	if s.topic == "" {
		s.open(1)
	}
	runner := s.broker.New(s.T, s.topic, cfg)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- runner.Run(ctx) }()
	m := &member{Runner: runner, s: s, stop: sync.OnceFunc(func() {
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

// crew runs two workers: one member of two partitions, or two members that compete
// for a queue and take little at a time. config is told how to tell them apart.
func (s *shop) crew(config func(worker func(consumer.Event) int) consumer.Config[pgstore.Tx]) crew {
	s.Helper()
	if s.broker.Features().Partitions {
		return crew{s.run(config(func(ev consumer.Event) int { return int(ev.Partition) }))}
	}
	var all crew
	for i := range 2 {
		all = append(all, s.run(config(func(consumer.Event) int { return i })))
	}
	return all
}

type crew []*member

// status is the sum of the counters.
func (c crew) status() (sum consumer.Status) {
	for _, m := range c {
		st := m.Status()
		sum.Consumed += st.Consumed
		sum.Duplicates += st.Duplicates
		sum.Retried += st.Retried
		sum.Contention += st.Contention
	}
	return sum
}

// await waits for a condition and fails the test with what it was.
func (s *shop) await(what string, ok func() bool) {
	s.Helper()
	for deadline := time.Now().Add(settle); !ok(); {
		if time.Now().After(deadline) {
			s.Fatalf("not within %s: %s", settle, what)
		}
		select {
		case <-s.Context().Done():
			s.Fatalf("test ended while waiting: %s", what)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// settled waits until all that was published is acknowledged.
func (s *shop) settled() {
	s.Helper()
	acked := 0
	s.await("everything published is acknowledged", func() bool {
		acked = s.broker.Acked(s.T, s.group, s.topic)
		return acked == s.published
	})
}

func (s *shop) letters() []Letter {
	s.Helper()
	return s.broker.Letters(s.T, s.topic)
}

// noLetters fails if anything was given up.
func (s *shop) noLetters() {
	s.Helper()
	for _, l := range s.letters() {
		s.Errorf("event %s became a letter: %s: %s", l.EventID, l.Class, l.Text)
	}
}

// effectsOnce fails unless each order from 1 to n has exactly its hundred points.
func (s *shop) effectsOnce(n int) {
	s.Helper()
	bad := column[string](s, `SELECT o || ': ' || coalesce(points, 0) FROM generate_series(1, $1) o
		LEFT JOIN user_points ON order_id = o::text WHERE points IS DISTINCT FROM 100 LIMIT 5`, n)
	if len(bad) > 0 {
		s.Errorf("orders without exactly 100 points: %v", bad)
	}
	if got := column[int](s, `SELECT count(*)::int FROM mq_consume_record`)[0]; got != n {
		s.Errorf("%d records for %d events", got, n)
	}
}

var errBoom = errors.New("boom")

// breaker is a way to the database that can be interrupted.
type breaker struct {
	mu    sync.Mutex
	down  bool
	conns map[net.Conn]bool
}

func (b *breaker) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.down {
		return nil, errors.New("the network is down")
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err == nil {
		b.conns[conn] = true
	}
	return conn, err
}

// set interrupts the way, connections under way included, or restores it.
func (b *breaker) set(down bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.down = down
	for conn := range b.conns {
		if down {
			conn.Close()
			delete(b.conns, conn)
		}
	}
}
