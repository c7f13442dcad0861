package reconcile

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

type postgresReader struct{ pool *pgxpool.Pool }

func (postgresReader) dialect() dialect { return postgres }

var postgresClasses = map[uint32]class{
	pgtype.TextOID: classText, pgtype.VarcharOID: classText, pgtype.BPCharOID: classText, pgtype.NameOID: classText,
	pgtype.Int2OID: classInt, pgtype.Int4OID: classInt, pgtype.Int8OID: classInt,
	pgtype.UUIDOID: classUUID, pgtype.ByteaOID: classBytes,
	pgtype.NumericOID: classDecimal, pgtype.Float4OID: classFloat, pgtype.Float8OID: classFloat,
	pgtype.TimestamptzOID: classInstant, pgtype.TimestampOID: classLocal,
}

func (r postgresReader) describe(ctx context.Context, st bound) ([]column, error) {
	conn, err := r.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Release()
	described, err := conn.Conn().PgConn().Prepare(ctx, "", st.text, nil)
	if err != nil {
		return nil, err
	}
	return r.columns(conn.Conn().TypeMap(), described.Fields), nil
}

func (postgresReader) columns(types *pgtype.Map, fields []pgconn.FieldDescription) []column {
	columns := make([]column, len(fields))
	for i, f := range fields {
		declared := fmt.Sprintf("type %d", f.DataTypeOID)
		if t, ok := types.TypeForOID(f.DataTypeOID); ok {
			declared = t.Name
		}
		columns[i] = column{f.Name, postgresClasses[f.DataTypeOID], declared}
	}
	return columns
}

// A standby cannot be written to, whoever asks.
const sqlPostgresWritable = `
SELECT c.oid::regclass::text
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
  AND NOT pg_is_in_recovery()
  AND (has_table_privilege(c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE') OR has_any_column_privilege(c.oid, 'INSERT, UPDATE'))
ORDER BY 1 LIMIT 1`

func (r postgresReader) writable(ctx context.Context) (string, error) {
	rows, err := r.pool.Query(ctx, sqlPostgresWritable)
	if err != nil {
		return "", err
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(tables) == 0 {
		return "", err
	}
	return tables[0], nil
}

func (postgresReader) instant(at time.Time, c column, zone *time.Location) any {
	if c.class == classLocal {
		return edge(at, c, zone).Format("2006-01-02 15:04:05.999999")
	}
	return at.UTC().Format("2006-01-02 15:04:05.999999Z07:00")
}

// Sorts and joins are fastest in parts that fit a processor's cache. Compiling a
// statement that runs once costs more than it saves. A session takes one core of
// the business: what runs side by side has sessions of its own.
const sqlPostgresSnapshot = `
SET LOCAL statement_timeout = %d; SET LOCAL lock_timeout = '5s'; SET LOCAL work_mem = '4MB';
SET LOCAL max_parallel_workers_per_gather = 0; SET LOCAL jit = off; SET LOCAL timezone = 'UTC'`

func (r postgresReader) snapshot(ctx context.Context, l Limits, read func(snapshot) error) error {
	return r.enter(ctx, l, "", read)
}

// enter begins a transaction in the state that an exported snapshot names; empty:
// the present one.
func (r postgresReader) enter(ctx context.Context, l Limits, exported string, read func(snapshot) error) error {
	settings := fmt.Sprintf(sqlPostgresSnapshot, l.Statement.Milliseconds())
	if exported != "" {
		settings = "SET TRANSACTION SNAPSHOT '" + exported + "';" + settings
	}
	opts := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	return pgx.BeginTxFunc(ctx, r.pool, opts, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, settings); err != nil {
			return err
		}
		return read(postgresSnapshot{r, tx})
	})
}

type postgresSnapshot struct {
	from postgresReader
	tx   pgx.Tx
}

// beside opens a second session that sees the same state.
func (s postgresSnapshot) beside(ctx context.Context, l Limits, read func(snapshot) error) error {
	var exported string
	if err := s.tx.QueryRow(ctx, "SELECT pg_export_snapshot()").Scan(&exported); err != nil {
		return fmt.Errorf("export snapshot: %w", err)
	}
	return s.from.enter(ctx, l, exported, read)
}

// formats asks for what is cheapest to decode: binary but for text and amounts.
func formats(kinds []kind) pgx.QueryResultFormats {
	f := make(pgx.QueryResultFormats, 0, len(kinds)+3)
	for _, k := range kinds {
		if k == kindText {
			f = append(f, pgx.TextFormatCode)
		} else {
			f = append(f, pgx.BinaryFormatCode)
		}
	}
	return append(f, pgx.TextFormatCode, pgx.TextFormatCode, pgx.BinaryFormatCode)
}

func (s postgresSnapshot) scan(ctx context.Context, st bound, sh shape, kinds []kind, zone *time.Location, emit func(record) error) error {
	rows, err := s.tx.Query(ctx, st.text, append([]any{formats(kinds)}, st.args...)...)
	if err != nil {
		return err
	}
	defer rows.Close()
	clock := wallClock(sh.time, zone)
	currencies := namesOf(sh.currency)
	var r record
	for rows.Next() {
		raw := rows.RawValues()
		r.key = r.key[:0]
		for i, k := range kinds {
			r.key = appendPostgres(r.key, k, raw[i])
		}
		n := len(kinds)
		r.amount, r.currency = raw[n], currencies.name(raw[n+1])
		if r.at, err = postgresTime(raw[n+2], clock); err != nil {
			return err
		}
		if err := emit(r); err != nil {
			return err
		}
	}
	return rows.Err()
}

func appendPostgres(key []byte, k kind, raw []byte) []byte {
	switch k {
	case kindInt:
		return appendInt(key, int64(binary.BigEndian.Uint64(raw)))
	case kindUUID:
		return append(key, raw...)
	}
	return appendBytes(key, raw)
}

// postgresEpoch is 2000-01-01 in microseconds since 1970.
const postgresEpoch = 946_684_800_000_000

func postgresTime(raw []byte, clock func(wall int64) int64) (int64, error) {
	if len(raw) != 8 {
		return 0, errNoTime
	}
	at := int64(binary.BigEndian.Uint64(raw))
	if at == math.MaxInt64 || at == math.MinInt64 {
		return 0, fmt.Errorf("%w: infinity", errNoTime)
	}
	return clock(at + postgresEpoch), nil
}

func (s postgresSnapshot) texts(ctx context.Context, st bound, row func([]*string) error) error {
	rows, err := s.tx.Query(ctx, st.text, append([]any{pgx.QueryResultFormats{pgx.TextFormatCode}}, st.args...)...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		raw := rows.RawValues()
		values := make([]*string, len(raw))
		for i, b := range raw {
			if b != nil {
				text := string(b)
				values[i] = &text
			}
		}
		if err := row(values); err != nil {
			return err
		}
	}
	return rows.Err()
}
