package dlq

import "time"

// Verdict is what a replay would do, per letter and group. The values stand in
// order of severity, worst first, so that the smallest of several is the headline.
type Verdict int16

// The verdicts. Zero means not judged yet.
const (
	NoEventID Verdict = iota + 1
	Unknown
	Collides
	Altered
	InFlight
	Compensated
	Expired
	Unprotected
	OutOfOrder
	Safe
	AlreadyApplied
)

var verdictNames = map[Verdict]string{
	NoEventID: "no_event_id", Unknown: "unknown", Collides: "collides", Altered: "altered",
	InFlight: "in_flight", Compensated: "compensated", Expired: "expired", Unprotected: "unprotected",
	OutOfOrder: "out_of_order", Safe: "safe", AlreadyApplied: "already_applied",
}

// String is the verdict's name in the API; "" for one not judged.
func (v Verdict) String() string { return verdictNames[v] }

// MaySend reports whether a replay needs no override.
func (v Verdict) MaySend() bool { return v == Safe || v == AlreadyApplied }

// MayOverride reports whether an operator may send in spite of the verdict, with
// a reason and another person's approval.
func (v Verdict) MayOverride() bool {
	return v == NoEventID || v == Expired || v == Unprotected || v == OutOfOrder
}

// The reasons of an Altered that may be overridden: another form of the event was
// sent, or stands in the origin where another group reads it, and may still take
// effect, but no record says so.
const (
	alteredUnsettledOriginal = "reason.altered.unsettled_original"
	alteredUnsettledRevision = "reason.altered.unsettled_revision"
	alteredElsewhere         = "reason.altered.elsewhere"
)

// MayOverride reports whether an operator may send in spite of the verdict for
// that reason. Only Altered depends on it: never over a record, but over an
// earlier send that nothing has settled.
func (r Reason) MayOverride(v Verdict) bool {
	return v.MayOverride() || v == Altered && (r.Key == alteredUnsettledOriginal || r.Key == alteredUnsettledRevision || r.Key == alteredElsewhere)
}

// GroupVerdict is what a replay would do in one consumer group.
type GroupVerdict struct {
	Group      string // "" when the letter names no group and none is known
	Verdict    Verdict
	Reason     Reason
	Recorded   bool       // a record of just this id was found, whatever the verdict
	ConsumedAt *time.Time // of the consume record, by the business database's clock; nil where no column says
	AskedAt    time.Time  // when the evidence was read
	Reached    bool       // whether the asked target reaches this group
}

// Reason says why a verdict is what it is: a key of the message catalog with
// its values, and an English sentence for the API and logs.
type Reason struct {
	Key  string         // catalog key, such as "reason.safe.no_record"
	Args map[string]any // values of the sentence
	Text string         // English
}

// Outcome is what a sent item did in one group.
type Outcome int16

// The outcomes. Zero means not sent yet.
const (
	Pending Outcome = iota + 1
	Applied
	Duplicate
	DuplicateExpected
	FailedAgain
	Swallowed
	NotSeen
	Unverified
	NotSent
	Unconfirmed
)

var outcomeNames = map[Outcome]string{
	Pending: "pending", Applied: "applied", Duplicate: "duplicate", DuplicateExpected: "duplicate_expected",
	FailedAgain: "failed_again", Swallowed: "swallowed", NotSeen: "not_seen", Unverified: "unverified",
	NotSent: "not_sent", Unconfirmed: "unconfirmed",
}

// String is the outcome's name in the API; "" for an item not sent yet.
func (o Outcome) String() string { return outcomeNames[o] }
