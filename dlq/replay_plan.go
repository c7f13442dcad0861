package dlq

import (
	"context"
	"errors"

	"oncemore/internal/access"
)

// Plan freezes a set of letters and says what will be sent and what stays. The
// actor's reason becomes the replay's; ToSafe also starts it, so it needs one.
// A repeated RequestKey of the same user gives the replay it made. Errors:
// access.ErrForbidden, access.ErrReasonRequired, ErrBadSelection,
// *ErrBadOverride, *ErrTooManyLetters, *ErrBadFilter, ErrNotFound (an
// *ErrLettersNotFound names the letters).
func (r *Replays) Plan(ctx context.Context, actor access.Actor, req PlanRequest) (Plan, error) {
	return Plan{}, errors.ErrUnsupported
}

// DryRun says what Plan would, and keeps nothing.
func (r *Replays) DryRun(ctx context.Context, actor access.Actor, req PlanRequest) (Plan, error) {
	return Plan{}, errors.ErrUnsupported
}
