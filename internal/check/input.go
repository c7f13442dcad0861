package check

import (
	"context"
	"database/sql"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kadm"

	"oncemore/consumer/rabbit"
)

// Input is everything the checks look at, taken from the config.
type Input struct {
	Console     *pgxpool.Pool                                          // nil: not configured
	Pending     func(context.Context, *pgxpool.Pool) (int, error)      // migrations.Pending
	Kept        func(context.Context, *pgxpool.Pool) ([]string, error) // dlq.KeptMonths
	Connections []Connection
	Redis       []Redis
	Clusters    []Cluster
	Sources     []Source
	Consumers   []Consumer
	Evidence    []Evidence
	URLs        map[string]string // config urls: name to base

	// ReplayWindow is how long after a failure an operator may still replay:
	// how long letters are kept. 0: for ever.
	ReplayWindow time.Duration
	// Recovery is how long the console and its consumers may be down; Margin is
	// added on top. 0: the defaults, 7 d and 3 d.
	Recovery time.Duration
	Margin   time.Duration
}

// Connection is a named business database, as the console reads it.
type Connection struct {
	Name  string
	Pool  *pgxpool.Pool
	MySQL *sql.DB // in place of Pool
	Err   error   // why there is neither, such as an environment variable that is not set

	// Writer: consumers write through the connection, so it has to hold
	// mq_consume_record. WritePool is theirs, by their own credential; nil
	// without WriteErr: they use Pool.
	Writer bool
	// Drops: a keeper removes records that are not needed any more; Archive: by way
	// of the archive.
	Drops, Archive bool
	// Unrecorded: no consumer on it keeps consume records, so that the table may be missing.
	Unrecorded bool
	WritePool  *pgxpool.Pool
	WriteMySQL *sql.DB
	WriteErr   error

	// Repairs: compensations write through the connection, by a credential of
	// their own.
	Repairs     bool
	RepairPool  *pgxpool.Pool
	RepairMySQL *sql.DB
	RepairErr   error
}

// repairing is the connection as compensations use it.
func (c Connection) repairing() Connection {
	c.Pool, c.MySQL, c.Err = c.RepairPool, c.RepairMySQL, c.RepairErr
	return c
}

// writing is the connection as consumers use it.
func (c Connection) writing() Connection {
	if c.WritePool != nil || c.WriteMySQL != nil || c.WriteErr != nil {
		c.Pool, c.MySQL, c.Err = c.WritePool, c.WriteMySQL, c.WriteErr
	}
	return c
}

// Redis is a named Redis that consumers remember events in.
type Redis struct {
	Name string
	Ask  func(context.Context) error // does it answer
}

// Cluster is a named broker connection.
type Cluster struct {
	Name   string
	Admin  *kadm.Client
	Rabbit bool               // Queues in place of Admin
	Queues *rabbit.Management // nil without Err: its management API is not configured
	Err    error              // why there is no client
}

// Source is a pattern of dead-letter topics on a cluster.
type Source struct {
	Cluster string
	Pattern string            // as in the config, for the sentence
	Match   func(string) bool // does a topic belong to it
	Header  string            // event id sources, as configured
	JSON    string            // JSON path
	Copy    bool              // of RabbitMQ: its messages stay in their queues
}

// Consumer is one group that the console runs.
type Consumer struct {
	Group   string
	Cluster string
	Topics  []string
	Queue   string // of RabbitMQ: then there are no topics to look at
	// Horizon is how long a message may wait in the queue or its dead-letter queue,
	// as the config declares it; 0: it does not.
	Horizon    time.Duration
	Connection string
	Header     string // event id sources, as configured
	MessageID  bool
	JSON       string
	DeadLetter string                                     // "": <topic>.DLT for each topic
	MaxRetry   time.Duration                              // the longest the retry policy may take in all
	Retention  time.Duration                              // of its consume records; 0: never dropped; Computed
	Prepare    func(context.Context, *pgxpool.Pool) error // prepares the effect's SQL; nil: none
	// PrepareMySQL is Prepare on a MySQL connection.
	PrepareMySQL func(context.Context, *sql.DB) error
	// HTTPBase and HTTPKey say which base URL an http effect calls and which
	// form of idempotency key it sends; "" for other effects.
	HTTPBase string
	HTTPKey  string
}

// Evidence is where a group's consume records are looked up.
type Evidence struct {
	Group         string
	Connection    string
	Cluster       string // "": any
	Topics        []string
	Table         string // may be schema-qualified
	EventID       string // column names
	ConsumerGroup string
	ConsumedAt    string
	Retention     time.Duration               // 0: never dropped
	Try           func(context.Context) error // looks an event up, as a verdict does; nil: not tried

	// Strangers gives what some rows of the table hold as their group, where none is this one; nil: not looked at.
	Strangers func(context.Context) []string
}
