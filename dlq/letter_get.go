package dlq

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
)

// Occurrence is one arrival of a letter's failure after the first.
type Occurrence struct {
	At           time.Time // drained at, by our database's clock
	Cluster      string
	Source       string
	Partition    *int32
	Offset       *int64
	OwnBody      *uuid.UUID // its own bytes, where they differ from the letter's
	ErrorMessage *string
	ReplayID     *int64 // the replay that brought it, nil: came by itself
	ItemNo       *int32
}

// LetterReplay is a replay that a letter was part of.
type LetterReplay struct {
	ReplayID  int64
	State     ReplayState
	CreatedBy string
	CreatedAt time.Time
	ItemNo    int32
	ItemState string // waiting | sending | sent | left_out | not_sent | unconfirmed
	SentAt    *time.Time
	Topic     string
	Partition *int32
	Offset    *int64
	BytesFrom string // letter | origin | "" not sent yet
	Reason    string
	Outcomes  []ItemGroup
}

// LetterDetail is one letter with what its page shows, without its body.
type LetterDetail struct {
	Letter
	EventIDAlt   *string
	FaultMessage string // normalised message of its fault
	FaultOpen    int64  // open letters in its fault
	Owner        *string
	BodySize     int    // value, in bytes
	KeyPreview   []byte // first 128 bytes of the key; nil is null
	KeySize      int
	Occurrences  []Occurrence   // oldest first, at most 200; Letter.Occurrences counts all, the first arrival included
	Replays      []LetterReplay // newest first, at most 50
	Verdicts     []GroupVerdict // as last judged, for the narrowest target
}

// Get reads one letter. Errors: ErrNotFound.
func (l *Letters) Get(ctx context.Context, id uuid.UUID) (LetterDetail, error) {
	return LetterDetail{}, errors.ErrUnsupported
}
