package mysqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"time"
)

// Forever is the retention of records that are never dropped.
const Forever = time.Duration(math.MaxInt64)

// ErrImplausible says that a run would have dropped more than Options allow, and
// dropped nothing. A clock that jumped looks like that, so does a retention with a
// wrong unit; a job that runs after a long time does as well, and is then repeated
// with a larger MaxShare.
var ErrImplausible = errors.New("mysqlstore: an implausible share of the consume records would be dropped")

// KeeperOptions say what a Keeper keeps.
type KeeperOptions struct {
	// Keep returns how long the records of each group are needed, asked anew
	// before each run: broker retention + longest retry + redelivery by hand +
	// recovery + replay window + margin. Groups that it does not name, and those
	// with Forever, lose no record. On an error the run drops nothing.
	Keep func(context.Context) (map[string]time.Duration, error)

	// Archive moves records older than Hot to mq_consume_record_archive and drops
	// whole months of it; all consumers then need a store with Options.Archive.
	// Without it, records that are not needed any more are deleted.
	Archive bool
	Hot     time.Duration

	Chunk    int           // rows looked at in one transaction; 0 is 2000
	MaxShare float64       // the largest share of all records that one run may drop; 0 is a half
	Every    time.Duration // between two runs; 0 is 1 h
	Logger   *slog.Logger  // nil: slog.Default()
}

// Keeper keeps mq_consume_record from growing without end. It goes by the
// database's clock alone. Of several keepers on one database one works.
type Keeper struct {
	db   *sql.DB
	opts KeeperOptions
}

// NewKeeper checks the options. The pool is one of OpenPool: consumed_at is UTC.
// The table has to be there when it runs, its archive as well where that is used
// (MigrateArchive).
func NewKeeper(db *sql.DB, o KeeperOptions) (*Keeper, error) {
	if o.Chunk == 0 {
		o.Chunk = 2000
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
		return nil, errors.New("mysqlstore: keeper needs to know how long records are needed")
	case o.Archive && o.Hot <= 0:
		return nil, errors.New("mysqlstore: keeper needs a hot window to archive what is older")
	case o.Chunk < 0, o.MaxShare < 0, o.MaxShare > 1, o.Every < 0:
		return nil, errors.New("mysqlstore: keeper: chunk, share and interval are out of range")
	}
	return &Keeper{db: db, opts: o}, nil
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

// sqlKeeperLock is held by the keeper that works. A lock's name is the server's.
const sqlKeeperLock = `SELECT COALESCE(GET_LOCK(SHA2(CONCAT(DATABASE(), '/oncemore/keeper'), 256), 0), 0)`

// RunOnce moves, deletes and drops what is due, chunk by chunk with a commit
// each, so that it may be ended at any time. After an error, Swept says what was
// done before. Errors: ErrImplausible, that of Keep, the database's wrapped.
func (k *Keeper) RunOnce(ctx context.Context) (done Swept, _ error) {
	conn, err := k.db.Conn(ctx)
	if err != nil {
		return done, fmt.Errorf("sweep %s: %w", Table, err)
	}
	defer conn.Close()
	defer conn.Raw(func(any) error { return driver.ErrBadConn }) //nolint:errcheck // the lock ends with the session
	var got bool
	if err := conn.QueryRowContext(ctx, sqlKeeperLock).Scan(&got); err != nil {
		return done, fmt.Errorf("sweep %s: lock: %w", Table, err)
	}
	if !got {
		return Swept{Busy: true}, nil
	}
	if err := k.sweep(ctx, &sweep{conn: conn, chunk: k.opts.Chunk}, &done); err != nil {
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
	conn  *sql.Conn
	chunk int
}

// The walk goes along id, which has to grow: the sweep ends where young records
// begin.
const sqlSweepable = `
SELECT (SELECT COUNT(*) FROM information_schema.columns
        WHERE table_schema = DATABASE() AND table_name = 'mq_consume_record' AND column_name = 'id' AND data_type IN ('bigint', 'int')),
       (SELECT COUNT(*) FROM information_schema.statistics
        WHERE table_schema = DATABASE() AND table_name = 'mq_consume_record' AND column_name = 'id' AND seq_in_index = 1)`

func (s *sweep) check(ctx context.Context) error {
	var integer, indexed int
	if err := s.conn.QueryRowContext(ctx, sqlSweepable).Scan(&integer, &indexed); err != nil {
		return err
	}
	if integer == 0 || indexed == 0 {
		return errors.New("the table needs a column id of type bigint that grows, with an index")
	}
	return nil
}

const sqlBefore = `SELECT UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND`

// before is the database's time d ago.
func (s *sweep) before(ctx context.Context, d time.Duration) (at time.Time, err error) {
	err = s.conn.QueryRowContext(ctx, sqlBefore, d.Microseconds()).Scan(&at)
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

// isDue is a condition on a record, with its arguments. Of a group that is not
// named it is null. A comparison with a text takes the column's own collation.
func (d due) isDue() (condition string, args []any) {
	for i, group := range d.groups {
		args = append(args, group, d.cutoffs[i])
	}
	return "(consumed_at < CASE consumer_group" + strings.Repeat(" WHEN ? THEN CAST(? AS DATETIME(6))", len(d.groups)) + " END)", args
}

const sqlFirstIsYoung = `
SELECT COALESCE((SELECT consumed_at >= ? FROM mq_consume_record ORDER BY id LIMIT 1), TRUE)`

// sqlCountDue reads the whole table, but only when something may be due.
const sqlCountDue = `SELECT COUNT(*), COALESCE(SUM(%s), 0) FROM mq_consume_record`

// delete drops what is due of the plain table, unless that is an implausible share.
func (s *sweep) delete(ctx context.Context, d due, maxShare float64, deleted *int64) error {
	var nothing bool
	if err := s.conn.QueryRowContext(ctx, sqlFirstIsYoung, d.newest).Scan(&nothing); err != nil || nothing {
		return err
	}
	condition, args := d.isDue()
	var all, old int64
	if err := s.conn.QueryRowContext(ctx, fmt.Sprintf(sqlCountDue, condition), args...).Scan(&all, &old); err != nil {
		return fmt.Errorf("count: %w", err)
	}
	if err := plausible(old, all, maxShare); err != nil || old == 0 {
		return err
	}
	return s.walk(ctx, condition, args, d.newest, func(ids string) error {
		n, err := s.exec(ctx, fmt.Sprintf(sqlDeleteRecords, ids))
		*deleted += n
		return err
	})
}

func plausible(old, all int64, maxShare float64) error {
	if float64(old) > maxShare*float64(all) {
		return fmt.Errorf("%w: %d of %d, at most %.0f %% in one run: see whether the database's clock and the retention are right",
			ErrImplausible, old, all, 100*maxShare)
	}
	return nil
}

// Rows are named by their ids, not by a range of them: between two may be one
// whose claim is under way, and which a range would wait for.
const (
	sqlChunk = `
SELECT id, consumed_at < ?, COALESCE(%s, FALSE)
FROM mq_consume_record WHERE id > ? ORDER BY id LIMIT ?`

	sqlDeleteRecords = `DELETE FROM mq_consume_record WHERE id IN (%s)`
)

// walk hands the ids of chunk after chunk to do, as a list for IN, those that
// meet the condition, until records begin that are not older than newest.
func (s *sweep) walk(ctx context.Context, condition string, args []any, newest time.Time, do func(ids string) error) error {
	for after, more := int64(math.MinInt64), true; more; {
		found, err := s.nextChunk(ctx, condition, args, newest, after)
		if err != nil {
			return err
		}
		after, more = found.last, found.more
		if found.ids == "" {
			continue
		}
		if err := s.insist(ctx, func() error { return do(found.ids) }); err != nil {
			return err
		}
	}
	return nil
}

type chunk struct {
	ids  string
	last int64
	more bool
}

func (s *sweep) nextChunk(ctx context.Context, condition string, args []any, newest time.Time, after int64) (c chunk, _ error) {
	args = append(append([]any{newest}, args...), after, s.chunk)
	rows, err := s.conn.QueryContext(ctx, fmt.Sprintf(sqlChunk, condition), args...)
	if err != nil {
		return c, err
	}
	defer rows.Close()
	var ids []string
	for rows.Next() {
		var old, meets bool
		if err := rows.Scan(&c.last, &old, &meets); err != nil {
			return c, err
		}
		if c.more = c.more || old; meets {
			ids = append(ids, fmt.Sprint(c.last))
		}
	}
	c.ids = strings.Join(ids, ",")
	return c, rows.Err()
}

// insist repeats what was lost to a claim under way.
func (s *sweep) insist(ctx context.Context, do func() error) error {
	for try := 1; ; try++ {
		err := do()
		if !contention[errorNumber(err)] || try == 5 || ctx.Err() != nil {
			return err
		}
	}
}

func (s *sweep) exec(ctx context.Context, query string, args ...any) (int64, error) {
	result, err := s.conn.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}
