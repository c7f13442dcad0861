// Package consumer makes an event's effect happen once: the consume record and
// the business change commit in one local transaction, and only then is the
// delivery acknowledged. It promises an exactly-once effect, not exactly-once
// delivery: duplicates still arrive and are recognised.
//
// A Handler gets a transaction that it can neither commit nor roll back. The
// broker adapters (consumer/kafka) and stores (consumer/pgstore) plug in here.
package consumer

import (
	"context"
	"fmt"
	"time"
)

// Header is one message header. A nil Value is a null header, which is not an
// empty one. Order and repeats matter.
type Header struct {
	Name  string
	Value []byte
}

// Event is one delivery of an event to one consumer group.
type Event struct {
	ID        string    // the producer's eventId; checked, never empty
	Group     string    // consumer group that handles it
	Topic     string    // where it was read from; may be <group>.replay. RabbitMQ: the queue
	Partition int32     //
	Offset    int64     //
	Key       []byte    // nil is null, not empty
	Value     []byte    // nil is null (a tombstone), not empty
	Headers   []Header  // as received, order and repeats kept
	Time      time.Time // broker's timestamp of the message, milliseconds
	Attempt   int       // 1 for the first; counts only what the retry policy counts

	// RabbitMQ only. There is no key, partition or offset, and Time has whole seconds.
	Queue       string // where it was read from
	Exchange    string // where it was published to; "" is the default exchange
	RoutingKey  string
	MessageID   string // property message_id; "" if absent
	Redelivered bool   // somebody had it before and did not acknowledge it

	// Native is the broker's own message, for its adapter to show (rabbit.Message).
	Native any
}

// Header returns the value of the last header of that name, and whether there
// is one.
func (e Event) Header(name string) ([]byte, bool) {
	for i := len(e.Headers) - 1; i >= 0; i-- {
		if e.Headers[i].Name == name {
			return e.Headers[i].Value, true
		}
	}
	return nil, false
}

// Handler applies one event inside tx. It is called once for each fresh event,
// in the order of its partition. What it did is undone when it returns an error,
// or when another event of the same batch does: then it runs again, alone.
//
// A plain error is retried by the RetryPolicy. See Permanent, RetryAfter,
// Discard and Unavailable for the other outcomes. A panic counts as an error.
type Handler[T any] func(ctx context.Context, tx T, ev Event) error

// BatchHandler applies the fresh events of a transaction together, in their
// order, each event id once. It suits effects that the database takes as a set.
// An error that a single event is to blame for is a *BatchError: then those
// before it are handled again without it, and it runs alone and meets the
// RetryPolicy. After any other error all events of the batch run alone, in
// batches of one.
type BatchHandler[T any] func(ctx context.Context, tx T, events []Event) error

// BatchError names the event of a batch that Err is the fault of. Marks such as
// Permanent belong inside, on Err.
type BatchError struct {
	Index int // into the events that the handler got
	Err   error
}

// Error is that of Err, with the index.
func (e *BatchError) Error() string { return fmt.Sprintf("event %d of the batch: %v", e.Index, e.Err) }

// Unwrap returns Err.
func (e *BatchError) Unwrap() error { return e.Err }
