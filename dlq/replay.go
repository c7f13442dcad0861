package dlq

import (
	"time"

	"github.com/google/uuid"
)

// Target is where a replay sends its letters.
type Target int16

// The targets.
const (
	ToOrigin Target = iota + 1 // origin topic: reaches every group
	ToGroup                    // only the letter's own group
	ToSafe                     // one click: the narrowest there is, per letter
)

var targetNames = map[Target]string{ToOrigin: "origin", ToGroup: "group", ToSafe: "safe"}

// String is the target's name in the API.
func (t Target) String() string { return targetNames[t] }

// ReplayState is where a replay stands.
type ReplayState int16

// The states of a replay.
const (
	Planned ReplayState = iota + 1
	AwaitingApproval
	Scheduled
	Running
	Paused
	Done
	Canceled
	Planning // the set is being judged and frozen, step by step
)

var replayStateNames = map[ReplayState]string{
	Planned: "planned", AwaitingApproval: "awaiting_approval", Scheduled: "scheduled",
	Running: "running", Paused: "paused", Done: "done", Canceled: "canceled", Planning: "planning",
}

// String is the state's name in the API.
func (s ReplayState) String() string { return replayStateNames[s] }

// Selection names the letters of a replay: by id, by filter (state is open), a
// whole fault, or what went wrong in an earlier replay. Exactly one is set.
type Selection struct {
	LetterIDs []uuid.UUID
	Filter    *LetterFilter
	FaultID   int32
	RedoOf    int64 // a replay: the letters of its items that failed, were not sent or not seen
}

// Override sends a letter in spite of its verdict. It names the verdict that the
// person saw: another one at sending time leaves the item out.
type Override struct {
	LetterID uuid.UUID
	Group    string
	Verdict  Verdict
	Reason   string
	EventID  string // of the letter, once it is stored; "" none
}

// PlanRequest asks for a replay. With Target ToSafe it is the one click: planned,
// judged again and started at once, and what may not go is left out.
type PlanRequest struct {
	Selection  Selection
	Target     Target
	Overrides  []Override
	Pace       Pace
	Revisions  map[uuid.UUID]int // which revision of a letter is sent; 0: as it arrived. Letters not named send their newest
	RequestKey string            // idempotency key of the form; "" none
}

// Plan is a frozen set, or what it would be for a dry run (ID 0).
type Plan struct {
	ID       int64
	State    ReplayState
	Letters  int             // letters that were judged
	Total    int             // items that will be sent
	Verdicts map[Verdict]int // headline of every judged item, refused included
	Refused  []Refusal       // at most RefusalsShown; Replays.Refused pages through all
	RefusedN int             // all refusals, by letter and group
}

// Refusal is a letter that stays, and why.
type Refusal struct {
	LetterID uuid.UUID
	EventID  *string
	Group    string
	Verdict  Verdict
	Reason   Reason
}

// Replay is one replay with its numbers.
type Replay struct {
	ID             int64
	State          ReplayState
	PausedBy       string // user | stop_rule | rung | ""
	Target         Target
	Targets        []ReplayTarget
	Total, Sent    int
	Waiting        int             // items neither sent nor given up
	LeftOut        int             // items whose verdict or letter changed before they were sent
	Letters        int             // letters that were judged at plan
	Refused        int             // letters that were refused at plan
	RefusedN       int             // refusals, by letter and group
	Outcomes       map[Outcome]int // per item and group
	Verdicts       map[Verdict]int // headline at plan
	FaultID        *int32
	Reason         string
	CreatedBy      string
	CreatedAt      time.Time
	ApprovalNeeded bool
	ApprovedBy     *string
	ApprovedAt     *time.Time
	ApprovalReason string // of the approval or the rejection
	RejectedBy     *string
	Overrides      []Override
	StartedBy      *string
	StartedAt      *time.Time
	FinishedAt     *time.Time
	Pace           Pace
	Rung           int        // rungs of the ladder that were passed
	Tried          int        // items sent, or that the broker refused
	Failed         int        // items of those that failed, were lost or not seen
	Wait           Reason     // why nothing is sent now; zero: it is, or there is nothing to send
	WaitSince      *time.Time // since when
	Digest         []byte     // SHA-256 of the frozen set; with the pace, what an approval is bound to
	ApprovedUntil  *time.Time // when the approval expires; nil: none was given
	PlanTotal      int        // letters that a plan in the making has to judge
	Elders         int        // items with an open elder of the same key that is not in the set
	EldersBounded  bool       // not every letter was looked at for that
	RedoOf         *int64     // the replay whose failed items these are
	Sensitive      bool       // a revision that is sent changed a sensitive header; only of Get
}

// ReplayTarget is one topic that a replay sends to, and the groups it reaches.
type ReplayTarget struct {
	Cluster string
	Topic   string
	Groups  []string

	Verdicts map[string]map[Verdict]int // by group: what the plan found for the items that go
}

// ReplayItem is one event sent, or to be sent, to one target.
type ReplayItem struct {
	No        int
	EventID   *string
	Key       []byte
	LetterIDs []uuid.UUID
	Verdict   Verdict // headline at plan
	State     string  // waiting | sending | sent | left_out | not_sent | unconfirmed
	SentAt    *time.Time
	Topic     string
	Partition *int32
	Offset    *int64
	BytesFrom string // letter | origin | revision | "" not sent yet
	Revision  int    // of the letter, pinned at plan; 0: as it arrived
	Reason    Reason // why it was left out or not sent; zero where there is nothing to say
	Groups    []ItemGroup
}

// ItemGroup is what an item did in one consumer group.
type ItemGroup struct {
	Group   string
	Verdict Verdict
	Outcome Outcome // 0: not sent yet
	At      *time.Time
	Reason  Reason
}
