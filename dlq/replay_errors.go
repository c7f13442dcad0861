package dlq

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
)

// ErrOwnApproval is returned to somebody who approves or rejects what they planned.
var ErrOwnApproval = errors.New("dlq: nobody decides about their own replay")

// ErrApprovalVoid is returned to Start when the approval is too old or was given
// to something else, and to an approver whose plan has changed. The replay awaits
// approval.
var ErrApprovalVoid = errors.New("dlq: what was approved has changed, or the approval has expired")

// ErrNothingToSend is returned by Start for a replay without a single item.
var ErrNothingToSend = errors.New("dlq: the replay has nothing to send")

// ErrKeyReused is returned to a request whose key another request of the same
// user already carried.
var ErrKeyReused = errors.New("dlq: the idempotency key belongs to another request")

// ErrBadSelection is returned when a plan names its letters in no way or in
// more than one way.
var ErrBadSelection = errors.New("dlq: name letters by id, by filter or by fault")

// ErrTooManyLetters is returned when a selection is larger than one plan holds.
type ErrTooManyLetters struct{ Limit int }

func (e *ErrTooManyLetters) Error() string {
	return fmt.Sprintf("dlq: the selection holds more than %d letters: narrow it", e.Limit)
}

// ErrLettersNotFound names the letters of a selection that do not exist. It is
// an ErrNotFound.
type ErrLettersNotFound struct{ IDs []uuid.UUID }

func (e *ErrLettersNotFound) Error() string {
	names := make([]string, len(e.IDs))
	for i, id := range e.IDs {
		names[i] = id.String()
	}
	return "dlq: no such letters: " + strings.Join(names, ", ")
}

// Is makes it an ErrNotFound.
func (e *ErrLettersNotFound) Is(target error) bool { return target == ErrNotFound }

// ErrBadOverride says why an override cannot be taken.
type ErrBadOverride struct {
	Override Override
	Why      string // English
}

func (e *ErrBadOverride) Error() string {
	return fmt.Sprintf("dlq: override of letter %s in %s: %s", e.Override.LetterID, e.Override.Group, e.Why)
}

// ErrConflict says that somebody was faster, or that the replay is not in a
// state that allows the command.
type ErrConflict struct {
	Replay int64       // the replay that stands in the way
	State  ReplayState // its state
	By     string      // who brought it there; "" not known
	At     time.Time   // when; zero not known
	Letter *uuid.UUID  // the letter that both want, where that is the conflict
}

func (e *ErrConflict) Error() string {
	s := fmt.Sprintf("dlq: replay R-%d is %s", e.Replay, e.State)
	if e.Letter != nil {
		s = fmt.Sprintf("dlq: replay R-%d holds letter %s", e.Replay, e.Letter)
	}
	if e.By != "" {
		s += " by " + e.By
	}
	if !e.At.IsZero() {
		s += " since " + e.At.UTC().Format(time.RFC3339)
	}
	return s
}
