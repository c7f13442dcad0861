package brokertest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"oncemore/consumer"
	"oncemore/consumer/pgstore"
)

// sixSteps follows section 4.3.5 of the specification to the letter.
func sixSteps(s *shop) {
	var broken atomic.Bool
	m := s.run(s.config(func(ctx context.Context, tx pgstore.Tx, ev consumer.Event) error {
		if broken.Load() {
			return consumer.Unavailable(errBoom) // raised before the points update, until it is mended
		}
		return addPoints(ctx, tx, ev)
	}))

	// 1. Order 10001 starts at 0 points.
	s.exec(`INSERT INTO user_points (order_id, points) VALUES ('10001', 0), ('10002', 0)`)
	// 2. The same event is delivered twice.
	s.publish(order(10001).on(0), order(10001).on(0))
	s.settled()
	// 3. There is one record.
	if got := s.records("payment-success-10001"); got != 1 {
		s.Errorf("%d records, want 1", got)
	}
	// 4. The points grew by 100, not by 200.
	if got := s.points("10001"); got != 100 {
		s.Errorf("%d points, want 100", got)
	}
	if st := m.Status(); st.Consumed != 1 || st.Duplicates != 1 {
		s.Errorf("consumed %d, duplicates %d", st.Consumed, st.Duplicates)
	}
	// 5. An error before the points update undoes record and points, and is not acknowledged.
	broken.Store(true)
	s.publish(order(10002).on(0))
	s.await("the error is reported", func() bool { return m.Status().LastError == errBoom.Error() })
	if s.records("payment-success-10002") != 0 || s.points("10002") != 0 {
		s.Error("the failed delivery left a record or points")
	}
	if acked := s.broker.Acked(s.T, s.group, s.topic); acked != 2 {
		s.Errorf("%d acknowledged, want 2: the failed delivery must not be", acked)
	}
	// 6. Delivered again, it works.
	m.stop()
	broken.Store(false)
	s.run(s.config(addPoints))
	s.settled()
	if s.records("payment-success-10002") != 1 || s.points("10002") != 100 {
		s.Errorf("after delivery again: %d records, %d points", s.records("payment-success-10002"), s.points("10002"))
	}
	s.noLetters()
}

// orderHolds fails some events twice before they work: those behind them wait.
func orderHolds(s *shop) {
	partitions, each := 3, 60
	if !s.broker.Features().Partitions {
		partitions, each = 1, 180
	}
	s.open(partitions)
	var mu sync.Mutex
	failures := map[string]int{}
	flaky := func(ctx context.Context, tx pgstore.Tx, ev consumer.Event) error {
		mu.Lock()
		defer mu.Unlock()
		if number(ev)%17 == 3 && failures[ev.ID] < 3 {
			failures[ev.ID]++
			return errBoom
		}
		return addPoints(ctx, tx, ev)
	}
	var messages []Message
	for i := range partitions * each {
		messages = append(messages, order(i+1).on(i%partitions))
	}
	s.publish(messages...)
	s.run(s.config(flaky))
	s.settled()
	s.effectsOnce(partitions * each)
	for p := range partitions {
		got := column[int64](s, `SELECT pos FROM applied WHERE part = $1 ORDER BY seq`, p)
		if len(got) != each || !slices.IsSorted(got) { // orders were published in ascending order
			s.Errorf("partition %d took effect in the order %v", p, got)
		}
	}
	s.noLetters()
}

func duplicateInBatch(s *shop) {
	var messages []Message
	for i := range 20 {
		messages = append(messages, order(i+1).on(0), order(i+1).on(0), order(i/2+1).on(0))
	}
	s.publish(messages...)
	m := s.run(s.config(addPoints))
	s.settled()
	s.effectsOnce(20)
	if st := m.Status(); st.Consumed != 20 || st.Duplicates != 40 {
		s.Errorf("consumed %d, duplicates %d", st.Consumed, st.Duplicates)
	}
}

// duplicateAcross delivers duplicates to other partitions and to a later member.
func duplicateAcross(s *shop) {
	s.open(4)
	for round := range 4 {
		var messages []Message
		for i := range 25 {
			messages = append(messages, order(i+1).on((i+round)%4))
		}
		s.publish(messages...)
		if round == 1 {
			first := s.run(s.config(addPoints))
			s.settled()
			first.stop()
		}
	}
	s.run(s.config(addPoints))
	s.settled()
	s.effectsOnce(25)
	s.noLetters()
}

// manyCopies delivers one event over and over, to workers that meet at its record.
func manyCopies(s *shop) {
	const n, partitions = 10_000, 4
	s.open(partitions)
	copies := make([]Message, n)
	for i := range copies {
		copies[i] = order(1).on(i % partitions)
	}
	s.publish(copies...)
	all := s.crew(func(func(consumer.Event) int) consumer.Config[pgstore.Tx] { return s.config(addPoints) })
	s.settled()
	s.effectsOnce(1)
	s.noLetters()
	if st := all.status(); st.Consumed != 1 || st.Duplicates != n-1 || st.Retried != 0 {
		s.Errorf("consumed %d, duplicates %d, retried %d", st.Consumed, st.Duplicates, st.Retried)
	}
}

func discarded(s *shop) {
	m := s.run(s.config(func(ctx context.Context, tx pgstore.Tx, ev consumer.Event) error {
		if err := addPoints(ctx, tx, ev); err != nil {
			return err
		}
		if ev.ID == "payment-success-2" {
			return consumer.Discard(fmt.Errorf("order of a test account"))
		}
		return nil
	}))
	s.publish(order(1).on(0), order(2).on(0), order(3).on(0))
	s.settled()
	if s.points("1") != 100 || s.points("2") != 0 || s.points("3") != 100 || s.records("payment-success-2") != 0 {
		s.Error("a discarded event left an effect or a record, or took others with it")
	}
	if got := m.Status().Discarded; got != 1 {
		s.Errorf("discarded %d, want 1", got)
	}
	s.noLetters()
}
