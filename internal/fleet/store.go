package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// ErrUnknownGroup is returned for a group that no config names and no replica reports.
var ErrUnknownGroup = errors.New("fleet: unknown group")

// staleAfter is how long a replica may be silent: five reports.
const staleAfter = 10 * time.Second

// counters of one group.
type counters struct {
	consumed, duplicates, retried, deadLettered                int64
	filtered, discarded                                        int64
	transactions, fallbacks, contention, staleAcks, reconnects int64
}

// targets are where a row's counters are scanned to, in the order of sqlReported.
func (c *counters) targets() []any {
	return []any{&c.consumed, &c.duplicates, &c.retried, &c.deadLettered, &c.filtered, &c.discarded,
		&c.transactions, &c.fallbacks, &c.contention, &c.staleAcks, &c.reconnects}
}

// report is what the tables know of one group.
type report struct {
	group, cluster, strategy string
	topics                   []string
	counters                 counters
	lastError                string // of replicas that are gone
	lastErrorAt              *time.Time
	replicas                 []Replica
	command                  *Command
}

// The latest report names cluster, topics and strategy. Totals hold the counters
// of rows that were removed.
const sqlReported = `
SELECT g.consumer_group, coalesce(s.cluster, ''), coalesce(s.strategy, ''), coalesce(s.topics, '{}'),
       coalesce(sum.consumed, 0) + coalesce(t.consumed, 0),
       coalesce(sum.duplicates, 0) + coalesce(t.duplicates, 0),
       coalesce(sum.retried, 0) + coalesce(t.retried, 0),
       coalesce(sum.dead_lettered, 0) + coalesce(t.dead_lettered, 0),
       coalesce(sum.filtered, 0) + coalesce(t.filtered, 0),
       coalesce(sum.discarded, 0) + coalesce(t.discarded, 0),
       coalesce(sum.transactions, 0) + coalesce(t.transactions, 0),
       coalesce(sum.fallbacks, 0) + coalesce(t.fallbacks, 0),
       coalesce(sum.contention, 0) + coalesce(t.contention, 0),
       coalesce(sum.stale_acks, 0) + coalesce(t.stale_acks, 0),
       coalesce(sum.reconnects, 0) + coalesce(t.reconnects, 0),
       coalesce(t.last_error, ''), t.last_error_at,
       c.paused, coalesce(c.actor, ''), coalesce(c.reason, ''), c.at
FROM (SELECT consumer_group FROM consumer_status UNION SELECT consumer_group FROM consumer_total
      UNION SELECT consumer_group FROM consumer_command) g
LEFT JOIN LATERAL (
  SELECT cluster, strategy, topics FROM consumer_status
  WHERE consumer_group = g.consumer_group ORDER BY reported_at DESC LIMIT 1) s ON true
LEFT JOIN LATERAL (
  SELECT sum(consumed)::bigint AS consumed, sum(duplicates)::bigint AS duplicates,
         sum(retried)::bigint AS retried, sum(dead_lettered)::bigint AS dead_lettered,
         sum(filtered)::bigint AS filtered, sum(discarded)::bigint AS discarded, sum(transactions)::bigint AS transactions,
         sum(fallbacks)::bigint AS fallbacks, sum(contention)::bigint AS contention,
         sum(stale_acks)::bigint AS stale_acks, sum(reconnects)::bigint AS reconnects
  FROM consumer_status WHERE consumer_group = g.consumer_group) sum ON true
LEFT JOIN consumer_total t USING (consumer_group)
LEFT JOIN consumer_command c USING (consumer_group)
ORDER BY g.consumer_group`

const sqlReplicas = `
SELECT consumer_group, replica, host, state, partitions, started_at, reported_at,
       reported_at < now() - @stale_after::interval AS stale, last_error, last_error_at
FROM consumer_status
ORDER BY consumer_group, host, started_at, replica`

// reported reads what all replicas have written. Both statements see one snapshot.
func (f *Fleet) reported(ctx context.Context) ([]report, error) {
	var out []report
	err := pgx.BeginTxFunc(ctx, f.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		rows, _ := tx.Query(ctx, sqlReported) // its error comes with the rows
		reports, err := pgx.CollectRows(rows, scanReport)
		if err != nil {
			return fmt.Errorf("read consumer status: %w", err)
		}
		replicas, err := readReplicas(ctx, tx)
		if err != nil {
			return err
		}
		for i := range reports {
			reports[i].replicas = replicas[reports[i].group]
		}
		out = reports
		return nil
	})
	return out, err
}

func scanReport(row pgx.CollectableRow) (report, error) {
	var r report
	var paused *bool
	var at *time.Time
	command := Command{}
	err := row.Scan(slices.Concat([]any{&r.group, &r.cluster, &r.strategy, &r.topics}, r.counters.targets(),
		[]any{&r.lastError, &r.lastErrorAt, &paused, &command.Actor, &command.Reason, &at})...)
	if paused != nil && at != nil {
		command.Paused, command.At = *paused, *at
		r.command = &command
	}
	return r, err
}

func readReplicas(ctx context.Context, tx pgx.Tx) (map[string][]Replica, error) {
	rows, _ := tx.Query(ctx, sqlReplicas, pgx.NamedArgs{"stale_after": staleAfter}) // its error comes with the rows
	var group string
	var r Replica
	replicas := map[string][]Replica{}
	_, err := pgx.ForEachRow(rows, []any{
		&group, &r.ID, &r.Host, &r.State, &r.Partitions, &r.StartedAt, &r.ReportedAt, &r.Stale, &r.LastError, &r.LastErrorAt,
	}, func() error {
		replicas[group] = append(replicas[group], r)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read replicas of consumers: %w", err)
	}
	return replicas, nil
}

const sqlReport = `
INSERT INTO consumer_status (replica, host, consumer_group, cluster, topics, strategy, state,
  consumed, duplicates, retried, dead_lettered, filtered, discarded, transactions, fallbacks, contention, stale_acks, reconnects,
  partitions, last_error, last_error_at, started_at, reported_at)
VALUES (@replica, @host, @group, @cluster, @topics, @strategy, @state,
  @consumed, @duplicates, @retried, @dead_lettered, @filtered, @discarded, @transactions, @fallbacks, @contention, @stale_acks, @reconnects,
  @partitions, @last_error, @last_error_at, @started_at, now())
ON CONFLICT (replica, consumer_group) DO UPDATE SET
  topics = excluded.topics, state = excluded.state, consumed = excluded.consumed, duplicates = excluded.duplicates,
  retried = excluded.retried, dead_lettered = excluded.dead_lettered, filtered = excluded.filtered, discarded = excluded.discarded,
  transactions = excluded.transactions, fallbacks = excluded.fallbacks, contention = excluded.contention,
  stale_acks = excluded.stale_acks, reconnects = excluded.reconnects, partitions = excluded.partitions,
  last_error = excluded.last_error, last_error_at = excluded.last_error_at, reported_at = excluded.reported_at`

// Removed rows leave their counters to the total. DELETE … RETURNING hands each
// row to one replica only.
const sqlSweep = `
WITH gone AS (
  DELETE FROM consumer_status
  WHERE reported_at < now() - CASE WHEN state = @stopped THEN interval '1 hour' ELSE interval '1 day' END
  RETURNING consumer_group, consumed, duplicates, retried, dead_lettered,
    filtered, discarded, transactions, fallbacks, contention, stale_acks, reconnects, last_error, last_error_at, started_at
)
INSERT INTO consumer_total AS t (consumer_group, consumed, duplicates, retried, dead_lettered,
  filtered, discarded, transactions, fallbacks, contention, stale_acks, reconnects, last_error, last_error_at, since)
SELECT consumer_group, sum(consumed), sum(duplicates), sum(retried), sum(dead_lettered),
       sum(filtered), sum(discarded), sum(transactions), sum(fallbacks), sum(contention), sum(stale_acks), sum(reconnects),
       coalesce((array_agg(last_error ORDER BY last_error_at DESC NULLS LAST))[1], ''), max(last_error_at), min(started_at)
FROM gone GROUP BY consumer_group
ON CONFLICT (consumer_group) DO UPDATE SET
  consumed = t.consumed + excluded.consumed, duplicates = t.duplicates + excluded.duplicates,
  retried = t.retried + excluded.retried, dead_lettered = t.dead_lettered + excluded.dead_lettered,
  filtered = t.filtered + excluded.filtered,
  discarded = t.discarded + excluded.discarded,
  transactions = t.transactions + excluded.transactions,
  fallbacks = t.fallbacks + excluded.fallbacks,
  contention = t.contention + excluded.contention,
  stale_acks = t.stale_acks + excluded.stale_acks,
  reconnects = t.reconnects + excluded.reconnects,
  last_error = CASE WHEN excluded.last_error_at > t.last_error_at OR t.last_error_at IS NULL THEN excluded.last_error ELSE t.last_error END,
  last_error_at = greatest(t.last_error_at, excluded.last_error_at), since = least(t.since, excluded.since)`

const sqlPausedGroups = `
SELECT consumer_group FROM consumer_command WHERE paused AND consumer_group = ANY (@groups)`
