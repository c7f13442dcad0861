package dlq

import (
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Fault is all letters that share a fingerprint: cluster, source, dialect,
// origin, group, error class and normalised message.
type Fault struct {
	ID          int32
	Cluster     string
	Broker      string // kafka | rabbitmq
	Source      string
	Dialect     string
	OriginTopic *string
	Group       *string
	ErrorClass  *string
	Message     string // normalised
	FirstSeen   time.Time
	LastSeen    time.Time
	Open        int64
	Replaying   int64
	Resolved    int64
	Discarded   int64
	Verdicts    map[Verdict]int64 // of the open letters; 0 is not judged yet
	Hours       [24]int64         // arrivals per hour, the present one last
	LastHour    int64             // arrivals of the present and the last full hour: growth
	Owner       *string
	MuteUntil   *time.Time
	Note        *string
	CameBackAt  *time.Time // when letters arrived after all had been resolved or discarded; nil: never
}

// SafeCount is how many open letters the cached verdicts let go without an override.
func (f Fault) SafeCount() int64 { return f.Verdicts[Safe] + f.Verdicts[AlreadyApplied] }

// FaultTab is one of the tabs over the fault list.
type FaultTab string

// The tabs. Muted faults stand in no other tab but Replaying and All; a fault
// with open and replaying letters stands in Open and in Replaying.
const (
	TabOpen      FaultTab = "open"
	TabReplaying FaultTab = "replaying"
	TabMuted     FaultTab = "muted"
	TabResolved  FaultTab = "resolved"
	TabDiscarded FaultTab = "discarded"
	TabAll       FaultTab = "all"
)

// FaultFilter narrows a list of faults. Zero values do not filter; the zero tab
// is TabOpen.
type FaultFilter struct {
	Tab         FaultTab
	Cluster     string
	Source      string
	Dialect     string
	Group       string // API name: consumer_group
	ErrorClass  string
	OriginTopic string
	Verdict     Verdict   // faults with open letters of that headline; NotJudged for none yet
	Owner       string    // OwnerNone: nobody's
	Before      time.Time // first seen before
	Search      string    // stands in class or message, whatever its case
	Sort        string    // -open (default) | open | -last_seen | last_seen | first_seen | -first_seen
}

// FaultPage is a part of the list.
type FaultPage struct {
	Items []Fault
	Next  string // cursor; "" at the end
}

// Faults reads faults.
type Faults struct {
	pool  *pgxpool.Pool
	clock func() time.Time
}

// NewFaults reads faults from the console's database.
func NewFaults(pool *pgxpool.Pool) *Faults { return &Faults{pool: pool, clock: time.Now} }
