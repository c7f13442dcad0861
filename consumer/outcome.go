package consumer

import (
	"errors"
	"fmt"
	"time"
)

// Outcome is what an error asks the runtime to do.
type Outcome int

// The outcomes. A plain error is OutcomeRetry.
const (
	OutcomeRetry       Outcome = iota // retry by the policy, then dead letter
	OutcomePermanent                  // dead letter at once
	OutcomeDiscard                    // acknowledge without effect and without record
	OutcomeUnavailable                // pause and wait; no attempt, never a dead letter
	OutcomeContention                 // roll back, try again soon; no attempt, never a dead letter
)

// outcomeError marks an error with what the runtime shall do about it.
type outcomeError struct {
	outcome Outcome
	after   time.Duration
	err     error
}

func (e *outcomeError) Error() string { return e.err.Error() }
func (e *outcomeError) Unwrap() error { return e.err }

// Permanent marks an error that no retry will mend: the event becomes a dead
// letter at once. Permanent(nil) is nil, as for the other markers.
func Permanent(err error) error { return mark(err, OutcomePermanent, 0) }

// RetryAfter asks for the next attempt after d instead of the policy's pause.
// The attempt still counts.
func RetryAfter(err error, d time.Duration) error { return mark(err, OutcomeRetry, d) }

// Discard drops the event: its effects are rolled back, no record is kept, the
// delivery is acknowledged. To keep the record, return nil without an effect.
func Discard(err error) error { return mark(err, OutcomeDiscard, 0) }

// Unavailable says that something the handler depends on is down. The consumer
// pauses and waits as long as it takes; no attempt is counted.
func Unavailable(err error) error { return mark(err, OutcomeUnavailable, 0) }

// Contention says that the transaction lost against another one (deadlock,
// serialization failure, lock time-out). Stores use it; it is nobody's fault.
func Contention(err error) error { return mark(err, OutcomeContention, 0) }

func mark(err error, o Outcome, after time.Duration) error {
	if err == nil {
		return nil
	}
	return &outcomeError{outcome: o, after: after, err: err}
}

// OutcomeOf says what err asks for. The outermost mark counts.
func OutcomeOf(err error) Outcome {
	var marked *outcomeError
	if errors.As(err, &marked) {
		return marked.outcome
	}
	return OutcomeRetry
}

// retryAfter returns the pause that RetryAfter asked for; 0 for none.
func retryAfter(err error) time.Duration {
	var marked *outcomeError
	if errors.As(err, &marked) {
		return marked.after
	}
	return 0
}

// PanicError is a handler's panic, with the stack where it happened.
type PanicError struct {
	Value any
	Stack []byte
}

// Error says what the handler panicked with; the stack is in Stack.
func (e *PanicError) Error() string { return fmt.Sprintf("handler panicked: %v", e.Value) }

// Unwrap returns the value when the handler panicked with an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Class names the error in a dead letter.
func (e *PanicError) Class() string { return "panic" }

// ErrorClass names the root cause of err for a dead letter: what its Class()
// method says where one in the chain has it, else the Go type of the innermost
// error, such as "*pgconn.PgError".
func ErrorClass(err error) string {
	var classed interface{ Class() string }
	if errors.As(err, &classed) {
		return classed.Class()
	}
	return fmt.Sprintf("%T", rootCause(err))
}

// rootCause follows the chain to its innermost error; of joined errors the first.
func rootCause(err error) error {
	for {
		switch e := err.(type) {
		case interface{ Unwrap() error }:
			next := e.Unwrap()
			if next == nil {
				return err
			}
			err = next
		case interface{ Unwrap() []error }:
			all := e.Unwrap()
			if len(all) == 0 {
				return err
			}
			err = all[0]
		default:
			return err
		}
	}
}
