package reconcile

import (
	"time"
)

// RunKind is why a run was made.
type RunKind int

// The kinds of a run.
const (
	ByClock RunKind = iota + 1
	ByHand
	OfKeys // of single keys, without a window to compare
	OfAge  // a signed window, looked at again
)

// RunState is how far a run is. Complete, partial and failed runs never change.
type RunState int

// The states of a run.
const (
	Queued RunState = iota + 1
	Running
	Complete
	Partial // true counts of what was compared; never signed
	Failed
)

// Finished reports whether the run is immutable.
func (s RunState) Finished() bool { return s >= Complete }

// SignState is where a run stands with its reviewers.
type SignState int

// The states of signing.
const (
	SignNone SignState = iota
	SignWaiting
	Signed
	SignReopened
	Superseded
)

// Run is one comparison of one window.
type Run struct {
	ID           int64
	Job          string
	Version      int
	Kind         RunKind
	From, To     time.Time
	Keys         [][]string
	RecheckOf    *int64
	SupersededBy *int64
	State        RunState
	Plan         string
	PlanReason   string
	AskedBy      string
	AskedAt      time.Time
	StartedAt    *time.Time
	FinishedAt   *time.Time
	Error        *string
	Tally        *Tally
	Roll         *Roll
	AtRisk       map[string]Line // open breaks but timing, by currency
	Seal         []byte
	Sign         SignState
}

// Roll is the roll-forward of a job's breaks: opening + movements = closing, by
// currency.
type Roll struct {
	Currencies map[string]RollCurrency
	Last       int64    // the last movement that is in it
	Aging      []Bucket `json:",omitempty"` // of what is outstanding at its end
}

// RollCurrency is one currency's roll-forward. Movements are signed: what closed
// has a minus.
type RollCurrency struct {
	Opening Line
	Moved   map[Movement]Line
	Closing Line
}

// Movement is why the sum of open breaks changed.
type Movement string

// The movements, in the order in which a roll-forward tells them.
const (
	MovedOpened      Movement = "opened"
	MovedReopened    Movement = "reopened"
	MovedChanged     Movement = "changed"
	MovedAutoClosed  Movement = "auto_closed"
	MovedCompensated Movement = "compensated"
	MovedExplained   Movement = "explained"
)

// Movements lists them all, in that order.
var Movements = []Movement{MovedOpened, MovedReopened, MovedChanged, MovedAutoClosed, MovedCompensated, MovedExplained}

// Segment is a part of a run's window; finished ones are its checkpoints.
type Segment struct {
	No       int
	From, To time.Time
	State    int // 0 waiting, 1 done, 2 given up
	Tries    int
	Cut      bool // it had more differences than the run's limit
	Error    *string
	DoneAt   *time.Time
	TookMs   *int
}

// segments cuts a window into parts of at most size.
func segments(from, to time.Time, size time.Duration) []interval {
	var parts []interval
	for at := from; at.Before(to); at = at.Add(size) {
		end := at.Add(size)
		if end.After(to) {
			end = to
		}
		parts = append(parts, interval{at.UnixMicro(), end.UnixMicro()})
	}
	return parts
}
