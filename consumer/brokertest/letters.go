package brokertest

import (
	"bytes"
	"context"
	"fmt"
	"reflect"
	"strings"

	"oncemore/consumer"
	"oncemore/consumer/pgstore"
)

// failing returns a handler that fails order 2 as fail does.
func failing(fail func(consumer.Event) error) consumer.Handler[pgstore.Tx] {
	return func(ctx context.Context, tx pgstore.Tx, ev consumer.Event) error {
		if err := addPoints(ctx, tx, ev); err != nil {
			return err
		}
		if ev.ID == "payment-success-2" {
			return fail(ev)
		}
		return nil
	}
}

// oneLetter publishes three orders of which the second fails, and returns its letter.
func (s *shop) oneLetter(h consumer.Handler[pgstore.Tx]) Letter {
	s.Helper()
	s.publish(order(1).on(0), order(2).on(0), order(3).on(0))
	m := s.run(s.config(h))
	s.settled()
	letters := s.letters()
	if len(letters) != 1 {
		s.Fatalf("%d letters, want 1: %+v", len(letters), letters)
	}
	if s.points("1") != 100 || s.points("2") != 0 || s.points("3") != 100 || s.records("payment-success-2") != 0 {
		s.Error("the failed event left an effect or a record, or took others with it")
	}
	if st := m.Status(); st.DeadLettered != 1 || st.Consumed != 2 {
		s.Errorf("dead-lettered %d, consumed %d", st.DeadLettered, st.Consumed)
	}
	l := letters[0]
	offset := int64(0)
	if s.broker.Features().Partitions {
		offset = 1
	}
	if l.Topic != s.topic || l.Group != s.group || l.EventID != "payment-success-2" || l.OriginPartition != 0 || l.Offset != offset {
		s.Errorf("letter says origin %s/%d/%d, group %s, event %s", l.Topic, l.OriginPartition, l.Offset, l.Group, l.EventID)
	}
	return l
}

func permanent(s *shop) {
	l := s.oneLetter(failing(func(consumer.Event) error { return fmt.Errorf("points: %w", consumer.Permanent(errBoom)) }))
	if l.Attempt != 1 || l.Class != "*errors.errorString" || l.Text != "points: boom" || !strings.Contains(l.Trace, "caused by *errors.errorString: boom") {
		s.Errorf("attempt %d, class %s, text %s, trace\n%s", l.Attempt, l.Class, l.Text, l.Trace)
	}
}

// exhausted fails in the database, so that the class names the driver's error.
func exhausted(s *shop) {
	l := s.oneLetter(func(ctx context.Context, tx pgstore.Tx, ev consumer.Event) error {
		if ev.ID != "payment-success-2" {
			return addPoints(ctx, tx, ev)
		}
		_, err := tx.Exec(ctx, `INSERT INTO user_points VALUES ($1, $2 / 0)`, "2", 100)
		return fmt.Errorf("attempt %d: %w", ev.Attempt, err)
	})
	if l.Attempt != 4 || l.Class != "*pgconn.PgError" || !strings.HasPrefix(l.Text, "attempt 4: ") || !strings.Contains(l.Text, "division by zero") {
		s.Errorf("attempt %d, class %s, text %s", l.Attempt, l.Class, l.Text)
	}
}

func poison(s *shop) {
	l := s.oneLetter(failing(func(consumer.Event) error { panic("index out of luck") }))
	if l.Attempt != 4 || l.Class != "panic" || !strings.Contains(l.Text, "index out of luck") || !strings.Contains(l.Trace, "letters.go") {
		s.Errorf("attempt %d, class %s, text %s, trace\n%s", l.Attempt, l.Class, l.Text, l.Trace)
	}
}

func missingEventID(s *shop) {
	bad := []Message{
		{Value: []byte(`{"orderId":"1"}`)},
		{Value: []byte(`{not json`)},
		{Value: nil},
		{Value: []byte(`{"eventId":"x"}`), Headers: []consumer.Header{{Name: "x-event", Value: []byte("bad\x00id")}}},
		{Value: []byte(`{"eventId":"` + strings.Repeat("x", 256) + `"}`)},
		{Value: []byte(`{"eventId":" space"}`)},
	}
	s.publish(append(bad, order(1).on(0))...)
	s.run(s.config(addPoints))
	s.settled()
	letters := s.letters()
	if len(letters) != len(bad) {
		s.Fatalf("%d letters, want %d", len(letters), len(bad))
	}
	for i, l := range letters {
		if !bytes.Equal(l.Value, bad[i].Value) || l.EventID != "" || l.Attempt != 1 {
			s.Errorf("letter %d: value %q, event id %q, attempt %d", i, l.Value, l.EventID, l.Attempt)
		}
		if !strings.Contains(l.Text, `"x-event"`) || !strings.Contains(l.Text, `"$.eventId"`) {
			s.Errorf("letter %d does not name what was looked at: %s", i, l.Text)
		}
	}
	s.effectsOnce(1)
}

// longEventID keeps records in a table with the specification's own widths.
func longEventID(s *shop) {
	s.exec(`ALTER TABLE mq_consume_record ALTER COLUMN event_id TYPE varchar(64)`)
	long := order(2)
	long.EventID = strings.Repeat("x", 65)
	fits := order(3)
	fits.EventID = strings.Repeat("支", 64)
	s.publish(order(1).on(0), long.on(0), fits.on(0))
	s.run(s.config(addPoints))
	s.settled()
	letters := s.letters()
	if len(letters) != 1 || letters[0].EventID != long.EventID || letters[0].Attempt != 1 || !strings.Contains(letters[0].Text, "too long") {
		s.Errorf("letters %+v", letters)
	}
	if s.points("1") != 100 || s.points("2") != 0 || s.points("3") != 100 {
		s.Error("the long id took an effect or took others with it")
	}
}

func header(name string, value []byte) consumer.Header {
	return consumer.Header{Name: name, Value: value}
}

// id is the header with the event id of byteIdentical's messages.
func id(n int) consumer.Header { return header("x-event", fmt.Appendf(nil, "e%d", n)) }

// byteIdentical sends what other tools like to spoil.
func byteIdentical(s *shop) {
	sent := []Message{
		{Value: []byte{}, Headers: []consumer.Header{header("a", nil), header("b", []byte{0xff, 0}), id(0)}},
		{Value: []byte{0x1f, 0x8b, 0, 0xfe}, Headers: []consumer.Header{header("traceparent", []byte("00-1")), id(1)}},
		{Value: bytes.Repeat([]byte("x"), 900_000), Headers: []consumer.Header{id(2)}},
		{Value: []byte("v"), Headers: []consumer.Header{header("event-id", []byte("e3")), header("oncemore-item", []byte("7")), id(3)}},
	}
	if s.broker.Features().Records {
		sent = append(sent, records()...)
	}
	s.publish(sent...)
	s.run(s.config(func(context.Context, pgstore.Tx, consumer.Event) error { return consumer.Permanent(errBoom) }))
	s.settled()
	letters := s.letters()
	if len(letters) != len(sent) {
		s.Fatalf("%d letters, want %d", len(letters), len(sent))
	}
	for i, l := range letters {
		if !reflect.DeepEqual(l.Message, sent[i]) {
			s.Errorf("letter %d:\n%.300q\nwant\n%.300q", i, fmt.Sprint(l.Message), fmt.Sprint(sent[i]))
		}
	}
}

// records have keys, null values and headers that repeat.
func records() []Message {
	return []Message{
		{Key: nil, Value: nil, Headers: []consumer.Header{id(0)}},
		{Key: []byte{}, Value: []byte{}, Headers: []consumer.Header{header("a", nil), id(1), header("a", []byte{})}},
		{Key: []byte{0, 0xff}, Value: []byte{0x1f, 0x8b, 0, 0xfe}, Headers: []consumer.Header{
			header("b", []byte("2")), header("a", []byte("1")), header("b", []byte("1")), id(2), header("traceparent", []byte{0xff})}},
		{Key: []byte("k"), Value: []byte("v"), Headers: []consumer.Header{id(4), header("event-id", []byte("e4")), header("oncemore-item", []byte("7"))}},
	}
}
