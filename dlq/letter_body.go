package dlq

import (
	"context"
	"errors"

	"github.com/google/uuid"
)

// Body reads what the letter carried when it first arrived. Errors: ErrNotFound.
func (l *Letters) Body(ctx context.Context, id uuid.UUID) (Body, error) {
	return Body{}, errors.ErrUnsupported
}

// OccurrenceBody reads the bytes of an occurrence that differ from its letter's.
// bodyID is Occurrence.OwnBody. Errors: ErrNotFound, also when the body is
// another letter's.
func (l *Letters) OccurrenceBody(ctx context.Context, letterID, bodyID uuid.UUID) (Body, error) {
	return Body{}, errors.ErrUnsupported
}
