package outbox

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// postgres is an outbox in PostgreSQL.
type postgres struct {
	pool  *pgxpool.Pool
	table Table
}

// querier is a pool or a connection.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

const sqlStats = `
SELECT
  (SELECT count(*) FROM (SELECT FROM outbox_message WHERE state = 1 LIMIT @limit) p) AS pending,
  (SELECT count(*) FROM outbox_message WHERE state = 3) AS failing,
  (SELECT count(*) FROM outbox_message WHERE state = 4) AS dead,
  (SELECT count(*) FROM (SELECT FROM outbox_message WHERE state = 2 AND done_at > now() - interval '1 minute' LIMIT @limit) s) AS sent,
  clock_timestamp() - least(
    (SELECT min(o.created_at) FROM generate_series(0, 63) AS s(shard) CROSS JOIN LATERAL (
       SELECT created_at FROM outbox_message WHERE shard = s.shard AND state = 1 ORDER BY id LIMIT 1) o),
    (SELECT min(created_at) FROM outbox_message WHERE state = 3)) AS oldest`

func (p *postgres) stats(ctx context.Context) (Stats, error) {
	var s Stats
	var oldest *time.Duration
	err := p.pool.QueryRow(ctx, p.table.sql(sqlStats), pgx.NamedArgs{"limit": CountLimit}).
		Scan(&s.Pending, &s.Failing, &s.Dead, &s.SentPerMinute, &oldest)
	s.Pending += s.Failing
	if oldest != nil {
		s.Oldest = max(*oldest, 0)
	}
	return s, err
}

const sqlDead = `SELECT count(*) FROM outbox_message WHERE state = 4`

func (p *postgres) dead(ctx context.Context) (n int64, err error) {
	err = p.pool.QueryRow(ctx, p.table.sql(sqlDead)).Scan(&n)
	return n, err
}

// Pending rows come shard by shard, as their index has them; those in trouble are few.
const sqlList = `
SELECT m.id, m.event_id, m.exchange, m.target, m.order_key, m.state, m.attempts, m.created_at, m.next_at,
       coalesce(m.last_error, '') AS last_error, clock_timestamp() - m.created_at AS age,
       (SELECT min(t.id) FROM outbox_message t WHERE t.order_key = m.order_key AND t.state IN (3, 4) AND t.id < m.id) AS held_by
FROM (
  SELECT p.* FROM generate_series(0, 63) AS s(shard) CROSS JOIN LATERAL (
    SELECT * FROM outbox_message
    WHERE shard = s.shard AND state = 1 AND @state IN (0, 1) AND id > @after
      AND (@target = '' OR target = @target) AND (@key::bytea IS NULL OR order_key = @key)
      AND created_at <= now() - @older_than::interval
    ORDER BY id LIMIT @limit) p
  UNION ALL
  SELECT * FROM outbox_message
  WHERE state IN (3, 4) AND (@state = 0 OR state = @state) AND id > @after
    AND (@target = '' OR target = @target) AND (@key::bytea IS NULL OR order_key = @key)
    AND created_at <= now() - @older_than::interval
) m
ORDER BY m.id
LIMIT @limit`

func (p *postgres) list(ctx context.Context, f Filter) ([]Row, error) {
	rows, _ := p.pool.Query(ctx, p.table.sql(sqlList), pgx.NamedArgs{ // its error comes with the rows
		"state": int16(f.State), "target": f.Target, "key": f.Key, "older_than": f.OlderThan, "after": f.After, "limit": f.Limit,
	})
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (r Row, err error) {
		err = row.Scan(&r.ID, &r.EventID, &r.Exchange, &r.Target, &r.OrderKey, &r.State, &r.Attempts, &r.CreatedAt, &r.NextAt,
			&r.LastError, &r.Age, &r.HeldBy)
		return r, err
	})
}

const sqlLoad = `
SELECT id, event_id, exchange, target, order_key, record_key, payload, headers, state, attempts,
       created_at, next_at, done_at, coalesce(last_error, '') AS last_error, clock_timestamp() - created_at AS age,
       (SELECT min(t.id) FROM outbox_message t WHERE t.order_key = m.order_key AND t.state IN (3, 4) AND t.id < m.id) AS held_by
FROM outbox_message m
WHERE id = ANY (@ids)
ORDER BY id`

func (p *postgres) load(ctx context.Context, ids []int64) ([]Row, error) {
	return loadRows(ctx, p.pool, p.table.sql(sqlLoad), ids)
}

func loadRows(ctx context.Context, q querier, sql string, ids []int64) ([]Row, error) {
	rows, _ := q.Query(ctx, sql, pgx.NamedArgs{"ids": ids}) // its error comes with the rows
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (Row, error) {
		var r Row
		var headers string
		err := row.Scan(&r.ID, &r.EventID, &r.Exchange, &r.Target, &r.OrderKey, &r.Key, &r.Value, &headers, &r.State, &r.Attempts,
			&r.CreatedAt, &r.NextAt, &r.DoneAt, &r.LastError, &r.Age, &r.HeldBy)
		if err != nil {
			return r, err
		}
		r.Headers, err = decodeHeaders(headers)
		return r, err
	})
}

// A later row of the key that is in trouble itself holds back what follows it.
const sqlBehind = `
SELECT count(*) FROM (
  SELECT FROM outbox_message b JOIN outbox_message m USING (shard, order_key)
  WHERE m.id = @id AND b.id > m.id AND b.state = 1
  LIMIT @limit) n`

func (p *postgres) behind(ctx context.Context, id int64) (n int64, err error) {
	err = p.pool.QueryRow(ctx, p.table.sql(sqlBehind), pgx.NamedArgs{"id": id, "limit": CountLimit}).Scan(&n)
	return n, err
}

const sqlRetry = `
UPDATE outbox_message SET state = 3, attempts = 0, next_at = now()
WHERE id = @id AND state = 4
RETURNING pg_notify('outbox_message', '')`

const sqlSkip = `
UPDATE outbox_message SET state = 5, done_at = now()
WHERE id = @id AND state = 4
RETURNING pg_notify('outbox_message', '')`

func (p *postgres) retry(ctx context.Context, id int64) (int64, error) {
	return p.exec(ctx, sqlRetry, pgx.NamedArgs{"id": id})
}

func (p *postgres) skip(ctx context.Context, id int64) (int64, error) {
	return p.exec(ctx, sqlSkip, pgx.NamedArgs{"id": id})
}

// Rows that another sweep has are left to it.
const sqlSweep = `
DELETE FROM outbox_message WHERE id IN (
  SELECT id FROM outbox_message
  WHERE state IN (2, 5) AND done_at < now() - @keep::interval
  ORDER BY done_at LIMIT @limit FOR UPDATE SKIP LOCKED)`

func (p *postgres) sweep(ctx context.Context, keep time.Duration, limit int) (int64, error) {
	return p.exec(ctx, sqlSweep, pgx.NamedArgs{"keep": keep, "limit": limit})
}

func (p *postgres) exec(ctx context.Context, sql string, args pgx.NamedArgs) (int64, error) {
	tag, err := p.pool.Exec(ctx, p.table.sql(sql), args)
	return tag.RowsAffected(), err
}

// A table that swings between empty and full misleads the planner: each of the
// session's statements has an index, and uses it. A session that says nothing
// for idleSession, because its host has vanished, loses its locks.
const sqlSession = `
SELECT set_config('enable_seqscan', 'off', false), set_config('enable_hashjoin', 'off', false),
       set_config('enable_mergejoin', 'off', false), set_config('statement_timeout', '10s', false),
       set_config('lock_timeout', '5s', false), set_config('idle_session_timeout', '15s', false),
       set_config('default_transaction_isolation', 'read committed', false),
       hashtext('oncemore outbox ' || to_regclass('outbox_message')::oid)`

// Locks of a session: (class, shard), and (class, 1000) shared by all relays.
const sqlJoin = `SELECT pg_advisory_lock_shared(@class, 1000)`

const sqlListen = `LISTEN outbox_message`

func (p *postgres) session(ctx context.Context) (session, error) {
	acquired, err := p.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	s := &pgSession{conn: acquired.Hijack(), table: p.table}
	if err := s.begin(ctx); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// pgSession holds advisory locks.
type pgSession struct {
	conn  *pgx.Conn
	table Table
	class int32
}

var errNoTable = errors.New("the table does not exist: create it by DDL")

func (s *pgSession) begin(ctx context.Context) error {
	var class *int32
	set := make([]string, 7)
	err := s.conn.QueryRow(ctx, s.table.sql(sqlSession)).Scan(&set[0], &set[1], &set[2], &set[3], &set[4], &set[5], &set[6], &class)
	if err != nil {
		return err
	}
	if class == nil {
		return errNoTable
	}
	s.class = *class
	if _, err := s.conn.Exec(ctx, sqlJoin, pgx.NamedArgs{"class": s.class}); err != nil {
		return err
	}
	_, err = s.conn.Exec(ctx, s.table.sql(sqlListen))
	return err
}

const sqlMembers = `
SELECT count(*) FROM pg_locks
WHERE locktype = 'advisory' AND granted AND mode = 'ShareLock' AND objsubid = 2 AND objid = 1000
  AND classid = (@class::bigint & 4294967295)::oid
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`

func (s *pgSession) members(ctx context.Context) (n int, err error) {
	err = s.conn.QueryRow(ctx, sqlMembers, pgx.NamedArgs{"class": s.class}).Scan(&n)
	return n, err
}

// LIMIT ends the asking: no lock is taken that is not returned.
const sqlLock = `
SELECT s.shard FROM unnest(@shards::smallint[]) AS s(shard)
WHERE pg_try_advisory_lock(@class, s.shard)
LIMIT @most`

func (s *pgSession) lock(ctx context.Context, shards []int16, most int) ([]int16, error) {
	rows, _ := s.conn.Query(ctx, sqlLock, pgx.NamedArgs{"class": s.class, "shards": shards, "most": most}) // its error comes with the rows
	return pgx.CollectRows(rows, pgx.RowTo[int16])
}

const sqlUnlock = `
SELECT bool_and(pg_advisory_unlock(@class, s.shard)) FROM unnest(@shards::smallint[]) AS s(shard)`

func (s *pgSession) unlock(ctx context.Context, shards []int16) error {
	var all bool
	return s.conn.QueryRow(ctx, sqlUnlock, pgx.NamedArgs{"class": s.class, "shards": shards}).Scan(&all)
}

// Ids are not in the order of commits: all pending rows are looked at each time,
// from the smallest id of each shard on, and none is ever taken as passed.
const sqlCandidates = `
SELECT c.id, c.shard, c.order_key, c.bytes
FROM unnest(@shards::smallint[]) AS s(shard)
CROSS JOIN LATERAL (
  SELECT m.id, m.shard, m.order_key, m.bytes FROM outbox_message m
  WHERE m.shard = s.shard AND m.state = 1
    AND NOT EXISTS (SELECT FROM outbox_message t WHERE t.order_key = m.order_key AND t.state IN (3, 4) AND t.id < m.id)
  ORDER BY m.id
  LIMIT @depth) c
UNION ALL
SELECT m.id, m.shard, m.order_key, m.bytes FROM outbox_message m
WHERE m.state = 3 AND m.shard = ANY (@shards) AND m.next_at <= now()
  AND NOT EXISTS (SELECT FROM outbox_message t WHERE t.order_key = m.order_key AND t.state IN (3, 4) AND t.id < m.id)`

func (s *pgSession) candidates(ctx context.Context, shards []int16, depth int) ([]candidate, error) {
	s.forgetHints(ctx)
	rows, _ := s.conn.Query(ctx, s.table.sql(sqlCandidates), pgx.NamedArgs{"shards": shards, "depth": depth}) // its error comes with the rows
	var c candidate
	var key []byte
	var all []candidate
	_, err := pgx.ForEachRow(rows, []any{&c.id, &c.shard, &key, &c.bytes}, func() error {
		c.key = string(key)
		all = append(all, c)
		return nil
	})
	return all, err
}

// sqlTake is sqlLoad as relays need it: what holds a row back was asked before.
const sqlTake = `
SELECT id, event_id, exchange, target, order_key, record_key, payload, headers, state, attempts,
       created_at, next_at, done_at, '' AS last_error, interval '0' AS age, NULL::bigint AS held_by
FROM outbox_message
WHERE id = ANY (@ids)
ORDER BY id`

func (s *pgSession) load(ctx context.Context, ids []int64) ([]Row, error) {
	return loadRows(ctx, s.conn, s.table.sql(sqlTake), ids)
}

const sqlMarkSent = `
UPDATE outbox_message SET state = 2, done_at = clock_timestamp(), next_at = NULL
WHERE id = ANY ($1) AND state IN (1, 3)`

const sqlMarkFailed = `
UPDATE outbox_message m
SET state = f.state, attempts = m.attempts + 1, next_at = clock_timestamp() + f.after, last_error = f.error
FROM unnest($1::bigint[], $2::smallint[], $3::interval[], $4::text[]) AS f(id, state, after, error)
WHERE m.id = f.id AND m.state IN (1, 3)`

func (s *pgSession) mark(ctx context.Context, sent []int64, failed []failure) error {
	batch := &pgx.Batch{}
	if len(sent) > 0 {
		batch.Queue(s.table.sql(sqlMarkSent), sent)
	}
	if len(failed) > 0 {
		ids, states := make([]int64, len(failed)), make([]int16, len(failed))
		after, texts := make([]time.Duration, len(failed)), make([]string, len(failed))
		for i, f := range failed {
			ids[i], states[i], after[i], texts[i] = f.id, int16(f.state), f.after, f.err
		}
		batch.Queue(s.table.sql(sqlMarkFailed), ids, states, after, texts)
	}
	return s.conn.SendBatch(ctx, batch).Close()
}

// wait ends with the connection, too: a lost one is noticed while idle.
func (s *pgSession) wait(ctx context.Context, d time.Duration) error {
	waiting, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	_, err := s.conn.WaitForNotification(waiting)
	if err != nil && waiting.Err() != nil && !s.conn.IsClosed() {
		return nil
	}
	return err
}

// forgetHints drops hints that came with answers: the relay looks now.
func (s *pgSession) forgetHints(ctx context.Context) {
	ended, cancel := context.WithCancel(ctx)
	cancel()
	for {
		if _, err := s.conn.WaitForNotification(ended); err != nil {
			return
		}
	}
}

func (s *pgSession) ping(ctx context.Context) error { return s.conn.Ping(ctx) }

// closeTimeout bounds the farewell; the server frees the locks with the connection.
const closeTimeout = 2 * time.Second

func (s *pgSession) close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	s.conn.Close(ctx) //nolint:errcheck // it may be lost already
}
