// Package config reads console.yaml. Unknown keys, wrong types and missing keys
// are errors that name file, line and key. Secrets stay in environment variables
// and files; only their names are in the file.
package config

import "time"

// Config is a whole console.yaml. Lists keep the file's order.
type Config struct {
	File string // as given, for messages

	Environment string // shown on every page
	Listen      string // host:port
	Database    Secret // the console's own PostgreSQL

	Clusters    []Cluster
	Connections []Connection
	Redis       []Redis
	Sources     []Source
	Groups      []Group
	Consumers   []Consumer
	Outbox      []Outbox
	Links       []Link // to traces and logs

	URLs         map[string]string            // bases that http effects and compensations may call, by name
	URLHeaders   map[string]map[string]Secret // what calls of compensations carry, by base and header
	ReconcileDir string                       // of jobs and of actions; "": none
	Dialects     string                       // a file with dialects of one's own; "": none

	Alerts Alerts

	Approval  Approval
	Replays   Replays
	Retention Retention
	Web       Web
}

// Cluster is a named broker connection; exactly one of Kafka and Rabbit is set.
type Cluster struct {
	Pos    Pos
	Name   string
	Kafka  *Kafka
	Rabbit *Rabbit

	SchemaRegistry *SchemaRegistry // nil: none
}

// Kafka is how to reach a Kafka cluster.
type Kafka struct {
	Brokers []string
	TLS     *TLS
	SASL    *SASL
}

// TLS turns encryption on; its files are PEM.
type TLS struct {
	CAFile     string // "": the system's roots
	CertFile   string
	KeyFile    string
	ServerName string
}

// SASL is how to sign in to Kafka.
type SASL struct {
	Mechanism string // PLAIN, SCRAM-SHA-256, SCRAM-SHA-512
	User      Secret
	Password  Secret
}

// Rabbit is how to reach a RabbitMQ broker.
type Rabbit struct {
	URL            Secret
	ManagementURL  Secret
	KeepExpiration bool // replays send a message's own expiration again
}

// Connection is a named business database. The console reads it in read-only
// transactions; config-file consumers and migrate --target use Writer.
type Connection struct {
	Pos     Pos
	Name    string
	Kind    string // postgres | mysql
	URL     Secret
	Writer  Secret   // defaults to URL
	Repairs Secret   // of compensations; not set: they may not write to it
	Records *Records // of its consume records; nil: as retention says
}

// EventID says where a message's event id stands. The header comes first, then
// the property.
type EventID struct {
	Header    string
	MessageID bool   // property message_id, of RabbitMQ
	JSON      string // path such as $.eventId
}

// Source is what is drained: topics of a cluster that match the pattern.
type Source struct {
	Pos     Pos
	Cluster string
	Pattern string // * stands for any characters
	EventID EventID
	Group   string // of queues, which name none; "" elsewhere
	Copy    bool   // of queues: the messages are copied and stay; config: mode

	KeepExpiration *bool // of queues: replays of its letters send the message's own expiration again; nil: as the cluster says

	Origin     string            // topic, or queue of RabbitMQ, that its letters came from where they do not say; "": not known
	Transports map[string]string // of queues: the queue of each name that a framework gives in place of one
}

// Group is what is known of a consumer group that the broker does not say.
type Group struct {
	Pos      Pos
	Name     string
	Cluster  string // "": any
	Evidence *Evidence
	Effect   string        // local | external
	Window   time.Duration // idempotency window of an external effect; 0: none
	Order    string        // none | key | "": not declared
	Topics   []string
	Queues   []string // of RabbitMQ: which queues the group consumes
	Target   string   // group_target
}

// Evidence is where a group's consume records are looked up: a table of records,
// or the business table that a strategy rests on.
type Evidence struct {
	Pos           Pos
	Connection    string
	Table         string
	EventID       string
	ConsumerGroup string // "": the table has no such column, all rows are the group's
	GroupValue    string // what that column holds; "": the group's name
	ConsumedAt    string // "": no column says when
	Where         string // further condition on the rows, in the database's SQL; "": none
	CompleteSince time.Time
	Retention     time.Duration // 0: kept for ever
}

// Consumer is a group that the console runs.
type Consumer struct {
	Pos         Pos
	Group       string
	Cluster     string
	Topics      []string      // of Kafka
	Queue       string        // of RabbitMQ
	Horizon     time.Duration // the longest wait of a message in its queue or dead-letter queue, as declared; 0: not
	Connection  string
	EventID     EventID
	Strategy    string              // consume_record | unique_key | state | lock | version
	LockKeys    map[string][]string // what an event locks: values, or fields with a colon, by name; nil: nothing
	SQL         string              // exactly one of SQL and HTTP is set
	UniqueKey   string              // of strategy unique_key in MySQL: the key whose violation is a duplicate; "" elsewhere
	Verify      string              // query of the strategies state, lock and version: was the event processed; "" elsewhere
	ExpectRows  *int64              // rows that SQL has to affect; nil: any number
	HTTP        *HTTP
	Retry       Retry
	Filter      string // a name in redis; "": none
	DeadLetter  string // "": <topic>.DLT, <queue>.dlq
	Concurrency int    // workers; each owns whole partitions, or competes for the queue

	SessionTimeout   time.Duration // of Kafka: when a member that has gone silent loses its partitions; 0: the library's default
	RebalanceTimeout time.Duration // of Kafka: what members get to finish when partitions move; 0: the library's default
}

// HTTP is an effect outside the database: one request per event. Values in Path,
// Headers and Body that begin with a colon are fields of the message.
type HTTP struct {
	Base           string // a name in urls
	Path           string // below the base; may be empty
	Method         string // POST, PUT, PATCH, DELETE
	Headers        map[string]string
	Body           any           // JSON tree; nil: the message's payload
	Timeout        time.Duration // at most 10 s
	Accept202      bool          // 202 counts as done
	IdempotencyKey string        // event | effect
}

// Retry is what happens to a message whose handler failed.
type Retry struct {
	Mode       string // blocking | non_blocking
	Attempts   int    // retries after the first try
	Initial    time.Duration
	Multiplier float64
	Max        time.Duration
	Only       []string // error classes that are retried; empty: all
	Exclude    []string // error classes that are dead letters at once
}

// Approval says what needs a second person.
type Approval struct {
	ReplaySize int           // items of a replay above which it does
	ValidFor   time.Duration // how long an approval holds
}

// Replays bounds replays.
type Replays struct {
	Cap int // replays of one letter after which it is parked
}

// Retention says how long things are kept.
type Retention struct {
	Letters time.Duration
	Records Records // where a connection does not say otherwise
}

// Web is how browsers reach the console.
type Web struct {
	Secure         bool     // TLS ends before us: cookies are Secure
	TrustedProxies []string // CIDR ranges whose X-Forwarded-For is believed
}

// Cluster returns the named cluster, or nil.
func (c *Config) Cluster(name string) *Cluster {
	for i := range c.Clusters {
		if c.Clusters[i].Name == name {
			return &c.Clusters[i]
		}
	}
	return nil
}

// Connection returns the named connection, or nil.
func (c *Config) Connection(name string) *Connection {
	for i := range c.Connections {
		if c.Connections[i].Name == name {
			return &c.Connections[i]
		}
	}
	return nil
}

// Consumer returns the consumer of the group, or nil.
func (c *Config) Consumer(group string) *Consumer {
	for i := range c.Consumers {
		if c.Consumers[i].Group == group {
			return &c.Consumers[i]
		}
	}
	return nil
}

// Group returns what is declared of the group, or nil.
func (c *Config) Group(name string) *Group {
	for i := range c.Groups {
		if c.Groups[i].Name == name {
			return &c.Groups[i]
		}
	}
	return nil
}
