// Package effect turns what a config file declares into a handler: a SQL
// statement in the consume record's own transaction, or an HTTP call behind an
// idempotency key.
package effect

import (
	"oncemore/consumer"
	"oncemore/consumer/pgstore"
)

// Effect is a declared effect. BatchSize is for consumer.Config: 0 leaves the
// default.
type Effect interface {
	Handler() consumer.Handler[pgstore.Tx]
	BatchSize() int
}

var (
	_ Effect = (*SQL)(nil)
	_ Effect = (*HTTP)(nil)
)
