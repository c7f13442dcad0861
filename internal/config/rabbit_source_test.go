package config_test

import (
	"strings"
	"testing"

	"oncemore/internal/config"
)

const rabbitSources = `
environment: test
database: {url_env: DB}
clusters:
  pay: {rabbit: {url_env: AMQP, management_url_env: API}}
  blind: {rabbit: {url_env: AMQP}}
  shop: {kafka: {brokers: [127.0.0.1:9092]}}
sources:
  - {cluster: pay, pattern: "*.dlq", group: points, mode: copy}
groups:
  points: {cluster: pay, queues: [order.paid, order.refunded]}
`

func TestSourcesOfQueues(t *testing.T) {
	t.Parallel()
	c, err := config.Parse("c.yaml", []byte(rabbitSources))
	if err != nil {
		t.Fatal(err)
	}
	if s := c.Sources[0]; !s.Copy || s.Group != "points" || len(c.Group("points").Queues) != 2 {
		t.Errorf("source %+v, group %+v", s, c.Group("points"))
	}
	const source = `{cluster: pay, pattern: "*.dlq", group: points, mode: copy}`
	for name, c := range map[string]struct{ source, want string }{
		"a pattern without the API": {`{cluster: blind, pattern: "*.dlq"}`, "a pattern needs clusters.blind.rabbit.management_url"},
		"a copy without the API":    {`{cluster: blind, pattern: order.dlq, mode: copy}`, "mode: copy needs clusters.blind.rabbit.management_url"},
		"a copy of a topic":         {`{cluster: shop, pattern: order.DLT, mode: copy}`, "mode: copy is for queues"},
		"an expiration of a topic":  {`{cluster: shop, pattern: order.DLT, keep_expiration: true}`, "keep_expiration is for queues"},
		"another mode":              {`{cluster: pay, pattern: order.dlq, mode: move}`, "mode: has to be one of drain, copy"},
	} {
		_, err := config.Parse("c.yaml", []byte(strings.Replace(rabbitSources, source, c.source, 1)))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if c, err := config.Parse("c.yaml", []byte(strings.Replace(rabbitSources, source, `{cluster: blind, pattern: order.dlq, keep_expiration: false}`, 1))); err != nil || c.Sources[0].KeepExpiration == nil || *c.Sources[0].KeepExpiration {
		t.Errorf("a queue by name: %v", err)
	}
}
