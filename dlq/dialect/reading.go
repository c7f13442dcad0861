package dialect

import "time"

// The brokers that dialects are written for.
const (
	Kafka    = "kafka"
	RabbitMQ = "rabbitmq"
)

// Header is one message header. Kafka's values are bytes, nil for a null value;
// RabbitMQ's are typed: Typed holds a string, []byte, int64, float64, bool,
// time.Time, []any or map[string]any, and Value is nil.
type Header struct {
	Name  string
	Value []byte
	Typed any
}

// Place is where a dead letter was read from.
type Place struct {
	Topic       string // Kafka
	Partition   int32
	Offset      int64
	TimestampMS int64  // of the record, milliseconds; negative: none
	Queue       string // RabbitMQ
	Exchange    string
	RoutingKey  string
}

// Message is a dead letter as its broker delivered it. Nil Key and Value are
// null, not empty. Headers keep order and repeats.
type Message struct {
	Broker     string
	From       Place
	Key        []byte
	Value      []byte
	Headers    []Header
	Properties map[string]any // AMQP basic properties, typed like Header.Typed
}

// Configured is what the operator's config says about a source. It wins over
// what the message says, as far as the fields' comments say so.
type Configured struct {
	EventIDHeader string // header that holds the event id; wins over every other place
	EventIDJSON   string // path in a JSON value, such as $.eventId; after the header
	Origin        string // origin topic, or queue of RabbitMQ; used where the dialect only guesses or does not say
	Group         string // consumer group; used where the dialect names none

	EventIDProperty string            // AMQP property that holds the event id, such as message_id; after the header
	Transports      map[string]string // queue of each transport that a framework names in place of a queue
}

// Reading is what a dialect says about a message. Nil: the message does not say,
// or says it in a way that cannot be read; a malformed value is never an error.
// Everything is the message's claim, not a fact: anyone who may produce to the
// topic may forge it.
type Reading struct {
	Dialect  string   // id
	AlsoSeen []string // ids of other dialects that match, by priority
	// TwoLayers: one of AlsoSeen matches by headers that Dialect does not own.
	TwoLayers bool

	OriginTopic       *string // Kafka
	OriginPartition   *int32
	OriginOffset      *int64
	OriginTime        *time.Time // the original record's timestamp
	OriginGuessed     bool       // OriginTopic comes from the name of the dead-letter topic alone
	OriginQueue       *string    // RabbitMQ
	OriginExchange    *string
	OriginRoutingKey  *string
	Group             *string
	ExceptionClass    *string
	ExceptionMessage  *string // may hold bytes that are not UTF-8
	Attempts          *int32
	FailedAt          *time.Time
	EventID           *string // nil also for an id made of topic, partition or offset
	EventIDAlt        *string // the other form of the id: as it stands in the message
	PositionID        *string // an id made of topic, partition or offset: counts as none
	CarriesValue      bool    // false: the dialect did not copy the value, null is no tombstone
	RecordTimestampIs string  // failed_at | origin_timestamp | unknown
	Framed            bool    // the value has a schema registry's frame
	fields            map[string]any
	later             func() any // reads the stack
}

// Field returns any field of the dialect by its name in dialects.yaml: a string
// (which may hold bytes that are not UTF-8), an int64, a time.Time or nil.
func (r *Reading) Field(name string) any {
	if name == fieldStack && r.later != nil {
		return r.later()
	}
	return r.fields[name]
}

// Stack is the stack trace; it may hold bytes that are not UTF-8. It is read when
// asked for: most callers leave alone what is often the largest part of a message.
func (r *Reading) Stack() *string {
	s, ok := r.Field(fieldStack).(string)
	if !ok || s == "" {
		return nil
	}
	return &s
}
