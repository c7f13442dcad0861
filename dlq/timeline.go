package dlq

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
)

// TimelineEvent is one line of "what happened".
type TimelineEvent struct {
	Kind string         // produced | applied_elsewhere | failed | dead_lettered | drained | occurrence | reopened | replay_planned | replay_sent | outcome | resolved | discarded | not_replayed
	At   *time.Time     // nil: the time is not known, or it is the present ("not replayed yet")
	Key  string         // catalog key, timeline.<kind>, plus a suffix where it has variants
	Args map[string]any // strings and integers
	Text string         // English
}

// Timeline tells a letter from produce to outcome, oldest first. Errors: ErrNotFound.
func (l *Letters) Timeline(ctx context.Context, id uuid.UUID) ([]TimelineEvent, error) {
	return nil, errors.ErrUnsupported
}
