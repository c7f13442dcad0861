package config

import (
	"regexp"
	"time"
)

// Outbox is a table of messages in a business database that this console relays
// to a broker.
type Outbox struct {
	Pos        Pos
	Connection string
	Cluster    string
	Table      string
	Attempts   int           // refusals until a row is dead
	Keep       time.Duration // of sent rows
	Writer     Secret        // of relays and of retries; not set: the connection's writer
}

const (
	defaultOutbox         = "outbox_message"
	defaultOutboxAttempts = 10
	defaultOutboxKeep     = 3 * 24 * time.Hour
)

func readOutbox(n node) Outbox {
	o := Outbox{Pos: n.Pos(), Table: defaultOutbox, Attempts: defaultOutboxAttempts, Keep: defaultOutboxKeep}
	f := fields{
		"connection": func(n node) { n.Text(&o.Connection) },
		"cluster":    func(n node) { n.Text(&o.Cluster) },
		"table":      func(n node) { n.Text(&o.Table) },
		"attempts":   func(n node) { n.Whole(&o.Attempts, 1) },
		"keep":       func(n node) { n.Duration(&o.Keep) },
	}
	secret(f, "writer_url", &o.Writer)
	n.Object(f, "connection", "cluster")
	return o
}

// outboxTable is what outbox.Table takes.
var outboxTable = regexp.MustCompile(`^[a-z][a-z0-9_]{0,39}$`)

func (c *Config) checkOutbox(bad *problems, i int) {
	o := c.Outbox[i]
	c.needCluster(bad, o.Pos, o.Cluster)
	c.needConnection(bad, o.Pos, o.Connection)
	if !outboxTable.MatchString(o.Table) {
		bad.Add(o.Pos.Problemf("table %q: up to 40 lower-case letters, digits and underscores", o.Table))
	}
	for _, other := range c.Outbox[:i] {
		if other.Connection == o.Connection && other.Table == o.Table {
			bad.Add(o.Pos.Problemf("table %s of connection %s stands at line %d as well", o.Table, o.Connection, other.Pos.Line))
		}
	}
}
