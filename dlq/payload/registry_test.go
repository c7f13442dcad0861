package payload_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/avro"
	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"
	"google.golang.org/protobuf/encoding/protowire"

	"oncemore/dlq/payload"
)

// bench is a registry in process and how often it was asked.
type bench struct {
	*payload.Registry
	fake  *srfake.Registry
	asked atomic.Int32
}

func newBench(t testing.TB) *bench {
	t.Helper()
	b := &bench{fake: srfake.New()}
	t.Cleanup(b.fake.Close)
	b.fake.Intercept(func(http.ResponseWriter, *http.Request) bool { b.asked.Add(1); return false })
	b.Registry = registryAt(t, payload.RegistryOptions{URLs: []string{b.fake.URL()}})
	return b
}

func registryAt(t testing.TB, o payload.RegistryOptions) *payload.Registry {
	t.Helper()
	r, err := payload.NewRegistry(o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func framed(id uint32, rest ...byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, id), rest...)
}

func open(t *testing.T, in payload.Input) *payload.Opened {
	t.Helper()
	before := bytes.Clone(in.Value)
	o := payload.Open(t.Context(), in)
	for _, view := range payload.Views {
		content, _ := o.Content(view)
		payload.Indent(content, 1000)
	}
	if !bytes.Equal(before, in.Value) || !bytes.Equal(before, o.Stored) {
		t.Errorf("a decoder has changed the stored bytes %x to %x", before, in.Value)
	}
	return o
}

func refused(t *testing.T, err error, key, part string) {
	t.Helper()
	w, ok := errors.AsType[*payload.Why](err)
	if !ok || w.Key != key || !strings.Contains(w.Text, part) || strings.ContainsAny(w.Text, "{}") && part == "" {
		t.Errorf("error %v, want %s with %q", err, key, part)
	}
}

const money = `{"type":"record","name":"Money","namespace":"shop","fields":[{"name":"amount","type":{"type":"bytes","logicalType":"decimal","precision":18,"scale":2}},{"name":"currency","type":"string"}]}`

const order = `{"type":"record","name":"OrderPaid","namespace":"shop","fields":[
 {"name":"id","type":"long"},{"name":"at","type":{"type":"long","logicalType":"timestamp-millis"}},{"name":"total","type":"shop.Money"},
 {"name":"note","type":["null","string","int"]},{"name":"tags","type":{"type":"map","values":"int"}},{"name":"raw","type":"bytes"},{"name":"hash","type":{"type":"fixed","name":"Hash","size":2}},
 {"name":"state","type":{"type":"enum","name":"State","symbols":["NEW","PAID"]}},{"name":"rate","type":"double"},{"name":"small","type":"float"},{"name":"ok","type":"boolean"},
 {"name":"next","type":["null","shop.OrderPaid"]},{"name":"lines","type":{"type":"array","items":"shop.Money"}}]}`

const orderJSON = `{"id":9223372036854775807,"at":1773480413589,"total":{"amount":-12345.60,"currency":"EUR"},"note":{"string":"<grün> & 双"},"tags":{"a":1,"b":2,"c":3},"raw":"\u0001ÿA","hash":"\u0000þ",` +
	`"state":"PAID","rate":0.1,"small":0.1,"ok":true,"next":null,"lines":[{"amount":1.00,"currency":"EUR"}]}`

// seedAvro registers the order, which refers to the money, and gives its id.
func (b *bench) seedAvro() uint32 {
	b.fake.SeedSchema("money", 1, 11, sr.Schema{Schema: money, Type: sr.TypeAvro})
	b.fake.SeedSchema("order", 1, 12, sr.Schema{Schema: order, Type: sr.TypeAvro, References: []sr.SchemaReference{{Name: "shop.Money", Subject: "money", Version: 1}}})
	return 12
}

// orderBytes is what a producer writes for orderJSON, by the library's own encoder.
func orderBytes(t testing.TB) []byte {
	t.Helper()
	var cache avro.SchemaCache
	if _, err := cache.Parse(money); err != nil {
		t.Fatal(err)
	}
	schema, err := cache.Parse(order)
	if err != nil {
		t.Fatal(err)
	}
	eur := func(amount string) map[string]any { return map[string]any{"amount": amount, "currency": "EUR"} }
	b, err := schema.Encode(map[string]any{"id": int64(1<<63 - 1), "at": int64(1773480413589), "total": eur("-12345.60"), "note": map[string]any{"string": "<grün> & 双"},
		"tags": map[string]any{"b": 2, "a": 1, "c": 3}, "raw": []byte{1, 255, 'A'}, "hash": []byte{0, 254}, "state": "PAID", "rate": 0.1, "small": float32(0.1), "ok": true, "next": nil, "lines": []any{eur("1.00")}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestAvroIsShownExactly(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	value := framed(b.seedAvro(), orderBytes(t)...)
	for range 2 {
		o := open(t, payload.Input{Value: value, Registry: b.Registry})
		if got := string(o.Document); got != orderJSON {
			t.Fatalf("%s\nwant %s, %v", got, orderJSON, o.Problems)
		}
		if o.Best() != payload.Avro || len(o.Steps) != 1 || o.Steps[0].Name != "shop.OrderPaid" || o.Steps[0].Schema != "12" {
			t.Errorf("best %s, steps %+v", o.Best(), o.Steps)
		}
	}
	if n := b.asked.Load(); n != 2 {
		t.Errorf("the registry was asked %d times for a schema and its reference", n)
	}
	cut := open(t, payload.Input{Value: value[:len(value)-3], Registry: b.Registry})
	if len(cut.Problems) != 1 || cut.Problems[0].Key != "payload.why.decode" || cut.Best() != payload.Hex {
		t.Errorf("a value that is cut off: %+v, best %s", cut.Problems, cut.Best())
	}
	if more := open(t, payload.Input{Value: append(bytes.Clone(value), 0), Registry: b.Registry}); len(more.Problems) != 1 || !strings.Contains(more.Problems[0].Text, "1 bytes are left over") {
		t.Errorf("%+v", more.Problems)
	}
}

func TestAvroIsWrittenBack(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	value := framed(b.seedAvro(), orderBytes(t)...)
	edit := func(old, new string) ([]byte, error) {
		if !strings.Contains(orderJSON, old) {
			t.Fatalf("nothing to edit: %s", old)
		}
		return payload.Encode(t.Context(), b.Registry, value, []byte(strings.Replace(orderJSON, old, new, 1)))
	}
	for _, change := range [][2]string{
		{`"EUR"`, `"EUR"`}, {`-12345.60`, `99999999999999.99`}, {`{"string":"<grün> & 双"}`, `{"int":-7}`}, {`{"string":"<grün> & 双"}`, `null`},
		{`"next":null`, `"next":{"shop.OrderPaid":` + orderJSON + `}`}, {`"raw":"\u0001ÿA"`, `"raw":""`}, {`"rate":0.1`, `"rate":"NaN"`}, {`"tags":{"a":1,"b":2,"c":3}`, `"tags":{}`},
	} {
		again, err := edit(change[0], change[1])
		if err != nil {
			t.Errorf("%s: %v", change[1], err)
			continue
		}
		want := strings.Replace(orderJSON, change[0], change[1], 1)
		if got, format, err := payload.Document(t.Context(), b.Registry, again); string(got) != want || err != nil || format != payload.Avro {
			t.Errorf("%s\nwant %s, %v", got, want, err)
		}
	}
	for _, change := range [][3]string{
		{`"id":9223372036854775807`, `"id":9223372036854775808`, ""}, {`"id":9223372036854775807`, `"id":1.5`, ""}, {`"id":9223372036854775807`, `"id":"1"`, "id is no long"},
		{`"ok":true`, `"ok":true,"colour":1`, "colour is no field of shop.OrderPaid"}, {`"ok":true`, `"ok":true,"ok":false`, "ok stands there twice"}, {`"ok":true,`, ``, "ok is missing"},
		{`-12345.60`, `1.234`, ""}, {`"currency":"EUR"}]`, `"currency":7}]`, "lines[0].currency is no string"},
		{`"note":{"string":"<grün> & 双"}`, `"note":"bare"`, "note is no object"}, {`"note":{"string":"<grün> & 双"}`, `"note":{"long":1}`, "note has to name one branch"},
		{`"state":"PAID"`, `"state":"LOST"`, ""}, {`"hash":"\u0000þ"`, `"hash":"three"`, ""}, {`"raw":"\u0001ÿA"`, `"raw":"双"`, "raw has a character that is no byte"},
	} {
		_, err := edit(change[0], change[1])
		refused(t, err, "payload.why.edit_schema", change[2])
	}
	_, err := payload.Encode(t.Context(), b.Registry, value, []byte(`{"id":`))
	refused(t, err, "payload.why.edit_json", "")
	_, err = payload.Encode(t.Context(), b.Registry, []byte("plain"), []byte(`{}`))
	refused(t, err, "payload.why.not_framed", "")
	_, err = payload.Encode(t.Context(), nil, value, []byte(`{}`))
	refused(t, err, "payload.why.no_registry", "")

	spoilt := bytes.Replace(value, []byte("EUR"), []byte("E\xffR"), 1) // text that is no UTF-8: its JSON form would lose it
	_, err = payload.Encode(t.Context(), b.Registry, spoilt, []byte(orderJSON))
	refused(t, err, "payload.why.edit_inexact", "")
}

// A count may promise more than there is: no memory is taken for it.
func TestAvroBombs(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.fake.SeedSchema("nulls", 1, 21, sr.Schema{Schema: `{"type":"array","items":"null"}`, Type: sr.TypeAvro})
	for _, count := range []int64{1 << 40, 1 << 62, 200_000_000} {
		value := binary.AppendVarint(framed(21), count)
		o := open(t, payload.Input{Value: append(value, 0), Registry: b.Registry})
		if len(o.Problems) != 1 {
			t.Errorf("%d nulls: %v, %d bytes", count, o.Problems, len(o.Document))
		}
	}
}

const shopProto = `syntax = "proto3"; package shop; import "money.proto"; import "google/protobuf/timestamp.proto"; import "google/protobuf/any.proto"; import "confluent/meta.proto";
message Other { string x = 1; }
message Order { message Line { int64 sku = 1 [(confluent.field_meta).doc = "stock"]; bytes raw = 2; } 
  int64 id = 1; Money total = 2; google.protobuf.Timestamp at = 3; repeated Line lines = 4; map<string, Line> by_name = 5; google.protobuf.Any any = 6; double rate = 7; }`

func (b *bench) seedProto() {
	b.fake.SeedSchema("money-p", 3, 30, sr.Schema{Schema: `syntax = "proto3"; package shop; message Money { string amount = 1; }`, Type: sr.TypeProtobuf})
	b.fake.SeedSchema("shop-p", 1, 31, sr.Schema{Schema: shopProto, Type: sr.TypeProtobuf, References: []sr.SchemaReference{{Name: "money.proto", Subject: "money-p", Version: 3}}})
}

func protoOrder() []byte {
	var m []byte
	m = protowire.AppendVarint(protowire.AppendTag(m, 1, protowire.VarintType), 1<<63-1)
	m = protowire.AppendBytes(protowire.AppendTag(m, 2, protowire.BytesType), protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "1.10"))
	line := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 7)
	return protowire.AppendBytes(protowire.AppendTag(m, 4, protowire.BytesType), line)
}

func TestProtobuf(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.seedProto()
	const document = `{"id":"9223372036854775807","total":{"amount":"1.10"},"lines":[{"sku":"7"}]}`
	second := append([]byte{2, 2}, protoOrder()...) // one index: the second message
	o := open(t, payload.Input{Value: framed(31, second...), Registry: b.Registry})
	if string(o.Document) != document || o.Steps[0].Name != "shop.Order" || o.Best() != payload.Protobuf {
		t.Fatalf("%s, %+v, %v", o.Document, o.Steps, o.Problems)
	}
	nested := framed(31, append([]byte{4, 2, 0}, protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 5)...)...) // Order.Line
	if o := open(t, payload.Input{Value: nested, Registry: b.Registry}); string(o.Document) != `{"sku":"5"}` || o.Steps[0].Name != "shop.Order.Line" {
		t.Errorf("%s, %+v, %v", o.Document, o.Steps, o.Problems)
	}
	first := framed(31, append([]byte{0}, protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "x")...)...)
	if o := open(t, payload.Input{Value: first, Registry: b.Registry}); string(o.Document) != `{"x":"x"}` {
		t.Errorf("%s, %v", o.Document, o.Problems)
	}
	for name, bad := range map[string][]byte{"no such message": {2, 18}, "negative": {2, 1}, "too many": {0x80, 0x80, 4}, "cut": {6, 2}} {
		if o := open(t, payload.Input{Value: framed(31, bad...), Registry: b.Registry}); len(o.Problems) != 1 || o.Problems[0].Key != "payload.why.decode" || o.Document != nil {
			t.Errorf("%s: %+v %s", name, o.Problems, o.Document)
		}
	}
	edited := strings.Replace(document, "1.10", "2.20", 1)
	again, err := payload.Encode(t.Context(), b.Registry, framed(31, second...), []byte(edited))
	if err != nil || !bytes.HasPrefix(again, framed(31, 2, 2)) {
		t.Fatalf("%x, %v", again, err)
	}
	if got, _, err := payload.Document(t.Context(), b.Registry, again); string(got) != edited {
		t.Errorf("%s, %v", got, err)
	}
	same, err := payload.Encode(t.Context(), b.Registry, framed(31, second...), []byte(document))
	if err != nil || !bytes.Equal(same, framed(31, second...)) {
		t.Errorf("not edited, %x became %x, %v", second, same, err)
	}
	_, err = payload.Encode(t.Context(), b.Registry, framed(31, second...), []byte(`{"colour":1}`))
	refused(t, err, "payload.why.edit_schema", "colour")
	unknown := protowire.AppendVarint(protowire.AppendTag(bytes.Clone(second), 99, protowire.VarintType), 1)
	if o := open(t, payload.Input{Value: framed(31, unknown...), Registry: b.Registry}); o.Document == nil || len(o.Problems) != 1 || o.Problems[0].Key != "payload.why.unknown_fields" {
		t.Errorf("unknown fields: %s, %+v", o.Document, o.Problems)
	}
	_, err = payload.Encode(t.Context(), b.Registry, framed(31, unknown...), []byte(document))
	refused(t, err, "payload.why.edit_unknown_field", "31")
}

func TestJSONSchema(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.fake.SeedSchema("money-j", 1, 40, sr.Schema{Schema: `{"type":"object","required":["amount"],"properties":{"amount":{"type":"number"}}}`, Type: sr.TypeJSON})
	b.fake.SeedSchema("order-j", 1, 41, sr.Schema{Schema: `{"title":"OrderPaid","type":"object","properties":{"total":{"$ref":"money.json"},"id":{"type":"integer"}},"additionalProperties":false}`, Type: sr.TypeJSON,
		References: []sr.SchemaReference{{Name: "money.json", Subject: "money-j", Version: 1}}})
	b.fake.SeedSchema("evil", 1, 42, sr.Schema{Schema: `{"$ref":"file:///etc/passwd"}`, Type: sr.TypeJSON})
	body := `{"total":{"amount":100.00},"id":9223372036854775807}`
	o := open(t, payload.Input{Value: framed(41, []byte(body)...), Registry: b.Registry})
	if string(o.Document) != body || o.Best() != payload.JSONSchema || len(o.Problems) != 0 || o.Steps[0].Name != "OrderPaid" {
		t.Fatalf("%s, %+v, %+v", o.Document, o.Steps, o.Problems)
	}
	wrong := open(t, payload.Input{Value: framed(41, []byte(`{"total":{"amount":"much"}}`)...), Registry: b.Registry})
	if wrong.Document == nil || len(wrong.Problems) != 1 || wrong.Problems[0].Key != "payload.why.invalid" || !strings.Contains(wrong.Problems[0].Text, "/total/amount") {
		t.Errorf("what the schema does not allow: %s, %+v", wrong.Document, wrong.Problems)
	}
	if o := open(t, payload.Input{Value: framed(42, []byte(`{}`)...), Registry: b.Registry}); len(o.Problems) != 1 || o.Problems[0].Key != "payload.why.schema_bad" {
		t.Errorf("a schema that reads files: %+v", o.Problems)
	}
	again, err := payload.Encode(t.Context(), b.Registry, framed(41, []byte(body)...), []byte(`{"id": 1,"total":{"amount":1.50}}`))
	if err != nil || string(again) != string(framed(41, []byte(`{"id": 1,"total":{"amount":1.50}}`)...)) {
		t.Errorf("%q, %v", again, err)
	}
	_, err = payload.Encode(t.Context(), b.Registry, framed(41, []byte(body)...), []byte(`{"id":"one"}`))
	refused(t, err, "payload.why.edit_schema", "/id")
}

func TestRegistryTrouble(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	value := framed(77, 1, 2, 3)
	o := open(t, payload.Input{Value: value})
	if len(o.Problems) != 1 || o.Problems[0].Key != "payload.why.no_registry" || o.Best() != payload.Hex {
		t.Errorf("no registry: %+v, %s", o.Problems, o.Best())
	}
	for range 3 {
		if o := open(t, payload.Input{Value: value, Registry: b.Registry}); len(o.Problems) != 1 || o.Problems[0].Key != "payload.why.schema_missing" {
			t.Errorf("no schema: %+v", o.Problems)
		}
	}
	if n := b.asked.Load(); n != 1 {
		t.Errorf("a schema that is not there was asked for %d times", n)
	}
	b.fake.SeedSchema("bad", 1, 78, sr.Schema{Schema: `{"type":"colour"}`, Type: sr.TypeAvro})
	if o := open(t, payload.Input{Value: framed(78, 1), Registry: b.Registry}); len(o.Problems) != 1 || o.Problems[0].Key != "payload.why.schema_bad" {
		t.Errorf("a schema that is none: %+v", o.Problems)
	}
	if _, err := payload.NewRegistry(payload.RegistryOptions{}); err == nil {
		t.Error("a registry without an address")
	}
}

// A registry that does not answer costs its time-out once, not once a page; when
// it is back it is asked again.
func TestRegistryThatHangsOrIsDown(t *testing.T) {
	t.Parallel()
	var hits atomic.Int32
	var well atomic.Bool
	hang := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hits.Add(1)
		if !well.Load() {
			select {
			case <-hang:
			case <-r.Context().Done():
			}
			return
		}
		w.Write([]byte(`{"schema":"{\"type\":\"string\"}"}`)) //nolint:errcheck // the client's side is tested
	}))
	t.Cleanup(func() { close(hang); server.Close() })
	var mu sync.Mutex
	now := time.Unix(1000, 0)
	clock := func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	r := registryAt(t, payload.RegistryOptions{URLs: []string{server.URL}, Timeout: 50 * time.Millisecond, Now: clock})
	value := framed(5, 2, 'x')
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			o := payload.Open(context.Background(), payload.Input{Value: value, Registry: r})
			if len(o.Problems) != 1 || o.Problems[0].Key != "payload.why.registry" || !strings.Contains(o.Problems[0].Text, "too long") {
				t.Errorf("%+v", o.Problems)
			}
		})
	}
	all.Wait()
	if n := hits.Load(); n > 2 {
		t.Errorf("eight pages asked %d times", n)
	}
	well.Store(true)
	if o := open(t, payload.Input{Value: value, Registry: r}); len(o.Problems) != 1 {
		t.Error("a failure is not kept for a moment")
	}
	mu.Lock()
	now = now.Add(time.Minute)
	mu.Unlock()
	if o := open(t, payload.Input{Value: value, Registry: r}); string(o.Document) != `"x"` {
		t.Errorf("after a minute: %s, %+v", o.Document, o.Problems)
	}
	gone := registryAt(t, payload.RegistryOptions{URLs: []string{"http://127.0.0.1:1"}})
	if o := open(t, payload.Input{Value: value, Registry: gone}); len(o.Problems) != 1 || !strings.Contains(o.Problems[0].Text, "cannot be reached") || strings.Contains(o.Problems[0].Text, "127.0.0.1") {
		t.Errorf("%+v", o.Problems)
	}
}

func TestRegistryCredentialsAndLimits(t *testing.T) {
	t.Parallel()
	var leaked atomic.Bool
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { leaked.Store(true) }))
	t.Cleanup(other.Close)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		switch {
		case strings.HasSuffix(r.URL.Path, "/1"):
			http.Redirect(w, r, other.URL, http.StatusFound)
		case strings.HasSuffix(r.URL.Path, "/2"):
			w.Write([]byte(`{"schema":"`))            //nolint:errcheck // the client's side is tested
			w.Write(bytes.Repeat([]byte("x"), 8<<20)) //nolint:errcheck
			w.Write([]byte(`"}`))                     //nolint:errcheck
		case user == "oncemore" && password == "secret" || r.Header.Get("Authorization") == "Bearer token":
			w.Write([]byte(`{"schema":"{\"type\":\"string\"}"}`)) //nolint:errcheck
		default:
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	t.Cleanup(server.Close)
	at := []string{server.URL}
	for name, o := range map[string]payload.RegistryOptions{"basic": {URLs: at, User: "oncemore", Password: "secret"}, "bearer": {URLs: at, Token: "token"}} {
		if o := open(t, payload.Input{Value: framed(9, 2, 'x'), Registry: registryAt(t, o)}); string(o.Document) != `"x"` {
			t.Errorf("%s: %+v", name, o.Problems)
		}
	}
	r := registryAt(t, payload.RegistryOptions{URLs: at, User: "oncemore", Password: "wrong"})
	for id, want := range map[uint32]string{9: "it said 401", 1: "", 2: ""} {
		o := open(t, payload.Input{Value: framed(id, 2, 'x'), Registry: r})
		if len(o.Problems) != 1 || !strings.Contains(o.Problems[0].Text, want) || strings.Contains(o.Problems[0].Text, "wrong") {
			t.Errorf("schema %d: %+v", id, o.Problems)
		}
	}
	if leaked.Load() {
		t.Error("a redirect was followed with credentials")
	}
}

// Schemas that refer to each other in a circle, or to very many, end.
func TestReferencesEnd(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/subjects/loop") || strings.HasSuffix(r.URL.Path, "/ids/1") {
			w.Write([]byte(`{"schema":"\"string\"","version":1,"references":[{"name":"a","subject":"loop","version":1}]}`)) //nolint:errcheck // the client's side is tested
			return
		}
		next := strings.Repeat("x", len(r.URL.Path))
		w.Write([]byte(`{"schema":"\"string\"","version":1,"references":[{"name":"` + next + `","subject":"` + next + `","version":1}]}`)) //nolint:errcheck
	}))
	t.Cleanup(server.Close)
	r := registryAt(t, payload.RegistryOptions{URLs: []string{server.URL}, Timeout: 20 * time.Second})
	if o := open(t, payload.Input{Value: framed(1, 2, 'x'), Registry: r}); string(o.Document) != `"x"` {
		t.Errorf("a circle: %+v", o.Problems)
	}
	if o := open(t, payload.Input{Value: framed(2, 2, 'x'), Registry: r}); len(o.Problems) != 1 {
		t.Errorf("no end: %+v", o.Problems)
	}
}
