package dlq

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
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
	Group   string // the one group it is meant for; "" for an origin topic, which reaches all
}

// Judged is the verdict of one letter for one target.
type Judged struct {
	LetterID uuid.UUID
	Route    *Route         // nil: the target does not exist for this letter; NoRoute says why
	NoRoute  Reason         // such as reason.no_group_target
	Groups   []GroupVerdict // every known group of the letter, its own first; Reached says which this target reaches
	Headline Verdict        // worst of the reached groups; Unknown without a route
}

// Own is the verdict of the letter's own group: the first. With no group known
// it is that of whoever reads the origin.
func (j Judged) Own() GroupVerdict { return j.Groups[0] }

// Judge says what a replay of a letter would do.
type Judge struct {
	pool   *pgxpool.Pool
	topo   *Topology
	groups GroupBook
	clock  func() time.Time
}

// NewJudge judges with the given clusters (by name) and what is known of groups.
func NewJudge(pool *pgxpool.Pool, clusters map[string]*Cluster, groups GroupBook, clock func() time.Time) *Judge {
	return &Judge{pool: pool, topo: NewTopology(clusters, clock), groups: groups, clock: clock}
}

// Topology is the judge's view of the brokers, to be shared.
func (j *Judge) Topology() *Topology { return j.topo }

// Judge judges subjects for a target, in their order. A broker or an evidence
// database that does not answer is a verdict (Unknown), not an error; an error
// means that the console's own database failed.
func (j *Judge) Judge(ctx context.Context, subjects []Subject, target Target) ([]Judged, error) {
	return nil, errors.ErrUnsupported
}

// JudgeLetters loads the letters and judges them. Letters that do not exist are
// missing in the result.
func (j *Judge) JudgeLetters(ctx context.Context, ids []uuid.UUID, target Target) ([]Judged, error) {
	return nil, errors.ErrUnsupported
}

// Subjects loads what a verdict needs to know about letters, in the order of
// ids; letters that do not exist are left out.
func (j *Judge) Subjects(ctx context.Context, ids []uuid.UUID) ([]Subject, error) {
	return nil, errors.ErrUnsupported
}

// Save keeps verdicts as the letters' cached ones.
func (j *Judge) Save(ctx context.Context, judged []Judged) error { return errors.ErrUnsupported }

// LookAgain judges letters anew for a target and saves: "Look again".
func (j *Judge) LookAgain(ctx context.Context, ids []uuid.UUID, target Target) ([]Judged, error) {
	return nil, errors.ErrUnsupported
}

// RunJudge judges new letters within about two seconds and open ones anew when
// their verdict is older than olderThan. One process of several does the work.
func (j *Judge) RunJudge(ctx context.Context, log *slog.Logger, olderThan time.Duration) {}
