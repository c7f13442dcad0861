package dlq

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// growthLeast is how many letters in this and the last hour are growth at all: a
// fresh fault of one letter is new, not growing.
const growthLeast = 5

// grows reports whether a fault gets more letters than it got before: in this and
// the last hour more than in any two hours in a row of the day before them.
func (f Fault) grows() bool {
	var past int64
	for i := range len(f.Hours) - 3 {
		past = max(past, f.Hours[i]+f.Hours[i+1])
	}
	return f.LastHour >= growthLeast && f.LastHour > past
}

// Concerns reads what somebody should be told of.
type Concerns struct {
	pool  *pgxpool.Pool
	over  *Overviews
	clock func() time.Time

	queues map[string][]sourcePattern // of RabbitMQ: what is drained, by cluster
}

// NewConcerns reads from the console's database and, through the overview's view
// of them, from the brokers.
func NewConcerns(pool *pgxpool.Pool, over *Overviews, clock func() time.Time) *Concerns {
	return &Concerns{pool: pool, over: over, clock: clock, queues: map[string][]sourcePattern{}}
}

// concernLimit bounds every list of concerns.
const concernLimit = 500

// sqlConcernFaults are open faults that nobody has muted; %s is one more
// condition.
const sqlConcernFaults = sqlFaultColumns + `
WHERE x.open_n > 0 AND NOT coalesce(x.mute_until > @now, false) AND %s
ORDER BY x.id DESC LIMIT @limit`

func (c *Concerns) faults(ctx context.Context, candidates, condition string, args pgx.NamedArgs) (faults []Fault, err error) {
	args["now"], args["limit"] = c.clock(), concernLimit
	err = snapshot(ctx, c.pool, func(tx pgx.Tx) error {
		faults, err = readFaults(ctx, tx, fmt.Sprintf(sqlFaultCounted, candidates)+fmt.Sprintf(sqlConcernFaults, condition), args, c.clock())
		return err
	})
	return faults, err
}

// NewFaults lists open faults first seen since then that are neither muted nor
// anybody's, newest first; at most 500.
func (c *Concerns) NewFaults(ctx context.Context, since time.Time) ([]Fault, error) {
	faults, err := c.faults(ctx, "f.last_seen >= @since", "x.first_seen >= @since AND x.owner_id IS NULL", pgx.NamedArgs{"since": since})
	if err != nil {
		return nil, fmt.Errorf("new faults: %w", err)
	}
	return faults, nil
}

// Growing lists open faults that are not muted and grow, newest first.
func (c *Concerns) Growing(ctx context.Context) ([]Fault, error) {
	since := c.clock().UTC().Truncate(time.Hour).Add(-time.Hour)
	faults, err := c.faults(ctx, "f.last_seen >= @since OR f.id IN (SELECT fault_id FROM fault_delta)", "true", pgx.NamedArgs{"since": since})
	if err != nil {
		return nil, fmt.Errorf("growing faults: %w", err)
	}
	return slices.DeleteFunc(faults, func(f Fault) bool { return !f.grows() }), nil
}

// OldestLetter is a source's oldest open letter of a fault that is not muted.
type OldestLetter struct {
	Cluster, Source string
	Letter          uuid.UUID
	At              time.Time // of arrival
}

// sqlOldestOpen looks at each open fault's first letter: a few hundred index
// look-ups instead of a walk over muted letters.
const sqlOldestOpen = `
SELECT s.cluster, s.name, min(o.id::text)::uuid
FROM fault f
JOIN letter_source s ON s.id = f.source_id
CROSS JOIN LATERAL (SELECT d.id FROM dead_letter d WHERE d.fault_id = f.id AND d.state = 1 ORDER BY d.id LIMIT 1) o
WHERE f.open_n > 0 AND NOT coalesce(f.mute_until > @now, false) AND o.id < @before
GROUP BY 1, 2 ORDER BY 3 LIMIT @limit`

// OlderThan lists, per source, the oldest open letter where it arrived before
// then; oldest first.
func (c *Concerns) OlderThan(ctx context.Context, before time.Time) ([]OldestLetter, error) {
	rows, _ := c.pool.Query(ctx, sqlOldestOpen, pgx.NamedArgs{"now": c.clock(), "before": idAt(before.UnixMilli()), "limit": concernLimit}) // its error comes with the rows
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (OldestLetter, error) {
		var o OldestLetter
		err := row.Scan(&o.Cluster, &o.Source, &o.Letter)
		o.At = arrived(o.Letter)
		return o, err
	})
	if err != nil {
		return nil, fmt.Errorf("oldest open letters: %w", err)
	}
	return all, nil
}

// SwallowedItems are a replay's items that a group acknowledged without effect.
type SwallowedItems struct {
	Replay int64
	Group  string
	Items  int64
	At     time.Time // of the latest
}

const sqlSwallowed = `
SELECT o.replay_id, coalesce(g.name, ''), count(*), max(o.at)
FROM replay_outcome o LEFT JOIN letter_name g ON g.id = o.group_id AND o.group_id <> 0
WHERE o.outcome IN (6, 7, 8, 10) AND o.outcome = @swallowed AND o.at >= @since
GROUP BY 1, 2 ORDER BY 1 DESC LIMIT @limit`

// Swallowed lists what was acknowledged without effect since then.
func (c *Concerns) Swallowed(ctx context.Context, since time.Time) ([]SwallowedItems, error) {
	rows, _ := c.pool.Query(ctx, sqlSwallowed, pgx.NamedArgs{"swallowed": int16(Swallowed), "since": since, "limit": concernLimit}) // its error comes with the rows
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[SwallowedItems])
	if err != nil {
		return nil, fmt.Errorf("swallowed items: %w", err)
	}
	return all, nil
}

// Gaps lists the gaps that were found since then.
func (c *Concerns) Gaps(ctx context.Context, since time.Time) ([]Gap, error) {
	return Gaps(ctx, c.pool, since)
}

// Unattended lists dead-letter topics and queues that hold messages and that
// nobody drains. Errors: the cluster that did not answer; what others said is
// returned all the same.
func (c *Concerns) Unattended(ctx context.Context) (all []UnattendedSource, failed error) {
	if c.over.topo == nil {
		return nil, nil
	}
	for _, cluster := range slices.Sorted(maps.Keys(c.over.topo.clusters)) {
		found, err := c.over.unattended(ctx, cluster)
		all, failed = append(all, found...), errors.Join(failed, err)
	}
	return all, failed
}

// DrainState is how far a drained topic or queue is stored.
type DrainState struct {
	Cluster, Source string
	Waiting         int64  // records beyond the stored position; messages of a queue that are not stored
	Retained        int64  // records that the broker still has before it; messages of a queue that are copied
	Stored          *int64 // letters and occurrences of those; nil: not counted, WhyNot says why
	WhyNot          string
}

// Missing is how many records the broker has that were not stored; 0 where they
// were not counted. Holes that transactions and compaction leave in a log count
// as records.
func (d DrainState) Missing() int64 {
	if d.Stored == nil {
		return 0
	}
	return max(d.Retained-*d.Stored, 0)
}

// Counting is bounded: above this, or after that time, the answer is "not counted".
const (
	countRetained = 200_000
	countTime     = 3 * time.Second
)

// drainedTo is a partition's stored position.
type drainedTo struct {
	Topic     string
	TopicID   uuid.UUID
	Partition int32
	Next      int64
}

const sqlDrainedTo = `
SELECT DISTINCT ON (topic, partition) topic, topic_id, partition, next_offset
FROM drain_position WHERE cluster = @cluster ORDER BY topic, partition, drained_at DESC`

// Drains compares what the clusters hold with what was stored. count also
// counts the letters. Errors: the cluster that did not answer; what others said
// is returned all the same.
func (c *Concerns) Drains(ctx context.Context, count bool) (all []DrainState, failed error) {
	if c.over.topo == nil {
		return nil, nil
	}
	for _, name := range slices.Sorted(maps.Keys(c.over.topo.clusters)) {
		look, on := c.drainsOf, c.over.topo.clusters[name]
		if on.rabbit != nil {
			look = c.queueDrains
		}
		states, err := look(ctx, on, count)
		all, failed = append(all, states...), errors.Join(failed, err)
	}
	return all, failed
}

// retained is what the broker still has of a partition.
type retained struct {
	drainedTo
	start, end int64
}

func (c *Concerns) drainsOf(ctx context.Context, on *Cluster, count bool) ([]DrainState, error) {
	partitions, err := c.retained(ctx, on)
	if err != nil {
		return nil, fmt.Errorf("cluster %s did not answer: %w", on.Name, err)
	}
	states := map[string]*DrainState{}
	of := map[string][]retained{}
	for _, p := range partitions {
		d := states[p.Topic]
		if d == nil {
			d = &DrainState{Cluster: on.Name, Source: p.Topic}
			states[p.Topic] = d
		}
		d.Waiting += max(p.end-max(p.Next, p.start), 0)
		d.Retained += max(min(p.Next, p.end)-p.start, 0)
		of[p.Topic] = append(of[p.Topic], p)
	}
	var all []DrainState
	for _, topic := range slices.Sorted(maps.Keys(states)) {
		d := states[topic]
		if count {
			c.countStored(ctx, d, of[topic])
		}
		all = append(all, *d)
	}
	return all, nil
}

func (c *Concerns) retained(ctx context.Context, on *Cluster) ([]retained, error) {
	rows, _ := c.pool.Query(ctx, sqlDrainedTo, pgx.NamedArgs{"cluster": on.Name}) // its error comes with the rows
	positions, err := pgx.CollectRows(rows, pgx.RowToStructByPos[drainedTo])
	if err != nil || len(positions) == 0 {
		return nil, err
	}
	var topics []string
	for _, p := range positions {
		if !slices.Contains(topics, p.Topic) {
			topics = append(topics, p.Topic)
		}
	}
	starts, err := on.Admin.ListStartOffsets(ctx, topics...)
	if err != nil {
		return nil, err
	}
	ends, err := on.Admin.ListEndOffsets(ctx, topics...)
	if err != nil {
		return nil, err
	}
	var all []retained
	for _, p := range positions {
		start, ok1 := starts.Lookup(p.Topic, p.Partition)
		end, ok2 := ends.Lookup(p.Topic, p.Partition)
		if ok1 && ok2 && start.Err == nil && end.Err == nil { // else the topic is gone, or has no leader now
			all = append(all, retained{p, start.Offset, end.Offset})
		}
	}
	return all, nil
}

const sqlCountStored = `
WITH p AS (SELECT * FROM unnest(@partitions::int[], @from::bigint[], @to::bigint[]) u(partition, lo, hi)),
s AS (SELECT id FROM letter_source WHERE cluster = @cluster AND name = @topic AND topic_id = @topic_id)
SELECT count(DISTINCT (x.partition, x.off)) FROM (
  SELECT d.drain_partition AS partition, d.drain_offset AS off FROM s
  JOIN dead_letter d ON d.source_id = s.id JOIN p ON p.partition = d.drain_partition AND d.drain_offset >= p.lo AND d.drain_offset < p.hi
  UNION ALL
  SELECT o.partition, o."offset" FROM s CROSS JOIN p
  JOIN letter_occurrence o ON o.source_id = s.id AND o.partition = p.partition AND o."offset" >= p.lo AND o."offset" < p.hi) x`

func (c *Concerns) countStored(ctx context.Context, d *DrainState, of []retained) {
	if d.Retained > countRetained {
		d.WhyNot = fmt.Sprintf("more than %d records are retained", countRetained)
		return
	}
	var partitions []int32
	var from, to []int64
	for _, p := range of {
		partitions, from, to = append(partitions, p.Partition), append(from, p.start), append(to, min(p.Next, p.end))
	}
	counting, cancel := context.WithTimeout(ctx, countTime)
	defer cancel()
	var n int64
	err := c.pool.QueryRow(counting, sqlCountStored, pgx.NamedArgs{"cluster": d.Cluster, "topic": d.Source, "topic_id": of[0].TopicID,
		"partitions": partitions, "from": from, "to": to}).Scan(&n)
	if err != nil {
		d.WhyNot = "counting took longer than " + countTime.String()
		if counting.Err() == nil {
			d.WhyNot = "the letters could not be counted"
		}
		return
	}
	d.Stored = &n
}
