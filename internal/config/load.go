package config

import (
	"fmt"
	"os"

	"oncemore/internal/strictyaml"
)

// Load reads and checks the file. The error lists what is wrong, one line each,
// as file:line: key: sentence.
func Load(file string) (*Config, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read config: %w", err)
	}
	return Parse(file, b)
}

// Parse is Load for bytes that are at hand; file is for messages.
func Parse(file string, b []byte) (*Config, error) {
	c := defaults(file)
	err := strictyaml.Parse(file, b, func(root node, bad *problems) {
		readConfig(root, c)
		if len(*bad) == 0 {
			c.check(bad)
		}
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

func readConfig(n node, c *Config) {
	n.Object(fields{
		"environment":     func(n node) { n.Text(&c.Environment) },
		"listen":          func(n node) { readListen(n, &c.Listen) },
		"database":        func(n node) { readDatabase(n, &c.Database) },
		"clusters":        func(n node) { c.Clusters = readNamed(n, readCluster) },
		"connections":     func(n node) { c.Connections = readNamed(n, readConnection) },
		"redis":           func(n node) { c.Redis = readNamed(n, readRedis) },
		"sources":         func(n node) { c.Sources = readList(n, readSource) },
		"groups":          func(n node) { c.Groups = readNamed(n, readGroup) },
		"consumers":       func(n node) { c.Consumers = readList(n, readConsumer) },
		"outbox":          func(n node) { c.Outbox = readList(n, readOutbox) },
		"alerts":          func(n node) { readAlerts(n, &c.Alerts) },
		"urls":            func(n node) { readURLs(n, c) },
		"reconcile_dir":   func(n node) { n.Text(&c.ReconcileDir) },
		"dialects":        func(n node) { n.Text(&c.Dialects) },
		"approval":        func(n node) { readApproval(n, &c.Approval) },
		"replays":         func(n node) { n.Object(fields{"cap": func(n node) { n.Whole(&c.Replays.Cap, 1) }}) },
		"retention":       func(n node) { readRetention(n, &c.Retention) },
		"links":           func(n node) { c.Links = readList(n, readLink) },
		"secure":          func(n node) { n.Yes(&c.Web.Secure) },
		"trusted_proxies": func(n node) { readProxies(n, &c.Web.TrustedProxies) },
	}, "environment", "database")
}

func readNamed[T any](n node, read func(string, node) T) (out []T) {
	n.Named(func(name string, v node) { out = append(out, read(name, v)) })
	return out
}

func readList[T any](n node, read func(node) T) (out []T) {
	n.List(func(v node) { out = append(out, read(v)) })
	return out
}
