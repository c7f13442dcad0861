package outbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"time"
)

// mysql is an outbox in MySQL or MariaDB.
type mysql struct {
	db    *sql.DB
	table Table
}

// sqlQuerier is a pool or a connection.
type sqlQuerier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

const sqlStatsMySQL = `
SELECT
  (SELECT count(*) FROM (SELECT 1 FROM outbox_message WHERE state = 1 LIMIT %[1]d) p),
  (SELECT count(*) FROM outbox_message WHERE state = 3),
  (SELECT count(*) FROM outbox_message WHERE state = 4),
  (SELECT count(*) FROM (SELECT 1 FROM outbox_message WHERE state = 2 AND done_at > UTC_TIMESTAMP(6) - INTERVAL 1 MINUTE LIMIT %[1]d) s),
  (SELECT TIMESTAMPDIFF(MICROSECOND, min(m.created_at), UTC_TIMESTAMP(6)) FROM outbox_message m
   JOIN (SELECT min(id) AS id FROM outbox_message WHERE state IN (1, 3) GROUP BY state, shard) o ON o.id = m.id)`

func (m *mysql) stats(ctx context.Context) (Stats, error) {
	var s Stats
	var oldest sql.NullInt64
	err := m.db.QueryRowContext(ctx, fmt.Sprintf(m.table.sql(sqlStatsMySQL), CountLimit)).
		Scan(&s.Pending, &s.Failing, &s.Dead, &s.SentPerMinute, &oldest)
	s.Pending += s.Failing
	s.Oldest = max(time.Duration(oldest.Int64)*time.Microsecond, 0)
	return s, err
}

func (m *mysql) dead(ctx context.Context) (n int64, err error) {
	err = m.db.QueryRowContext(ctx, m.table.sql(sqlDead)).Scan(&n)
	return n, err
}

const sqlRowColumns = `
SELECT m.id, m.event_id, m.exchange, m.target, m.order_key, m.state, m.attempts, m.created_at, m.next_at, m.done_at,
       COALESCE(m.last_error, ''), TIMESTAMPDIFF(MICROSECOND, m.created_at, UTC_TIMESTAMP(6)),
       (SELECT min(t.id) FROM outbox_message t WHERE t.order_key = m.order_key AND t.state IN (3, 4) AND t.id < m.id)`

// sqlListPart is one state and shard, as the index has them.
const sqlListPart = `
(SELECT * FROM outbox_message
 WHERE state = %d AND shard = %d AND id > ? AND (? = '' OR target = ?) AND (? IS NULL OR order_key = ?)
   AND created_at <= UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND
 ORDER BY id LIMIT %d)`

func (m *mysql) list(ctx context.Context, f Filter) ([]Row, error) {
	var parts []string
	var args []any
	for _, state := range []State{Pending, Failing, Dead} {
		if f.State != 0 && f.State != state {
			continue
		}
		for shard := range Shards {
			parts = append(parts, fmt.Sprintf(sqlListPart, state, shard, f.Limit))
			args = append(args, f.After, f.Target, f.Target, f.Key, f.Key, f.OlderThan.Microseconds())
		}
	}
	query := sqlRowColumns + " FROM (" + strings.Join(parts, " UNION ALL ") + ") m ORDER BY m.id LIMIT " + strconv.Itoa(f.Limit)
	return scanRows(ctx, m.db, m.table.sql(query), args, false)
}

func (m *mysql) load(ctx context.Context, ids []int64) ([]Row, error) {
	return m.loadBy(ctx, m.db, ids)
}

const sqlContents = `, m.record_key, m.payload, m.headers FROM outbox_message m WHERE m.id IN (%s) ORDER BY m.id`

func (m *mysql) loadBy(ctx context.Context, q sqlQuerier, ids []int64) ([]Row, error) {
	return scanRows(ctx, q, m.table.sql(sqlRowColumns+fmt.Sprintf(sqlContents, list(ids))), nil, true)
}

func scanRows(ctx context.Context, q sqlQuerier, query string, args []any, contents bool) (all []Row, err error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var r Row
		var age int64
		var headers string
		into := []any{&r.ID, &r.EventID, &r.Exchange, &r.Target, &r.OrderKey, &r.State, &r.Attempts, &r.CreatedAt, &r.NextAt, &r.DoneAt,
			&r.LastError, &age, &r.HeldBy}
		if contents {
			into = append(into, &r.Key, &r.Value, &headers)
		}
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		if r.Age = time.Duration(age) * time.Microsecond; contents {
			if r.Headers, err = decodeHeaders(headers); err != nil {
				return nil, err
			}
		}
		all = append(all, r)
	}
	return all, rows.Err()
}

// list writes numbers into a statement.
func list[I int16 | int64](ids []I) string {
	var b strings.Builder
	for i, id := range ids {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.FormatInt(int64(id), 10))
	}
	return b.String()
}

const sqlBehindMySQL = `
SELECT count(*) FROM (
  SELECT 1 FROM outbox_message m JOIN outbox_message b ON b.order_key = m.order_key AND b.state = 1 AND b.id > m.id
  WHERE m.id = ? LIMIT %d) n`

func (m *mysql) behind(ctx context.Context, id int64) (n int64, err error) {
	err = m.db.QueryRowContext(ctx, fmt.Sprintf(m.table.sql(sqlBehindMySQL), CountLimit), id).Scan(&n)
	return n, err
}

const (
	sqlRetryMySQL = `UPDATE outbox_message SET state = 3, attempts = 0, next_at = UTC_TIMESTAMP(6) WHERE id = ? AND state = 4`
	sqlSkipMySQL  = `UPDATE outbox_message SET state = 5, done_at = UTC_TIMESTAMP(6) WHERE id = ? AND state = 4`
	sqlSweepMySQL = `
DELETE FROM outbox_message
WHERE state = %d AND done_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND
ORDER BY done_at LIMIT ?`
)

func (m *mysql) retry(ctx context.Context, id int64) (int64, error) {
	return m.exec(ctx, sqlRetryMySQL, id)
}

func (m *mysql) skip(ctx context.Context, id int64) (int64, error) {
	return m.exec(ctx, sqlSkipMySQL, id)
}

func (m *mysql) sweep(ctx context.Context, keep time.Duration, limit int) (int64, error) {
	skipped, err := m.exec(ctx, fmt.Sprintf(sqlSweepMySQL, Skipped), keep.Microseconds(), limit)
	if err != nil || skipped == int64(limit) {
		return skipped, err
	}
	sent, err := m.exec(ctx, fmt.Sprintf(sqlSweepMySQL, Sent), keep.Microseconds(), int64(limit)-skipped)
	return skipped + sent, err
}

func (m *mysql) exec(ctx context.Context, query string, args ...any) (int64, error) {
	result, err := m.db.ExecContext(ctx, m.table.sql(query), args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// A session that says nothing for 15 s, because its host has vanished, loses its
// locks. With autocommit each statement sees what is committed by then.
const sqlSessionMySQL = `
SET SESSION autocommit = 1, wait_timeout = 15, innodb_lock_wait_timeout = 5, time_zone = '+00:00'`

const (
	sqlIsolationMySQL = `SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE`
	sqlDatabaseMySQL  = `SELECT COALESCE(DATABASE(), '')`
	sqlLockMySQL      = `SELECT COALESCE(GET_LOCK(?, 0), 0)`
	sqlUnlockMySQL    = `SELECT RELEASE_LOCK(?)`
)

func (m *mysql) session(ctx context.Context) (session, error) {
	conn, err := m.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	s := &mysqlSession{conn: conn, mysql: m}
	if err := s.begin(ctx); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// mysqlSession holds named locks. Their names are the server's, so they carry the
// database.
type mysqlSession struct {
	conn  *sql.Conn
	mysql *mysql
	name  string // what the locks' names begin with; at most 64 characters in all
}

func (s *mysqlSession) begin(ctx context.Context) error {
	for _, set := range []string{sqlIsolationMySQL, sqlSessionMySQL} {
		if _, err := s.conn.ExecContext(ctx, set); err != nil {
			return err
		}
	}
	if err := s.nameLocks(ctx); err != nil {
		return err
	}
	return s.join(ctx)
}

func (s *mysqlSession) nameLocks(ctx context.Context) error {
	var database string
	if err := s.conn.QueryRowContext(ctx, sqlDatabaseMySQL).Scan(&database); err != nil {
		return err
	}
	h := fnv.New64a()
	h.Write([]byte(database + "\x00" + string(s.mysql.table)))
	s.name = fmt.Sprintf("oncemore.outbox.%016x.", h.Sum64())
	return nil
}

// join takes the first free seat: seats count the relays, as there are no shared
// locks. A relay beyond the last seat goes uncounted and still works.
func (s *mysqlSession) join(ctx context.Context) error {
	for seat := range Shards {
		if got, err := s.try(ctx, s.seat(seat)); err != nil || got {
			return err
		}
	}
	return nil
}

func (s *mysqlSession) seat(i int) string        { return fmt.Sprintf("%sseat.%d", s.name, i) }
func (s *mysqlSession) shard(shard int16) string { return fmt.Sprintf("%s%d", s.name, shard) }

func (s *mysqlSession) try(ctx context.Context, name string) (got bool, err error) {
	err = s.conn.QueryRowContext(ctx, sqlLockMySQL, name).Scan(&got)
	return got, err
}

func (s *mysqlSession) members(ctx context.Context) (n int, err error) {
	taken := make([]string, Shards)
	for i := range taken {
		taken[i] = "(IS_USED_LOCK('" + s.seat(i) + "') IS NOT NULL)"
	}
	err = s.conn.QueryRowContext(ctx, "SELECT "+strings.Join(taken, " + ")).Scan(&n)
	return max(n, 1), err
}

func (s *mysqlSession) lock(ctx context.Context, shards []int16, most int) (got []int16, err error) {
	for _, shard := range shards {
		if len(got) == most {
			break
		}
		ok, err := s.try(ctx, s.shard(shard))
		if err != nil {
			return nil, err
		}
		if ok {
			got = append(got, shard)
		}
	}
	return got, nil
}

func (s *mysqlSession) unlock(ctx context.Context, shards []int16) error {
	for _, shard := range shards {
		var released sql.NullBool
		if err := s.conn.QueryRowContext(ctx, sqlUnlockMySQL, s.shard(shard)).Scan(&released); err != nil {
			return err
		}
	}
	return nil
}

// sqlCandidatePart is one shard: there is no LATERAL in MariaDB.
const sqlCandidatePart = `
(SELECT m.id, m.shard, m.order_key, m.bytes FROM outbox_message m
 WHERE m.state = 1 AND m.shard = %d
   AND NOT EXISTS (SELECT 1 FROM outbox_message t WHERE t.order_key = m.order_key AND t.state IN (3, 4) AND t.id < m.id)
 ORDER BY m.id LIMIT %d)`

const sqlDueMySQL = `
(SELECT m.id, m.shard, m.order_key, m.bytes FROM outbox_message m
 WHERE m.state = 3 AND m.shard IN (%s) AND m.next_at <= UTC_TIMESTAMP(6)
   AND NOT EXISTS (SELECT 1 FROM outbox_message t WHERE t.order_key = m.order_key AND t.state IN (3, 4) AND t.id < m.id))`

func (s *mysqlSession) candidates(ctx context.Context, shards []int16, depth int) (all []candidate, err error) {
	parts := []string{fmt.Sprintf(sqlDueMySQL, list(shards))}
	for _, shard := range shards {
		parts = append(parts, fmt.Sprintf(sqlCandidatePart, shard, depth))
	}
	rows, err := s.conn.QueryContext(ctx, s.mysql.table.sql(strings.Join(parts, " UNION ALL ")))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var c candidate
		if err := rows.Scan(&c.id, &c.shard, &c.key, &c.bytes); err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, rows.Err()
}

func (s *mysqlSession) load(ctx context.Context, ids []int64) ([]Row, error) {
	return s.mysql.loadBy(ctx, s.conn, ids)
}

const sqlMarkSentMySQL = `
UPDATE outbox_message SET state = 2, done_at = UTC_TIMESTAMP(6), next_at = NULL
WHERE id IN (%s) AND state IN (1, 3)`

const sqlMarkFailedMySQL = `
UPDATE outbox_message
SET state = ?, attempts = attempts + 1, next_at = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, last_error = ?
WHERE id = ? AND state IN (1, 3)`

func (s *mysqlSession) mark(ctx context.Context, sent []int64, failed []failure) error {
	if len(sent) > 0 {
		if _, err := s.conn.ExecContext(ctx, fmt.Sprintf(s.mysql.table.sql(sqlMarkSentMySQL), list(sent))); err != nil {
			return err
		}
	}
	for _, f := range failed {
		if _, err := s.conn.ExecContext(ctx, s.mysql.table.sql(sqlMarkFailedMySQL), f.state, f.after.Microseconds(), f.err, f.id); err != nil {
			return err
		}
	}
	return nil
}

// wait has no hints, so it only bounds the poll; the next statement notices a
// lost connection.
func (s *mysqlSession) wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
	return nil
}

func (s *mysqlSession) ping(ctx context.Context) error { return s.conn.PingContext(ctx) }

// close ends the connection: a pool that kept it would keep its locks.
func (s *mysqlSession) close() {
	s.conn.Raw(func(any) error { return driver.ErrBadConn }) //nolint:errcheck // as it was told
	s.conn.Close()                                           //nolint:errcheck // it was discarded
}
