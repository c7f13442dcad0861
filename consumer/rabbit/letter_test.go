package rabbit

import (
	"context"
	"errors"
	"maps"
	"math"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"oncemore/consumer"
	"oncemore/consumer/pgstore"
	"oncemore/internal/testkit"
)

func giveUp(context.Context, pgstore.Tx, consumer.Event) error { return consumer.Permanent(errBoom) }

// rich has every type of header that AMQP 0-9-1 has in RabbitMQ, nested, and
// every property.
func rich() amqp.Publishing {
	at := time.Unix(1_700_000_000, 0)
	scalars := amqp.Table{
		"text": "支付", "empty": "", "bytes": []byte{0, 0xff}, "no bytes": []byte{}, "void": nil, "yes": true, "no": false,
		"byte": byte(200), "int8": int8(-8), "int16": int16(-16), "uint16": uint16(65535), "int32": int32(math.MinInt32), "uint32": uint32(math.MaxUint32),
		"int64": int64(math.MaxInt64), "float32": float32(0.5), "float64": 0.1, "decimal": amqp.Decimal{Scale: 2, Value: -12345}, "time": at,
	}
	headers := maps.Clone(scalars)
	headers["table"] = amqp.Table{"inner": maps.Clone(scalars), "list": []any{amqp.Table{"k": int16(1)}, []any{"a", nil, at}}}
	// An empty array comes back as a nil one, which is the same on the wire.
	headers["array"] = []any{"a", int32(2), amqp.Table{"deep": amqp.Table{"deeper": amqp.Decimal{Scale: 1, Value: 5}}}, []any(nil)}
	headers["event-id"] = "evt-1"
	return amqp.Publishing{
		Headers: headers, Body: []byte{0x1f, 0x8b, 0, 0xff}, DeliveryMode: amqp.Persistent,
		ContentType: "application/x-thrift", ContentEncoding: "gzip", Priority: 7, CorrelationId: "c-1", ReplyTo: "answers", MessageId: "evt-1",
		Timestamp: at, Type: "order.paid", AppId: "shop", UserId: "console",
	}
}

// sameMessage compares body, properties and headers, types included, but for
// user_id and expiration.
func sameMessage(t *testing.T, got amqp.Delivery, want amqp.Publishing) {
	t.Helper()
	maps.DeleteFunc(got.Headers, func(name string, _ any) bool {
		return isCounter(name) || strings.HasPrefix(name, failurePrefix) || strings.HasPrefix(name, originPrefix)
	})
	for name, value := range want.Headers {
		if !reflect.DeepEqual(got.Headers[name], value) {
			t.Errorf("header %s: %T %v, want %T %v", name, got.Headers[name], got.Headers[name], value, value)
		}
	}
	if len(got.Headers) != len(want.Headers) {
		t.Errorf("%d headers, want %d: %v", len(got.Headers), len(want.Headers), got.Headers)
	}
	again := amqp.Publishing{
		Headers: want.Headers, Body: got.Body, DeliveryMode: got.DeliveryMode, ContentType: got.ContentType, ContentEncoding: got.ContentEncoding,
		Priority: got.Priority, CorrelationId: got.CorrelationId, ReplyTo: got.ReplyTo, MessageId: got.MessageId, Timestamp: got.Timestamp,
		Type: got.Type, AppId: got.AppId, UserId: got.UserId,
	}
	want.UserId, want.Expiration = "", ""
	if !reflect.DeepEqual(again, want) {
		t.Errorf("properties\n%+v\nwant\n%+v", again, want)
	}
	noPlainMaps(t, got.Headers)
}

// noPlainMaps fails on a map that is no amqp.Table, which the client cannot write.
func noPlainMaps(t *testing.T, value any) {
	t.Helper()
	switch v := value.(type) {
	case amqp.Table:
		for _, item := range v {
			noPlainMaps(t, item)
		}
	case []any:
		for _, item := range v {
			noPlainMaps(t, item)
		}
	case map[string]any:
		t.Errorf("a plain map: %v", v)
	}
}

func TestLetterKeepsPropertiesAndTypes(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *broker) {
		s := openShop(t, b)
		exchange := testkit.Name("orders")
		ch := s.channel(t)
		if err := ch.ExchangeDeclare(exchange, "direct", true, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ch.ExchangeDelete(exchange, false, false) })
		if err := ch.QueueBind(s.name, "paid", exchange, false, nil); err != nil {
			t.Fatal(err)
		}
		sent := rich()
		sent.Expiration = "3600000"
		if err := s.publish.Publish(exchange, "paid", true, false, sent); err != nil {
			t.Fatal(err)
		}
		cfg := s.config(giveUp)
		cfg.EventID = consumer.EventIDSource{MessageID: true}
		s.run(cfg, s.opts())
		s.settled(1)
		letters := s.takeAll(t, s.dead)
		if len(letters) != 1 {
			t.Fatalf("%d letters", len(letters))
		}
		l := letters[0]
		stack, _ := l.Headers[exceptionStack].(string)
		if l.Headers[originExchange] != exchange || l.Headers[originKey] != "paid" || l.Headers[originQueue] != s.name || l.Headers[originGroup] != s.group ||
			l.Headers[originExpiry] != "3600000" || l.Headers[attempts] != int32(1) || l.Headers[exceptionText] != "boom" ||
			l.Headers[exceptionClass] != "*errors.errorString" || !strings.HasPrefix(stack, "errors.errorString: boom\n") {
			t.Errorf("marks %v", l.Headers)
		}
		if at, ok := l.Headers[exceptionTime].(time.Time); !ok || time.Since(at) > time.Minute {
			t.Errorf("failed at %v", l.Headers[exceptionTime])
		}
		if l.UserId != "" || l.Expiration != "" {
			t.Errorf("user %q, expiration %q: the one is refused, by the other the letter would be lost", l.UserId, l.Expiration)
		}
		sameMessage(t, l, sent)
	})
}

// A letter of a letter says what failed now, and nothing twice.
func TestLetterReplacesEarlierMarks(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *broker) {
		s := openShop(t, b)
		p := payment(1)
		p.DeliveryMode = amqp.Transient
		p.Headers = amqp.Table{exceptionText: "old", originExchange: "old", "x-original-foo": "old", "event-id": "another", "retry-count": int64(3)}
		s.send(t, s.name, p)
		s.run(s.config(giveUp), s.opts())
		s.settled(1)
		l := s.takeAll(t, s.dead)[0]
		if l.Headers[exceptionText] != "boom" || l.Headers[originExchange] != "" || l.Headers["x-original-foo"] != nil {
			t.Errorf("headers %v", l.Headers)
		}
		if l.DeliveryMode != amqp.Persistent {
			t.Error("the letter would not survive the broker's restart")
		}
		// The message's own event-id header stays, though another id was found in the value.
		if l.Headers["event-id"] != "another" || l.Headers[originEventID] != paymentID(1) || l.Headers["retry-count"] != int64(3) {
			t.Errorf("headers %v", l.Headers)
		}
	})
}

// CC is read by the broker as more routing keys: a letter that carried it would
// reach those queues, and the effects behind them, a second time.
func TestLetterReachesNoOtherQueue(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *broker) {
		s := openShop(t, b)
		copies := testkit.Name("copies")
		s.declare(t, copies, nil)
		p := payment(1)
		p.Headers = amqp.Table{"CC": []any{copies}, "BCC": []any{copies}}
		s.send(t, s.name, p)
		s.await("the copy that the producer asked for", func() bool { return s.ready(copies) == 1 })
		s.run(s.config(giveUp), s.opts())
		s.settled(1)
		if got := s.ready(copies); got != 1 {
			t.Errorf("%d copies after the dead letter, want 1", got)
		}
		if l := s.takeAll(t, s.dead)[0]; !reflect.DeepEqual(l.Headers["x-original-CC"], []any{copies}) {
			t.Errorf("headers %v", l.Headers)
		}
	})
}

// Without the dead-letter queue nothing is acknowledged, neither the message nor
// what lies behind it, until the queue is there.
func TestDeadLetterQueueIsMissing(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *broker) {
		s := openBareShop(t, b)
		cfg := s.config(giveUp)
		cfg.Outage = 64 * time.Millisecond
		s.pay(2)
		m := s.run(cfg, s.opts())
		s.await("it says what is missing", func() bool {
			return strings.Contains(m.Status().LastError, "dead-letter queue "+s.dead+" does not exist")
		})
		s.holds(time.Second, "nothing is acknowledged", func() bool { return s.wire.Acked() == 0 && m.Status().State == consumer.Waiting })
		if st := m.Status(); st.DeadLettered != 0 {
			t.Errorf("%d letters were counted", st.DeadLettered)
		}
		s.declare(t, s.dead, nil)
		s.settled(2)
		if got := s.Letters(t, s.name); len(got) != 2 || got[0].EventID != paymentID(1) {
			t.Errorf("letters %+v", got)
		}
	})
}

// A full dead-letter queue refuses: the message waits where it is.
func TestDeadLetterQueueIsFull(t *testing.T) {
	t.Parallel()
	b := newBroker(t, testkit.Rabbit(t), amqp.QueueTypeClassic) // quorum queues overshoot their limit
	s := openBareShop(t, b)
	s.declare(t, s.dead, amqp.Table{amqp.QueueMaxLenArg: int32(1), amqp.QueueOverflowArg: amqp.QueueOverflowRejectPublish})
	cfg := s.config(giveUp)
	cfg.Outage = 64 * time.Millisecond
	s.pay(2)
	m := s.run(cfg, s.opts())
	s.await("it says why", func() bool { return strings.Contains(m.Status().LastError, "refused") })
	s.holds(500*time.Millisecond, "only the first is acknowledged", func() bool { return s.wire.Acked() == 1 })
	if got := len(s.Letters(t, s.name)); got != 1 { // makes room
		t.Errorf("%d letters, want 1", got)
	}
	s.settled(2)
	if got := s.Letters(t, s.name); len(got) != 2 || got[1].EventID != paymentID(2) {
		t.Errorf("letters %+v", got)
	}
}

// A stack trace that does not fit into a frame is cut, the message's own headers
// never. Too large a frame would end the connection, over and over.
func TestLetterFitsIntoAFrame(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *broker) {
		s := openShop(t, b)
		full := 128<<10 - headerSize(amqp.Publishing{Headers: amqp.Table{"own": ""}}) - 200 // leaves no room for any mark
		sizes := []int{10, 60_000, 120_000, full}
		for i, size := range sizes {
			p := payment(i + 1)
			p.Headers = amqp.Table{"own": strings.Repeat("o", size)}
			s.send(t, s.name, p)
		}
		long := errors.New(strings.Repeat("支付 failed ", 40_000))
		m := s.run(s.config(func(context.Context, pgstore.Tx, consumer.Event) error { return consumer.Permanent(long) }), s.opts())
		s.settled(len(sizes))
		letters := s.takeAll(t, s.dead)
		if len(letters) != len(sizes) {
			t.Fatalf("%d letters, want %d", len(letters), len(sizes))
		}
		for i, l := range letters {
			if own, _ := l.Headers["own"].(string); len(own) != sizes[i] {
				t.Errorf("letter %d: the own header has %d bytes of %d", i, len(own), sizes[i])
			}
			text, _ := l.Headers[exceptionText].(string)
			stack, _ := l.Headers[exceptionStack].(string)
			roomy := sizes[i] < 125_000
			if roomy && (!strings.HasSuffix(text, ellipsis) || !strings.HasSuffix(stack, ellipsis) || l.Headers[originQueue] != s.name) {
				t.Errorf("letter %d: message of %d and stack of %d bytes, queue %v", i, len(text), len(stack), l.Headers[originQueue])
			}
		}
		if st := m.Status(); st.Reconnects != 0 || st.DeadLettered != int64(len(sizes)) {
			t.Errorf("reconnects %d, letters %d, last error %.200s", st.Reconnects, st.DeadLettered, st.LastError)
		}
	})
}

// One message fails for good among nine that are fine, all delivered ahead at
// once: they take effect once, are acknowledged once, and wait for nobody's retry
// but in order.
func TestPoisonHarmsNoNeighbour(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *broker) {
		const n, poison = 10, 4
		s := openShop(t, b)
		s.pay(n)
		var mu sync.Mutex
		calls := map[string]int{}
		cfg := s.config(func(ctx context.Context, tx pgstore.Tx, ev consumer.Event) error {
			mu.Lock()
			calls[ev.ID]++
			mu.Unlock()
			if ev.ID == paymentID(poison) {
				panic("poison")
			}
			return addPoints(ctx, tx, ev)
		})
		opts := s.opts()
		opts.Prefetch = n
		m := s.run(cfg, opts)
		s.settled(n)
		if s.points(poison) != 0 || s.records() != n-1 {
			t.Errorf("poison has %d points, %d records", s.points(poison), s.records())
		}
		for i := range n {
			if no := i + 1; no != poison && s.points(no) != 100 {
				t.Errorf("order %d has %d points", no, s.points(no))
			}
		}
		letters := s.Letters(t, s.name)
		if len(letters) != 1 || letters[0].EventID != paymentID(poison) || letters[0].Attempt != 4 || letters[0].Class != "panic" {
			t.Errorf("letters %+v", letters)
		}
		if st := m.Status(); st.Consumed != n-1 || st.DeadLettered != 1 || st.Retried != 3 || st.StaleAcks != 0 {
			t.Errorf("status %+v", st)
		}
		if got := s.wire.Delivered(); got != n {
			t.Errorf("%d deliveries of %d messages: neighbours were given back", got, n)
		}
		mu.Lock()
		defer mu.Unlock()
		for id, c := range calls {
			if id != paymentID(poison) && c > 2 { // with the batch, and alone
				t.Errorf("event %s was handled %d times", id, c)
			}
		}
	})
}

func TestHandlerSeesTypedHeaders(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *broker) {
		s := openShop(t, b)
		sent := rich()
		s.send(t, s.name, sent)
		seen := make(chan consumer.Event, 1)
		cfg := s.config(func(_ context.Context, _ pgstore.Tx, ev consumer.Event) error { seen <- ev; return nil })
		cfg.EventID = consumer.EventIDSource{Header: "event-id"}
		s.run(cfg, s.opts())
		s.settled(1)
		ev := <-seen
		d, ok := Message(ev)
		if !ok || d.DeliveryTag != 0 || d.Ack(false) == nil {
			t.Errorf("message %t can be acknowledged", ok)
		}
		d.UserId = "" // shown to handlers
		sameMessage(t, d, sent)
		for name, want := range map[string]string{"text": "支付", "int64": "9223372036854775807", "decimal": "-123.45", "yes": "true", "time": "2023-11-14T22:13:20Z",
			"array": `["a",2,{"deep":{"deeper":0.5}},[]]`} {
			if got, _ := ev.Header(name); string(got) != want {
				t.Errorf("header %s as bytes: %s, want %s", name, got, want)
			}
		}
		if got, ok := ev.Header("void"); !ok || got != nil {
			t.Errorf("void header: %v, %t", got, ok)
		}
		if ev.ID != "evt-1" || ev.Queue != s.name || ev.Topic != s.name || ev.Exchange != "" || ev.RoutingKey != s.name || ev.MessageID != "evt-1" || ev.Time.Unix() != 1_700_000_000 {
			t.Errorf("event %+v", ev)
		}
	})
}
