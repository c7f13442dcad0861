// Package effect turns what a config file declares into a handler: a SQL
// statement in the consume record's own transaction, in PostgreSQL or in MySQL,
// or an HTTP call behind an idempotency key.
package effect

import (
	"context"

	"oncemore/consumer"
	"oncemore/consumer/mysqlstore"
	"oncemore/consumer/pgstore"
)

// Effect is a declared effect for a store whose transactions are T. BatchSize is
// for consumer.Config: 0 leaves the default.
type Effect[T any] interface {
	Handler() consumer.Handler[T]
	BatchSize() int
}

var (
	_ Effect[pgstore.Tx]    = (*SQL)(nil)
	_ Effect[pgstore.Tx]    = (*Guarded)(nil)
	_ Effect[pgstore.Tx]    = (*HTTP)(nil)
	_ Effect[mysqlstore.Tx] = (*MySQL)(nil)
	_ Effect[mysqlstore.Tx] = (*GuardedMySQL)(nil)
)

// On is an HTTP effect for consumers on any store.
func On[T any](h *HTTP) Effect[T] { return elsewhere[T]{h} }

type elsewhere[T any] struct{ *HTTP }

// Handler is that of HTTP.
func (e elsewhere[T]) Handler() consumer.Handler[T] {
	return func(ctx context.Context, _ T, ev consumer.Event) error { return e.call(ctx, ev) }
}
