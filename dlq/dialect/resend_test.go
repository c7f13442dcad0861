package dialect_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"oncemore/dlq/dialect"
)

func easyNetQ(message, properties string) amqp.Delivery {
	quoted, _ := json.Marshal(message)
	return amqp.Delivery{Type: "EasyNetQ.SystemMessages.Error, EasyNetQ", Headers: amqp.Table{"x-shovelled": true},
		Body: []byte(`{"Queue":"billing","Exchange":"shop","RoutingKey":"k","Exception":"E: m","Message":` + string(quoted) + `,"BasicProperties":` + properties + `}`)}
}

func refusedBecause(t *testing.T, err error, key string) {
	t.Helper()
	refusal, ok := errors.AsType[*dialect.Refusal](err)
	if !ok || refusal.Key != key || refusal.Error() == "" || strings.Contains(refusal.Error(), "{") {
		t.Errorf("error %v, want a refusal by %s", err, key)
	}
}

func TestEasyNetQIsRebuiltWithItsTypes(t *testing.T) {
	t.Parallel()
	b64 := base64.StdEncoding.EncodeToString([]byte("eu \xff"))
	d := easyNetQ(`{"amount":1.10}`, `{"MessageId":"m-1","Type":"Shop.Paid","DeliveryMode":2,"Priority":3,"Timestamp":1773480413,"Expiration":"1.00:00:01.5","UserId":"guest",
		"ContentType":"application/json","ContentTypePresent":true,"HeadersPresent":true,"CorrelationId":null,
		"Headers":{"$type":"System.Collections.Generic.Dictionary`+"`2"+`[[System.String],[System.Object]]","tenant":{"$type":"System.Byte[], mscorlib","$value":"`+b64+`"},
			"n":7,"ratio":0.5,"flag":false,"nothing":null,"list":{"$type":"System.Collections.Generic.List`+"`1"+`[[System.Object]]","$values":[1]},
			"at":{"$type":"RabbitMQ.Client.AmqpTimestamp, RabbitMQ.Client","UnixTime":1773480413},"x-death":[{"queue":"dGVzdA=="}],"CC":["other"]}}`)
	for _, keep := range []bool{false, true} {
		out, err := builtin(t).Resend("easynetq", d, dialect.ResendOptions{KeepExpiration: keep})
		if err != nil {
			t.Fatal(err)
		}
		want := amqp.Publishing{
			Body: []byte(`{"amount":1.10}`), MessageId: "m-1", Type: "Shop.Paid", DeliveryMode: 2, Priority: 3, Timestamp: time.Unix(1773480413, 0).UTC(), ContentType: "application/json",
			Headers: amqp.Table{"tenant": "eu \xff", "n": int64(7), "ratio": 0.5, "flag": false, "nothing": nil, "list": []any{int64(1)}, "at": time.Unix(1773480413, 0).UTC()},
		}
		if keep {
			want.Expiration = "86401500"
		}
		if !reflect.DeepEqual(out.Publishing, want) {
			t.Errorf("sends %+v\nwant  %+v", out.Publishing, want)
		}
		if !out.Unwrapped || !slices.Contains(out.LeftOut, "x-shovelled") || len(out.Notes) != 2 {
			t.Errorf("unwrapped %v, left out %v, notes %v", out.Unwrapped, out.LeftOut, out.Notes)
		}
	}
}

func TestWrappedBodies(t *testing.T) {
	t.Parallel()
	b64 := base64.StdEncoding.EncodeToString
	for _, c := range []struct{ message, body, refused string }{
		{`{"a":1}`, `{"a":1}`, ""},
		{"grün, not JSON", "grün, not JSON", ""},
		{b64([]byte(`{"a":1}`)), `{"a":1}`, ""},
		{"", "", ""},
		{"1234", "1234", ""}, // is JSON, and what it decodes to is not
		{b64([]byte("\x00\xff\x01")), "", "reason.dialect.body_ambiguous"},
		{"word", "", "reason.dialect.body_ambiguous"},
		{"lost \uFFFD bytes", "", "reason.dialect.body_lost"},
	} {
		out, err := builtin(t).Resend("easynetq", easyNetQ(c.message, `{}`), dialect.ResendOptions{})
		if c.refused != "" {
			refusedBecause(t, err, c.refused)
		} else if err != nil || string(out.Publishing.Body) != c.body {
			t.Errorf("%q: %q, %v", c.message, out.Publishing.Body, err)
		}
	}
}

func TestWhatCannotBeRebuiltIsRefused(t *testing.T) {
	t.Parallel()
	set := builtin(t)
	for properties, key := range map[string]string{
		`{"Headers":{"tenant":"test"}}`:                                           "reason.dialect.header_ambiguous", // text, or base64 of three bytes
		`{"Headers":{"tenant":{"$type":"Shop.Tenant, Shop","Id":1}}}`:             "reason.dialect.header",
		`{"Headers":{"tenant":{"$type":"System.Byte[], mscorlib","$value":"*"}}}`: "reason.dialect.header",
		`{"Headers":{"tenant":[{"deep":"\ud800"}]}}`:                              "reason.dialect.header",
		`{"Headers":{"n":123456789012345678901234567890}}`:                        "reason.dialect.header",
		`{"Headers":"none"}`:                                                      "reason.dialect.property",
		`{"MessageId":7}`:                                                         "reason.dialect.property",
		`{"MessageId":"` + strings.Repeat("x", 256) + `"}`:                        "reason.dialect.property",
		`{"Timestamp":"yesterday"}`:                                               "reason.dialect.property",
		`{"Priority":300}`:                                                        "reason.dialect.property",
		`{"Colour":"red"}`:                                                        "reason.dialect.property_unknown",
		`null`:                                                                    "reason.dialect.wrapper",
	} {
		_, err := set.Resend("easynetq", easyNetQ(`{}`, properties), dialect.ResendOptions{})
		t.Log(properties)
		refusedBecause(t, err, key)
	}
	_, err := set.Resend("easynetq", amqp.Delivery{Body: []byte(`{"Message":`)}, dialect.ResendOptions{})
	refusedBecause(t, err, "reason.dialect.wrapper")
	_, err = set.Resend("sneakers-maxretry", amqp.Delivery{Headers: amqp.Table{"retry_info": int64(4)}}, dialect.ResendOptions{})
	refusedBecause(t, err, "reason.dialect.wrapper")
	_, err = set.Resend("dramatiq", amqp.Delivery{Body: []byte(`{"options"`)}, dialect.ResendOptions{})
	refusedBecause(t, err, "reason.dialect.edit")
	if _, err := set.Resend("nobody", amqp.Delivery{}, dialect.ResendOptions{}); !errors.Is(err, dialect.ErrUnknown) {
		t.Errorf("unknown dialect: %v", err)
	}
}

func TestSneakersParkedTwice(t *testing.T) {
	t.Parallel()
	info := `[{"error":"boom","num_attempts":6,"properties":{"content_type":"text/plain","timestamp":"2026-03-14 09:27:08 UTC","priority":0,"headers":{"tenant":"test","x-death":[{"time":"2026"}],"deep":{"a":[true]}}}},
		{"error":"older","properties":{"content_type":"of an earlier parking"}}]`
	out, err := builtin(t).Resend("sneakers-maxretry", amqp.Delivery{Headers: amqp.Table{"retry_info": info}, Body: []byte("\x00bytes")}, dialect.ResendOptions{})
	want := amqp.Publishing{Body: []byte("\x00bytes"), ContentType: "text/plain", Timestamp: time.Date(2026, 3, 14, 9, 27, 8, 0, time.UTC),
		Headers: amqp.Table{"tenant": "test", "deep": amqp.Table{"a": []any{true}}}}
	if err != nil || !reflect.DeepEqual(out.Publishing, want) {
		t.Errorf("%v\nsends %+v\nwant  %+v", err, out.Publishing, want)
	}
	if out.Unwrapped {
		t.Error("the body was not wrapped")
	}
}

func TestSymfony(t *testing.T) {
	t.Parallel()
	set := builtin(t)
	php := `O:36:\"Symfony\\Component\\Messenger\\Envelope\":2:{s:44:\"\0Symfony\\Component\\Messenger\\Envelope\0stamps\";a:1:{s:61:\"Symfony\\Component\\Messenger\\Stamp\\SentToFailureTransportStamp\";a:0:{}}}`
	read := func(body string) *dialect.Reading {
		return set.Read(dialect.FromAMQP("failed", amqp.Delivery{Body: []byte(body)}), dialect.Configured{})
	}
	if r := read(php); r.Dialect != "symfony-messenger-php" {
		t.Errorf("dialect %s", r.Dialect)
	}
	if r := read(strings.ReplaceAll(php, "SentToFailureTransportStamp", "BusNameStamp")); r.Dialect != "rabbitmq-unknown" {
		t.Errorf("without the stamp of the failure: %s", r.Dialect)
	}
	_, err := set.Resend("symfony-messenger-php", amqp.Delivery{Body: []byte(php)}, dialect.ResendOptions{})
	refusedBecause(t, err, "reason.dialect.refused")

	for _, s := range loadSamples(t, dialect.RabbitMQ) {
		if s.Dialect == "symfony-messenger" {
			if r := set.Read(s.Message, dialect.Configured{}); r.OriginQueue != nil {
				t.Errorf("a transport is no queue: %s", *r.OriginQueue)
			}
			equal(t, "queue of the transport", set.Read(s.Message, dialect.Configured{Transports: map[string]string{"async": "orders"}}).OriginQueue, "orders")
		}
	}
	_, err = set.Resend("sneakers-maxretry-wrapped", amqp.Delivery{Body: []byte(`{"error":"e","num_attempts":1,"failed_at":"","payload":"e30="}`)}, dialect.ResendOptions{})
	refusedBecause(t, err, "reason.dialect.refused")
}

func TestBodyIsEditedAndNothingElse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ in, want string }{
		{`{ "options": {"retries": 2, "traceback":"boom" , "keep":1.50} , "a" : 1, "a":2}`, `{ "options": { "keep":1.50} , "a" : 1, "a":2}`},
		{`{"options":{"keep":[1, 2],"requeue_timestamp":1}}`, `{"options":{"keep":[1, 2]}}`},
		{`{"options":{"retries":1}}`, `{"options":{}}`},
		{`{"options":{"retries":1,"retries":2}}`, `{"options":{}}`},
		{`{"retries":1,"options":7}`, `{"retries":1,"options":7}`},
		{"{\"x\":\"\xff\",\"options\":{\"retries\":1}}", "{\"x\":\"\xff\",\"options\":{}}"},
		{`[{"options":{"retries":1}}]`, `[{"options":{"retries":1}}]`},
	} {
		out, err := builtin(t).Resend("dramatiq", amqp.Delivery{Body: []byte(c.in)}, dialect.ResendOptions{})
		if err != nil || string(out.Publishing.Body) != c.want {
			t.Errorf("%s\nbecame %s\nwant   %s, %v", c.in, out.Publishing.Body, c.want, err)
		}
	}
}

// A letter of RabbitMQ is never changed by making what a replay sends of it.
func TestResendLeavesTheLetterAlone(t *testing.T) {
	t.Parallel()
	set := builtin(t)
	for _, s := range loadSamples(t, dialect.RabbitMQ) {
		before := dialect.FromAMQP("q", s.Delivery)
		body := string(s.Delivery.Body)
		if _, err := set.Resend(s.Dialect, s.Delivery, dialect.ResendOptions{}); err != nil {
			t.Fatalf("%s: %v", s.Name, err)
		}
		if !reflect.DeepEqual(before, dialect.FromAMQP("q", s.Delivery)) || body != string(s.Delivery.Body) {
			t.Errorf("%s has changed", s.Name)
		}
	}
}

func TestOwnRabbitLetters(t *testing.T) {
	t.Parallel()
	at := time.Unix(1773480413, 0).UTC()
	d := amqp.Delivery{MessageId: "m-1", Body: []byte("{}"), Headers: amqp.Table{
		"x-original-queue": "orders", "x-original-exchange": "", "x-original-routingKey": "orders", "x-original-consumerGroup": "points",
		"x-original-expiration": "60000", "x-original-addedHeader": "event-id", "event-id": "evt-1", "x-original-CC": []any{"other"},
		"x-exception-attempts": int32(4), "x-exception-timestamp": at, "x-exception-class": "*shop.Closed", "x-exception-message": "shop is closed",
		"x-exception-stacktrace": "shop.Closed: shop is closed\nmain.go:1", "tenant": int32(7),
	}}
	set := builtin(t)
	r := set.Read(dialect.FromAMQP("orders.dlq", d), dialect.Configured{})
	if r.Dialect != "oncemore-rabbitmq" {
		t.Errorf("dialect %s", r.Dialect)
	}
	equal(t, "queue", r.OriginQueue, "orders")
	equal(t, "exchange", r.OriginExchange, "")
	equal(t, "group", r.Group, "points")
	equal(t, "class", r.ExceptionClass, "*shop.Closed")
	equal(t, "message", r.ExceptionMessage, "shop is closed")
	equal(t, "attempts", r.Attempts, 4)
	equal(t, "failed at", r.FailedAt, at)
	equal(t, "event id", r.EventID, "evt-1")
	out, err := set.Resend(r.Dialect, d, dialect.ResendOptions{KeepExpiration: true})
	if err != nil || !reflect.DeepEqual(out.Publishing, amqp.Publishing{MessageId: "m-1", Body: []byte("{}"), Headers: amqp.Table{"tenant": int32(7)}, Expiration: "60000"}) {
		t.Errorf("sends %+v, %v", out.Publishing, err)
	}
	delete(d.Headers, "x-original-addedHeader") // the message had its event-id itself
	if out, _ = set.Resend(r.Dialect, d, dialect.ResendOptions{}); out.Publishing.Headers["event-id"] != "evt-1" || out.Publishing.Expiration != "" {
		t.Errorf("sends %+v", out.Publishing)
	}
}

func TestConfiguredOfRabbit(t *testing.T) {
	t.Parallel()
	set := builtin(t)
	msg := dialect.FromAMQP("mail-dlq", amqp.Delivery{MessageId: "m-1", CorrelationId: "c-1", Headers: amqp.Table{"eventId": "h-1"}})
	r := set.Read(msg, dialect.Configured{EventIDProperty: "correlation_id", Origin: "letters"})
	equal(t, "id", r.EventID, "c-1")
	equal(t, "queue", r.OriginQueue, "letters")
	if r.OriginGuessed {
		t.Error("what is configured is no guess")
	}
	equal(t, "the header first", set.Read(msg, dialect.Configured{EventIDProperty: "correlation_id", EventIDHeader: "eventId"}).EventID, "h-1")
}

// No body and no header makes the interpreter panic, or sends headers that the
// client would refuse.
func FuzzResend(f *testing.F) {
	set := builtin(f)
	for _, s := range loadSamples(f, dialect.RabbitMQ) {
		info, _ := s.Delivery.Headers["retry_info"].(string)
		f.Add(s.Delivery.Body, info)
	}
	f.Add([]byte(`{"Message":"e30=","BasicProperties":{"Headers":{"$type":"x","a":{"$values":[{"$type":"System.Byte[]"}]}}}}`), `[{"properties":{"headers":{"a":[{"b":{}}]}}}]`)
	f.Add([]byte(`{"options":{"retries":1,"retries":{}},"options":{"retries":[]}}`), `[]`)
	f.Fuzz(func(t *testing.T, body []byte, info string) {
		d := amqp.Delivery{Body: body, Headers: amqp.Table{"retry_info": info, "keep": int16(1)}}
		for _, dia := range set.List() {
			if dia.Broker != dialect.RabbitMQ {
				continue
			}
			out, err := set.Resend(dia.ID, d, dialect.ResendOptions{KeepExpiration: true})
			if err == nil && out.Publishing.Headers.Validate() != nil {
				t.Errorf("%s sends %v", dia.ID, out.Publishing.Headers)
			}
		}
		set.Layers(dialect.FromAMQP("q-error", d), dialect.Configured{})
	})
}
