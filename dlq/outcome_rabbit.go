package dlq

import (
	"context"
	"time"
)

// queuesEvery is how often records of what was sent to queues are read while there
// is more to send. Of a topic they are read when the group has passed an offset; a
// queue says nothing of the kind.
const queuesEvery = 5 * time.Second

func (s *step) mayReadQueues() bool {
	if s.now.waiting && time.Since(s.queuesAt) < queuesEvery {
		return false
	}
	s.queuesAt = time.Now()
	return true
}

// lookQueue asks whether the queue that the item was sent to is empty: nobody has
// yet to take it then. An exchange has no queue of its own to ask about.
func (w *watch) lookQueue(ctx context.Context, on *rabbitBroker, c pendingClaim, target sendTarget) sighting {
	s := sighting{queue: true, before: c.Before, topic: target.place(), cluster: target.Cluster,
		overdue: c.Overdue, waited: w.r.opts.SettleAfter, passed: c.Passed}
	if s.passed || target.Exchange != "" {
		return s
	}
	ready, asked := w.ready[c.TargetID]
	if !asked {
		ready = on.readyCount(ctx, target.Topic)
		w.ready[c.TargetID] = ready
	}
	s.passed = ready == 0
	return s
}

// decideQueue gives the outcome of an item that was sent to RabbitMQ. A record or
// a letter is proof; that a queue is empty is none, since what a consumer holds is
// not in it.
func (s sighting) decideQueue() (Outcome, Reason, bool) {
	waited := s.waited.String()
	switch {
	case s.failed != nil:
		return FailedAgain, replayReason("reason.outcome.failed_again", "letter", s.failed.String()), true
	case s.before == AlreadyApplied:
		return DuplicateExpected, replayReason("reason.outcome.duplicate_expected", "queue", s.topic), true
	case s.hasRecord():
		return Applied, replayReason("reason.outcome.applied", "at", instantOf(s.judged.ConsumedAt)), true
	case !s.overdue:
		return 0, Reason{}, false
	case s.unreadable():
		return Unverified, replayReason("reason.outcome.queue_unreadable", "queue", s.topic, "waited", waited), true
	case !s.hasEvidence() && s.passed:
		return Unverified, replayReason(outcomeQueueEmpty, "queue", s.topic, "waited", waited), true
	case s.passed:
		return NotSeen, replayReason("reason.outcome.queue_no_record", "queue", s.topic, "waited", waited), true
	}
	return NotSeen, replayReason("reason.outcome.queue_waiting", "queue", s.topic, "waited", waited), true
}

// outcomeQueueEmpty is the reason of an unverified outcome when all went as well
// as can be known of a queue.
const outcomeQueueEmpty = "reason.outcome.queue_empty"
