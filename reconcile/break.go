package reconcile

import (
	"time"
)

// BreakState is where a break stands.
type BreakState int

// The states of a break. Verified and closed ones are done with; a later run
// that finds the difference again reopens them.
const (
	Open BreakState = iota + 1
	Assigned
	Explained
	Compensating
	Verified
	Closed
	Reopened
)

// Done reports whether nothing is left to do.
func (s BreakState) Done() bool { return s == Verified || s == Closed }

// Outstanding reports whether the break counts as open money: an explained one
// does not, although it is not closed.
func (s BreakState) Outstanding() bool { return !s.Done() && s != Explained }

// Break is one difference, with an identity that lasts across runs: job, key
// and type.
type Break struct {
	ID          int64
	Job         string
	Key         []string
	Type        Type
	EventID     *string
	State       BreakState
	Currency    string
	Amount      Amount // what is missing in effect; negative: too much
	Sides       [3]FindingSide
	OpenedAt    time.Time
	OpenedRun   int64
	SeenAt      time.Time
	SeenRun     int64
	ClosedAt    *time.Time
	ClosedRun   *int64
	ClosedHow   *string
	Returns     int
	Owner       *string
	ReasonCode  *string
	Explanation *string
	ExplainedBy *string
}

var breakStates = [...]string{"", "open", "assigned", "explained", "compensating", "verified", "closed", "reopened"}

// String is the state's name in the API.
func (s BreakState) String() string { return breakStates[s] }

// ParseBreakState is the way back; false for another word.
func ParseBreakState(name string) (BreakState, bool) {
	for i, n := range breakStates {
		if n == name && i > 0 {
			return BreakState(i), true
		}
	}
	return 0, false
}
