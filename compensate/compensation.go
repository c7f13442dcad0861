package compensate

import (
	"time"

	"github.com/google/uuid"

	"oncemore/reconcile"
)

// State is where a compensation stands.
type State int

// The states. NeedsAttention waits for a person and is never deleted.
const (
	Proposed State = iota + 1
	Approved
	Running
	Verifying
	Verified
	NotNeeded
	NeedsAttention
	Rejected
	Cancelled
	Voided  // what was approved has changed
	Expired // nobody approved or started it in time
)

var stateNames = [...]string{"", "proposed", "approved", "running", "verifying", "verified", "not_needed", "needs_attention", "rejected", "cancelled", "voided", "expired"}

// String is the state's name in the API.
func (s State) String() string { return stateNames[s] }

// Ended reports whether nothing more will happen.
func (s State) Ended() bool { return s == Verified || s == NotNeeded || s >= Rejected }

// Compensation is one repair.
type Compensation struct {
	ID           int64
	Action       string
	Version      int
	Job          *string
	BreakID      *int64
	LetterID     *uuid.UUID
	Key          []string
	EventID      *string
	Group        *string
	Currency     string
	Amount       reconcile.Amount
	Inputs       Inputs
	Effect       Effect
	Hash         []byte // what an approval is bound to
	State        State
	AttemptGroup int
	AskedBy      string
	AskedAt      time.Time
	Reason       string
	Checkers     int
	ApprovedAt   *time.Time
	ExpiresAt    *time.Time
	DueAt        *time.Time
	PausedBy     *string
	CancelBy     *string
	StartedAt    *time.Time
	FinishedAt   *time.Time
	Why          *string
	ReplayID     *int64
	VerifyRun    *int64
	BulkID       *int64 // the selection that it was asked for with
	Automatic    bool   // asked for by the schedule, approved beforehand
}

// Inputs are what an effect is rendered from, by name: key.event_id,
// consumed.amount, difference, currency, event_id.
type Inputs map[string]string

// Effect is what will be done, rendered: one entry a step, secrets masked.
type Effect []EffectStep

// EffectStep is one call or statement.
type EffectStep struct {
	Step       string      `json:"step"`
	Says       string      `json:"says,omitempty"` // the action\'s summary, on the first one
	Kind       Kind        `json:"kind"`
	Method     string      `json:"method,omitempty"`
	URL        string      `json:"url,omitempty"`
	Body       string      `json:"body,omitempty"` // JSON
	SQL        string      `json:"sql,omitempty"`
	Params     Inputs      `json:"params,omitempty"`  // of the SQL
	Undo       string      `json:"undo,omitempty"`    // the action that compensates it
	UndoAt     int         `json:"undo_at,omitempty"` // that action's version
	Undoes     *EffectStep `json:"undoes,omitempty"`  // what it would do
	Idempotent string      `json:"idempotency_key,omitempty"`
}

// Op is the direction of a step.
type Op int

// The directions.
const (
	Forward Op = iota + 1 // or try
	Back                  // compensating, or cancel
	Confirm
)

// StepState is where one step stands.
type StepState int

// The states of a step.
const (
	StepWaiting StepState = iota
	StepRunning
	StepDone
	StepFailed
	StepUnknown // a time-out or a cut connection: it may have been applied
	StepSkipped
)
