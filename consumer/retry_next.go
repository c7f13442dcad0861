package consumer

import "time"

// Next says what an attempt that failed with err asks for, for runtimes without
// a Worker: the pause before attempt+1, and whether the event is given up instead,
// which makes it a dead letter. attempt counts from 1. Outcomes that do not count
// attempts (Unavailable, Contention, Discard) are the caller's to handle first.
func (p RetryPolicy) Next(err error, attempt int) (pause time.Duration, giveUp bool) {
	p = p.withDefaults()
	if OutcomeOf(err) == OutcomePermanent || attempt > p.Attempts || !p.retries(err) {
		return 0, true
	}
	if pause = retryAfter(err); pause == 0 {
		pause = p.pause(attempt)
	}
	return pause, false
}
