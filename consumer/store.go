package consumer

import "context"

// Store keeps consume records in the business database. T is the transaction
// that handlers get. All errors of a store are marked with Contention,
// Unavailable or Permanent; an unmarked one is taken as the handler's.
type Store[T any] interface {
	// Check says whether records of the group can be kept: table, columns,
	// uniqueness, width of the group's name. An unreachable store is Unavailable.
	Check(ctx context.Context, group string) error

	// Claim begins a transaction and inserts a record for each of the distinct
	// ids, in one order that all callers share. An id the store cannot hold is
	// Permanent. The caller ends the claim with Commit or Rollback.
	Claim(ctx context.Context, group string, ids []string) (Claim[T], error)
}

// Claim is a transaction that has inserted consume records.
type Claim[T any] interface {
	// Fresh reports whether this transaction inserted the record of id. If not,
	// the event has been consumed already.
	Fresh(id string) bool

	// Tx is what handlers work on.
	Tx() T

	// Blame marks an error of a handler with Contention or Unavailable when the
	// store is its cause, whatever the handler made of it; else returns it as it is.
	Blame(err error) error

	// Commit sends what is queued and commits. After an error nothing is known
	// to be committed, and claiming the same ids again tells.
	Commit(ctx context.Context) error

	// Rollback undoes everything. It is harmless after Commit.
	Rollback(ctx context.Context)
}
