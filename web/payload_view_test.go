package web_test

import (
	"encoding/binary"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"oncemore/dlq/payload"
	"oncemore/internal/access"
	"oncemore/web"
)

const paidSchema = `{"type":"record","name":"Paid","namespace":"shop","fields":[{"name":"id","type":"long"},{"name":"name","type":"string"}]}`

// withRegistry gives the shop's cluster a schema registry that knows schema 12.
func withRegistry(t *testing.T) func(*web.Deps) {
	t.Helper()
	fake := srfake.New()
	t.Cleanup(fake.Close)
	fake.SeedSchema("paid", 1, 12, sr.Schema{Schema: paidSchema, Type: sr.TypeAvro})
	registry, err := payload.NewRegistry(payload.RegistryOptions{URLs: []string{fake.URL()}})
	if err != nil {
		t.Fatal(err)
	}
	return func(d *web.Deps) { d.Registries = map[string]*payload.Registry{"shop-kafka": registry} }
}

// failFramed is a letter in Avro that died twice: under Spring, and before under
// SmallRye.
func (s *shop) failFramed(t *testing.T) {
	t.Helper()
	value := binary.AppendVarint(append([]byte{0, 0, 0, 0}, 12), 7308412990155264513)
	value = append(binary.AppendVarint(value, int64(len("Ada Lovelace"))), "Ada Lovelace"...)
	s.produce(t, &kgo.Record{Topic: "order.paid.DLT", Value: value, Headers: []kgo.RecordHeader{
		{Key: "event-id", Value: []byte("framed-1")}, {Key: "kafka_dlt-original-topic", Value: []byte("order.paid")}, {Key: "kafka_dlt-original-consumer-group", Value: []byte(points)},
		{Key: "kafka_dlt-exception-message", Value: []byte("cannot bill ada@example.com")}, {Key: "kafka_dlt-original-timestamp", Value: []byte{0, 0, 1, 0x92, 0xf0, 0, 0, 0}},
		{Key: "dead-letter-topic", Value: []byte("earlier.topic")}, {Key: "dead-letter-reason", Value: []byte("bounced from lin.yue@example.com")},
	}})
}

func TestFramedPayloadOnPageAndAPI(t *testing.T) {
	t.Parallel()
	s := setupShop(t, withRegistry(t))
	s.failFramed(t)
	token := s.operator(t)
	path := fmt.Sprintf("/letters/%s", s.letters(t, token, 1)["framed-1 "+points]["id"])
	operator, viewer := s.signIn(t, access.Operator), s.signIn(t, access.Viewer)

	contains(t, s.get(t, operator, path), http.StatusOK, "Avro, schema 12, shop.Paid", "7308412990155264513", "Ada Lovelace", "view=hex", "headers=time",
		"What was written on it", "earlier.topic", "bounced from lin.yue@example.com", "SmallRye")
	contains(t, s.get(t, operator, path+"?view=hex"), http.StatusOK, "00 00 00 00 0c 82 c8 f0")
	contains(t, s.get(t, operator, path+"?headers=time"), http.StatusOK, "2024-11-03 03:09:44.832")
	contains(t, s.get(t, operator, path+"?headers=hex&view=text"), http.StatusOK, "00000192f0000000")
	for _, bad := range []string{"?view=colour", "?headers=colour"} {
		if r := s.get(t, operator, path+bad); r.status != http.StatusBadRequest {
			t.Errorf("%s answers %d", bad, r.status)
		}
	}
	for _, view := range append([]string{""}, payload.Views...) {
		r := s.get(t, viewer, path+"?headers=hex&view="+view)
		contains(t, r, http.StatusOK, "•••", "framed-1")
		for _, secret := range []string{"Lovelace", "41 64 61", "416461", "lin.yue", "6c696e2e797565", "ada@example", "7308412990155264513"} {
			if strings.Contains(r.body, secret) {
				t.Errorf("a viewer of %q reads %q", view, secret)
			}
		}
	}
	checkBodyViews(t, s, token, "/api/v1"+path+"/body")
}

func checkBodyViews(t *testing.T, s *shop, token, path string) {
	t.Helper()
	if _, there := s.object(t, token, "GET", path, "")["view"]; there {
		t.Error("nobody asked for a view")
	}
	view := s.object(t, token, "GET", path+"?view=best", "")["view"].(map[string]any)
	step := view["steps"].([]any)[0].(map[string]any)
	if view["name"] != "avro" || view["text"] != `{"id":7308412990155264513,"name":"Ada Lovelace"}` || view["cut"] != false || step["schema_id"] != 12.0 || step["name"] != "shop.Paid" {
		t.Errorf("%v", view)
	}
	if hex := s.object(t, token, "GET", path+"?view=hex", "")["view"].(map[string]any); !strings.HasPrefix(hex["text"].(string), "000000000c82c8f0e0") {
		t.Errorf("%v", hex)
	}
	for asked, want := range map[string]string{"json": "this body has only avro, text, hex", "colour": "is one of best, event, avro"} {
		if r := s.checked(t, token, "GET", path+"?view="+asked, ""); !slices.Contains([]int{http.StatusBadRequest, http.StatusUnprocessableEntity}, r.status) || !strings.Contains(r.body, want) {
			t.Errorf("%s: %d %s", asked, r.status, r.body)
		}
	}
}
