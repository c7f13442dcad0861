package dlq

import (
	"context"
	"errors"
)

// ReplayFilter narrows a list of replays. Zero values do not filter.
type ReplayFilter struct {
	State   ReplayState
	FaultID int32
	By      string // who planned it
}

// ReplayPage is a part of the list, newest first. Overrides, Targets, Verdicts
// and Outcomes are filled as in Get, but Overrides are left out.
type ReplayPage struct {
	Items []Replay
	Next  string // "" at the end
}

// List gives one page of replays, newest first. Errors: *ErrBadFilter.
func (r *Replays) List(ctx context.Context, f ReplayFilter, p Page) (ReplayPage, error) {
	return ReplayPage{}, errors.ErrUnsupported
}

// Get reads one replay with its numbers. Errors: ErrNotFound.
func (r *Replays) Get(ctx context.Context, id int64) (Replay, error) {
	return Replay{}, errors.ErrUnsupported
}

// Changed is a number that grows whenever anything of the replay changes, for
// whoever polls. Errors: ErrNotFound.
func (r *Replays) Changed(ctx context.Context, id int64) (int64, error) {
	return 0, errors.ErrUnsupported
}

// ItemFilter chooses the items of a replay by tab: "" or all, worth (failures,
// left out, changed verdicts), waiting, or the name of an outcome.
type ItemFilter struct{ Tab string }

// ItemPage is a part of a replay's items, in the order of sending.
type ItemPage struct {
	Items []ReplayItem
	Next  string // "" at the end
}

// Items gives one page of a replay's items. Errors: ErrNotFound, *ErrBadFilter.
func (r *Replays) Items(ctx context.Context, id int64, f ItemFilter, p Page) (ItemPage, error) {
	return ItemPage{}, errors.ErrUnsupported
}

// RefusedPage is a part of what a plan refused.
type RefusedPage struct {
	Items []Refusal
	Next  string // "" at the end
}

// Refused gives one page of what the plan refused, by letter and group. Errors:
// ErrNotFound, *ErrBadFilter.
func (r *Replays) Refused(ctx context.Context, id int64, p Page) (RefusedPage, error) {
	return RefusedPage{}, errors.ErrUnsupported
}
