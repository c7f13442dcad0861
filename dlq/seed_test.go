package dlq

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/migrations/pgtest"
)

// seed fills a test database with letters as the drain would store them.
type seed struct {
	t       testing.TB
	pool    *pgxpool.Pool
	names   map[string]int32
	sources map[string]int32
	faults  map[string]int32
}

// seedLetter is one letter to store. Zero values: cluster main, source t.DLT,
// dialect spring-kafka-dlpr, state open, arrived now, all else unknown.
type seedLetter struct {
	id                  uuid.UUID
	cluster, source     string
	dialect             string
	event, alt          string
	group, class, topic string
	message             string
	partition           *int32
	offset              *int64
	eventTime, failedAt *time.Time
	at                  time.Time
	state               State
	verdict             Verdict
	attempts            *int32
	flags               Flag
	key, value          []byte
	headers             []Header
	owner               string
}

func newSeed(t testing.TB) *seed {
	t.Helper()
	s := &seed{t: t, pool: pgtest.New(t), names: map[string]int32{}, sources: map[string]int32{}, faults: map[string]int32{}}
	s.exec("call letter_add_month(now() - interval '1 month')")
	return s
}

func (s *seed) exec(sql string, args ...any) {
	s.t.Helper()
	if _, err := s.pool.Exec(context.Background(), sql, args...); err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
}

func (s *seed) one(sql string, args ...any) int64 {
	s.t.Helper()
	var n int64
	if err := s.pool.QueryRow(context.Background(), sql, args...).Scan(&n); err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// cached answers from the map, or makes the row and remembers it.
func (s *seed) cached(in map[string]int32, key, sql string, args ...any) int32 {
	s.t.Helper()
	if id, ok := in[key]; ok {
		return id
	}
	in[key] = int32(s.one(sql, args...))
	return in[key]
}

func (s *seed) name(kind int, name string) int32 {
	if name == "" {
		return 0
	}
	return s.cached(s.names, fmt.Sprint(kind, name), `
INSERT INTO letter_name (kind, name) VALUES ($1, $2) ON CONFLICT (kind, name) DO UPDATE SET name = excluded.name RETURNING id`, kind, name)
}

func (s *seed) source(cluster, name string) int32 {
	return s.cached(s.sources, cluster+"/"+name, `
INSERT INTO letter_source (cluster, broker, name, topic_id) VALUES ($1, 1, $2, $3) RETURNING id`, cluster, name, uuid.New())
}

var seedCounter atomic.Uint64

// seedID is a UUIDv7 of that instant; later calls give greater ids.
func seedID(at time.Time) uuid.UUID {
	id := idAt(at.UnixMilli())
	n := seedCounter.Add(1)
	id[6], id[8] = 0x70, 0x80
	for i := range 6 {
		id[15-i] = byte(n >> (8 * i))
	}
	return id
}

// add stores letters, their bodies and their faults' deltas, and gives their ids.
func (s *seed) add(letters ...seedLetter) []uuid.UUID {
	s.t.Helper()
	ids := make([]uuid.UUID, len(letters))
	rows, bodies, deltas := make([][]any, len(letters)), make([][]any, len(letters)), make([][]any, len(letters))
	for i, l := range letters {
		l.fill()
		ids[i] = l.id
		source, dialect := s.source(l.cluster, l.source), s.name(5, l.dialect)
		group, class, origin := s.name(1, l.group), s.name(2, l.class), s.name(3, l.topic)
		print := fmt.Sprint(source, dialect, origin, group, class, l.message)
		sum := sha256.Sum256([]byte(print))
		fault := s.cached(s.faults, print, `
INSERT INTO fault (fingerprint, source_id, origin_id, group_id, class_id, dialect_id, message, first_seen, last_seen)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $8) RETURNING id`, uuid.UUID(sum[:16]), source, origin, group, class, dialect, l.message, l.at)
		rows[i] = []any{l.id, fault, source, group, class, origin, l.partition, l.offset, l.eventTime, l.failedAt, dialect,
			int32(l.flags), null(l.event), null(l.alt), int16(l.state), l.at, int16(l.verdict), l.attempts, null(l.message), nullID(s.name(4, l.owner))}
		bodies[i] = []any{l.id, l.key, l.value, EncodeHeaders(l.headers)}
		deltas[i] = []any{fault, int16(l.state), int16(l.verdict), int64(1), l.at}
	}
	s.copy("dead_letter", []string{"id", "fault_id", "source_id", "group_id", "class_id", "origin_id", "origin_partition",
		"origin_offset", "event_time", "failed_at", "dialect_id", "flags", "event_id", "event_id_alt", "state", "state_at",
		"verdict", "attempts", "error_message", "owner_id"}, rows)
	s.copy("dead_letter_body", []string{"id", "key", "value", "headers"}, bodies)
	s.copy("fault_delta", []string{"fault_id", "state", "verdict", "n", "seen_at"}, deltas)
	return ids
}

func (l *seedLetter) fill() {
	if l.cluster == "" {
		l.cluster = "main"
	}
	if l.source == "" {
		l.source = "t.DLT"
	}
	if l.dialect == "" {
		l.dialect = "spring-kafka-dlpr"
	}
	if l.at.IsZero() {
		l.at = time.Now()
	}
	if l.state == 0 {
		l.state = Open
	}
	if l.id == uuid.Nil {
		l.id = seedID(l.at)
	}
}

func (s *seed) copy(table string, columns []string, rows [][]any) {
	s.t.Helper()
	if _, err := s.pool.CopyFrom(context.Background(), pgx.Identifier{table}, columns, pgx.CopyFromRows(rows)); err != nil {
		s.t.Fatalf("copy into %s: %v", table, err)
	}
}

func (s *seed) fold() {
	s.t.Helper()
	if _, err := Fold(context.Background(), s.pool); err != nil {
		s.t.Fatal(err)
	}
}

func null(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

func nullID(id int32) *int32 {
	if id == 0 {
		return nil
	}
	return &id
}
