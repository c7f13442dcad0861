// Package compensate repairs what reconciliation found, or what a letter left
// undone: with approval, finite attempts and a verification afterwards.
package compensate

import (
	"time"

	"oncemore/internal/strictyaml"
	"oncemore/reconcile"
)

// Kind is what an action or a step does.
type Kind string

// The kinds of actions and steps.
const (
	ReplayEvent Kind = "replay_event" // the original event again, through the safe replay
	SQL         Kind = "sql"
	HTTP        Kind = "http"
	Saga        Kind = "saga" // of several steps
)

// Mode is how the steps of a saga go together.
type Mode string

const (
	// Compensating runs steps and, after a failure, what undoes those that were
	// done, in reverse order.
	Compensating Mode = "compensate"
	// TryConfirmCancel reserves in every step first, and then confirms all of
	// them or cancels them.
	TryConfirmCancel Mode = "tcc"
)

// Action is one definition, as its file says it.
type Action struct {
	Name      string
	Summary   string           // what it does, for people, with {{names}} as in a request; empty: how it is done
	AppliesTo []reconcile.Type // breaks that it may repair; empty: breaks of any type, and letters
	Amount    string           // what a letter is worth, such as {{payload.amount}}; empty: nothing is known of it
	Currency  string           // of a letter's amount
	Group     string           // the consumer group whose effect it repairs; empty: none is claimed
	Kind      Kind
	Mode      Mode   // of a saga
	Steps     []Step // one but for sagas
	Attempts  Attempts
	Approval  Approval
	Limits    Limits
	Automatic *Automatic // nil: nobody but people proposes it
	Verify    bool       // the single-key reconciliation has to match afterwards
	Zone      *time.Location

	Hash [32]byte // SHA-256 of the file's bytes
	Pos  strictyaml.Pos
}

// Step is one call or statement.
type Step struct {
	ID         string
	Kind       Kind
	After      []string // steps that come before; nil: the one above it
	Request    *Request // of kind http
	Statement  *Statement
	Probe      *Probe        // decides an unknown outcome; nil: a person does
	Compensate string        // the action that undoes the step; empty: nothing has to be undone
	Confirm    *Request      // of a TCC
	Cancel     *Request      // of a TCC
	Timeout    time.Duration // of one call or statement

	undo        *Step // that of Compensate, where it was looked up
	undoVersion int
}

// Request is an HTTP call. Its texts may hold {{names}} of what is repaired, and
// its address begins with the name of a base that the config knows.
type Request struct {
	Method  string
	URL     string
	Headers map[string]string
	Body    any // a tree of texts, numbers, lists and objects
	Success []Codes
	Retry   []Codes
}

// Codes is a range of HTTP statuses: 409, or 5xx.
type Codes struct{ From, To int }

func (c Codes) hold(status int) bool { return c.From <= status && status <= c.To }

// Statement is SQL on a named connection, with parameters such as
// :key.event_id; they are bound, never written into it.
type Statement struct {
	Connection string
	Text       string
	Guard      string // a query that counts what the statement would affect, for the preview
	Rows       int64  // affected rows; any other count rolls back
}

// Probe asks whether a step of unknown outcome has been applied.
type Probe struct {
	Request   *Request
	Applied   []Codes // statuses that say so; 404 says that it has not
	Statement *Statement
}

// Attempts bound how often a step is tried, and how long is waited in between.
type Attempts struct {
	Max        int
	Initial    time.Duration
	Multiplier float64
	MaxWait    time.Duration
}

// Approval says how many others have to agree.
type Approval struct {
	Checkers int
	Above    []Tier
	Expires  time.Duration // an approval that is not used by then is void
}

// Tier asks for more checkers from an amount on, whatever its currency.
type Tier struct {
	Amount   reconcile.Amount
	Checkers int
}

// Limits bound what is repaired at once and in a day of the action's zone.
type Limits struct {
	PerBatch     int               // compensations that one command may propose; 0: no limit
	AmountPerDay *reconcile.Amount // per currency, without signs; nil: no limit
	Rate         float64           // starts per second; 0: no limit
}

// Automatic lets small repairs of a known kind be proposed and approved by the
// schedule, which an approver has switched on by approving the definition.
type Automatic struct {
	Schedule     string // cron in the action's zone
	Below        reconcile.Amount
	PerRun       int
	AmountPerDay reconcile.Amount
	OlderThan    time.Duration // a break has to be that old
}

// checkers is how many have to approve an amount.
func (a Approval) checkers(amount reconcile.Amount) int {
	n := a.Checkers
	for _, t := range a.Above {
		if amount.Abs().Cmp(t.Amount) >= 0 {
			n = max(n, t.Checkers)
		}
	}
	return n
}
