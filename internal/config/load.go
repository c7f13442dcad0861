package config

import (
	"fmt"
	"os"

	"go.yaml.in/yaml/v3"
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
	var doc yaml.Node
	if err := yaml.Unmarshal(b, &doc); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	c := defaults(file)
	var bad problems
	if len(doc.Content) == 0 {
		return nil, fmt.Errorf("%s: is empty", file)
	}
	readConfig(node{doc.Content[0], file, "", &bad}, c)
	if len(bad) == 0 {
		c.check(&bad)
	}
	if err := bad.err(); err != nil {
		return nil, err
	}
	return c, nil
}

func readConfig(n node, c *Config) {
	n.object(fields{
		"environment":     func(n node) { n.text(&c.Environment) },
		"listen":          func(n node) { readListen(n, &c.Listen) },
		"database":        func(n node) { readDatabase(n, &c.Database) },
		"clusters":        func(n node) { c.Clusters = readNamed(n, readCluster) },
		"connections":     func(n node) { c.Connections = readNamed(n, readConnection) },
		"sources":         func(n node) { c.Sources = readList(n, readSource) },
		"groups":          func(n node) { c.Groups = readNamed(n, readGroup) },
		"consumers":       func(n node) { c.Consumers = readList(n, readConsumer) },
		"outbox":          func(n node) { c.Outbox = readList(n, readOutbox) },
		"urls":            func(n node) { readURLs(n, c) },
		"reconcile_dir":   func(n node) { c.reconcilePos = n.pos(); n.text(&c.ReconcileDir) },
		"dialects":        func(n node) { n.text(&c.Dialects) },
		"approval":        func(n node) { n.object(fields{"replay_size": func(n node) { n.whole(&c.Approval.ReplaySize, 0) }}) },
		"retention":       func(n node) { readRetention(n, &c.Retention) },
		"secure":          func(n node) { n.yes(&c.Web.Secure) },
		"trusted_proxies": func(n node) { readProxies(n, &c.Web.TrustedProxies) },
	}, "environment", "database")
}

func readNamed[T any](n node, read func(string, node) T) (out []T) {
	n.named(func(name string, v node) { out = append(out, read(name, v)) })
	return out
}

func readList[T any](n node, read func(node) T) (out []T) {
	n.list(func(v node) { out = append(out, read(v)) })
	return out
}
