package dlq

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Overview is what the first page says about dead letters.
type Overview struct {
	At              time.Time
	Open, Replaying int64
	OpenFaults      int64
	Hours           [24]HourCount // the present hour last
	NeedSomeone     []Fault       // at most 5, by growth, then open letters; not muted
	Growing         []Fault       // at most 5 faults with more arrivals in the last hour than in the one before
	Ages            []AgeRow      // sources with open letters
	Replays         []Replay      // of the last 24 h, newest first, at most 20
	Waiting         []Replay      // waiting for approval, oldest first, at most 20
	Gaps            int64         // recorded gaps
	Lost            int64         // records inside them
	LastGapAt       *time.Time
	OldestOpen      *uuid.UUID
	OldestOpenAt    *time.Time
	Stuck           int64 // open for more than 24 h
	StuckBounded    bool  // Stuck is "at least"
	Sources         int   // drained sources
	LastDrainAt     *time.Time
	Unattended      []UnattendedSource
	UnattendedErr   string // why it could not be computed; "" computed
}

// HourCount is one bar of the chart.
type HourCount struct {
	Hour     time.Time
	Arrived  int64
	Resolved int64
}

// AgeRow is one source of "open letters by age". A count above CountLimit is
// given as CountLimit+1.
type AgeRow struct {
	Cluster, Broker, Source string
	Hour                    int64 // open for less than an hour
	Day                     int64 // 1 to 24 h
	Older                   int64
}

// UnattendedSource is a topic that looks like a dead-letter topic, holds records
// and is not drained.
type UnattendedSource struct {
	Cluster, Topic string
	Records        int64
}

// Overviews reads the overview.
type Overviews struct {
	pool  *pgxpool.Pool
	topo  *Topology // nil: unattended sources are not looked for
	clock func() time.Time
}

// NewOverview reads the overview from the console's database and, for sources
// that nobody drains, from the brokers. topo may be nil.
func NewOverview(pool *pgxpool.Pool, topo *Topology, clock func() time.Time) *Overviews {
	return &Overviews{pool: pool, topo: topo, clock: clock}
}

// Overview reads all numbers. A part that could not be read fails the whole,
// except for what only the brokers know.
func (o *Overviews) Overview(ctx context.Context) (Overview, error) {
	return Overview{}, errors.ErrUnsupported
}
