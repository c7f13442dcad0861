package dialect_test

import (
	"encoding/json"
	"maps"
	"os"
	"reflect"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"oncemore/dlq/dialect"
)

func readTestdata(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Letters of RabbitMQ 3.10.8, captured: what the note says of each is read.
func TestCapturedRabbitLetters(t *testing.T) {
	t.Parallel()
	set := builtin(t)
	samples, err := dialect.ReadSamples("rabbitmq-dlq.json", readTestdata(t, "rabbitmq-dlq.json"))
	if err != nil {
		t.Fatal(err)
	}
	want := []struct {
		dialect, queue, reason, id string
		attempts                   int32
	}{
		{"rabbitmq-xdeath", "orders.paid.points", "rejected", "evt-1", 1},
		{"rabbitmq-xdeath", "orders.ttl", "expired", "evt-2", 1},
		{"rabbitmq-xdeath", "orders.paid.points", "expired", "evt-3", 1},
		{"rabbitmq-xdeath", "orders.maxlen", "maxlen", "", 1},
		{"rabbitmq-xdeath", "", "delivery_limit", "", 1},
		{"rabbitmq-xdeath", "", "delivery_limit", "", 1},
		{"rabbitmq-xdeath", "", "rejected", "", 1},
		{"rabbitmq-xdeath", "", "rejected", "", 3},
		{"rabbitmq-xdeath", "", "rejected", "", 2},
		{"rabbitmq-xdeath", "", "rejected", "", 1},
		{"spring-amqp-republish", "", "", "", 0},
	}
	if len(samples) != len(want) {
		t.Fatalf("%d samples, want %d", len(samples), len(want))
	}
	for i, s := range samples {
		w, r := want[i], set.Read(s.Message, dialect.Configured{})
		if r.Dialect != w.dialect || !strings.HasPrefix(text(r.Field("reason")), w.reason) {
			t.Errorf("%s: %s, reason %v", s.Name, r.Dialect, r.Field("reason"))
		}
		if w.dialect == "rabbitmq-xdeath" {
			equal(t, s.Name+": queue", r.OriginQueue, text(s.Delivery.Headers["x-first-death-queue"]))
			equal(t, s.Name+": attempts", r.Attempts, w.attempts)
			if r.OriginRoutingKey == nil || r.OriginExchange == nil || r.Field("first_failed_at") == nil {
				t.Errorf("%s: exchange %v, key %v, first failed %v", s.Name, r.OriginExchange, r.OriginRoutingKey, r.Field("first_failed_at"))
			}
		}
		if w.queue != "" {
			equal(t, s.Name+": queue", r.OriginQueue, w.queue)
		}
		if w.id != "" {
			equal(t, s.Name+": event id", r.EventID, w.id)
		}
		checkOnlyFailureLeft(t, set, r.Dialect, s)
	}
	if got := set.Read(samples[2].Message, dialect.Configured{}).Field("origin_expiration"); got != "150" {
		t.Errorf("the message's own time to live is %v", got)
	}
	kept, err := set.Resend("rabbitmq-xdeath", samples[2].Delivery, dialect.ResendOptions{KeepExpiration: true})
	if err != nil || kept.Publishing.Expiration != "150" {
		t.Errorf("kept on purpose: %q, %v", kept.Publishing.Expiration, err)
	}
	r := set.Read(samples[10].Message, dialect.Configured{})
	if r.ExceptionClass == nil || r.ExceptionMessage == nil || r.Stack() == nil {
		t.Errorf("Spring's: class %v, message %v", r.ExceptionClass, r.ExceptionMessage)
	}
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

// checkOnlyFailureLeft fails when a replay would change a header of the
// application, or its type, or leave one of the failure's.
func checkOnlyFailureLeft(t *testing.T, set *dialect.Set, id string, s dialect.Sample) {
	t.Helper()
	out, err := set.Resend(id, s.Delivery, dialect.ResendOptions{})
	if err != nil {
		t.Errorf("%s: %v", s.Name, err)
		return
	}
	for name, value := range s.Delivery.Headers {
		failure := strings.HasPrefix(name, "x-") || name == "CC"
		got, kept := out.Publishing.Headers[name]
		if kept == failure || kept && !reflect.DeepEqual(got, value) {
			t.Errorf("%s: header %s %#v becomes %#v, kept %v", s.Name, name, value, got, kept)
		}
	}
	if p := out.Publishing; string(p.Body) != string(s.Delivery.Body) || p.MessageId != s.Delivery.MessageId || p.Priority != s.Delivery.Priority ||
		!p.Timestamp.Equal(s.Delivery.Timestamp) || p.DeliveryMode != s.Delivery.DeliveryMode || p.Type != s.Delivery.Type || p.UserId != "" || p.Expiration != "" {
		t.Errorf("%s: properties %+v", s.Name, p)
	}
	if err := out.Publishing.Headers.Validate(); err != nil {
		t.Errorf("%s: the client refuses the headers: %v", s.Name, err)
	}
}

// Every letter of three versions of RabbitMQ, however it died: the application's
// headers come back typed as they were published, and the broker's do not.
func TestCapturedOfThreeBrokers(t *testing.T) {
	t.Parallel()
	set := builtin(t)
	var doc struct {
		Brokers []struct {
			Version   string
			Scenarios []struct {
				Name     string
				Messages []json.RawMessage
			}
		}
	}
	if err := json.Unmarshal(readTestdata(t, "rabbitmq4-dlq.json"), &doc); err != nil {
		t.Fatal(err)
	}
	messages, deaths := 0, 0
	for _, b := range doc.Brokers {
		var published amqp.Table
		for _, scenario := range b.Scenarios {
			for _, raw := range scenario.Messages {
				messages++
				at := b.Version + " " + scenario.Name
				samples, err := dialect.ReadSamples(at, raw)
				if err != nil || len(samples) != 1 {
					t.Fatalf("%s: %v", at, err)
				}
				s := samples[0]
				s.Name = at
				if published == nil {
					published = maps.Clone(s.Delivery.Headers)
				}
				r := set.Read(s.Message, dialect.Configured{})
				checkOnlyFailureLeft(t, set, r.Dialect, s)
				history, _ := s.Delivery.Headers["x-death"].([]any)
				if len(history) == 0 {
					continue
				}
				deaths++
				first := text(s.Delivery.Headers["x-first-death-queue"])
				if first == "" {
					first = text(history[len(history)-1].(amqp.Table)["queue"])
				}
				equal(t, at+": queue", r.OriginQueue, first)
				if r.Dialect != "rabbitmq-xdeath" || r.EventID == nil {
					t.Errorf("%s: %s, event id %v", at, r.Dialect, r.EventID)
				}
				if strings.HasPrefix(scenario.Name, "forged") || len(s.Delivery.Headers) < len(published) {
					continue
				}
				out, err := set.Resend(r.Dialect, s.Delivery, dialect.ResendOptions{})
				published["eventId"] = s.Delivery.MessageId // the one that differs
				if err != nil || !reflect.DeepEqual(out.Publishing.Headers, published) {
					t.Errorf("%s: %v\nheaders %#v\nwant    %#v", at, err, out.Publishing.Headers, published)
				}
			}
		}
	}
	if messages != 185 || deaths < 100 {
		t.Errorf("%d messages, %d of them dead", messages, deaths)
	}
}
