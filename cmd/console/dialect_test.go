package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// said runs a command and returns its exit status and what it printed.
func said(t *testing.T, args ...string) (code int, out, failed string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = run(t.Context(), args, &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

func fileWith(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

const shopDialect = `version: 1
dialects:
- id: shop-rabbit
  name: The shop's own
  broker: rabbitmq
  priority: 200
  detect: {any_header: [shop-failed]}
  fields:
    origin_queue: [{from: header, name: shop-queue, enc: amqp-longstr}]
    exception_message: [{from: header, name: shop-failed, enc: amqp-longstr}]
  strip_on_replay:
  - {prefix: shop-, reason: stale}
  set_on_replay:
  - {name: tries, type: int32, value: 0, reason: the shop counts from it}
`

const shopMessage = `{"queue": "dead", "exchange": "", "routing_key": "dead",
 "properties": {"message_id": "m-1"},
 "headers": [{"name": "shop-failed", "type": "longstr", "value": "no stock"}, {"name": "shop-queue", "type": "longstr", "value": "orders"}, {"name": "tenant", "type": "int", "value": 7}],
 "body": "{}", "dialect": "shop-rabbit", "expect": {"origin_queue": "orders"}}`

func TestDialectTest(t *testing.T) {
	t.Parallel()
	own, message := fileWith(t, "own.yaml", shopDialect), fileWith(t, "m.json", shopMessage)
	code, out, failed := said(t, "dialect", "test", own, message)
	for _, want := range []string{
		"dialect: shop-rabbit (The shop's own)", `origin_queue       "orders"`, `event id: "m-1"`, "replay: to queue orders", "sends header tenant: 7", "sends header tries: 0",
		"leaves out shop-failed: stale", `sends property message_id: "m-1"`, "note: Header tries is sent as 0: the shop counts from it.", "as expected",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
	if code != 0 || failed != "" {
		t.Errorf("exit %d, %s", code, failed)
	}
	code, out, _ = said(t, "dialect", "test", "builtin", message)
	if code != 1 || !strings.Contains(out, "not as expected: the dialect is rabbitmq-unknown, not shop-rabbit") {
		t.Errorf("exit %d, %s", code, out)
	}
	code, out, failed = said(t, "dialect", "test", "builtin", filepath.Join("..", "..", "dlq", "dialect", "dialects.yaml"))
	if n := strings.Count(out, "\nas expected\n"); code != 0 || n != 33 || failed != "" {
		t.Errorf("exit %d, %d of the built-in file's samples are as expected, %s", code, n, failed)
	}
}

func TestDialectMistakesNameTheirLine(t *testing.T) {
	t.Parallel()
	message := fileWith(t, "m.json", shopMessage)
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"dialect file": {[]string{"test", fileWith(t, "own.yaml", strings.Replace(shopDialect, "priority: 200", "priority: high", 1)), message}, "own.yaml:6: dialects[0].priority: must be a whole number"},
		"message":      {[]string{"test", "builtin", fileWith(t, "m.json", strings.Replace(shopMessage, `"int"`, `"colour"`, 1))}, `m.json:3: headers[2]: "colour" is no type`},
		"no file":      {[]string{"test", "builtin", "nowhere.json"}, "read message: open nowhere.json"},
		"path":         {[]string{"test", "builtin", message, "--event-id-json", "$.a..b"}, "--event-id-json:"},
		"list":         {[]string{"list", "nowhere.yaml"}, "nowhere.yaml"},
	} {
		if code, _, failed := said(t, append([]string{"dialect"}, c.args...)...); code != 1 || !strings.Contains(failed, c.want) {
			t.Errorf("%s: exit %d, %s", name, code, failed)
		}
	}
}

func TestDialectList(t *testing.T) {
	t.Parallel()
	own := fileWith(t, "own.yaml", shopDialect)
	code, out, _ := said(t, "dialect", "list", own)
	line := ""
	for l := range strings.Lines(out) {
		if strings.Contains(l, "shop-rabbit") {
			line = l
		}
	}
	if code != 0 || !strings.HasPrefix(line, "rabbitmq  200") || !strings.Contains(line, own) || !strings.Contains(out, "spring-kafka-dlpr") {
		t.Errorf("exit %d, %s", code, out)
	}
}

// The dialect file is part of the config: check names what is wrong in it.
func TestCheckReadsTheDialectFile(t *testing.T) {
	t.Parallel()
	own := fileWith(t, "own.yaml", strings.Replace(shopDialect, "strip_on_replay", "strip_on_relpay", 1))
	conf := fileWith(t, "console.yaml", "environment: test\ndatabase: {url_env: NOWHERE}\ndialects: "+own+"\n")
	code, _, failed := said(t, "check", "--config", conf)
	if code != 1 || !strings.Contains(failed, "own.yaml:12: dialects[0].strip_on_relpay: unknown key") {
		t.Errorf("exit %d, %s", code, failed)
	}
}
