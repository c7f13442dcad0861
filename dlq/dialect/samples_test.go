package dialect_test

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"slices"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"oncemore/dlq/dialect"
)

// sample is an authored message of dialects.yaml with what must be read from it.
type sample struct {
	ID, Broker, Dialect string
	Source              struct {
		Topic       string
		Partition   int32
		Offset      int64
		TimestampMS *int64 `yaml:"timestamp_ms"`
		Queue       string
		Exchange    string
		RoutingKey  string `yaml:"routing_key"`
	}
	Headers     []sampleValue
	Properties  map[string]any
	Key         *string
	KeyBase64   *string `yaml:"key_base64"`
	Value       *string
	ValueBase64 *string `yaml:"value_base64"`
	Body        *string
	BodyBase64  *string `yaml:"body_base64"`
	Expect      map[string]any
	Absent      []string
	Replay      struct {
		Topic        string
		HeadersLeft  []string       `yaml:"headers_left"`
		HeadersSet   map[string]any `yaml:"headers_set"`
		ValueIsNull  bool           `yaml:"value_is_null"`
		MustBeFetchd bool           `yaml:"payload_must_be_fetched"`
		IsGuess      bool           `yaml:"origin_is_guess"`
	}
}

// sampleValue is a header, a field of an AMQP table or an element of an array.
type sampleValue struct {
	Name   string
	Type   string
	Value  yaml.Node
	Base64 *string
}

func loadSamples(t testing.TB, broker string) []sample {
	t.Helper()
	text, err := os.ReadFile("dialects.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct{ Samples []sample }
	if err := yaml.Unmarshal(text, &doc); err != nil {
		t.Fatalf("samples: %v", err)
	}
	return slices.DeleteFunc(doc.Samples, func(s sample) bool { return s.Broker != broker })
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

func bytesOf(t testing.TB, text, b64 *string) []byte {
	if text != nil {
		return []byte(*text)
	}
	return decode64(t, b64)
}

func (s sample) message(t testing.TB) *dialect.Message {
	t.Helper()
	m := &dialect.Message{Broker: s.Broker, Key: bytesOf(t, s.Key, s.KeyBase64), Value: bytesOf(t, s.Value, s.ValueBase64), Properties: map[string]any{}}
	m.From = dialect.Place{Topic: s.Source.Topic, Partition: s.Source.Partition, Offset: s.Source.Offset, TimestampMS: -1, Queue: s.Source.Queue, Exchange: s.Source.Exchange, RoutingKey: s.Source.RoutingKey}
	if s.Source.TimestampMS != nil {
		m.From.TimestampMS = *s.Source.TimestampMS
	}
	if s.Broker == dialect.RabbitMQ {
		m.Value = bytesOf(t, s.Body, s.BodyBase64)
	}
	for name, v := range s.Properties {
		m.Properties[name] = property(name, v)
	}
	for _, h := range s.Headers {
		m.Headers = append(m.Headers, h.header(t, s.Broker))
	}
	return m
}

func property(name string, v any) any {
	switch n := v.(type) {
	case int:
		if name == "timestamp" {
			return time.Unix(int64(n), 0)
		}
		return int64(n)
	}
	return v
}

func (v sampleValue) header(t testing.TB, broker string) dialect.Header {
	t.Helper()
	h := dialect.Header{Name: v.Name}
	switch {
	case v.Base64 != nil:
		h.Value = decode64(t, v.Base64)
	case v.Value.Tag != "!!null":
		h.Value = []byte(v.Value.Value)
	}
	if broker == dialect.RabbitMQ {
		h.Value, h.Typed = nil, v.typed(t)
	}
	return h
}

func (v sampleValue) typed(t testing.TB) any {
	t.Helper()
	var parts []sampleValue
	if v.Type == "array" || v.Type == "table" {
		if err := v.Value.Decode(&parts); err != nil {
			t.Fatal(err)
		}
	}
	switch v.Type {
	case "array":
		list := []any{}
		for _, p := range parts {
			list = append(list, p.typed(t))
		}
		return list
	case "table":
		table := map[string]any{}
		for _, p := range parts {
			table[p.Name] = p.typed(t)
		}
		return table
	case "timestamp":
		return time.Unix(number(t, v.Value), 0)
	case "bool":
		return v.Value.Value == "true"
	case "void":
		return nil
	case "longstr":
		if v.Base64 != nil {
			return decode64(t, v.Base64)
		}
		return v.Value.Value
	}
	return number(t, v.Value)
}

func number(t testing.TB, n yaml.Node) int64 {
	t.Helper()
	var i int64
	if err := n.Decode(&i); err != nil {
		t.Fatal(err)
	}
	return i
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
			t.Run(s.ID, func(t *testing.T) { checkSample(t, set, s) })
		}
	}
}

func checkSample(t *testing.T, set *dialect.Set, s sample) {
	msg := s.message(t)
	r := set.Read(msg, dialect.Configured{})
	if r.Dialect != s.Dialect {
		t.Errorf("dialect %s, want %s", r.Dialect, s.Dialect)
	}
	for name, want := range s.Expect {
		if got, expected := plain(r.Field(name)), expectation(t, want); got != expected {
			t.Errorf("%s = %#v, want %#v", name, got, expected)
		}
	}
	for _, name := range s.Absent {
		if got := r.Field(name); got != nil {
			t.Errorf("%s = %#v, want none", name, got)
		}
	}
	left, err := set.Strip(r.Dialect, msg.Headers)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for _, h := range left {
		names = append(names, h.Name)
	}
	want := slices.DeleteFunc(slices.Clone(s.Replay.HeadersLeft), func(name string) bool {
		_, set := s.Replay.HeadersSet[name] // a replay over RabbitMQ sets it anew
		return set
	})
	if !slices.Equal(names, want) {
		t.Errorf("headers left %q, want %q", names, want)
	}
	checkTarget(t, s, r, msg)
}

func checkTarget(t *testing.T, s sample, r *dialect.Reading, msg *dialect.Message) {
	if s.Broker == dialect.Kafka && (r.OriginTopic == nil || *r.OriginTopic != s.Replay.Topic) {
		t.Errorf("origin topic %v, want %s", r.OriginTopic, s.Replay.Topic)
	}
	if s.Broker == dialect.Kafka && r.OriginGuessed != s.Replay.IsGuess {
		t.Errorf("guessed = %v", r.OriginGuessed)
	}
	if r.CarriesValue == s.Replay.MustBeFetchd {
		t.Errorf("carries value = %v", r.CarriesValue)
	}
	if s.Replay.ValueIsNull && msg.Value != nil {
		t.Errorf("the tombstone became %q", msg.Value)
	}
}

// plain is a field as the samples write it: times in milliseconds.
func plain(v any) any {
	if at, ok := v.(time.Time); ok {
		return at.UnixMilli()
	}
	return v
}

func expectation(t *testing.T, want any) any {
	switch w := want.(type) {
	case int:
		return int64(w)
	case map[string]any:
		b := w["base64"].(string)
		return string(decode64(t, &b))
	}
	return want
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
