package dlq

import (
	"bytes"
	"fmt"
	"math"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"oncemore/dlq/amqpform"
	"oncemore/internal/testkit"
)

// everyType has a value of each AMQP type.
func everyType() amqp.Table {
	return amqp.Table{
		"bool": true, "int8": int8(-7), "int16": int16(-300), "int32": int32(math.MinInt32),
		"int64": int64(math.MaxInt64), "float": float32(1.5), "double": math.Pi,
		"decimal": amqp.Decimal{Scale: 2, Value: 12345}, "string": "caf\u00e9 \x00\xff", "empty": "", "bytes": []byte{0, 1, 255},
		"time": time.Unix(1_796_000_000, 0).UTC(), "void": nil,
		"array": []any{int32(1), "a", nil, amqp.Table{"k": []any{int64(9)}}}, "table": amqp.Table{"inner": amqp.Table{"x": int64(1)}, "none": amqp.Table{}},
	}
}

// A letter of RabbitMQ keeps its body, every property and every header with its
// type, through a real dead-letter exchange.
func TestQueueLettersKeepTypesAndBytes(t *testing.T) {
	t.Parallel()
	onRabbits(t, func(t *testing.T, server testkit.RabbitServer) {
		for _, kind := range []string{amqp.QueueTypeClassic, amqp.QueueTypeQuorum} {
			b := newRabbitBench(t, server, kind)
			sent := order("e-1")
			sent.Headers, sent.Body = everyType(), []byte("{\"a\":\"\\u0000\"}\x00\xff")
			sent.CorrelationId, sent.ReplyTo, sent.Type, sent.AppId, sent.Priority, sent.ContentEncoding = "c", "r", "order.paid", "shop", 3, "identity"
			b.publish("", b.home, sent)
			empty := amqp.Publishing{MessageId: "e-2"}
			b.publish("", b.home, empty)
			b.reject()
			d := b.drain()
			b.wantLetters(2)
			b.wantAllAcked()
			letter, body := loadBody(t, b.pool, "e-1")
			if letter.Broker != "rabbitmq" || letter.Source != b.dead || letter.Dialect != "rabbitmq-xdeath" || *letter.Origin.Topic != b.home || *letter.Group != b.home {
				t.Errorf("%s: %+v", kind, letter.Letter)
			}
			if !bytes.Equal(body.Value, sent.Body) || body.Key != nil {
				t.Errorf("%s: value %q", kind, body.Value)
			}
			got, err := amqpform.Delivery(body.AMQP, fieldsOf(body.Headers), body.Value)
			if err != nil {
				t.Fatal(err)
			}
			for name, want := range sent.Headers {
				if !reflect.DeepEqual(got.Headers[name], want) {
					t.Errorf("%s: header %s is %#v, want %#v", kind, name, got.Headers[name], want)
				}
			}
			if _, ok := got.Headers["x-death"].([]any)[0].(amqp.Table); !ok {
				t.Errorf("%s: x-death is %#v", kind, got.Headers["x-death"])
			}
			if got.CorrelationId != "c" || got.ReplyTo != "r" || got.Type != "order.paid" || got.AppId != "shop" || got.Priority != 3 ||
				got.ContentEncoding != "identity" || got.ContentType != sent.ContentType || !got.Timestamp.Equal(sent.Timestamp) || got.DeliveryMode != amqp.Persistent {
				t.Errorf("%s: properties %+v", kind, got)
			}
			if _, body := loadBody(t, b.pool, "e-2"); body.Value == nil || len(body.Value) != 0 {
				t.Errorf("%s: an empty body became %v", kind, body.Value)
			}
			status := d.Status()
			if len(status) != 1 || status[0].Source != b.dead || status[0].Drained != 2 || status[0].Waiting != 0 || status[0].LastError != "" {
				t.Errorf("%s: %+v", kind, status)
			}
			d.stop()
		}
	})
}

// Two consoles drain one queue while publishers are active: each of 2,000 messages
// is one letter.
func TestTwoConsolesDrainOneQueue(t *testing.T) {
	t.Parallel()
	onRabbits(t, func(t *testing.T, server testkit.RabbitServer) {
		b := newRabbitBench(t, server, amqp.QueueTypeQuorum)
		b.drain()
		b.drain()
		const publishers, each = 4, 500
		var work sync.WaitGroup
		for p := range publishers {
			ch := rabbitChannel(t, server.URL)
			work.Go(func() {
				for i := range each {
					m := order(fmt.Sprintf("e-%d-%d", p, i))
					m.DeliveryMode = amqp.Persistent
					if err := ch.Publish("", b.dead, true, false, m); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		work.Wait()
		b.wantLetters(publishers * each)
		b.wantAllAcked()
		if n := one[int64](t, b.pool, "SELECT count(DISTINCT event_id) FROM dead_letter"); n != publishers*each {
			t.Errorf("%d events", n)
		}
		if n := one[int64](t, b.pool, "SELECT count(*) FROM letter_occurrence"); n != 0 {
			t.Errorf("%d occurrences", n)
		}
	})
}

// A console dies between the commit and the acknowledgement: the broker delivers
// again, and what is stored is acknowledged, not doubled. Two equal messages
// without an id stay two letters.
func TestKilledBetweenCommitAndAck(t *testing.T) {
	t.Parallel()
	onRabbits(t, func(t *testing.T, server testkit.RabbitServer) {
		b := newRabbitBench(t, server, amqp.QueueTypeClassic)
		var kills atomic.Int32
		killed := make(chan struct{})
		d := b.drain(func(d *RabbitDrainer) {
			d.reached = func(m moment) {
				if m == momentStored && kills.Add(1) == 1 {
					d.conn.Close() // the acknowledgement goes nowhere
					close(killed)
				}
			}
		})
		same := amqp.Publishing{Body: []byte("no id")}
		b.publish("", b.dead, same)
		b.publish("", b.dead, same)
		b.publish("", b.dead, order("e-1"))
		<-killed
		b.wantAllAcked()
		b.wantLetters(3)
		if n := one[int64](t, b.pool, "SELECT count(*) FROM letter_occurrence"); n != 0 {
			t.Errorf("%d occurrences of what came again", n)
		}
		d.stop()

		b.publish("", b.dead, same) // is a letter of its own: nothing unacknowledged is left to take it for
		b.drain()
		b.wantLetters(4)
	})
}

// The broker has a message from before the commit once more: nothing was stored, so
// nothing is missing after the next try.
func TestKilledBeforeTheCommit(t *testing.T) {
	t.Parallel()
	b := newRabbitBench(t, testkit.Rabbit4(t), amqp.QueueTypeQuorum)
	var failures atomic.Int32
	b.drain(func(d *RabbitDrainer) {
		d.intake.pause = func() {
			if failures.Add(1) == 1 {
				d.conn.Close()
			}
		}
	})
	b.fail("e-1", "e-2")
	b.wantLetters(2)
	b.wantAllAcked()
}

// A second dead letter of one failure is an occurrence; the same event that failed
// in another queue is another letter.
func TestQueueOccurrences(t *testing.T) {
	t.Parallel()
	b := newRabbitBench(t, testkit.Rabbit4(t), amqp.QueueTypeClassic)
	b.drain()
	m := order("e-1")
	b.publish("", b.home, m)
	b.publish("", b.home, m)
	b.reject()
	b.wantLetters(1)
	testkit.Eventually(t, 20*time.Second, func() bool {
		return one[int64](t, b.pool, "SELECT coalesce(sum(occurrences), 0)::bigint FROM dead_letter") == 2
	}, "the occurrence")
	other := b.home + ".other"
	b.declare(other, amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": b.dead})
	b.publish("", other, m)
	d, ok, err := b.ch.Get(other, false)
	if !ok || err != nil || d.Reject(false) != nil {
		t.Fatal(ok, err)
	}
	b.wantLetters(2)
}

// A queue that is deleted and made again is drained again; a stream is refused.
func TestQueuesThatCome(t *testing.T) {
	t.Parallel()
	onRabbits(t, func(t *testing.T, server testkit.RabbitServer) {
		b := newRabbitBench(t, server, amqp.QueueTypeClassic)
		d := b.drain()
		b.fail("e-1")
		b.wantLetters(1)
		if _, err := b.ch.QueueDelete(b.dead, false, false, false); err != nil {
			t.Fatal(err)
		}
		b.declare(b.dead, amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeQuorum})
		b.publish("", b.dead, order("e-2"))
		b.wantLetters(2)

		stream := b.home + ".stream"
		b.declare(stream, amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeStream})
		b.publish("", stream, order("e-3"))
		testkit.Eventually(t, 20*time.Second, func() bool {
			for _, s := range d.Status() {
				if s.Source == stream && s.LastError == errStream.Error() {
					return true
				}
			}
			return false
		}, "the stream is refused by name")
		if b.letters() != 2 {
			t.Error("a stream was drained")
		}
	})
}

// Without the management API queues are drained by name, patterns are refused and
// streams are told by what they do not know.
func TestQueuesByNameAlone(t *testing.T) {
	t.Parallel()
	onRabbits(t, func(t *testing.T, server testkit.RabbitServer) {
		b := newRabbitBench(t, server, amqp.QueueTypeClassic)
		var err error
		if b.cluster, err = NewRabbitCluster("pay", RabbitOptions{URLs: []string{server.URL}}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.cluster.Close)
		stream := b.home + ".stream"
		b.declare(stream, amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeStream})
		b.fail("e-1")
		d := b.drain(func(d *RabbitDrainer) {
			d.sources, err = compileSources([]DrainSource{{Pattern: b.dead}, {Pattern: stream}, {Pattern: "*.dead"}})
		})
		b.wantLetters(1)
		said := map[string]string{}
		testkit.Eventually(t, 20*time.Second, func() bool {
			for _, s := range d.Status() {
				said[s.Source] = s.LastError
			}
			return said[stream] == errStream.Error() && said["*.dead"] == errPattern.Error()
		}, "stream and pattern are refused")
		b.wantAllAcked()
	})
}

// Copying leaves the messages where they are, stores each once over many passes,
// and forgets what has left the queue.
func TestCopyingLeavesTheQueueAsItIs(t *testing.T) {
	t.Parallel()
	onRabbits(t, func(t *testing.T, server testkit.RabbitServer) {
		b := newRabbitBench(t, server, amqp.QueueTypeClassic)
		b.source = DrainSource{Pattern: b.dead, Copy: true}
		for _, e := range []string{"e-1", "e-2"} {
			b.fail(e)
		}
		same := amqp.Publishing{Body: []byte("no id")}
		b.publish("", b.dead, same)
		b.publish("", b.dead, same)
		d := NewRabbitDrainer(DrainerConfig{Pool: b.pool, Cluster: b.cluster, Sources: []DrainSource{b.source}, Dialects: loadDialects(t), Log: b.log})
		t.Cleanup(d.hangUp)
		q := &queueDrain{d: d, name: b.dead, source: b.source, typed: true, log: b.log}
		for pass := range 3 {
			if err := q.copyPass(t.Context()); err != nil {
				t.Fatal(err)
			}
			if b.letters() != 4 {
				t.Errorf("%d letters after pass %d", b.letters(), pass)
			}
			testkit.Eventually(t, 10*time.Second, func() bool { return b.ready(b.dead) == 4 }, "everything is given back")
		}
		if n := one[int64](t, b.pool, "SELECT coalesce(sum(octet_length(hashes)) / 32, 0)::bigint FROM drain_unacked WHERE copied"); n != 4 {
			t.Errorf("%d messages are noted", n)
		}
		first, ok, err := b.ch.Get(b.dead, true) // somebody takes one out
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		if err := q.copyPass(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := one[int64](t, b.pool, "SELECT coalesce(sum(octet_length(hashes)) / 32, 0)::bigint FROM drain_unacked WHERE copied"); n != 3 {
			t.Errorf("%d messages are noted when %s is gone", n, first.MessageId)
		}
		q.source.Copy = false // from now on it is drained: what was copied is acknowledged, not stored again
		b.source.Copy = false
		b.drain()
		testkit.Eventually(t, 20*time.Second, func() bool { return b.ready(b.dead) == 0 }, "the queue is empty")
		if b.letters() != 4 {
			t.Errorf("%d letters after draining what was copied", b.letters())
		}
	})
}

// A message that is copied too often would be dropped by a queue with a delivery
// limit: such a queue is refused.
func TestCopyingRefusesDeliveryLimits(t *testing.T) {
	t.Parallel()
	b := newRabbitBench(t, testkit.Rabbit4(t), amqp.QueueTypeQuorum) // has a limit of 20 by itself
	b.source = DrainSource{Pattern: b.dead, Copy: true}
	b.fail("e-1")
	d := b.drain()
	testkit.Eventually(t, 20*time.Second, func() bool {
		s := d.Status()
		return len(s) == 1 && s[0].LastError != ""
	}, "the refusal")
	if b.letters() != 0 || b.ready(b.dead) != 1 {
		t.Errorf("%d letters, %d ready", b.letters(), b.ready(b.dead))
	}
}
