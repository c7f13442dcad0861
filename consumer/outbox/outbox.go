// Package outbox sends messages that a local transaction decided on. Add writes
// the message into a table in the transaction of the business change; a Relay
// publishes what was committed, and marks it sent once the broker has confirmed.
//
// Delivery is at least once: a relay that ends between publish and mark leaves a
// row that is published again, with the same event id. Order per key holds, as
// Add says. A row that the broker refuses holds back the later rows of its key,
// and no others; after a bounded number of attempts it is dead, until somebody
// has it tried again or skipped.
//
// It owns the table outbox_message.
package outbox

import (
	"errors"
	"fmt"
	"hash/fnv"
	"regexp"
	"strings"

	"oncemore/consumer"
)

// Shards is how many parts the keys are divided into; a relay owns whole parts.
const Shards = 64

// HeaderEventID carries the event id, unless the message has such a header.
const HeaderEventID = "event-id"

// Message is one event to one target.
type Message struct {
	// EventID identifies the event for its consumers: consumer.ValidateEventID
	// says what is allowed. It is sent as header event-id, to RabbitMQ also as
	// the property message_id.
	EventID string
	// Target is the Kafka topic, or RabbitMQ's routing key: with the default
	// exchange the name of a queue.
	Target   string
	Exchange string // RabbitMQ only; "" is the default exchange

	// AggregateKey names what order is kept for, such as an account: at most 255
	// bytes. "" is Key; without either the message has no order.
	AggregateKey string
	// Key is the record's key in Kafka, which chooses the partition: order reaches
	// consumers only where messages of one AggregateKey have one Key. nil is
	// AggregateKey, and where that is empty, no key.
	Key []byte

	Value   []byte            // nil is null, a tombstone; RabbitMQ has an empty body then
	Headers []consumer.Header // order and repeats are kept in Kafka; content-type is RabbitMQ's property, too
}

// State is where a row stands.
type State int16

// The states, as they are stored. Failing waits for its next attempt. Failing
// and Dead hold back the later rows of their key.
const (
	Pending State = 1
	Sent    State = 2
	Failing State = 3
	Dead    State = 4
	Skipped State = 5
)

var stateNames = map[State]string{Pending: "pending", Sent: "sent", Failing: "failing", Dead: "dead", Skipped: "skipped"}

// String is the state's name in lower case.
func (s State) String() string { return stateNames[s] }

var (
	// ErrInvalid is returned for a message that cannot be stored or sent.
	ErrInvalid = errors.New("outbox: invalid message")
	// ErrNoTransaction is returned for a pool in place of a transaction.
	ErrNoTransaction = errors.New("outbox: Add needs the transaction of the business change, not a pool")
	// ErrNotFound is returned when there is no such row.
	ErrNotFound = errors.New("outbox: no such row")
	// ErrNotDead is returned when a row to be tried again or skipped is not dead.
	ErrNotDead = errors.New("outbox: the row is not dead")
)

// Table names an outbox. A database may have several, such as one per broker.
type Table string

// DefaultTable is the outbox that Add, AddSQL and DDL use.
const DefaultTable Table = "outbox_message"

var tableName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,39}$`)

// Validate refuses names that would need quotes, or leave no room for the names
// of indexes.
func (t Table) Validate() error {
	if !tableName.MatchString(string(t)) {
		return fmt.Errorf("outbox: %q is no table name: use up to 40 lower-case letters, digits and underscores", string(t))
	}
	return nil
}

// sql puts the table's name in place of the default one.
func (t Table) sql(text string) string {
	if t == DefaultTable {
		return text
	}
	return strings.ReplaceAll(text, string(DefaultTable), string(t))
}

// Bounds of what can be stored.
const (
	maxOrderKey = 255     // bytes
	maxName     = 255     // bytes of a target, an exchange, a header's name
	maxBytes    = 1 << 30 // of one message
)

func (m Message) validate() error {
	if err := consumer.ValidateEventID(m.EventID); err != nil {
		return fmt.Errorf("%w: event id: %w", ErrInvalid, err)
	}
	switch {
	case m.Target == "" || len(m.Target) > maxName || strings.ContainsRune(m.Target, 0):
		return fmt.Errorf("%w: event %s: target has to have 1 to %d bytes", ErrInvalid, m.EventID, maxName)
	case len(m.Exchange) > maxName || strings.ContainsRune(m.Exchange, 0):
		return fmt.Errorf("%w: event %s: exchange has more than %d bytes", ErrInvalid, m.EventID, maxName)
	case len(m.AggregateKey) > maxOrderKey:
		return fmt.Errorf("%w: event %s: aggregate key has more than %d bytes", ErrInvalid, m.EventID, maxOrderKey)
	case m.bytes() > maxBytes:
		return fmt.Errorf("%w: event %s: larger than %d bytes", ErrInvalid, m.EventID, maxBytes)
	}
	for _, h := range m.Headers {
		if h.Name == "" || len(h.Name) > maxName {
			return fmt.Errorf("%w: event %s: a header's name has to have 1 to %d bytes", ErrInvalid, m.EventID, maxName)
		}
	}
	return nil
}

// orderKey is what order is kept for. A message without a key has its event id:
// it waits for no other.
func (m Message) orderKey() []byte {
	switch {
	case m.AggregateKey != "":
		return []byte(m.AggregateKey)
	case len(m.Key) > maxOrderKey:
		h := fnv.New128a()
		h.Write(m.Key)
		return fmt.Appendf(nil, "key of %d bytes %x", len(m.Key), h.Sum(nil))
	case len(m.Key) > 0:
		return m.Key
	}
	return []byte(m.EventID)
}

// recordKey is the key as it is sent.
func (m Message) recordKey() []byte {
	if m.Key == nil && m.AggregateKey != "" {
		return []byte(m.AggregateKey)
	}
	return m.Key
}

// bytes is roughly what the message takes in memory.
func (m Message) bytes() int {
	n := len(m.EventID) + len(m.Target) + len(m.Key) + len(m.Value)
	for _, h := range m.Headers {
		n += len(h.Name) + len(h.Value)
	}
	return n
}

// shardOf divides the keys. It never changes: relays of two versions share shards.
func shardOf(orderKey []byte) int16 {
	h := fnv.New64a()
	h.Write(orderKey)
	sum := h.Sum64()
	return int16((sum ^ sum>>32) % Shards)
}
