package dialect_test

import (
	"slices"
	"testing"
	"time"

	"oncemore/dlq/dialect"
)

func sampleOf(t *testing.T, broker, name string) dialect.Sample {
	t.Helper()
	all := loadSamples(t, broker)
	i := slices.IndexFunc(all, func(s sample) bool { return s.Name == name })
	if i < 0 {
		t.Fatalf("no sample %s", name)
	}
	return all[i].Sample
}

func fieldOf(l dialect.Layer, name string) any {
	for _, f := range l.Fields {
		if f.Name == name {
			return f.Value
		}
	}
	return nil
}

// A Celery task that the broker dead-lettered shows the task's attempts and, as a
// layer of its own, how often the broker took it out of the queue.
func TestBothLayersAreRead(t *testing.T) {
	t.Parallel()
	layers := builtin(t).Layers(sampleOf(t, dialect.RabbitMQ, "celery-xdeath").Message, dialect.Configured{})
	if len(layers) != 2 || layers[0].Dialect != "celery" || layers[1].Dialect != "rabbitmq-xdeath" {
		t.Fatalf("layers %+v", layers)
	}
	if a, b := fieldOf(layers[0], "attempts"), fieldOf(layers[1], "attempts"); a != int64(4) || b != int64(1) {
		t.Errorf("attempts %v and %v", a, b)
	}
	if fieldOf(layers[1], "origin_queue") != nil {
		t.Error("what both say is said twice")
	}
	two := &dialect.Message{Broker: dialect.Kafka, From: dialect.Place{Topic: "x", TimestampMS: -1},
		Headers: header("kafka_dlt-original-topic", "orders", "kafka_dlt-exception-message", "outer", "dead-letter-topic", "first", "dead-letter-reason", "inner", "dead-letter-exception-class-name", "E")}
	layers = builtin(t).Layers(two, dialect.Configured{})
	if len(layers) != 2 || fieldOf(layers[0], "exception_message") == fieldOf(layers[1], "exception_message") || !builtin(t).Read(two, dialect.Configured{}).TwoLayers {
		t.Errorf("layers %+v", layers)
	}
	if one := builtin(t).Layers(sampleOf(t, dialect.Kafka, "spring-dlpr-basic").Message, dialect.Configured{}); len(one) != 1 || one[0].Stack == "" {
		t.Errorf("layers %+v", one)
	}
}

func TestDeathsOfSeveralHops(t *testing.T) {
	t.Parallel()
	at := func(s int64) *time.Time { v := time.Unix(s, 0).UTC(); return &v }
	got := dialect.Deaths(sampleOf(t, dialect.RabbitMQ, "xdeath-ttl-loop").Message)
	if len(got) != 2 || got[0].Queue != "orders" || got[0].Reason != "rejected" || got[0].Count != 3 || !got[0].FirstAt.Equal(*at(1773480413)) ||
		got[1].Queue != "orders.retry" || got[1].Count != 2 || !slices.Equal(got[1].RoutingKeys, []string{"orders"}) {
		t.Errorf("%+v", got)
	}
	if got := dialect.Deaths(sampleOf(t, dialect.RabbitMQ, "xdeath-quorum-limit").Message); len(got) != 1 || got[0].Expiration != "60000" {
		t.Errorf("%+v", got)
	}
	odd := &dialect.Message{Broker: dialect.RabbitMQ, Headers: []dialect.Header{{Name: "x-death", Typed: "not a table"}, {Name: "x-death", Typed: []any{"odd", map[string]any{"count": "three", "routing-keys": int64(1)}}}}}
	if got := dialect.Deaths(odd); len(got) != 1 || got[0].Count != 0 {
		t.Errorf("%+v", got)
	}
}

// A share group's dead letter has no value: null is not the event's tombstone.
func TestShareGroupIsNoTombstone(t *testing.T) {
	t.Parallel()
	set := builtin(t)
	share := set.Read(sampleOf(t, dialect.Kafka, "share-group-kip1191").Message, dialect.Configured{})
	if share.CarriesValue {
		t.Error("a share group's null value counts as a tombstone")
	}
	if !set.Read(sampleOf(t, dialect.Kafka, "spring-dlpr-tombstone").Message, dialect.Configured{}).CarriesValue {
		t.Error("a tombstone counts as a value that was not carried")
	}
}
