package dialect_test

import (
	"bytes"
	"slices"
	"testing"

	"oncemore/dlq/dialect"
)

func TestOwnHeadersAreAlwaysStripped(t *testing.T) {
	t.Parallel()
	set := builtin(t)
	for _, id := range set.IDs() {
		left, err := set.Strip(id, header("a", "1", "oncemore-replay", "7", "oncemore-item", "2", "a", "2", "oncemore-replay", "8"))
		if err != nil {
			t.Fatal(err)
		}
		if len(left) != 2 || string(left[0].Value) != "1" || string(left[1].Value) != "2" {
			t.Errorf("%s leaves %v", id, left)
		}
	}
}

func TestRewrittenTypeHeaderIsStripped(t *testing.T) {
	t.Parallel()
	set := builtin(t)
	for id, want := range map[string]bool{"spring-kafka-dlpr": true, "spring-kafka-retry-topic": true, "kafka-connect": false} {
		strips, err := set.Strips(id)
		if err != nil {
			t.Fatal(err)
		}
		if got := strips("__TypeId__", []byte("[B")); got != want {
			t.Errorf("%s strips a byte array's type: %v", id, got)
		}
		if strips("__TypeId__", []byte("com.example.Order")) || strips("__TypeId__", nil) {
			t.Errorf("%s strips another type", id)
		}
	}
}

func TestTwoLayers(t *testing.T) {
	t.Parallel()
	set := builtin(t)
	read := func(pairs ...string) *dialect.Reading {
		return set.Read(&dialect.Message{Broker: dialect.Kafka, From: dialect.Place{Topic: "t"}, Headers: header(pairs...)}, dialect.Configured{})
	}
	retry := read("kafka_original-topic", "t", "kafka_dlt-original-consumer-group", "g")
	if retry.Dialect != "spring-kafka-retry-topic" || !slices.Equal(retry.AlsoSeen, []string{"spring-kafka-dlpr"}) || retry.TwoLayers {
		t.Errorf("the retry topic's own set: %s, %v, two layers %v", retry.Dialect, retry.AlsoSeen, retry.TwoLayers)
	}
	both := read("kafka_dlt-original-topic", "t", "__connect.errors.topic", "u")
	if both.Dialect != "spring-kafka-dlpr" || !both.TwoLayers {
		t.Errorf("Connect under Spring: %s, two layers %v", both.Dialect, both.TwoLayers)
	}
	if one := read("kafka_dlt-original-topic", "t"); one.TwoLayers || one.AlsoSeen != nil {
		t.Errorf("one layer: %v, %v", one.TwoLayers, one.AlsoSeen)
	}
}

func TestConfiguredOriginAndGroup(t *testing.T) {
	t.Parallel()
	set := builtin(t)
	conf := dialect.Configured{Origin: "orders", Group: "billing"}
	guess := set.Read(&dialect.Message{Broker: dialect.Kafka, From: dialect.Place{Topic: "shop.dlq"}}, conf)
	equal(t, "origin over the guess", guess.OriginTopic, "orders")
	equal(t, "group", guess.Group, "billing")
	if guess.OriginGuessed {
		t.Error("a configured origin is no guess")
	}
	said := set.Read(&dialect.Message{Broker: dialect.Kafka, From: dialect.Place{Topic: "shop.dlq"},
		Headers: header("kafka_dlt-original-topic", "payments", "kafka_dlt-original-consumer-group", "g")}, conf)
	equal(t, "the message's origin", said.OriginTopic, "payments")
	equal(t, "the message's group", said.Group, "g")
}

func TestShareGroupWithoutCopy(t *testing.T) {
	t.Parallel()
	set := builtin(t)
	hs := header("__dlq.errors.topic", "orders")
	for value, want := range map[string]bool{"": false, "x": true} {
		m := &dialect.Message{Broker: dialect.Kafka, Headers: hs}
		if value != "" {
			m.Value = []byte(value)
		}
		if r := set.Read(m, dialect.Configured{}); r.CarriesValue != want {
			t.Errorf("value %q: carries value %v", value, r.CarriesValue)
		}
	}
}

func TestNullHeaderCountsAsAbsent(t *testing.T) {
	t.Parallel()
	hs := append(header("kafka_dlt-original-topic", "orders"), dialect.Header{Name: "kafka_dlt-original-topic"},
		dialect.Header{Name: "kafka_dlt-exception-cause-fqcn"}, dialect.Header{Name: "kafka_dlt-exception-fqcn", Value: []byte("E")})
	r := builtin(t).Read(&dialect.Message{Broker: dialect.Kafka, Headers: hs}, dialect.Configured{})
	equal(t, "origin", r.OriginTopic, "orders")
	equal(t, "class", r.ExceptionClass, "E")
}

// FuzzRead feeds messages to every dialect: nothing panics, and stripping keeps
// the other headers as they are, in order.
func FuzzRead(f *testing.F) {
	for _, s := range loadSamples(f, dialect.Kafka) {
		m := s.Message
		f.Add(pack(m.Headers), m.Key, m.Value, m.From.Topic)
	}
	for _, c := range loadCaptured(f) {
		m := c.message(f)
		f.Add(pack(m.Headers), m.Key, m.Value, m.From.Topic)
	}
	f.Add([]byte("retry_topic-attempts\x00\x01\xff\x00__connect.errors.partition\x00-1\x00"), []byte{}, []byte(`{"specversion":1,"id":"\ud800","topic":[],"pubsubname":null}`), "a.dlq")
	set := builtin(f)
	f.Fuzz(func(t *testing.T, packed, key, value []byte, topic string) {
		headers := unpack(packed)
		for _, broker := range []string{dialect.Kafka, dialect.RabbitMQ} {
			r := set.Read(&dialect.Message{Broker: broker, From: dialect.Place{Topic: topic, Queue: topic}, Key: key, Value: value, Headers: headers}, dialect.Configured{EventIDJSON: "$.id[0]"})
			checkStripped(t, set, r.Dialect, headers)
		}
	})
}

func checkStripped(t *testing.T, set *dialect.Set, id string, headers []dialect.Header) {
	strips, err := set.Strips(id)
	if err != nil {
		t.Fatal(err)
	}
	left, err := set.Strip(id, headers)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range headers {
		if strips(h.Name, h.Value) {
			continue
		}
		if len(left) == 0 || left[0].Name != h.Name || !bytes.Equal(left[0].Value, h.Value) || (left[0].Value == nil) != (h.Value == nil) {
			t.Fatalf("%s: %q is lost, changed or out of order", id, h.Name)
		}
		left = left[1:]
	}
	if len(left) > 0 {
		t.Fatalf("%s: %d headers too many", id, len(left))
	}
}

// pack and unpack write headers as name, zero byte, value, zero byte; a value
// "\x01" is null.
func pack(headers []dialect.Header) []byte {
	var out []byte
	for _, h := range headers {
		value := h.Value
		if value == nil {
			value = []byte{1}
		}
		out = slices.Concat(out, []byte(h.Name), []byte{0}, bytes.ReplaceAll(value, []byte{0}, []byte{2}), []byte{0})
	}
	return out
}

func unpack(packed []byte) []dialect.Header {
	var hs []dialect.Header
	parts := bytes.Split(packed, []byte{0})
	for i := 0; i+1 < len(parts); i += 2 {
		h := dialect.Header{Name: string(parts[i]), Value: bytes.ReplaceAll(parts[i+1], []byte{2}, []byte{0})}
		if bytes.Equal(parts[i+1], []byte{1}) {
			h.Value = nil
		}
		hs = append(hs, h)
	}
	return hs
}

func BenchmarkRead(b *testing.B) {
	set := builtin(b)
	msg := loadCaptured(b)[1].message(b)
	b.ReportAllocs()
	for b.Loop() {
		set.Read(msg, dialect.Configured{})
	}
}
