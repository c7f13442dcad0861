package config_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"oncemore/internal/config"
)

const withRegistry = `environment: shop
database: {url_env: CONSOLE_DATABASE_URL}
clusters:
  shop:
    kafka: {brokers: [kafka-1:9092]}
    schema_registry: {urls: ["https://schemas-1:8081", "https://schemas-2:8081"], user_env: SR_USER, password_file: /run/sr, timeout: 2s, tls: {ca_file: ca.pem}}
  pay:
    rabbit: {url_env: RABBIT_URL}
    schema_registry: {urls: [http://schemas:8081], token_env: SR_TOKEN}
`

func TestSchemaRegistryOfACluster(t *testing.T) {
	t.Parallel()
	c, err := config.Parse("c.yaml", []byte(withRegistry))
	if err != nil {
		t.Fatal(err)
	}
	r := c.Cluster("shop").SchemaRegistry
	if r == nil || !slices.Equal(r.URLs, []string{"https://schemas-1:8081", "https://schemas-2:8081"}) || r.User.Env != "SR_USER" || r.Password.File != "/run/sr" || r.Timeout != 2*time.Second || r.TLS.CAFile != "ca.pem" {
		t.Errorf("%+v", r)
	}
	if r := c.Cluster("pay").SchemaRegistry; r == nil || r.Token.Env != "SR_TOKEN" || r.Timeout != 3*time.Second {
		t.Errorf("%+v", r)
	}
}

func TestSchemaRegistryMistakesNameTheirLine(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]struct{ old, new, want string }{
		"no password":    {", password_file: /run/sr", "", "c.yaml:6: clusters.shop.schema_registry: user and password go together"},
		"both":           {"token_env: SR_TOKEN", "token_env: SR_TOKEN, user_env: U, password_env: P", "c.yaml:9: clusters.pay.schema_registry: give either user and password or token"},
		"no address":     {"urls: [http://schemas:8081]", "urls: []", "schema_registry.urls: needs at least one address"},
		"not an address": {"http://schemas:8081", "schemas:8081", "schema_registry.urls: has to be addresses"},
		"user in it":     {"http://schemas:8081", "http://a:b@schemas:8081", "schema_registry.urls: has to be addresses"},
		"too patient":    {"timeout: 2s", "timeout: 1m", "schema_registry.timeout: has to be more than 0 and at most 10s"},
		"secret written": {"token_env: SR_TOKEN", "token: abc", "secrets are not written here"},
		"unknown key":    {"timeout: 2s", "colour: red", "schema_registry.colour"},
	} {
		if !strings.Contains(withRegistry, m.old) {
			t.Fatalf("%s: no %q in the file", name, m.old)
		}
		_, err := config.Parse("c.yaml", []byte(strings.Replace(withRegistry, m.old, m.new, 1)))
		if err == nil || !strings.Contains(err.Error(), m.want) {
			t.Errorf("%s: %v, want %s", name, err, m.want)
		}
	}
}

func TestSourcesKnowOriginsThatLettersDoNotSay(t *testing.T) {
	t.Parallel()
	c, err := config.Parse("c.yaml", []byte(withRegistry+`sources:
  - {cluster: pay, pattern: mail.failed, event_id: {message_id: true}, origin: orders, transports: {async: orders, mail: letters}}
`))
	if err != nil {
		t.Fatal(err)
	}
	if s := c.Sources[0]; s.Origin != "orders" || s.Transports["mail"] != "letters" || !s.EventID.MessageID {
		t.Errorf("%+v", s)
	}
}
