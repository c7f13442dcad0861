package pgstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Forever is the retention of records that are never dropped.
const Forever = time.Duration(math.MaxInt64)

// ErrImplausible says that a run would have dropped more than Options allow, and
// dropped nothing. A clock that jumped looks like that, so does a retention with a
// wrong unit; a job that runs after a long time does as well, and is then repeated
// with a larger MaxShare.
var ErrImplausible = errors.New("pgstore: an implausible share of the consume records would be dropped")

// KeeperOptions say what a Keeper keeps.
type KeeperOptions struct {
	// Keep returns how long the records of each group are needed, asked anew
	// before each run: broker retention + longest retry + redelivery by hand +
	// recovery + replay window + margin. Groups that it does not name, and those
	// with Forever, lose no record. On an error the run drops nothing.
	Keep func(context.Context) (map[string]time.Duration, error)

	// Archive moves records older than Hot to mq_consume_record_archive and drops
	// whole months of it; all consumers then need a store from WithArchive.
	// Without it, records that are not needed any more are deleted.
	Archive bool
	Hot     time.Duration

	Chunk    int           // rows looked at in one transaction; 0 is 5000
	MaxShare float64       // the largest share of all records that one run may drop; 0 is a half
	Every    time.Duration // between two runs; 0 is 1 h
	Logger   *slog.Logger  // nil: slog.Default()
}

// Keeper keeps mq_consume_record from growing without end. It goes by the
// database's clock alone. Of several keepers on one database one works.
type Keeper struct {
	pool *pgxpool.Pool
	opts KeeperOptions
}

// NewKeeper checks the options. The table has to be there when it runs, its
// archive as well where that is used (MigrateArchive).
func NewKeeper(pool *pgxpool.Pool, o KeeperOptions) (*Keeper, error) {
	if o.Chunk == 0 {
		o.Chunk = 5000
	}
	if o.MaxShare == 0 {
		o.MaxShare = 0.5
	}
	if o.Every == 0 {
		o.Every = time.Hour
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	switch {
	case o.Keep == nil:
		return nil, errors.New("pgstore: keeper needs to know how long records are needed")
	case o.Archive && o.Hot <= 0:
		return nil, errors.New("pgstore: keeper needs a hot window to archive what is older")
	case o.Chunk < 0, o.MaxShare < 0, o.MaxShare > 1, o.Every < 0:
		return nil, errors.New("pgstore: keeper: chunk, share and interval are out of range")
	}
	return &Keeper{pool: pool, opts: o}, nil
}

// Swept is what one run did.
type Swept struct {
	Deleted int64    // records of the plain table
	Moved   int64    // to the archive
	Dropped []string // partitions of the archive
	Busy    bool     // another keeper is at work; nothing was done
}

// Run works at once and then at every interval, until ctx ends. It logs what
// fails and goes on: what was not dropped now is dropped later.
func (k *Keeper) Run(ctx context.Context) {
	tick := time.NewTicker(k.opts.Every)
	defer tick.Stop()
	for {
		done, err := k.RunOnce(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			k.opts.Logger.ErrorContext(ctx, "consume records not swept", "error", err)
		}
		if done.Deleted > 0 || done.Moved > 0 || len(done.Dropped) > 0 {
			k.opts.Logger.InfoContext(ctx, "consume records swept", "deleted", done.Deleted, "moved", done.Moved, "dropped", done.Dropped)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// keeperLock is held by the keeper that works.
const keeperLock = 7_113_204_012

const (
	sqlKeeperLock   = `SELECT pg_try_advisory_lock($1)`
	sqlKeeperUnlock = `SELECT pg_advisory_unlock($1)`
)

// RunOnce moves, deletes and drops what is due, chunk by chunk with a commit
// each, so that it may be ended at any time. After an error, Swept says what was
// done before. Errors: ErrImplausible, that of Keep, the database's wrapped.
func (k *Keeper) RunOnce(ctx context.Context) (done Swept, _ error) {
	conn, err := k.pool.Acquire(ctx)
	if err != nil {
		return done, fmt.Errorf("sweep %s: %w", Table, err)
	}
	defer conn.Release()
	var got bool
	if err := conn.QueryRow(ctx, sqlKeeperLock, keeperLock).Scan(&got); err != nil {
		return done, fmt.Errorf("sweep %s: lock: %w", Table, err)
	}
	if !got {
		return Swept{Busy: true}, nil
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
		defer cancel()
		if _, err := conn.Exec(ctx, sqlKeeperUnlock, keeperLock); err != nil {
			conn.Conn().Close(ctx) //nolint:errcheck // the lock ends with the session
		}
	}()
	if err := k.sweep(ctx, &sweep{conn: conn.Conn(), chunk: k.opts.Chunk}, &done); err != nil {
		return done, fmt.Errorf("sweep %s: %w", Table, err)
	}
	return done, nil
}

func (k *Keeper) sweep(ctx context.Context, s *sweep, done *Swept) error {
	if err := s.check(ctx); err != nil {
		return err
	}
	if k.opts.Archive {
		hot, err := s.before(ctx, k.opts.Hot)
		if err != nil {
			return err
		}
		if err := s.move(ctx, hot, &done.Moved); err != nil {
			return err
		}
	}
	keep, err := k.opts.Keep(ctx)
	if err != nil {
		return fmt.Errorf("how long records are needed: %w", err)
	}
	due, err := s.due(ctx, keep)
	if err != nil || len(due.groups) == 0 {
		return err
	}
	if k.opts.Archive {
		return s.dropMonths(ctx, due, k.opts.MaxShare, &done.Dropped)
	}
	return s.delete(ctx, due, k.opts.MaxShare, &done.Deleted)
}

// sweep is one run on one connection.
type sweep struct {
	conn  *pgx.Conn
	chunk int
}

// The walk goes along id, which has to grow: the sweep ends where young records
// begin.
const sqlSweepable = `
SELECT coalesce((SELECT a.atttypid IN ('int8'::regtype, 'int4'::regtype)
                 FROM pg_attribute a
                 WHERE a.attrelid = t.oid AND a.attname = 'id' AND NOT a.attisdropped), false),
       EXISTS (SELECT FROM pg_index i JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = i.indkey[0]
               WHERE i.indrelid = t.oid AND i.indisvalid AND i.indpred IS NULL AND a.attname = 'id')
FROM (SELECT to_regclass('mq_consume_record') AS oid) t`

func (s *sweep) check(ctx context.Context) error {
	var integer, indexed bool
	if err := s.conn.QueryRow(ctx, sqlSweepable).Scan(&integer, &indexed); err != nil {
		return err
	}
	if !integer || !indexed {
		return errors.New("the table needs a column id of type bigint that grows, with an index")
	}
	return nil
}

const sqlBefore = `SELECT now() - make_interval(secs => $1)`

// before is the database's time d ago.
func (s *sweep) before(ctx context.Context, d time.Duration) (at time.Time, err error) {
	err = s.conn.QueryRow(ctx, sqlBefore, d.Seconds()).Scan(&at)
	return at, err
}

// due says of each group from when back its records may be dropped.
type due struct {
	groups  []string
	cutoffs []time.Time
	newest  time.Time // of the cutoffs
}

func (s *sweep) due(ctx context.Context, keep map[string]time.Duration) (due, error) {
	var d due
	for group, needed := range keep {
		if needed == Forever {
			continue
		}
		if needed <= 0 {
			return due{}, fmt.Errorf("group %s: a retention of %s is none", group, needed)
		}
		at, err := s.before(ctx, needed)
		if err != nil {
			return due{}, err
		}
		d.groups, d.cutoffs = append(d.groups, group), append(d.cutoffs, at)
		if at.After(d.newest) {
			d.newest = at
		}
	}
	return d, nil
}

func (d due) args(more pgx.NamedArgs) pgx.NamedArgs {
	args := pgx.NamedArgs{"groups": d.groups, "cutoffs": d.cutoffs, "newest": d.newest}
	for name, v := range more {
		args[name] = v
	}
	return args
}

const sqlFirstIsYoung = `
SELECT coalesce((SELECT consumed_at >= $1 FROM mq_consume_record ORDER BY id LIMIT 1), true)`

// Reads the whole table, but only when something may be due.
const sqlCountDue = `
SELECT count(*), count(*) FILTER (WHERE r.consumed_at < c.cutoff)
FROM mq_consume_record r
LEFT JOIN unnest(@groups::text[], @cutoffs::timestamptz[]) AS c(name, cutoff) ON c.name = r.consumer_group`

const sqlDeleteChunk = `
WITH chunk AS MATERIALIZED (
  SELECT id, consumed_at FROM mq_consume_record WHERE id > @after ORDER BY id LIMIT @size
), gone AS (
  DELETE FROM mq_consume_record r
  USING chunk k, unnest(@groups::text[], @cutoffs::timestamptz[]) AS c(name, cutoff)
  WHERE r.id = k.id AND c.name = r.consumer_group AND r.consumed_at < c.cutoff
  RETURNING 1
)
SELECT coalesce(max(id), @after), coalesce(bool_or(consumed_at < @newest), false), (SELECT count(*) FROM gone)
FROM chunk`

// delete drops what is due of the plain table, unless that is an implausible share.
func (s *sweep) delete(ctx context.Context, d due, maxShare float64, deleted *int64) error {
	var nothing bool
	if err := s.conn.QueryRow(ctx, sqlFirstIsYoung, d.newest).Scan(&nothing); err != nil || nothing {
		return err
	}
	var all, old int64
	if err := s.conn.QueryRow(ctx, sqlCountDue, d.args(nil)).Scan(&all, &old); err != nil {
		return fmt.Errorf("count: %w", err)
	}
	if err := plausible(old, all, maxShare); err != nil || old == 0 {
		return err
	}
	return s.walk(ctx, sqlDeleteChunk, d.args(nil), deleted)
}

func plausible(old, all int64, maxShare float64) error {
	if float64(old) > maxShare*float64(all) {
		return fmt.Errorf("%w: %d of %d, at most %.0f %% in one run: see whether the database's clock and the retention are right",
			ErrImplausible, old, all, 100*maxShare)
	}
	return nil
}

// walk runs a statement for chunk after chunk, each its own transaction, until
// records begin that are too young.
func (s *sweep) walk(ctx context.Context, sql string, args pgx.NamedArgs, count *int64) error {
	args["size"] = s.chunk
	for after, more := int64(math.MinInt64), true; more; {
		args["after"] = after
		var n int64
		if err := s.conn.QueryRow(ctx, sql, args).Scan(&after, &more, &n); err != nil {
			return err
		}
		*count += n
	}
	return nil
}
