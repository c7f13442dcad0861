package dialect_test

import (
	"reflect"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"oncemore/dlq/dialect"
)

func TestSamplesOfJSONAndYAMLAreTheSame(t *testing.T) {
	t.Parallel()
	asJSON := `{"id":"x","source":{"queue":"q","exchange":"","routing_key":"k"},"properties":{"message_id":"1","priority":4},
"headers":[{"name":"n","type":"int","value":7},{"name":"emoji","type":"longstr","value":"\ud83d\ude00"},{"name":"t","type":"table","value":[{"name":"d","type":"decimal","value":{"scale":2,"value":-5}}]},{"name":"v","type":"void","value":null}],"body":"{}"}`
	asYAML := `
id: x
source: {queue: q, exchange: '', routing_key: k}
properties: {message_id: '1', priority: 4}
headers:
  n: {type: int32, value: 7}
  emoji: {type: longstr, value: "😀"}
  t: {type: table, value: {d: {type: decimal, value: {scale: 2, value: -5}}}}
  v: {type: void, value: null}
body_b64: e30=
`
	a, err := dialect.ReadSamples("a", []byte(asJSON))
	if err != nil {
		t.Fatal(err)
	}
	b, err := dialect.ReadSamples("b", []byte(asYAML))
	if err != nil {
		t.Fatal(err)
	}
	if len(a) != 1 || !reflect.DeepEqual(a, b) {
		t.Errorf("JSON %+v\nYAML %+v", a, b)
	}
	want := amqp.Table{"n": int32(7), "emoji": "😀", "t": amqp.Table{"d": amqp.Decimal{Scale: 2, Value: -5}}, "v": nil}
	if !reflect.DeepEqual(a[0].Delivery.Headers, want) || string(a[0].Delivery.Body) != "{}" || a[0].Delivery.Priority != 4 {
		t.Errorf("%+v", a[0].Delivery)
	}
}

func TestSampleErrorsNameLineAndKey(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "m:1: the file is empty",
		"{\n\"topic\":\"t\",\n\"value\":\"v\",\n\"colour\":1}":                      "m:4: colour: unknown key",
		"{\"topic\":\"t\",\"headers\":[\n{\"name\":\"n\",\"base64\":\"*\"}]}":       "m:2: headers[0].base64: must be base64",
		"{\"queue\":\"q\",\"headers\":{\"n\":\n{\"type\":\"colour\",\"value\":1}}}": "m:2: headers.n: \"colour\" is no type of a header",
		"{\"queue\":\"q\",\"headers\":{\"n\":{\"type\":\"byte\",\"value\":\n300}}}": "m:2: headers.n.value: must be a whole number of 8 bits",
		"value: v":                        "m:1: needs broker, or either a topic or a queue",
		"topic: t\nexpect: {colour: red}": "m:2: expect.colour: unknown field",
		"[1]":                             "m:1: [0]: must be a mapping",
	} {
		_, err := dialect.ReadSamples("m", []byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\nerror %v\nwant  %s", text, err, want)
		}
	}
}

func TestSampleCheckSaysWhatDiffers(t *testing.T) {
	t.Parallel()
	s, err := dialect.ReadSamples("m", []byte(`{"queue":"q.dlq","dialect":"celery","properties":{"message_id":"m-1"},"expect":{"event_id":"m-2","attempts":3},"absent":["origin_queue"]}`))
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(s[0].Check(builtin(t).Read(s[0].Message, dialect.Configured{})), "; ")
	if want := `the dialect is rabbitmq-unknown, not celery; attempts is absent, not 3; event_id is "m-1", not "m-2"; origin_queue is "q", not absent`; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}
