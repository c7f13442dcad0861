package dlq

import (
	"context"
	"errors"

	"oncemore/internal/access"
)

// Start lets a planned, and where needed approved, replay run. Its reason is the
// actor's, else the plan's. Started again by the same user it does nothing.
// Errors: access.ErrReasonRequired, ErrNothingToSend, ErrNotFound, *ErrConflict
// (not in a state to start, or another replay holds all its letters).
func (r *Replays) Start(ctx context.Context, actor access.Actor, id int64) error {
	return errors.ErrUnsupported
}

// Approve makes a replay that awaits approval startable: its state becomes
// planned. Errors: ErrOwnApproval, access.ErrReasonRequired, ErrNotFound, *ErrConflict.
func (r *Replays) Approve(ctx context.Context, actor access.Actor, id int64) error {
	return errors.ErrUnsupported
}

// Reject cancels a replay that awaits approval. Errors as of Approve.
func (r *Replays) Reject(ctx context.Context, actor access.Actor, id int64) error {
	return errors.ErrUnsupported
}

// Pause stops sending; what was sent is still watched. Errors: ErrNotFound, *ErrConflict.
func (r *Replays) Pause(ctx context.Context, actor access.Actor, id int64) error {
	return errors.ErrUnsupported
}

// Resume goes on with a paused replay. Errors: ErrNotFound, *ErrConflict.
func (r *Replays) Resume(ctx context.Context, actor access.Actor, id int64) error {
	return errors.ErrUnsupported
}

// Cancel gives up what was not sent; what was sent is still watched. Errors:
// ErrNotFound, *ErrConflict.
func (r *Replays) Cancel(ctx context.Context, actor access.Actor, id int64) error {
	return errors.ErrUnsupported
}
