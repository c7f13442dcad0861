package dialect_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"oncemore/dlq/dialect"
)

func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "own.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

const ownDialect = `version: 1
dialects:
- id: shop-kafka
  name: The shop's own
  broker: kafka
  priority: 200
  detect: {any_header: [shop-failed]}
  fields:
    origin_topic: [{from: header, name: shop-topic}]
    attempts: [{from: body, enc: json, path: tries}]
    trace_id: [{from: header, name: shop-trace, re: '^trace=(.+)$', prefix: "t:"}]
    component: [{from: const, value: checkout}]
  strip_on_replay:
  - {prefix: shop-, reason: stale}
  keep_on_replay: [shop-tenant]
- id: kafka-unknown
  name: Ours, replaced
  broker: kafka
  priority: 0
  detect: {}
  fields:
    origin_topic: [{from: source, name: topic, re: '^dead\.(.+)$'}]
  strip_on_replay: []
event_id_headers:
  list:
  - {where: header, name: shop-event, brokers: [kafka]}
`

func TestOwnFileAddsAndReplaces(t *testing.T) {
	t.Parallel()
	set, err := dialect.Load(write(t, ownDialect))
	if err != nil {
		t.Fatal(err)
	}
	msg := &dialect.Message{Broker: dialect.Kafka, From: dialect.Place{Topic: "dead.orders", TimestampMS: 5},
		Headers: header("shop-failed", "1", "shop-topic", "orders", "shop-trace", "trace=7", "shop-tenant", "eu", "eventId", "listed", "shop-event", "own", "kafka_dlt-x", "y"),
		Value:   []byte(`{"tries":4}`)}
	r := set.Read(msg, dialect.Configured{})
	if r.Dialect != "shop-kafka" || !slices.Equal(r.AlsoSeen, []string{"spring-kafka-dlpr"}) || !r.TwoLayers {
		t.Errorf("dialect %s, also %v, two layers %v", r.Dialect, r.AlsoSeen, r.TwoLayers)
	}
	equal(t, "origin", r.OriginTopic, "orders")
	equal(t, "attempts", r.Attempts, 4)
	equal(t, "event id", r.EventID, "own")
	if r.Field("trace_id") != "t:7" || r.Field("component") != "checkout" {
		t.Errorf("trace %v, component %v", r.Field("trace_id"), r.Field("component"))
	}
	left, err := set.Strip("shop-kafka", msg.Headers)
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != 3 || left[0].Name != "shop-tenant" || left[2].Name != "kafka_dlt-x" {
		t.Errorf("left %v", left)
	}
	other := set.Read(&dialect.Message{Broker: dialect.Kafka, From: dialect.Place{Topic: "dead.orders"}}, dialect.Configured{})
	equal(t, "replaced fallback", other.OriginTopic, "orders")
	if set.Name("kafka-unknown") != "Ours, replaced" || set.Name("nobody") != "nobody" || !slices.Contains(set.IDs(), "rabbitmq-xdeath") {
		t.Errorf("names: %q, %q, %v", set.Name("kafka-unknown"), set.Name("nobody"), set.IDs())
	}
}

func TestTheEmbeddedFileIsAnOwnFileToo(t *testing.T) {
	t.Parallel()
	if _, err := dialect.Load("dialects.yaml"); err != nil {
		t.Error(err)
	}
}

func TestProblemsNameFileLineAndKey(t *testing.T) {
	t.Parallel()
	const frame = "version: 1\ndialects:\n- id: x\n  name: X\n  broker: kafka\n  priority: 1\n  detect: {any_header: [h]}\n  strip_on_replay: []\n"
	locator := func(l string) string { return frame + "  fields:\n    origin_topic:\n    - " + l + "\n" }
	cases := []struct{ title, text, want string }{
		{"empty", "", "own.yaml:1: the file is empty"},
		{"broken YAML", "version: 1\n\tx", "own.yaml: yaml: line 2"},
		{"no version", "dialects: []", "own.yaml:1: version is missing"},
		{"other version", "version: 2", `own.yaml:1: version: "2" is none of 1`},
		{"unknown top key", "version: 1\ndialect: []", "own.yaml:2: dialect: unknown key"},
		{"a key twice", "version: 1\nversion: 1", "own.yaml:2: version: stands there twice"},
		{"no list", "version: 1\ndialects: {}", "own.yaml:2: dialects: must be a list"},
		{"missing key", "version: 1\ndialects:\n- {id: x, broker: kafka, priority: 1, detect: {any_header: [h]}, fields: {}}", "own.yaml:3: dialects[0]: strip_on_replay is missing"},
		{"unknown broker", strings.Replace(frame, "broker: kafka", "broker: pulsar", 1) + "  fields: {}\n", `own.yaml:5: dialects[0].broker: "pulsar" is none of kafka, rabbitmq`},
		{"priority", strings.Replace(frame, "priority: 1", "priority: high", 1) + "  fields: {}\n", "own.yaml:6: dialects[0].priority: must be a whole number"},
		{"unknown detect key", strings.Replace(frame, "any_header", "header", 1) + "  fields: {}\n", "own.yaml:7: dialects[0].detect.header: unknown key"},
		{"matches everything", strings.Replace(frame, "{any_header: [h]}", "{}", 1) + "  fields: {}\n", "own.yaml:3: dialects[0].detect: only kafka-unknown matches everything"},
		{"unknown field", frame + "  fields:\n    origin_topik: []\n", "own.yaml:10: dialects[0].fields.origin_topik: unknown field"},
		{"unknown encoding", locator("{from: header, name: a, enc: utf9}"), `own.yaml:11: dialects[0].fields.origin_topic[0].enc: unknown encoding "utf9"`},
		{"unknown from", locator("{from: trailer, name: a}"), `own.yaml:11: dialects[0].fields.origin_topic[0].from: "trailer" is none of header`},
		{"no name", locator("{from: header}"), "own.yaml:11: dialects[0].fields.origin_topic[0]: name is missing"},
		{"unknown attribute", locator("{from: source, name: topics}"), `own.yaml:11: dialects[0].fields.origin_topic[0].name: "topics" is none of topic`},
		{"unknown pick", locator("{from: header, name: a, pick: middle}"), `own.yaml:11: dialects[0].fields.origin_topic[0].pick: "middle" is none of first, last`},
		{"bad expression", locator("{from: header, name: a, re: '(a'}"), "own.yaml:11: dialects[0].fields.origin_topic[0].re: is no RE2 expression"},
		{"no group", locator("{from: header, name: a, re: 'a+'}"), "own.yaml:11: dialects[0].fields.origin_topic[0].re: has no group 1"},
		{"unknown reference", locator("{from: header, name: a, re: '^$origin_queue-(.+)$'}"), "own.yaml:3: dialects[0].fields: origin_topic refers to $origin_queue, which this dialect does not have"},
		{"a circle", locator("{from: header, name: a, re: '^$origin_topic-(.+)$'}"), "own.yaml:3: dialects[0].fields: origin_topic refers to itself"},
		{"bad path", locator("{from: header, name: a, enc: json, path: 'a[x]'}"), `own.yaml:11: dialects[0].fields.origin_topic[0].path: path "a[x]": "x" is no index`},
		{"path without parts", locator("{from: header, name: a, path: a}"), "own.yaml:11: dialects[0].fields.origin_topic[0].path: needs an encoding with parts"},
		{"spread without reduce", locator("{from: header, name: a, enc: json, path: '[*].a'}"), "own.yaml:11: dialects[0].fields.origin_topic[0].reduce: stands with [*]"},
		{"where without spread", locator("{from: header, name: a, enc: json, path: a, where: {b: c}}"), "own.yaml:11: dialects[0].fields.origin_topic[0].where: needs [*]"},
		{"strip rule", strings.Replace(frame, "strip_on_replay: []", "strip_on_replay: [{name: a, prefix: b}]", 1) + "  fields: {}\n", "own.yaml:8: dialects[0].strip_on_replay[0]: needs either name or prefix"},
		{"falls back to nobody", frame + "  falls_back_to: y\n  fields: {}\n", `own.yaml:3: dialects[0].falls_back_to: no other kafka dialect "y"`},
		{"falls back to another broker", frame + "  falls_back_to: rabbitmq-xdeath\n  fields: {}\n", `own.yaml:3: dialects[0].falls_back_to: no other kafka dialect`},
		{"an id twice", frame + "  fields: {}\n" + strings.TrimPrefix(frame, "version: 1\ndialects:\n") + "  fields: {}\n", `own.yaml:10: dialects[1].id: "x" also stands on line 3`},
		{"unknown documented encoding", "version: 1\nencodings: {utf9: nine}", "own.yaml:2: encodings.utf9: this version does not read such an encoding"},
		{"event id place", "version: 1\nevent_id_headers: {list: [{where: body, brokers: [kafka]}]}", "own.yaml:2: event_id_headers.list[0]: needs a path"},
	}
	for _, c := range cases {
		_, err := dialect.Load(write(t, c.text))
		if err == nil {
			t.Errorf("%s: no error", c.title)
		} else if !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s:\n got %v\nwant %s", c.title, err, c.want)
		}
	}
	if _, err := dialect.Load(filepath.Join(t.TempDir(), "none.yaml")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("absent file: %v", err)
	}
}

func TestAllProblemsAtOnce(t *testing.T) {
	t.Parallel()
	_, err := dialect.Load(write(t, "version: 3\nfoo: 1\nbar: 2\n"))
	if err == nil || strings.Count(err.Error(), "own.yaml:") != 3 {
		t.Errorf("want three problems, got %v", err)
	}
}

func TestCheckPath(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"eventId", "$.eventId", "$.a.b[0].c-d", "[-1].x", "$[0]", "a[0][1]"} {
		if err := dialect.CheckPath(good); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{"", "$", "$.", ".a", "a..b", "a[", "a[]", "a[1", "$a", "a[0]b", "items[*].id"} {
		if dialect.CheckPath(bad) == nil {
			t.Errorf("%q passes", bad)
		}
	}
}

func TestUnknownDialectIsNotStripped(t *testing.T) {
	t.Parallel()
	if _, err := builtin(t).Strips("gone"); !errors.Is(err, dialect.ErrUnknown) {
		t.Errorf("got %v", err)
	}
}

// What a dialect says of a replay is checked, too, with file, line and key.
func TestReplayRulesAreChecked(t *testing.T) {
	t.Parallel()
	const head = "version: 1\ndialects:\n- id: own\n  name: Own\n  broker: rabbitmq\n  priority: 1\n  detect: {any_header: [a]}\n  fields: {}\n  strip_on_replay: []\n"
	for rule, want := range map[string]string{
		"  set_on_replay: [{name: n, type: int32, value: many, reason: r}]\n":       ":10: dialects[0].set_on_replay[0].value: is no int32",
		"  set_on_replay: [{name: n, type: int32, value: 3000000000, reason: r}]\n": ":10: dialects[0].set_on_replay[0].value: is no int32",
		"  set_on_replay: [{name: n, type: colour, value: 1, reason: r}]\n":         `:10: dialects[0].set_on_replay[0].type: "colour" is none of`,
		"  set_on_replay: [{name: n, type: int32, value: 1}]\n":                     "the reason for n stands neither there nor under strip_on_replay",
		"  replay_body: {path: Message}\n":                                          "replay_body needs replay_properties",
		"  replay_body: {path: Message, forms: [rot13]}\n":                          `:10: dialects[0].replay_body.forms[0]: "rot13" is none of`,
		"  edit_body_on_replay: [{path: 'a[0]', action: remove, reason: r}]\n":      ":10: dialects[0].edit_body_on_replay[0]: the path may have keys only",
		"  edit_body_on_replay: [{path: a, action: double, reason: r}]\n":           ":10: dialects[0].edit_body_on_replay[0].action:",
		"  refuse_replay: []\n":                           ":10: dialects[0].refuse_replay: must be text",
		"  replay_properties: {path: P, writer: cobol}\n": ":10: dialects[0].replay_properties.writer:",
		"  detect_more: {}\n":                             ":10: dialects[0].detect_more: unknown key",
	} {
		_, err := dialect.Load(write(t, head+rule))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\nerror %v\nwant  %s", rule, err, want)
		}
	}
	kafka := strings.ReplaceAll(head, "rabbitmq", "kafka") + "  refuse_replay: because\n"
	if _, err := dialect.Load(write(t, kafka)); err == nil || !strings.Contains(err.Error(), "only strip_on_replay and keep_on_replay") {
		t.Errorf("a rule of RabbitMQ in a dialect of Kafka: %v", err)
	}
	set, err := dialect.Load(write(t, head+"  refuse_replay: it is not ours\n"))
	if err != nil {
		t.Fatal(err)
	}
	if own := set.List()[slices.IndexFunc(set.List(), func(i dialect.Info) bool { return i.ID == "own" })]; own.Refuses != "it is not ours" || !strings.HasSuffix(own.File, "own.yaml") {
		t.Errorf("%+v", own)
	}
}
