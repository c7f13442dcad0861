package dlq

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Letters reads dead letters.
type Letters struct {
	pool *pgxpool.Pool
}

// NewLetters reads letters from the console's database.
func NewLetters(pool *pgxpool.Pool) *Letters { return &Letters{pool: pool} }

// LetterPage is a part of a list, newest arrival first.
type LetterPage struct {
	Items []Letter
	Next  string // cursor of the older page; "" at the end
	Prev  string // cursor of the newer page; "" at the start
}

// List gives one page of the letters that match, newest arrival first. Errors:
// *ErrBadFilter.
func (l *Letters) List(ctx context.Context, f LetterFilter, p Page) (LetterPage, error) {
	return LetterPage{}, errors.ErrUnsupported
}

// CountLimit is where bounded counts stop: a higher count reads "10,000+".
const CountLimit = 10_000

// Count says how many letters match. It is exact where the filter holds only a
// state and what a fault determines; else it stops at CountLimit and bounded is
// true when there are more.
func (l *Letters) Count(ctx context.Context, f LetterFilter) (n int64, bounded bool, err error) {
	return 0, false, errors.ErrUnsupported
}

// Neighbours gives the letters before (newer) and after (older) id in the list
// that f makes; uuid.Nil where there is none.
func (l *Letters) Neighbours(ctx context.Context, id uuid.UUID, f LetterFilter) (newer, older uuid.UUID, err error) {
	return uuid.Nil, uuid.Nil, errors.ErrUnsupported
}
