// Package fleet knows the consumer groups: what the runtimes of all replicas
// report, what the brokers say of their lag and members, and what operators told
// them to do. It owns consumer_status, consumer_total and consumer_command.
package fleet

import "time"

// State is how a group does. The values stand in order of severity, worst
// first, so that the smallest of several replicas is the group's.
type State int16

// The states of a group.
const (
	Failed  State = iota + 1 // a replica's consumer ended with an error
	Stale                    // nobody has reported for staleAfter, and nobody said goodbye
	Waiting                  // something it needs is down, or a delivery waits for its retry
	Paused                   // by an operator
	Running
	Stopped // ended in an orderly way, or never started
	Unknown // not ours: only the broker knows its members and lag
)

var stateNames = map[State]string{
	Failed: "failed", Stale: "stale", Waiting: "waiting", Paused: "paused",
	Running: "running", Stopped: "stopped", Unknown: "unknown",
}

// String is the state's name in the API.
func (s State) String() string { return stateNames[s] }

// Group is one consumer group. Nil pointers mean "not known", never zero: the
// counters of a foreign group are not ours to know.
type Group struct {
	Name        string
	Cluster     string
	Ours        bool // run by our runtime and reported by it
	Topics      []string
	Strategy    string // consume_record, …; "" for a foreign group
	State       State  // of its live replicas the worst
	StateReason string // English: who paused it, or what it waits for; "" where there is nothing to add

	// Counters since the first process of the group that ever reported, all
	// replicas summed.
	Consumed     *int64
	Duplicates   *int64 // deliveries absorbed because the effect was there already
	Filtered     *int64 // those of them that the filter recognised, without the database
	Retried      *int64
	DeadLettered *int64
	Discarded    *int64
	Transactions *int64 // committed; (Consumed + Duplicates - Filtered) over it is about the batch size
	Fallbacks    *int64 // batches rolled back for an event of theirs
	Contention   *int64 // transactions lost to others: deadlocks, lock time-outs
	StaleAcks    *int64 // RabbitMQ: acknowledgements that came after their channel was lost
	Reconnects   *int64 // RabbitMQ: connections made anew; Kafka: memberships lost

	Lag        *int64     // records between the committed offsets and the ends of the subscribed topics
	LagAt      *time.Time // when the broker was asked
	LagError   string     // why Lag is nil
	Members    *int       // nil: the broker could not be asked
	Partitions *int       // assigned to members, by the broker; else what our replicas report

	LastError     string
	LastErrorAt   *time.Time
	EvidenceSince *time.Time // consume records are complete from then on; nil: no evidence, or not known

	Command  *Command // the latest wish, if there ever was one
	Replicas []Replica
}

// Replica is one process that runs, or ran, a group.
type Replica struct {
	ID          string
	Host        string
	State       State
	Partitions  int
	StartedAt   time.Time
	ReportedAt  time.Time // by our database's clock
	Stale       bool      // State is its last word, not the present
	LastError   string
	LastErrorAt *time.Time
}

// Command is what an operator wants of a group.
type Command struct {
	Paused bool
	Actor  string
	Reason string
	At     time.Time
}

// Topic is a topic of a cluster.
type Topic struct{ Cluster, Name string }

// Declared is a group that the config names.
type Declared struct {
	Name          string
	Cluster       string // "": any
	Topics        []string
	Ours          bool
	Strategy      string
	EvidenceSince *time.Time
}
