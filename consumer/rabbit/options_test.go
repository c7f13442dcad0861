package rabbit

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"oncemore/consumer"
	"oncemore/consumer/consumertest"
	"oncemore/internal/testkit"
)

func plainConfig() consumer.Config[struct{}] {
	return consumer.Config[struct{}]{
		Group: "points", Store: consumertest.NewMemory(struct{}{}), EventID: consumer.EventIDSource{MessageID: true},
		Handler: func(context.Context, struct{}, consumer.Event) error { return nil },
		Logger:  slog.New(slog.DiscardHandler),
	}
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t"
	good := Options{Queue: "orders", URLs: []string{"amqp://u:" + secret + "@h:1/v"}}
	bad := map[string]func(*Options, *consumer.RetryPolicy){
		"no queue":          func(o *Options, _ *consumer.RetryPolicy) { o.Queue = "" },
		"the broker's name": func(o *Options, _ *consumer.RetryPolicy) { o.Queue = "amq.gen-1" },
		"a long name":       func(o *Options, _ *consumer.RetryPolicy) { o.Queue = strings.Repeat("q", 252) },
		"dead into itself":  func(o *Options, _ *consumer.RetryPolicy) { o.DeadLetterQueue = "orders" },
		"no URL":            func(o *Options, _ *consumer.RetryPolicy) { o.URLs = nil },
		"a wrong URL":       func(o *Options, _ *consumer.RetryPolicy) { o.URLs = []string{"http://u:" + secret + "@h\x00"} },
		"a wrong API":       func(o *Options, _ *consumer.RetryPolicy) { o.ManagementURL = "u:" + secret + "@h" },
		"prefetch":          func(o *Options, _ *consumer.RetryPolicy) { o.Prefetch = 70_000 },
		"negative time":     func(o *Options, _ *consumer.RetryPolicy) { o.FinishTimeout = -1 },
		"long retries":      func(_ *Options, p *consumer.RetryPolicy) { p.Attempts, p.Max = 200, time.Minute },
	}
	for name, spoil := range bad {
		opts, cfg := good, plainConfig()
		spoil(&opts, &cfg.Retry)
		_, err := New(cfg, opts)
		if err == nil {
			t.Errorf("%s: taken", name)
		} else if strings.Contains(err.Error(), secret) {
			t.Errorf("%s: the error quotes the password: %v", name, err)
		}
	}
	long := plainConfig()
	long.Retry = consumer.RetryPolicy{Attempts: 200, Max: time.Minute}
	opts := good
	opts.RetryQueues = true
	c, err := New(long, opts)
	if err != nil {
		t.Fatalf("long pauses with retry queues: %v", err)
	}
	if c.opts.Prefetch != 200 || c.opts.DeadLetterQueue != "orders.dlq" || c.opts.ConsumerTimeout != 30*time.Minute {
		t.Errorf("defaults %+v", c.opts)
	}
}

func TestDeclaresTheDeadLetterQueueOnRequest(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *broker) {
		s := openBareShop(t, b)
		s.deleteLater(t, s.dead)
		opts := s.opts()
		opts.DeclareQueues = true
		s.pay(1)
		s.run(s.config(giveUp), opts)
		s.settled(1)
		if got := s.Letters(t, s.name); len(got) != 1 {
			t.Errorf("%d letters", len(got))
		}
	})
}

// A queue that loses what nobody has handled is warned of, by what the broker
// itself says of it.
func TestWarnsOfQueuesThatDrop(t *testing.T) {
	t.Parallel()
	t.Run("rabbitmq 3", func(t *testing.T) {
		t.Parallel()
		warnsOfDrops(t, testkit.Rabbit(t), 3)
	})
	t.Run("rabbitmq 4", func(t *testing.T) {
		t.Parallel()
		warnsOfDrops(t, testkit.Rabbit4(t), 4)
	})
}

func warnsOfDrops(t *testing.T, server testkit.RabbitServer, version int) {
	const limit, ttl, length = "delivery limit", "expire", "make room"
	cases := []struct {
		name  string
		kind  string
		args  amqp.Table
		wants []string
		on4   []string // nil: the same
	}{
		{"plain classic", amqp.QueueTypeClassic, nil, nil, nil},
		{"plain quorum", amqp.QueueTypeQuorum, nil, nil, []string{limit}},
		{"limit", amqp.QueueTypeQuorum, amqp.Table{"x-delivery-limit": int32(5)}, []string{limit}, nil},
		{"limit with DLX", amqp.QueueTypeQuorum, amqp.Table{"x-delivery-limit": int32(5), "x-dead-letter-exchange": ""}, nil, nil},
		{"ttl", amqp.QueueTypeClassic, amqp.Table{amqp.QueueMessageTTLArg: int32(60_000)}, []string{ttl}, nil},
		{"length", amqp.QueueTypeClassic, amqp.Table{amqp.QueueMaxLenArg: int32(10)}, []string{length}, nil},
		{"refusing", amqp.QueueTypeClassic, amqp.Table{amqp.QueueMaxLenArg: int32(10), amqp.QueueOverflowArg: amqp.QueueOverflowRejectPublish}, nil, nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBroker(t, server, c.kind)
			name := testkit.Name("drops")
			b.declare(t, name, c.args)
			api, err := newManagement(Options{URLs: []string{b.URL}, ManagementURL: b.Management})
			if err != nil {
				t.Fatal(err)
			}
			defer api.close()
			major, err := api.major(t.Context())
			if err != nil || major != version {
				t.Fatalf("version %d, %v", major, err)
			}
			q, err := api.queue(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			wants := c.wants
			if version == 4 && c.on4 != nil {
				wants = c.on4
			}
			got := q.drops(major)
			if len(got) != len(wants) || len(got) == 1 && !strings.Contains(got[0], wants[0]) {
				t.Errorf("drops %q, want %q", got, wants)
			}
			if _, err := api.queue(t.Context(), name+"/none"); err != errNoQueue {
				t.Errorf("a missing queue: %v", err)
			}
		})
	}
}

// The warning reaches the log, and the API's absence holds nothing up.
func TestStartWarns(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *broker) {
		s := openBareShop(t, b)
		s.declare(t, s.dead, amqp.Table{amqp.QueueMaxLenArg: int32(10)})
		opts := s.opts()
		opts.ManagementURL = b.Management
		s.run(s.config(addPoints), opts)
		deaf := s.opts()
		deaf.ManagementURL = "http://127.0.0.1:1"
		s.run(s.config(addPoints), deaf)
		s.pay(4)
		s.settled(4)
		for _, want := range []string{"queue may drop messages", "name=" + s.dead, "cannot ask the management API"} {
			testkit.Eventually(t, 30*time.Second, func() bool { return strings.Contains(s.logs.String(), want) }, "the log says %s", want)
		}
	})
}

func TestPolicyCountsLikeAnArgument(t *testing.T) {
	t.Parallel()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); r.URL.EscapedPath() != "/api/queues/a%2Fb/q%2F1" || user != "u" || password != "p" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{
			"name": "q/1", "type": "quorum", "arguments": map[string]any{"x-delivery-limit": 50, "x-consumer-timeout": 90_000},
			"effective_policy_definition": map[string]any{"delivery-limit": 7},
		})
	}))
	defer api.Close()
	m, err := newManagement(Options{URLs: []string{"amqp://u:p@h/a%2Fb"}, ManagementURL: api.URL + "/"})
	if err != nil {
		t.Fatal(err)
	}
	defer m.close()
	q, err := m.queue(t.Context(), "q/1")
	if err != nil {
		t.Fatal(err)
	}
	if got := q.drops(3); len(got) != 1 || !strings.Contains(got[0], "limit of 7 ") {
		t.Errorf("drops %q", got)
	}
	if got, ok := q.consumerTimeout(); !ok || got != 90*time.Second {
		t.Errorf("consumer time-out %s, %t", got, ok)
	}
	var empty queueInfo
	if err := json.Unmarshal([]byte(`{"type":"quorum","effective_policy_definition":[],"arguments":{"x-delivery-limit":-1}}`), &empty); err != nil || empty.drops(4) != nil {
		t.Errorf("no policy, no limit: %v, %v", err, empty.drops(4))
	}
}

// The size that letters are cut to is that of the frame, or a little more: absent
// properties are counted with a byte.
func TestSizeIsThatOfTheFrame(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *broker) {
		wire := testkit.NewWire(t, b.URL)
		conn, err := amqp.Dial(wire.URL())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		ch, err := conn.Channel()
		if err != nil {
			t.Fatal(err)
		}
		last := 0
		for _, m := range []amqp.Publishing{rich(), payment(1)} {
			if err := ch.Publish("", "nobody", false, false, m); err != nil {
				t.Fatal(err)
			}
			testkit.Eventually(t, 10*time.Second, func() bool { return wire.LastHeader() != last }, "the header is on its way")
			last = wire.LastHeader()
			if size := headerSize(m); size < last || size > last+24 {
				t.Errorf("%d bytes for a frame of %d", size, last)
			}
		}
	})
}

func TestShorten(t *testing.T) {
	t.Parallel()
	var got []string
	for n := range 12 {
		got = append(got, shorten("支付 ok", n))
	}
	want := []string{"", "", "", "", "...", "...", "支...", "支...", "支...", "支付 ok", "支付 ok", "支付 ok"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestDecimalText(t *testing.T) {
	t.Parallel()
	for want, d := range map[string]amqp.Decimal{"123.45": {Scale: 2, Value: 12345}, "-0.05": {Scale: 2, Value: -5}, "7": {Value: 7}, "0.000": {Scale: 3}} {
		if got := DecimalText(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}
