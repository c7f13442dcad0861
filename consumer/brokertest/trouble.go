package brokertest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"oncemore/consumer"
	"oncemore/consumer/pgstore"
)

// oppositeOrders lets two workers update two shared rows in opposite orders.
func oppositeOrders(s *shop) {
	s.open(2)
	s.exec(`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET deadlock_timeout = ''20ms''', current_database()); END $$`)
	s.exec(`INSERT INTO user_points VALUES ('A', 0), ('B', 0)`)
	const each = 40
	meet := meeting(2)
	config := func(worker func(consumer.Event) int) consumer.Config[pgstore.Tx] {
		cfg := s.config(func(ctx context.Context, tx pgstore.Tx, ev consumer.Event) error {
			rows := []string{"A", "B"}
			if worker(ev) == 1 {
				rows = []string{"B", "A"}
			}
			for _, row := range rows {
				if _, err := tx.Exec(ctx, sqlAddPoints, row, 1); err != nil {
					return consumer.Permanent(err) // even a handler that gives up on any error
				}
				meet(worker(ev))
			}
			return nil
		})
		cfg.Store = pgstore.New(connect(s.T, s.url, nil), pgstore.Options{LockTimeout: 10 * time.Second})
		cfg.Retry.Attempts = -1
		if !s.broker.Features().Partitions {
			cfg.BatchSize = 10 // leave something for the other one
		}
		return cfg
	}
	for i := range 2 * each {
		s.publish(order(i + 1).on(i % 2))
	}
	all := s.crew(config)
	s.settled()
	s.noLetters()
	if s.points("A") != 2*each || s.points("B") != 2*each {
		s.Errorf("A %d, B %d, want %d each", s.points("A"), s.points("B"), 2*each)
	}
	if st := all.status(); st.Contention == 0 || st.Retried != 0 || st.Consumed != 2*each {
		s.Errorf("contention %d, retried %d, consumed %d", st.Contention, st.Retried, st.Consumed)
	}
}

// meeting returns a function that lets the first call of each of n workers wait
// for those of the others. Later calls pass.
func meeting(n int) func(worker int) {
	var mu sync.Mutex
	here := map[int]bool{}
	all := make(chan struct{})
	return func(worker int) {
		mu.Lock()
		first := !here[worker]
		here[worker] = true
		if first && len(here) == n {
			close(all)
		}
		mu.Unlock()
		if first {
			<-all
		}
	}
}

// waitingDuplicate holds a claim longer than the lock time-out of its copy at
// another worker.
func waitingDuplicate(s *shop) {
	s.open(2)
	release := make(chan struct{})
	all := s.crew(func(func(consumer.Event) int) consumer.Config[pgstore.Tx] {
		cfg := s.config(func(ctx context.Context, tx pgstore.Tx, ev consumer.Event) error {
			<-release
			return addPoints(ctx, tx, ev)
		})
		cfg.Retry.Attempts = -1
		if !s.broker.Features().Partitions {
			cfg.BatchSize = 1 // one for each
		}
		return cfg
	})
	s.publish(order(1).on(0), order(1).on(1))
	s.await("the copy runs into the lock time-out", func() bool { return all.status().Contention >= 2 })
	close(release)
	s.settled()
	s.effectsOnce(1)
	s.noLetters()
	if st := all.status(); st.Consumed != 1 || st.Duplicates != 1 || st.Retried != 0 {
		s.Errorf("consumed %d, duplicates %d, retried %d", st.Consumed, st.Duplicates, st.Retried)
	}
}

// slowly makes a handler take a few milliseconds in the database.
func slowly(h consumer.Handler[pgstore.Tx]) consumer.Handler[pgstore.Tx] {
	return func(ctx context.Context, tx pgstore.Tx, ev consumer.Event) error {
		if _, err := tx.Exec(ctx, `SELECT pg_sleep(0.003)`); err != nil {
			return err
		}
		return h(ctx, tx, ev)
	}
}

// storeOutage cuts connections in the middle of transactions and keeps the
// database away for a while.
func storeOutage(s *shop) {
	const n = 300
	way := &breaker{conns: map[net.Conn]bool{}}
	cfg := s.config(slowly(addPoints))
	cfg.Store = pgstore.New(connect(s.T, s.url, way.dial), pgstore.Options{})
	cfg.Retry.Attempts = -1
	cfg.BatchSize = 10
	for i := range n {
		s.publish(order(i + 1).on(0))
	}
	m := s.run(cfg)
	for round := range 3 {
		want := int64(n / 5 * (round + 1))
		s.await("some progress", func() bool { return m.Status().Consumed >= want })
		way.set(true)
		s.await("the consumer waits", func() bool { return m.Status().State == consumer.Waiting })
		way.set(false)
		s.await("the consumer goes on", func() bool { return m.Status().State == consumer.Running })
		s.exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'`)
	}
	s.settled()
	s.effectsOnce(n)
	s.noLetters()
	if st := m.Status(); st.LastError == "" || st.Retried != 0 {
		s.Errorf("last error %q, retried %d", st.LastError, st.Retried)
	}
}

// lostAnswer cuts the connection when the database says that it has committed.
func lostAnswer(s *shop) {
	const n, losses = 60, 3
	var lost atomic.Int64
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return &deafConn{Conn: conn, deaf: func() bool { return lost.Add(1) <= losses }}, err
	}
	cfg := s.config(addPoints)
	cfg.Store = pgstore.New(connect(s.T, s.url, dial), pgstore.Options{})
	cfg.Retry.Attempts = -1
	cfg.BatchSize = 10
	for i := range n {
		s.publish(order(i + 1).on(0))
	}
	m := s.run(cfg)
	s.settled()
	s.effectsOnce(n)
	s.noLetters()
	if st := m.Status(); lost.Load() < losses || st.Consumed+st.Duplicates != n || st.Duplicates < losses || st.Retried != 0 {
		s.Errorf("lost %d, consumed %d, duplicates %d, retried %d", lost.Load(), st.Consumed, st.Duplicates, st.Retried)
	}
}

// deafConn breaks where PostgreSQL's CommandComplete of a COMMIT would be read.
type deafConn struct {
	net.Conn
	deaf func() bool
}

func (c *deafConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if bytes.Contains(b[:n], []byte("COMMIT\x00")) && c.deaf() {
		c.Conn.Close()
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

func dependencyOutage(s *shop) {
	var up atomic.Bool
	m := s.run(s.config(func(ctx context.Context, tx pgstore.Tx, ev consumer.Event) error {
		if !up.Load() {
			return fmt.Errorf("gateway: %w", consumer.Unavailable(errBoom))
		}
		return addPoints(ctx, tx, ev)
	}))
	s.publish(order(1).on(0), order(2).on(0))
	s.await("it waits", func() bool { st := m.Status(); return st.State == consumer.Waiting && st.LastError == "gateway: boom" })
	up.Store(true)
	s.settled()
	s.effectsOnce(2)
	s.noLetters()
	if got := m.Status().Retried; got != 0 {
		s.Errorf("%d attempts were counted", got)
	}
}

// churn keeps three members busy, one of which is always about to leave.
func churn(s *shop) {
	const n, partitions = 1200, 6
	s.open(partitions)
	cfg := func() consumer.Config[pgstore.Tx] {
		c := s.config(slowly(addPoints))
		c.BatchSize = 7
		return c
	}
	members := []*member{s.run(cfg()), s.run(cfg()), s.run(cfg())}
	for i := range n {
		s.publish(order(i + 1).on(i % partitions))
		if i%5 == 0 {
			s.publish(order(i/2 + 1).on((i + 1) % partitions))
		}
		if i%200 == 199 {
			applied := i * 2 / 3
			s.await("some progress", func() bool { return column[int](s, `SELECT count(*)::int FROM applied`)[0] >= applied })
			members[0].stop()
			members = append(members[1:], s.run(cfg()))
		}
	}
	s.settled()
	s.effectsOnce(n)
	s.noLetters()
	if got := column[int](s, `SELECT count(*)::int FROM applied`)[0]; got != n {
		s.Errorf("%d effects of %d events", got, n)
	}
}

func pauseAndResume(s *shop) {
	m := s.run(s.config(addPoints))
	s.publish(order(1).on(0))
	s.settled()
	m.Pause()
	s.await("it is paused", func() bool { return m.Status().State == consumer.Paused })
	s.publish(order(2).on(0))
	s.holds(time.Second, "a paused consumer consumes nothing", func() bool { return s.records("payment-success-2") == 0 })
	m.Resume()
	s.settled()
	s.effectsOnce(2)
	if got := m.Status().State; got != consumer.Running {
		s.Errorf("state %s after resume", got)
	}
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

// boundedShutdown stops a consumer whose handler would take for ever.
func boundedShutdown(s *shop) {
	entered := make(chan struct{}, 1)
	m := s.run(s.config(func(ctx context.Context, tx pgstore.Tx, ev consumer.Event) error {
		if err := addPoints(ctx, tx, ev); err != nil {
			return err
		}
		select {
		case entered <- struct{}{}:
		default:
		}
		<-ctx.Done()
		return ctx.Err()
	}))
	s.publish(order(1).on(0))
	<-entered
	began := time.Now()
	m.stop()
	if took := time.Since(began); took > 15*time.Second {
		s.Errorf("the stop took %s with a finish time-out of 2 s", took)
	}
	if s.records("payment-success-1") != 0 || s.points("1") != 0 || s.broker.Acked(s.T, s.group, s.topic) != 0 {
		s.Error("what was under way left something behind or was acknowledged")
	}
	if got := m.Status().State; got != consumer.Stopped {
		s.Errorf("state %s after the stop", got)
	}
	s.noLetters()
	s.run(s.config(addPoints))
	s.settled()
	s.effectsOnce(1)
}
