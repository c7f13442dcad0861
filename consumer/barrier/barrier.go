// Package barrier keeps a participant of sagas right when its calls arrive
// twice, late, or in the wrong order: a cancel before its try, a try after its
// cancel, either of them again.
//
// Every call of a saga's step enters the barrier in the participant's own
// transaction, and has its effect only if the decision says so:
//
//	mark, err := barrier.FromHeader(r.Header)
//	…
//	decision, err := barrier.Enter(ctx, tx, mark)
//	if err != nil {
//		return err // roll back
//	}
//	if decision.Applies() {
//		// the effect, on tx
//	}
//	// commit
//
// An operation takes its own row and those of operations that may not come after
// it: cancel takes try and confirm, confirm takes cancel. Who finds a row taken by
// another operation has come too late. All rows are unique and taken in one order,
// so two calls at once meet in the database and one of them waits for the other.
package barrier

import (
	"errors"
	"fmt"
	"unicode"
	"unicode/utf8"
)

// Op is what a call does to a step.
type Op string

// The operations. A saga without confirmation knows try and cancel.
const (
	Try     Op = "try"     // do it, or reserve it
	Confirm Op = "confirm" // make a reservation final
	Cancel  Op = "cancel"  // undo it, or release the reservation
)

// takes are the rows of an operation, in the order in which they are inserted.
func (o Op) takes() []Op {
	switch o {
	case Cancel:
		return []Op{Cancel, Confirm, Try}
	case Confirm:
		return []Op{Cancel, Confirm}
	}
	return []Op{Try}
}

// Mark names one operation of one step of one saga.
type Mark struct {
	Saga string // at most 64 bytes, such as C-17
	Step string // at most 128 bytes, such as credit
	Op   Op
}

// Limits of a mark's names, in bytes.
const (
	MaxSaga = 64
	MaxStep = 128
)

// String is the mark as a log should show it.
func (m Mark) String() string { return fmt.Sprintf("%s of step %s in saga %s", m.Op, m.Step, m.Saga) }

// Errors of the barrier. The transaction has to be rolled back.
var (
	// ErrMark is returned for a mark without a name, or with one that the table cannot hold.
	ErrMark = errors.New("barrier: no such mark")
	// ErrNotTried is returned for a confirmation of what was not tried, or whose try is not committed yet.
	ErrNotTried = errors.New("barrier: the step was not tried")
	// ErrCancelled is returned for a confirmation after the cancel.
	ErrCancelled = errors.New("barrier: the step was cancelled")
	// ErrConfirmed is returned for a cancel after the confirmation.
	ErrConfirmed = errors.New("barrier: the step was confirmed")
)

// Check reports what is wrong with a mark. Error: ErrMark.
func (m Mark) Check() error {
	switch {
	case m.Op != Try && m.Op != Confirm && m.Op != Cancel:
		return fmt.Errorf("%w: op has to be try, confirm or cancel, not %q", ErrMark, m.Op)
	case !named(m.Saga, MaxSaga):
		return fmt.Errorf("%w: the saga has to be 1 to %d bytes of UTF-8 without control characters, not %q", ErrMark, MaxSaga, m.Saga)
	case !named(m.Step, MaxStep):
		return fmt.Errorf("%w: the step has to be 1 to %d bytes of UTF-8 without control characters, not %q", ErrMark, MaxStep, m.Step)
	}
	return nil
}

func named(s string, most int) bool {
	if s == "" || len(s) > most || !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if unicode.IsControl(r) {
			return false
		}
	}
	return true
}

// Decision is what the barrier says to an operation.
type Decision string

// The decisions. All but Applied have no effect, and are committed all the same.
const (
	Applied   Decision = "applied"   // nothing stands against it: have the effect now
	Duplicate Decision = "duplicate" // it was committed before
	Empty     Decision = "empty"     // a cancel of what was never tried: it only keeps the try out
	Suspended Decision = "suspended" // a try that comes after its cancel
)

// Applies reports whether the operation may have its effect.
func (d Decision) Applies() bool { return d == Applied }

// decide says what an operation means whose rows were taken or not. took lists
// the rows that are its own now, by is who has the row that it needs most.
func decide(op Op, took map[Op]bool, by Op) (Decision, error) {
	switch {
	case took[op] && op == Cancel && took[Try]:
		return Empty, nil
	case took[op]:
		return Applied, nil
	case by == op:
		return Duplicate, nil
	case op == Try:
		return Suspended, nil
	case op == Confirm:
		return "", ErrCancelled
	}
	return "", ErrConfirmed
}
