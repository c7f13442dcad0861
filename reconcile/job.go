// Package reconcile compares what was consumed with what took effect, for
// finance: jobs read two or three sides from PostgreSQL and MySQL databases,
// runs compare a window of them, and what does not agree becomes a break that
// lives until a later run finds it whole.
package reconcile

import (
	"time"

	"oncemore/internal/strictyaml"
)

// Mode says how the rows of one key relate.
type Mode string

const (
	// OneToOne: as many effects as records, and equal sums.
	OneToOne Mode = "one_to_one"
	// OneToMany: any number of effects for a key, as long as the sums are equal.
	OneToMany Mode = "one_to_many"
)

// Job is one definition, as its file says it. Its zero durations and empty
// decimals mean that nothing is tolerated.
type Job struct {
	Name      string
	Zone      *time.Location
	Schedule  string // cron in Zone; empty: by hand only
	Window    Window
	Outbox    *Side // what was published; nil in a job of two sides
	Consumed  Side
	Effect    Side
	Key       []string // columns, of the same names on all sides
	Match     Match
	Tolerance Tolerance
	Limits    Limits
	SignOff   SignOff
	Recheck   []time.Duration // ages at which a signed window is run again

	Hash [32]byte // SHA-256 of the file's bytes; a run pins it
	Pos  strictyaml.Pos
}

// Window is what one scheduled run covers.
type Window struct {
	Size    time.Duration
	Overlap time.Duration // read beyond both edges, so that neighbours of the edge find their partner
	Grace   time.Duration // how long after its end a window is left alone
}

// Side is one party of the comparison.
type Side struct {
	Connection string
	Query      string         // with :from and :to
	Lookup     string         // with (:keys), the same columns, without the window
	Zone       *time.Location // of times without a zone
	Pos        strictyaml.Pos
}

// Match names the columns that are compared.
type Match struct {
	Mode         Mode
	Amount       string // empty: rows are counted, amounts are not compared
	Currency     string // empty: all amounts are of one kind
	OutboxTime   string
	ConsumedTime string
	EffectTime   string
}

// Tolerance is how far apart two sides of a key may be and still match.
type Tolerance struct {
	Amount      Amount        // absolute, per key
	Percent     Amount        // of the expected amount, per key; the larger of the two holds
	Time        time.Duration // an effect that is younger than this may still come
	RunTotalCap *Amount       // sum of all tolerated differences of a run and currency; nil: none
}

// Limits bound what a run may take from the databases and from its readers.
type Limits struct {
	Statement time.Duration
	Run       time.Duration
	Breaks    int
	Parallel  int
}

// SignOff says who has to look at a run.
type SignOff struct {
	Required  bool
	AutoBelow *Amount // a run whose amount at risk is below is signed by itself; nil: never
}

// Party is a side's place in the comparison.
type Party int

// The parties, in the order in which an event passes them.
const (
	Outbox Party = iota
	Consumed
	Effect
)

var partyNames = [...]string{"outbox", "consumed", "effect"}

// String is the party's key in a job's file.
func (p Party) String() string { return partyNames[p] }

// side is the definition of a party; nil: the job has none.
func (j *Job) side(p Party) *Side {
	switch p {
	case Outbox:
		return j.Outbox
	case Consumed:
		return &j.Consumed
	}
	return &j.Effect
}

// timeColumn is the column that places a party's rows in time.
func (j *Job) timeColumn(p Party) string {
	return [...]string{j.Match.OutboxTime, j.Match.ConsumedTime, j.Match.EffectTime}[p]
}

// Side is the definition of a party; nil: the job has none.
func (j *Job) Side(p Party) *Side { return j.side(p) }

// parties lists those that the job has.
func (j *Job) parties() []Party {
	if j.Outbox == nil {
		return []Party{Consumed, Effect}
	}
	return []Party{Outbox, Consumed, Effect}
}
