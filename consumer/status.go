package consumer

import (
	"context"
	"time"
)

// State is what a consumer is doing.
type State string

// The states.
const (
	Running State = "running"
	Paused  State = "paused"  // on request
	Waiting State = "waiting" // something it needs is down, or a delivery waits for its retry
	Stopped State = "stopped"
)

// Partition is a part of a topic that a consumer owns.
type Partition struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
}

// Status is what a consumer reports of itself. The counters start at zero with
// the process.
type Status struct {
	Group        string      `json:"group"`
	Topics       []string    `json:"topics"` // <group>.replay included
	State        State       `json:"state"`
	Consumed     int64       `json:"consumed"`      // events whose record and effect were committed
	Duplicates   int64       `json:"duplicates"`    // deliveries acknowledged without effect: already consumed
	Filtered     int64       `json:"filtered"`      // duplicates among them that the filter recognised, without the database
	Retried      int64       `json:"retried"`       // attempts that failed and were, or will be, repeated
	DeadLettered int64       `json:"dead_lettered"` // confirmed dead letters
	Discarded    int64       `json:"discarded"`
	Transactions int64       `json:"transactions"`  // committed ones; how many deliveries each had is BatchSize
	Fallbacks    int64       `json:"fallbacks"`     // batches rolled back for an event of theirs, whose deliveries then ran alone
	Contention   int64       `json:"contention"`    // transactions repeated for contention: deadlocks, lock time-outs
	BatchSize    Histogram   `json:"batch_size"`    // deliveries of committed transactions
	ClaimSeconds Histogram   `json:"claim_seconds"` // from BEGIN until records and keys were claimed: waits for other transactions show here
	StaleAcks    int64       `json:"stale_acks"`    // RabbitMQ: deliveries finished after their channel was lost, acknowledged when they come again
	Reconnects   int64       `json:"reconnects"`    // RabbitMQ: connections made anew after one was lost. Kafka: memberships of the group lost
	LastError    string      `json:"last_error"`    // "" if none yet
	LastErrorAt  time.Time   `json:"last_error_at,omitzero"`
	Assigned     []Partition `json:"assigned"`
	Started      time.Time   `json:"started,omitzero"`
}

// Position is how far a group has come on a partition.
type Position struct {
	Partition
	Committed int64 `json:"committed"` // next offset to be read; -1 none committed
	End       int64 `json:"end"`       // next offset to be written
	Lag       int64 `json:"lag"`
}

// Runner is a consumer seen from outside, whatever its broker and store.
type Runner interface {
	// Run consumes until ctx ends, then finishes what is under way within the
	// shutdown time-out. It returns nil after an orderly stop.
	Run(ctx context.Context) error

	// Pause lets running transactions finish and starts no more. The consumer
	// stays a member of its group. Resume goes on.
	Pause()
	Resume()

	Status() Status

	// Lag asks the broker. An unreachable broker is an error, not a zero.
	Lag(ctx context.Context) ([]Position, error)
}
