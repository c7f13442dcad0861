package dialect_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"
	"go.yaml.in/yaml/v3"

	"oncemore/dlq/dialect"
)

// sample is an authored message of dialects.yaml with what must be read from it,
// and what a replay must send.
type sample struct {
	dialect.Sample
	replay replayWanted
}

type replayWanted struct {
	Topic, Queue, Exchange string
	HeadersLeft            []string       `yaml:"headers_left"`
	HeadersSet             map[string]any `yaml:"headers_set"`
	Properties             map[string]any
	Body                   *string
	BodyPathsRemoved       []string `yaml:"body_paths_removed"`
	Warn                   string
	ValueIsNull            bool `yaml:"value_is_null"`
	MustBeFetched          bool `yaml:"payload_must_be_fetched"`
	IsGuess                bool `yaml:"origin_is_guess"`
}

func loadSamples(t testing.TB, broker string) []sample {
	t.Helper()
	text, err := os.ReadFile("dialects.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Samples []struct{ Replay replayWanted }
	}
	if err := yaml.Unmarshal(text, &doc); err != nil {
		t.Fatalf("samples: %v", err)
	}
	read, err := dialect.ReadSamples("dialects.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	var all []sample
	for i, s := range read {
		if s.Message.Broker == broker {
			all = append(all, sample{s, doc.Samples[i].Replay})
		}
	}
	return all
}

func decode64(t testing.TB, s *string) []byte {
	t.Helper()
	if s == nil {
		return nil
	}
	b, err := base64.StdEncoding.DecodeString(*s)
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte{}, b...)
}

func builtin(t testing.TB) *dialect.Set {
	t.Helper()
	set, err := dialect.Load()
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestSamples(t *testing.T) {
	t.Parallel()
	set := builtin(t)
	counts := map[string]int{dialect.Kafka: 17, dialect.RabbitMQ: 16}
	for broker, n := range counts {
		samples := loadSamples(t, broker)
		if len(samples) != n {
			t.Errorf("%d samples of %s, want %d", len(samples), broker, n)
		}
		for _, s := range samples {
			t.Run(s.Name, func(t *testing.T) { checkSample(t, set, s) })
		}
	}
}

func checkSample(t *testing.T, set *dialect.Set, s sample) {
	r := set.Read(s.Message, dialect.Configured{})
	if s.Dialect == "" || len(s.Expect) == 0 {
		t.Error("the sample expects nothing")
	}
	for _, wrong := range s.Check(r) {
		t.Error(wrong)
	}
	if s.Message.Broker == dialect.RabbitMQ {
		checkResend(t, set, s, r)
		return
	}
	left, err := set.Strip(r.Dialect, s.Message.Headers)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for _, h := range left {
		names = append(names, h.Name)
	}
	if !slices.Equal(names, s.replay.HeadersLeft) {
		t.Errorf("headers left %q, want %q", names, s.replay.HeadersLeft)
	}
	if r.OriginTopic == nil || *r.OriginTopic != s.replay.Topic {
		t.Errorf("origin topic %v, want %s", r.OriginTopic, s.replay.Topic)
	}
	if r.OriginGuessed != s.replay.IsGuess {
		t.Errorf("guessed = %v", r.OriginGuessed)
	}
	if r.CarriesValue == s.replay.MustBeFetched {
		t.Errorf("carries value = %v", r.CarriesValue)
	}
	if s.replay.ValueIsNull && s.Message.Value != nil {
		t.Errorf("the tombstone became %q", s.Message.Value)
	}
}

// checkResend holds what a replay publishes against the sample.
func checkResend(t *testing.T, set *dialect.Set, s sample, r *dialect.Reading) {
	t.Helper()
	want := s.replay
	if got := r.OriginQueue; want.Queue != "" && (got == nil || *got != want.Queue) {
		t.Errorf("origin queue %v, want %s", got, want.Queue)
	}
	if r.OriginGuessed != want.IsGuess {
		t.Errorf("guessed = %v", r.OriginGuessed)
	}
	out, err := set.Resend(r.Dialect, s.Delivery, dialect.ResendOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p := out.Publishing
	left := slices.Clone(want.HeadersLeft)
	for name := range want.HeadersSet {
		if !slices.Contains(left, name) {
			left = append(left, name)
		}
	}
	slices.Sort(left)
	if names := slices.Sorted(maps.Keys(p.Headers)); !slices.Equal(names, left) {
		t.Errorf("headers left %q, want %q", names, left)
	}
	for _, name := range want.HeadersLeft {
		if _, isSet := want.HeadersSet[name]; !isSet && !reflect.DeepEqual(p.Headers[name], s.Delivery.Headers[name]) {
			t.Errorf("header %s is %#v, was %#v", name, p.Headers[name], s.Delivery.Headers[name])
		}
	}
	for name, value := range want.HeadersSet {
		if got := fmt.Sprint(p.Headers[name]); got != fmt.Sprint(value) {
			t.Errorf("header %s is %s, want %v", name, got, value)
		}
	}
	checkResentBody(t, s, out)
	properties := map[string]any{}
	if want.Properties != nil {
		properties = want.Properties
	} else {
		maps.Copy(properties, s.Message.Properties)
		for _, name := range []string{"user_id", "expiration"} {
			delete(properties, name)
		}
	}
	again := dialect.FromAMQP("", out.Delivery())
	if !reflect.DeepEqual(again.Properties, properties) {
		t.Errorf("properties %v, want %v", again.Properties, properties)
	}
	if err := p.Headers.Validate(); err != nil {
		t.Errorf("the client refuses the headers: %v", err)
	}
}

func checkResentBody(t *testing.T, s sample, out dialect.Resend) {
	t.Helper()
	want, got := s.Message.Value, out.Publishing.Body
	if s.replay.Body != nil {
		want = []byte(*s.replay.Body)
	}
	if removed := s.replay.BodyPathsRemoved; len(removed) == 0 && string(got) != string(want) {
		t.Errorf("body %q, want %q", got, want)
	} else if len(removed) > 0 {
		for _, path := range removed {
			if gjson.GetBytes(got, path).Exists() || !gjson.GetBytes(want, path).Exists() {
				t.Errorf("%s: before %s, after %s", path, want, got)
			}
		}
	}
	said := ""
	for _, n := range out.Notes {
		said += n.Text + "\n"
	}
	if warn := s.replay.Warn; warn != "" && !strings.Contains(said, "MT-Redelivery-Count (2)") {
		t.Errorf("notes %q do not say that %s", said, warn)
	}
}

// captured is a record of samples/spring-kafka-dlt.json, written by a real
// Spring application.
type captured struct {
	Topic     string  `json:"topic"`
	Partition int32   `json:"partition"`
	Offset    int64   `json:"offset"`
	Key       *string `json:"key_b64"`
	Value     *string `json:"value_b64"`
	Timestamp int64   `json:"timestamp"`
	Headers   []struct {
		Key   string  `json:"key"`
		Value *string `json:"value_b64"`
	} `json:"headers"`
}

func loadCaptured(t testing.TB) []captured {
	t.Helper()
	text, err := os.ReadFile("testdata/spring-kafka-dlt.json")
	if err != nil {
		t.Fatal(err)
	}
	var records []captured
	if err := json.Unmarshal(text, &records); err != nil {
		t.Fatal(err)
	}
	return records
}

func (c captured) message(t testing.TB) *dialect.Message {
	m := &dialect.Message{Broker: dialect.Kafka, Key: decode64(t, c.Key), Value: decode64(t, c.Value)}
	m.From = dialect.Place{Topic: c.Topic, Partition: c.Partition, Offset: c.Offset, TimestampMS: c.Timestamp}
	for _, h := range c.Headers {
		m.Headers = append(m.Headers, dialect.Header{Name: h.Key, Value: decode64(t, h.Value)})
	}
	return m
}

func TestCapturedSpringRecords(t *testing.T) {
	t.Parallel()
	set := builtin(t)
	const outOfStock = "peer.App$OutOfStockException"
	const unreadable = "org.springframework.kafka.support.serializer.DeserializationException"
	want := map[string][]struct {
		partition, attempts int32 // attempts 0: not known
		offset              int64 // of the origin
		class               string
		eventID             string
	}{
		"orders.paid.DLT": {
			{0, 0, 0, unreadable, ""}, {0, 0, 1, outOfStock, "evt-3"}, {0, 0, 1, outOfStock, "evt-3"},
			{1, 0, 0, unreadable, ""}, {1, 0, 1, "java.lang.IllegalStateException", "evt-4"},
			{2, 0, 0, outOfStock, "evt-5"}, {2, 0, 1, "java.lang.NullPointerException", ""},
			{3, 0, 0, "org.springframework.dao.DataIntegrityViolationException", ""}, {3, 0, 1, outOfStock, "evt-8"},
		},
		"orders.refund-dlt": {
			{0, 1, 2, unreadable, ""}, {0, 4, 0, outOfStock, "evt-9"},
			{0, 4, 1, "java.lang.IllegalStateException", "evt-10"}, {0, 5, 0, outOfStock, "evt-9"},
		},
	}
	origins := map[string]string{"orders.paid.DLT": "orders.paid", "orders.refund-dlt": "orders.refund"}
	groups := map[string]string{"orders.paid.DLT": "points-service", "orders.refund-dlt": "points-service-refund"}
	for _, c := range loadCaptured(t) {
		r := set.Read(c.message(t), dialect.Configured{})
		w := want[c.Topic][0]
		want[c.Topic] = want[c.Topic][1:]
		at := c.Topic + " " + string(rune('0'+c.Partition)) + "/" + string(rune('0'+c.Offset))
		equal(t, at+" origin", r.OriginTopic, origins[c.Topic])
		equal(t, at+" partition", r.OriginPartition, w.partition)
		equal(t, at+" offset", r.OriginOffset, w.offset)
		equal(t, at+" group", r.Group, groups[c.Topic])
		equal(t, at+" class", r.ExceptionClass, w.class)
		if w.attempts == 0 && r.Attempts != nil {
			t.Errorf("%s attempts = %d, want none", at, *r.Attempts)
		} else if w.attempts != 0 {
			equal(t, at+" attempts", r.Attempts, w.attempts)
		}
		if w.eventID == "" && r.EventID != nil {
			t.Errorf("%s event id = %s, want none", at, *r.EventID)
		} else if w.eventID != "" {
			equal(t, at+" event id", r.EventID, w.eventID)
		}
		equal(t, at+" failed at", r.FailedAt, time.UnixMilli(c.Timestamp).UTC())
		if r.TwoLayers || r.OriginTime == nil || r.Stack() == nil {
			t.Errorf("%s two layers %v, origin time %v, stack there %v", at, r.TwoLayers, r.OriginTime, r.Stack() != nil)
		}
	}
	for topic, rest := range want {
		if len(rest) > 0 {
			t.Errorf("%s: %d records were not there", topic, len(rest))
		}
	}
}

func TestCapturedSpringRecordsKeepOnlyTheirOwnHeaders(t *testing.T) {
	t.Parallel()
	set := builtin(t)
	own := []string{"eventId", "traceparent", "tag", "tag", "null-header", "bin", "__TypeId__"}
	for _, c := range loadCaptured(t) {
		msg := c.message(t)
		left, err := set.Strip(set.Read(msg, dialect.Configured{}).Dialect, msg.Headers)
		if err != nil {
			t.Fatal(err)
		}
		rest := own
		for _, h := range left {
			i := slices.Index(rest, h.Name)
			if i < 0 {
				t.Errorf("%s/%d/%d keeps %s, or in another order", c.Topic, c.Partition, c.Offset, h.Name)
				continue
			}
			rest = rest[i+1:]
		}
		count := 0
		for _, h := range msg.Headers {
			if slices.Contains(own, h.Name) {
				count++
			}
		}
		if len(left) != count {
			t.Errorf("%s/%d/%d: %d headers left, want %d", c.Topic, c.Partition, c.Offset, len(left), count)
		}
	}
}

func equal[T comparable](t *testing.T, what string, got *T, want T) {
	t.Helper()
	if got == nil {
		t.Errorf("%s is not known, want %v", what, want)
	} else if *got != want {
		t.Errorf("%s = %v, want %v", what, *got, want)
	}
}
