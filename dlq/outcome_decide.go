package dlq

import (
	"time"

	"github.com/google/uuid"
)

// sighting is all that is known of a sent item in one group when its outcome is
// asked for. No two clocks are compared: offsets and records decide, and time
// only says when to stop waiting.
type sighting struct {
	before  Verdict       // just before it was sent
	offset  int64         // where it was sent
	topic   string        //
	cluster string        //
	overdue bool          // it was sent longer ago than the settling time
	waited  time.Duration // the settling time

	queue bool // it was sent to a queue, of which nothing says how far it was read

	failed  *uuid.UUID // the letter that it came back as
	asked   bool       // the broker said where the group is
	commits bool       // the group has committed an offset for the partition
	passed  bool       // beyond the sent offset
	drained bool       // dead letters were read to where they ended after it had passed
	retries bool       // the origin has retry topics: a group passes and may yet fail
	judged  *GroupVerdict
}

// outcomeNoEvidence is the reason of an unverified outcome when all went as well
// as can be known: the group has passed, and nothing came back.
const outcomeNoEvidence = "reason.outcome.no_evidence"

// decide gives the outcome, or false while it cannot be told yet.
func (s sighting) decide() (Outcome, Reason, bool) {
	if s.queue {
		return s.decideQueue()
	}
	switch {
	case s.failed != nil:
		return FailedAgain, replayReason("reason.outcome.failed_again", "letter", s.failed.String()), true
	case s.before != AlreadyApplied && s.hasRecord():
		return Applied, replayReason("reason.outcome.applied", "at", instantOf(s.judged.ConsumedAt)), true
	case s.before == AlreadyApplied && s.passed:
		return Duplicate, replayReason("reason.outcome.duplicate", "offset", s.offset), true
	case s.passed && s.drained && s.before != AlreadyApplied:
		if o, why, ok := s.withoutRecord(); ok {
			return o, why, true
		}
	}
	if s.overdue {
		return s.givenUp()
	}
	return 0, Reason{}, false
}

// withoutRecord tells what passing, without a record and without a letter, means.
func (s sighting) withoutRecord() (Outcome, Reason, bool) {
	switch {
	case s.unreadable():
		return 0, Reason{}, false
	case !s.hasEvidence():
		return Unverified, replayReason(outcomeNoEvidence, "offset", s.offset), true
	case s.retries && !s.overdue:
		return 0, Reason{}, false
	}
	return Swallowed, replayReason("reason.outcome.swallowed", "offset", s.offset), true
}

// givenUp is the outcome when waiting any longer would tell no more.
func (s sighting) givenUp() (Outcome, Reason, bool) {
	waited := s.waited.String()
	switch {
	case !s.asked:
		return Unverified, replayReason("reason.outcome.broker_silent", "cluster", s.cluster, "waited", waited), true
	case !s.commits:
		return NotSeen, replayReason("reason.outcome.no_commits", "topic", s.topic), true
	case !s.passed:
		return NotSeen, replayReason("reason.outcome.not_seen", "offset", s.offset, "waited", waited), true
	case s.unreadable():
		return Unverified, replayReason("reason.outcome.unreadable", "offset", s.offset, "waited", waited), true
	}
	return Unverified, replayReason("reason.outcome.drain_behind", "offset", s.offset, "waited", waited), true
}

func (s sighting) hasRecord() bool {
	return s.judged != nil && s.judged.Recorded
}

func (s sighting) unreadable() bool { return s.judged == nil || s.judged.Verdict == Unknown }

// hasEvidence reports whether the group keeps records that were read.
func (s sighting) hasEvidence() bool {
	switch s.judged.Verdict {
	case NoEventID:
		return false
	case Unprotected:
		return s.judged.Reason.Key == "reason.unprotected.external"
	}
	return true
}
