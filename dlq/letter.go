// Package dlq keeps dead letters: it drains them from the brokers into tables,
// groups them into faults, says what a replay of each would do, replays them
// and records what each replay did.
package dlq

import (
	"time"

	"github.com/google/uuid"
)

// State is where a letter stands.
type State int16

// The states of a letter, as stored.
const (
	Open State = iota + 1
	Replaying
	Resolved
	Discarded
)

var stateNames = map[State]string{Open: "open", Replaying: "replaying", Resolved: "resolved", Discarded: "discarded"}

// String is the state's name in the API.
func (s State) String() string { return stateNames[s] }

// ParseState is the reverse of String; 0 for another name.
func ParseState(name string) State {
	for s, n := range stateNames {
		if n == name {
			return s
		}
	}
	return 0
}

// Flag marks something about a letter that a reader has to know.
type Flag int32

// The flags of a letter.
const (
	FlagPossibleCopy    Flag = 1 << iota // may be a second copy of a letter whose identity was dropped
	FlagOriginGuessed                    // origin comes from the source's name alone
	FlagPositionID                       // the id found is made of topic, partition or offset: counts as none
	FlagCopyDiffers                      // the origin record was read and its value or key differs from the dead letter's
	FlagOriginRead                       // the origin record was read
	FlagValueNotCarried                  // the dialect does not carry the value: null is not a tombstone
	FlagTwoLayers                        // another dialect matched as well
	FlagFramed                           // schema-registry framing
	FlagEventTimeFuture                  // event time lies in the future: counts as unknown
)

// Origin is the place where the event was first published. Nil: not known.
type Origin struct {
	Topic     *string
	Partition *int32
	Offset    *int64
}

// Letter is one failure of one event in one consumer group, without its bytes.
// Nil pointers mean "not known", never "zero".
type Letter struct {
	ID             uuid.UUID // UUIDv7 of arrival
	State          State
	StateAt        time.Time
	Cluster        string
	Broker         string // kafka | rabbitmq
	Source         string // dead-letter topic or queue
	Dialect        string // dialect id of dialects.yaml
	EventID        *string
	EventTime      *time.Time
	Group          *string
	Origin         Origin
	ErrorClass     *string
	ErrorMessage   *string // first 300 bytes
	Attempts       *int32
	Occurrences    int32
	FailedAt       *time.Time // by the failing consumer's or broker's clock
	DrainedAt      time.Time  // by our database's clock
	FaultID        int32
	ReplayCount    int32
	Verdict        Verdict // cached headline: the worst of the groups that the narrowest target reaches; 0: not judged yet
	VerdictAt      *time.Time
	Flags          Flag
	DrainPartition *int32
	DrainOffset    *int64
	Owner          *string // the letter's own, else its fault's
}

// Header is one message header. Value nil is a null header, which is not an
// empty one. Order and repeats matter.
type Header struct {
	Name  string
	Value []byte
	Type  byte // of a RabbitMQ field, see amqpform; 0: Kafka, which has bytes only
}

// Body is what a message carried, byte for byte. Nil is null, not empty.
type Body struct {
	Key     []byte
	Value   []byte
	Headers []Header
	AMQP    []byte // amqpform.Envelope of a RabbitMQ message: where it was published, and its properties
}

// LetterFilter narrows a list of letters. Zero values do not filter.
type LetterFilter struct {
	State       State
	Cluster     string
	Source      string
	Dialect     string
	EventID     string
	Group       string // API name: consumer_group
	FaultID     int32
	ErrorClass  string
	OriginTopic string
	Since       time.Time // drained_at >= Since
	Until       time.Time // drained_at < Until

	// These are compared letter by letter, so that a list may stop before its end
	// and say how far it looked.
	Verdict     Verdict // headline; NotJudged for none yet
	AttemptsMin int32   // letters whose attempts are not known match neither bound
	AttemptsMax int32
	Owner       string // the letter's, else its fault's; OwnerNone: nobody
	Search      string // exact terms, see ParseTerms; by the token index, which lags
	Text        string // bytes that stand in key, value, headers, event id or error; needs FaultID or Since
	AnyCase     bool   // Text in capitals or not: Latin letters in any mix, others all small, all large or capitalised

	Sort string // -drained_at (default): newest arrival first | drained_at: oldest first
}

// NotJudged filters for letters without a verdict.
const NotJudged Verdict = -1

// OwnerNone filters for letters that are nobody's.
const OwnerNone = "none"

// Page asks for a part of a list. Cursor is what the last page gave as Next.
type Page struct {
	Limit  int // 1 to 200; 0 is 50
	Cursor string
}
