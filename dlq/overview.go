package dlq

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Overview is what the first page says about dead letters.
type Overview struct {
	At              time.Time
	Open, Replaying int64 // letters
	OpenFaults      int64
	Hours           [24]HourCount // the present hour last
	NeedSomeone     []Fault       // at most 5 open ones that are not muted, by growth, then open letters
	Growing         []Fault       // those of them, at most 5, that get more letters than they ever did in the day before
	Ages            []AgeRow      // sources with open letters, most open first, at most 20
	Replays         []Replay      // of the last 24 h, newest first, at most 20; numbers, no items
	Waiting         []Replay      // waiting for approval, oldest first, at most 20
	Gaps            int64         // recorded gaps
	Lost            int64         // records inside them
	LastGapAt       *time.Time
	OldestOpen      *uuid.UUID
	OldestOpenAt    *time.Time
	Stuck           int64 // open for more than 24 h
	StuckBounded    bool  // Stuck is "at least"
	Sources         int   // drained topics
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
	Open                    int64 // all, exact
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
	v := Overview{At: o.clock()}
	err := snapshot(ctx, o.pool, func(tx pgx.Tx) error {
		for _, read := range []func(context.Context, pgx.Tx) error{v.readCounts, v.readFaults, v.readAges, v.readReplays} {
			if err := read(ctx, tx); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return Overview{}, fmt.Errorf("overview: %w", err)
	}
	if err := o.readUnattended(ctx, &v); err != nil {
		v.UnattendedErr = err.Error()
	}
	return v, nil
}

const sqlOverviewFaults = `SELECT
  coalesce(sum(x.open_n), 0)::bigint, coalesce(sum(x.replaying_n), 0)::bigint,
  count(*) FILTER (WHERE x.open_n > 0) FROM x`

const sqlOverviewHours = `
SELECT hour, sum(n)::bigint, sum(resolved)::bigint FROM (
  SELECT hour, n, resolved FROM fault_hour WHERE hour >= @since
  UNION ALL SELECT date_trunc('hour', seen_at, 'UTC'), n, 0 FROM fault_delta WHERE state = 1 AND n > 0 AND seen_at >= @since
  UNION ALL SELECT date_trunc('hour', coalesce(max(seen_at), now()), 'UTC'), 0, coalesce(sum(n), 0) FROM fault_delta WHERE state = 3
) u WHERE hour >= @since GROUP BY hour`

const sqlOverviewGaps = `SELECT count(*), coalesce(sum(to_offset - from_offset), 0)::bigint, max(found_at) FROM drain_gap`

const sqlOverviewOldest = `SELECT id FROM dead_letter WHERE state = 1 ORDER BY id LIMIT 1`

const sqlOverviewStuck = `SELECT count(*) FROM (SELECT 1 FROM dead_letter WHERE state = 1 AND id < @day LIMIT @bound) x`

const sqlOverviewDrain = `SELECT count(DISTINCT (cluster, topic)), max(drained_at) FROM drain_position`

func (v *Overview) readCounts(ctx context.Context, tx pgx.Tx) error {
	present := v.At.UTC().Truncate(time.Hour)
	for i := range v.Hours {
		v.Hours[i].Hour = present.Add(time.Duration(i-23) * time.Hour)
	}
	b := &pgx.Batch{}
	b.Queue(fmt.Sprintf(sqlFaultCounted, "true") + sqlOverviewFaults).QueryRow(func(row pgx.Row) error {
		return row.Scan(&v.Open, &v.Replaying, &v.OpenFaults)
	})
	b.Queue(sqlOverviewHours, pgx.NamedArgs{"since": v.Hours[0].Hour}).Query(v.scanHours)
	b.Queue(sqlOverviewGaps).QueryRow(func(row pgx.Row) error { return row.Scan(&v.Gaps, &v.Lost, &v.LastGapAt) })
	b.Queue(sqlOverviewOldest).Query(v.scanOldest)
	b.Queue(sqlOverviewStuck, pgx.NamedArgs{"day": idAt(v.At.Add(-24 * time.Hour).UnixMilli()), "bound": CountLimit + 1}).
		QueryRow(func(row pgx.Row) error { return row.Scan(&v.Stuck) })
	b.Queue(sqlOverviewDrain).QueryRow(func(row pgx.Row) error { return row.Scan(&v.Sources, &v.LastDrainAt) })
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("count letters: %w", err)
	}
	v.StuckBounded = v.Stuck > CountLimit
	v.Stuck = min(v.Stuck, CountLimit)
	return nil
}

func (v *Overview) scanHours(rows pgx.Rows) error {
	var hour time.Time
	var n, resolved int64
	_, err := pgx.ForEachRow(rows, []any{&hour, &n, &resolved}, func() error {
		if i := hourIndex(v.Hours[23].Hour, hour); i >= 0 {
			v.Hours[i].Arrived += n
			v.Hours[i].Resolved += max(resolved, 0)
		}
		return nil
	})
	return err
}

func (v *Overview) scanOldest(rows pgx.Rows) error {
	ids, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if len(ids) == 1 {
		v.OldestOpen, v.OldestOpenAt = &ids[0], ptr(arrived(ids[0]))
	}
	return err
}

const sqlOverviewGrowth = `
LEFT JOIN (
  SELECT fault_id, sum(n) AS n FROM (
    SELECT fault_id, n FROM fault_hour WHERE hour >= @recent
    UNION ALL SELECT fault_id, n FROM fault_delta WHERE state = 1 AND n > 0 AND seen_at >= @recent) u
  GROUP BY fault_id) grown ON grown.fault_id = x.id
WHERE x.open_n > 0 AND NOT coalesce(x.mute_until > @now, false)
ORDER BY coalesce(grown.n, 0) DESC, x.open_n DESC, x.id DESC LIMIT 20`

func (v *Overview) readFaults(ctx context.Context, tx pgx.Tx) error {
	sql := fmt.Sprintf(sqlFaultCounted, "true") + sqlFaultColumns + sqlOverviewGrowth
	args := pgx.NamedArgs{"now": v.At, "recent": v.Hours[22].Hour}
	faults, err := readFaults(ctx, tx, sql, args, v.At)
	if err != nil {
		return err
	}
	v.NeedSomeone = faults[:min(len(faults), 5)]
	for _, f := range faults {
		if f.grows() && len(v.Growing) < 5 {
			v.Growing = append(v.Growing, f)
		}
	}
	return nil
}

const sqlOverviewAges = `
, per_source AS (SELECT x.source_id, sum(x.open_n)::bigint AS open_n FROM x GROUP BY 1 HAVING sum(x.open_n) > 0 ORDER BY 2 DESC LIMIT 40)
SELECT s.cluster, s.broker, s.name, p.open_n,
  (SELECT count(*) FROM (SELECT 1 FROM dead_letter d WHERE d.source_id = p.source_id AND d.state = 1 AND d.id >= @hour LIMIT @bound) a),
  (SELECT count(*) FROM (SELECT 1 FROM dead_letter d WHERE d.source_id = p.source_id AND d.state = 1 AND d.id >= @day AND d.id < @hour LIMIT @bound) a),
  (SELECT count(*) FROM (SELECT 1 FROM dead_letter d WHERE d.source_id = p.source_id AND d.state = 1 AND d.id < @day LIMIT @bound) a)
FROM per_source p JOIN letter_source s ON s.id = p.source_id`

func (v *Overview) readAges(ctx context.Context, tx pgx.Tx) error {
	rows, err := tx.Query(ctx, fmt.Sprintf(sqlFaultCounted, "true")+sqlOverviewAges, pgx.NamedArgs{
		"hour": idAt(v.At.Add(-time.Hour).UnixMilli()), "day": idAt(v.At.Add(-24 * time.Hour).UnixMilli()), "bound": CountLimit + 1})
	if err != nil {
		return fmt.Errorf("query ages: %w", err)
	}
	byName := map[[2]string]AgeRow{} // a topic that was created anew is one source
	var a AgeRow
	var broker int16
	_, err = pgx.ForEachRow(rows, []any{&a.Cluster, &broker, &a.Source, &a.Open, &a.Hour, &a.Day, &a.Older}, func() error {
		key := [2]string{a.Cluster, a.Source}
		sum := byName[key]
		sum.Cluster, sum.Broker, sum.Source = a.Cluster, brokerName(broker), a.Source
		sum.Open += a.Open
		sum.Hour = min(sum.Hour+a.Hour, CountLimit+1)
		sum.Day = min(sum.Day+a.Day, CountLimit+1)
		sum.Older = min(sum.Older+a.Older, CountLimit+1)
		byName[key] = sum
		return nil
	})
	if err != nil {
		return fmt.Errorf("read ages: %w", err)
	}
	v.Ages = slices.SortedFunc(maps.Values(byName), func(a, b AgeRow) int {
		if a.Open != b.Open {
			return int(min(max(b.Open-a.Open, -1), 1))
		}
		return strings.Compare(a.Cluster+"/"+a.Source, b.Cluster+"/"+b.Source)
	})
	v.Ages = v.Ages[:min(len(v.Ages), 20)]
	return nil
}

const sqlOverviewReplays = `
SELECT id, state, target, total, sent, fault_id, reason, created_by, created_at, approval_needed, started_at, finished_at
FROM replay`

const sqlOverviewOutcomes = `
SELECT replay_id, outcome, count(*) FROM replay_outcome WHERE replay_id = ANY(@ids) GROUP BY 1, 2`

func (v *Overview) readReplays(ctx context.Context, tx pgx.Tx) error {
	b := &pgx.Batch{}
	queueRows(b, sqlOverviewReplays+` WHERE created_at >= @since ORDER BY id DESC LIMIT 20`,
		pgx.NamedArgs{"since": v.At.Add(-24 * time.Hour)}, scanOverviewReplay, &v.Replays)
	queueRows(b, sqlOverviewReplays+` WHERE state = @waiting ORDER BY id LIMIT 20`,
		pgx.NamedArgs{"waiting": int16(AwaitingApproval)}, scanOverviewReplay, &v.Waiting)
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("read replays: %w", err)
	}
	at := map[int64]*Replay{}
	for i := range v.Replays {
		at[v.Replays[i].ID] = &v.Replays[i]
	}
	rows, err := tx.Query(ctx, sqlOverviewOutcomes, pgx.NamedArgs{"ids": slices.Collect(maps.Keys(at))})
	if err != nil {
		return fmt.Errorf("query outcomes: %w", err)
	}
	var id int64
	var outcome Outcome
	var n int
	if _, err := pgx.ForEachRow(rows, []any{&id, &outcome, &n}, func() error { at[id].Outcomes[outcome] = n; return nil }); err != nil {
		return fmt.Errorf("read outcomes: %w", err)
	}
	return nil
}

func scanOverviewReplay(row pgx.CollectableRow) (Replay, error) {
	r := Replay{Outcomes: map[Outcome]int{}}
	err := row.Scan(&r.ID, &r.State, &r.Target, &r.Total, &r.Sent, &r.FaultID, &r.Reason, &r.CreatedBy, &r.CreatedAt,
		&r.ApprovalNeeded, &r.StartedAt, &r.FinishedAt)
	return r, err
}

// deadLetterName matches the names that frameworks give to dead-letter topics.
var deadLetterName = regexp.MustCompile(`(?i)([.\-_](dlt|dlq|dead-?letters?|error|parking-?lot)|^error|^dead-?letters?)$`)

const sqlDrainedTopics = `
SELECT DISTINCT topic FROM drain_position WHERE cluster = @cluster
UNION SELECT name FROM letter_source WHERE cluster = @cluster AND broker = 2`

// readUnattended looks for topics with a dead-letter topic's name that hold
// records and have no drain position.
func (o *Overviews) readUnattended(ctx context.Context, v *Overview) error {
	if o.topo == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	for _, cluster := range slices.Sorted(maps.Keys(o.topo.clusters)) {
		found, err := o.unattended(ctx, cluster)
		if err != nil {
			return err
		}
		v.Unattended = append(v.Unattended, found...)
	}
	return nil
}

func (o *Overviews) unattended(ctx context.Context, cluster string) ([]UnattendedSource, error) {
	view, err := o.topo.view(ctx, cluster)
	if err != nil {
		return nil, fmt.Errorf("cluster %s did not answer in time", cluster)
	}
	if view.Err != nil {
		return nil, fmt.Errorf("cluster %s did not answer", cluster)
	}
	rows, err := o.pool.Query(ctx, sqlDrainedTopics, pgx.NamedArgs{"cluster": cluster})
	if err != nil {
		return nil, fmt.Errorf("query drained topics: %w", err)
	}
	drained, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("read drained topics: %w", err)
	}
	return o.topo.clusters[cluster].broker.unattended(ctx, view, drained)
}
