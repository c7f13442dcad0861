package dlq

import (
	"context"
	"errors"
)

// List gives one page of faults with their counts, unfolded changes included.
// Errors: *ErrBadFilter.
func (f *Faults) List(ctx context.Context, filter FaultFilter, p Page) (FaultPage, error) {
	return FaultPage{}, errors.ErrUnsupported
}

// Get reads one fault. Errors: ErrNotFound.
func (f *Faults) Get(ctx context.Context, id int32) (Fault, error) {
	return Fault{}, errors.ErrUnsupported
}

// Counts says how many faults stand in each tab under the filter's other conditions.
func (f *Faults) Counts(ctx context.Context, filter FaultFilter) (map[FaultTab]int64, error) {
	return nil, errors.ErrUnsupported
}
