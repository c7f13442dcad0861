package dlq

import (
	"time"

	"github.com/google/uuid"
)

// Subject is what a verdict is asked about: one letter.
type Subject struct {
	LetterID        uuid.UUID
	EventID         *string
	EventIDAlt      *string
	Group           string // "" when not known
	Cluster         string
	Source          string
	OriginTopic     string // "" when not known
	OriginPartition *int32
	OriginOffset    *int64
	EventTime       *time.Time
	Flags           Flag
	Holder          int64 // the replay that asks: its own claims are not "in flight"; 0 none
}

// Route is where a target resolves to for one letter.
type Route struct {
	Cluster string
	Topic   string
	Group   string // the one group it reaches; "" for an origin topic, which reaches all
}

// Judged is the verdict of one letter for one target.
type Judged struct {
	LetterID uuid.UUID
	Route    *Route         // nil: the target does not exist for this letter (see Groups' reasons)
	Groups   []GroupVerdict // every known group of the letter; Reached says which this target reaches
	Headline Verdict        // worst of the reached groups
}
