package dlq

import (
	"context"

	"github.com/google/uuid"
)

// IDs gives the letters that match, oldest first, at most so many, and whether
// there are more. Errors: *ErrBadFilter.
func (l *Letters) IDs(ctx context.Context, f LetterFilter, most int) (ids []uuid.UUID, more bool, err error) {
	err = l.eachMatch(ctx, f, uuid.Nil, uuid.Nil, min(most+1, 500), func(part []uuid.UUID) (bool, error) {
		ids = append(ids, part...)
		return len(ids) <= most, nil
	})
	if err != nil {
		return nil, false, err
	}
	if len(ids) > most {
		return ids[:most], true, nil
	}
	return ids, false, nil
}
