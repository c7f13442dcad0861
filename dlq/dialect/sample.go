package dialect

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"go.yaml.in/yaml/v3"

	"oncemore/internal/strictyaml"
)

// Sample is a message that somebody wrote into a file, with what they expect to
// be read from it.
type Sample struct {
	Name     string
	Message  *Message
	Delivery amqp.Delivery // the message, of RabbitMQ
	Dialect  string        // expected id; "" nothing is
	Expect   map[string]any
	Absent   []string
}

// ReadSamples reads messages from JSON or YAML: one message, a list, or a
// document with them under samples, in the form of dialects.yaml. Headers of
// RabbitMQ carry their AMQP type. Errors name file, line and key.
func ReadSamples(name string, text []byte) ([]Sample, error) {
	var root *yaml.Node
	if validJSON(text) {
		root = jsonNode(text) // YAML would not take a pair of surrogates
	} else {
		doc, err := strictyaml.Document(name, text)
		if err != nil {
			return nil, err
		}
		if len(doc.Content) > 0 {
			root = doc.Content[0]
		}
	}
	if root == nil {
		return nil, fmt.Errorf("%s:1: the file is empty", name)
	}
	p := &parser{file: name}
	samples := p.samples(node{Node: root})
	if err := errors.Join(p.problems...); err != nil {
		return nil, err
	}
	return samples, nil
}

func (p *parser) samples(n node) []Sample {
	if n.Kind == yaml.MappingNode {
		listed := false
		var out []Sample
		p.each(n, func(key string, v node) {
			if key == "samples" {
				listed, out = true, p.samples(v)
			}
		})
		if listed {
			return out
		}
		return []Sample{p.sample(n)}
	}
	var out []Sample
	p.items(n, func(item node) { out = append(out, p.sample(item)) })
	return out
}

// sampleReader gathers a message: its keys may stand in any order.
type sampleReader struct {
	*parser
	Sample
	from       Place
	key, value []byte
	headers    node
	properties node
}

func (p *parser) sample(n node) Sample {
	r := &sampleReader{parser: p, from: Place{TimestampMS: -1}}
	r.Message = &Message{}
	p.keys(n, map[string]func(node){
		"id": r.name, "title": r.name, "note": r.name,
		"broker":  p.oneOf(&r.Message.Broker, Kafka, RabbitMQ),
		"dialect": p.text(&r.Dialect),
		"source":  func(v node) { p.keys(v, r.placeKeys()) },
		"key":     r.plain(&r.key), "key_base64": r.base64(&r.key), "key_b64": r.base64(&r.key),
		"value": r.plain(&r.value), "value_base64": r.base64(&r.value), "value_b64": r.base64(&r.value),
		"body": r.plain(&r.value), "body_base64": r.base64(&r.value), "body_b64": r.base64(&r.value),
		"headers":    func(v node) { r.headers = v },
		"properties": func(v node) { r.properties = v },
		"expect":     r.expectations,
		"absent":     p.texts(&r.Absent),
		"replay":     ignore, "redelivered": ignore, "how": ignore,
		"topic": p.anyText(&r.from.Topic), "partition": r.int32(&r.from.Partition), "offset": p.number(&r.from.Offset), "timestamp": p.number(&r.from.TimestampMS),
		"queue": p.anyText(&r.from.Queue), "read_from": p.anyText(&r.from.Queue), "exchange": p.anyText(&r.from.Exchange), "routing_key": p.anyText(&r.from.RoutingKey),
	})
	return r.finish(n)
}

func (r *sampleReader) name(n node) {
	if r.Sample.Name == "" {
		r.Sample.Name = n.Value
	}
}

func (r *sampleReader) placeKeys() map[string]func(node) {
	return map[string]func(node){
		"topic": r.anyText(&r.from.Topic), "partition": r.int32(&r.from.Partition), "offset": r.number(&r.from.Offset), "timestamp_ms": r.number(&r.from.TimestampMS),
		"queue": r.anyText(&r.from.Queue), "exchange": r.anyText(&r.from.Exchange), "routing_key": r.anyText(&r.from.RoutingKey),
	}
}

// finish makes the message once its broker is known.
func (r *sampleReader) finish(n node) Sample {
	if r.Message.Broker == "" {
		if (r.from.Topic == "") == (r.from.Queue == "") {
			r.fail(n, "needs broker, or either a topic or a queue that it was read from")
			return r.Sample
		}
		r.Message.Broker = Kafka
		if r.from.Queue != "" {
			r.Message.Broker = RabbitMQ
		}
	}
	if r.Message.Broker == RabbitMQ {
		r.Delivery = amqp.Delivery{Body: r.value, Exchange: r.from.Exchange, RoutingKey: r.from.RoutingKey, Headers: amqp.Table{}}
		r.amqpProperties()
		if r.headers.Node != nil {
			r.Delivery.Headers = r.table(r.headers)
		}
		r.Message = FromAMQP(r.from.Queue, r.Delivery)
		return r.Sample
	}
	r.Message.From, r.Message.Key, r.Message.Value = r.from, r.key, r.value
	if r.headers.Node != nil {
		r.items(r.headers, func(item node) { r.Message.Headers = append(r.Message.Headers, r.header(item)) })
	}
	return r.Sample
}

func (r *sampleReader) header(n node) Header {
	h := Header{}
	r.keys(n, map[string]func(node){
		"name": r.anyText(&h.Name), "key": r.anyText(&h.Name),
		"value": r.plain(&h.Value), "base64": r.base64(&h.Value), "value_b64": r.base64(&h.Value),
	})
	return h
}

func (r *sampleReader) amqpProperties() {
	if r.properties.Node == nil {
		return
	}
	d := &r.Delivery
	small := func(into *uint8) func(node) {
		return func(n node) {
			v, err := strconv.ParseUint(n.Value, 10, 8)
			if *into = uint8(v); err != nil {
				r.fail(n, "must be a number from 0 to 255")
			}
		}
	}
	r.keys(r.properties, map[string]func(node){
		"content_type": r.anyText(&d.ContentType), "content_encoding": r.anyText(&d.ContentEncoding), "correlation_id": r.anyText(&d.CorrelationId),
		"reply_to": r.anyText(&d.ReplyTo), "expiration": r.anyText(&d.Expiration), "message_id": r.anyText(&d.MessageId), "type": r.anyText(&d.Type),
		"user_id": r.anyText(&d.UserId), "app_id": r.anyText(&d.AppId), "cluster_id": ignore,
		"delivery_mode": small(&d.DeliveryMode), "priority": small(&d.Priority),
		"timestamp": func(n node) { d.Timestamp = r.instant(n) },
	})
}

// table takes a list of fields with name, type and value, or a mapping of names
// to type and value.
func (r *sampleReader) table(n node) amqp.Table {
	t := amqp.Table{}
	if n.Kind == yaml.MappingNode {
		r.each(n, func(name string, v node) { t[name] = r.field(v, nil) })
		return t
	}
	r.items(n, func(item node) {
		name := ""
		value := r.field(item, &name)
		t[name] = value
	})
	return t
}

// fieldTypes are the names of AMQP's types.
var fieldTypes = []string{"void", "bool", "byte", "short", "int", "long", "float", "double", "decimal", "longstr", "binary_b64", "timestamp", "array", "table"}

func (r *sampleReader) typed(kind string, n node) any {
	switch kind {
	case "bool":
		return r.truth(n)
	case "byte":
		return int8(r.whole(n, 8))
	case "short":
		return int16(r.whole(n, 16))
	case "int":
		return int32(r.whole(n, 32))
	case "long":
		return r.whole(n, 64)
	case "float":
		return float32(r.real(n))
	case "double":
		return r.real(n)
	case "decimal":
		return r.decimal(n)
	case "longstr":
		return r.longstr(n)
	case "binary_b64":
		return r.binary(n)
	case "timestamp":
		return r.instant(n)
	case "array":
		return r.array(n)
	case "table":
		return r.table(n)
	}
	return nil // void
}

// fieldNames are other names of the same types.
var fieldNames = map[string]string{"boolean": "bool", "int8": "byte", "int16": "short", "int32": "int", "int64": "long", "float32": "float", "float64": "double", "bytes_b64": "binary_b64"}

func (r *sampleReader) field(n node, name *string) any {
	var kind string
	value, raw := node{}, []byte(nil)
	readers := map[string]func(node){
		"type": r.text(&kind), "value": func(v node) { value = v }, "base64": r.base64(&raw),
	}
	if name != nil {
		readers["name"] = r.anyText(name)
	}
	r.keys(n, readers, "type")
	if other, ok := fieldNames[kind]; ok {
		kind = other
	}
	switch {
	case kind == "":
		return nil // has been told
	case !slices.Contains(fieldTypes, kind):
		r.fail(n, "%q is no type of a header; those are %s", kind, strings.Join(fieldTypes, ", "))
		return nil
	case raw != nil:
		return string(raw)
	case value.Node == nil && kind != "void":
		r.fail(n, "value is missing")
		return nil
	}
	return r.typed(kind, value)
}

func (r *sampleReader) array(n node) any {
	list := []any{}
	r.items(n, func(item node) { list = append(list, r.field(item, nil)) })
	return list
}

func (r *sampleReader) truth(n node) bool {
	v, err := strconv.ParseBool(n.Value)
	if err != nil {
		r.fail(n, "must be true or false")
	}
	return v
}

func (r *sampleReader) whole(n node, bits int) int64 {
	v, err := strconv.ParseInt(n.Value, 10, bits)
	if err != nil {
		r.fail(n, "must be a whole number of %d bits", bits)
	}
	return v
}

func (r *sampleReader) real(n node) float64 {
	v, err := strconv.ParseFloat(n.Value, 64)
	if err != nil {
		r.fail(n, "must be a number")
	}
	return v
}

func (r *sampleReader) decimal(n node) amqp.Decimal {
	var d amqp.Decimal
	r.keys(n, map[string]func(node){
		"scale": func(v node) { d.Scale = uint8(r.whole(v, 8)) },
		"value": func(v node) { d.Value = int32(r.whole(v, 32)) },
	}, "scale", "value")
	return d
}

func (r *sampleReader) longstr(n node) string {
	var s string
	r.anyText(&s)(n)
	return s
}

func (r *sampleReader) binary(n node) []byte {
	var b []byte
	r.base64(&b)(n)
	return b
}

// instant is seconds since the epoch, or RFC 3339.
func (r *sampleReader) instant(n node) time.Time {
	if seconds, err := strconv.ParseInt(n.Value, 10, 64); err == nil {
		return time.Unix(seconds, 0).UTC()
	}
	at, err := time.Parse(time.RFC3339, n.Value)
	if err != nil {
		r.fail(n, "must be seconds since 1970, or a time such as 2026-11-30T10:00:00Z")
	}
	return at.UTC()
}

// plain reads text as bytes; null is null.
func (r *sampleReader) plain(into *[]byte) func(node) {
	return func(n node) {
		if n.Tag != "!!null" {
			var s string
			r.anyText(&s)(n)
			*into = []byte(s)
		}
	}
}

func (r *sampleReader) base64(into *[]byte) func(node) {
	return func(n node) {
		if n.Tag == "!!null" {
			return
		}
		b, err := base64.StdEncoding.DecodeString(n.Value)
		if n.Kind != yaml.ScalarNode || err != nil {
			r.fail(n, "must be base64")
		}
		*into = append([]byte{}, b...)
	}
}

func (r *sampleReader) int32(into *int32) func(node) {
	return func(n node) { *into = int32(r.whole(n, 32)) }
}

// anyText takes an empty text, too.
func (p *parser) anyText(into *string) func(node) {
	return func(n node) {
		if n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
			p.fail(n, "must be text")
			return
		}
		*into = n.Value
	}
}

// expectations are fields with the values that they must have: text, whole
// numbers, times in milliseconds, or bytes as base64.
func (r *sampleReader) expectations(n node) {
	r.Expect = map[string]any{}
	r.each(n, func(field string, v node) {
		if _, known := fieldKinds[field]; !known {
			r.fail(v, "unknown field; those are %s", strings.Join(FieldNames(), ", "))
			return
		}
		if v.Kind == yaml.MappingNode {
			var b []byte
			r.keys(v, map[string]func(node){"base64": r.base64(&b)}, "base64")
			r.Expect[field] = string(b)
			return
		}
		r.Expect[field] = r.constant(v)
	})
}

// Check compares what was read with what the sample expects, a sentence for each
// difference.
func (s Sample) Check(r *Reading) []string {
	var wrong []string
	if s.Dialect != "" && r.Dialect != s.Dialect {
		wrong = append(wrong, fmt.Sprintf("the dialect is %s, not %s", r.Dialect, s.Dialect))
	}
	for _, name := range FieldNames() {
		got := r.Field(name)
		if at, ok := got.(time.Time); ok {
			got = at.UnixMilli()
		}
		if want, expected := s.Expect[name]; expected && got != want {
			wrong = append(wrong, fmt.Sprintf("%s is %v, not %v", name, shown(got), shown(want)))
		}
		if got != nil && slices.Contains(s.Absent, name) {
			wrong = append(wrong, fmt.Sprintf("%s is %v, not absent", name, shown(got)))
		}
	}
	return wrong
}

func shown(v any) string {
	if s, ok := v.(string); ok {
		return strconv.Quote(s)
	}
	if v == nil {
		return "absent"
	}
	return fmt.Sprint(v)
}
