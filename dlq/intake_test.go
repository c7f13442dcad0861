package dlq

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"oncemore/dlq/dialect"
	"oncemore/migrations/pgtest"
)

// intakeBundle is an intake on a database of its own, and a partition to feed it.
type intakeBundle struct {
	t     *testing.T
	ctx   context.Context
	pool  *pgxpool.Pool
	in    *intake
	topic uuid.UUID
	next  int64
}

func setupIntake(t *testing.T) *intakeBundle {
	t.Helper()
	b := &intakeBundle{t: t, ctx: t.Context(), pool: pgtest.New(t), topic: uuid.New()}
	b.in = newIntake(b.pool, "shop", loadDialects(t), slog.New(slog.DiscardHandler))
	b.open(b.topic)
	return b
}

func loadDialects(t testing.TB) *dialect.Set {
	t.Helper()
	set, err := dialect.Load()
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func (b *intakeBundle) open(topic uuid.UUID) {
	b.t.Helper()
	if _, err := openPositions(b.ctx, b.pool, "shop", map[partitionKey]string{{topic, 0}: "order.paid.DLT"}); err != nil {
		b.t.Fatal(err)
	}
}

// store feeds records as the next ones of the partition.
func (b *intakeBundle) store(records ...*kgo.Record) {
	b.t.Helper()
	if err := b.try(b.part(records...)); err != nil {
		b.t.Fatalf("store: %v", err)
	}
}

func (b *intakeBundle) try(part *partitionBatch) error {
	parts := []*partitionBatch{part}
	return b.in.store(b.ctx, parts, b.in.read(parts))
}

func (b *intakeBundle) part(records ...*kgo.Record) *partitionBatch {
	p := &partitionBatch{cluster: "shop", Topic: "order.paid.DLT", TopicID: b.topic, From: b.next}
	for _, r := range records {
		r.Topic, r.Offset = p.Topic, b.next
		b.next++
	}
	p.Next, p.Records = b.next, records
	return p
}

// failure is a dead letter as our own runtime and Spring write it.
type failure struct {
	event, group, topic, class, message, value string
	offset                                     int64 // of the origin
	partition                                  int32
	attempts                                   int32
	at                                         time.Time
	replay, item                               string
}

func (f failure) record() *kgo.Record {
	if f.group == "" {
		f.group = "points"
	}
	if f.topic == "" {
		f.topic = "order.paid"
	}
	if f.class == "" {
		f.class = "com.shop.OutOfStock"
	}
	if f.at.IsZero() {
		f.at = time.Now()
	}
	r := &kgo.Record{Key: []byte("user-1"), Value: []byte(`{"orderId":1}` + f.value), Timestamp: f.at}
	add := func(name string, value []byte) {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: name, Value: value})
	}
	if f.event != "" {
		add("event-id", []byte(f.event))
	}
	add("kafka_dlt-original-topic", []byte(f.topic))
	add("kafka_dlt-original-partition", binary.BigEndian.AppendUint32(nil, uint32(f.partition)))
	add("kafka_dlt-original-offset", binary.BigEndian.AppendUint64(nil, uint64(f.offset)))
	add("kafka_dlt-original-timestamp", binary.BigEndian.AppendUint64(nil, uint64(time.Now().Add(-time.Hour).Truncate(time.Hour).UnixMilli())))
	add("kafka_dlt-original-consumer-group", []byte(f.group))
	add("kafka_dlt-exception-fqcn", []byte(f.class))
	add("kafka_dlt-exception-message", []byte(f.message))
	if f.attempts > 0 {
		add("kafka_deliveryAttempt", binary.BigEndian.AppendUint32(nil, uint32(f.attempts)))
	}
	if f.replay != "" {
		add(HeaderReplay, []byte(f.replay))
		add(HeaderItem, []byte(f.item))
	}
	return r
}

// one reads a single row.
func one[T any](t *testing.T, pool *pgxpool.Pool, sql string, args ...any) T {
	t.Helper()
	rows, err := pool.Query(t.Context(), sql, args...)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	v, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func (b *intakeBundle) count(what string) int64 {
	b.t.Helper()
	return one[int64](b.t, b.pool, "SELECT count(*) FROM "+what)
}

func (b *intakeBundle) wantCounts(counts map[string]int64) {
	b.t.Helper()
	for what, want := range counts {
		if got := b.count(what); got != want {
			b.t.Errorf("%s: %d rows, want %d", what, got, want)
		}
	}
}

func TestLetterIsStoredAsRead(t *testing.T) {
	t.Parallel()
	b := setupIntake(t)
	at := time.Now().Add(-time.Minute).Truncate(time.Millisecond)
	b.store(failure{event: "e-1", message: "no stock for order 17", offset: 5, attempts: 4, at: at}.record())
	rows, err := b.pool.Query(b.ctx, `
SELECT s.cluster, s.broker, s.name, d.drain_partition, d.drain_offset, n.name AS dialect, d.event_id, g.name AS grp, o.name AS origin,
  d.origin_partition, d.origin_offset, c.name AS class, d.error_message, d.attempts, d.failed_at, d.event_time IS NOT NULL AS timed, d.state, d.occurrences, d.flags,
  d.key_hash IS NOT NULL AS keyed, f.message, d.id >= letter_month(now() - interval '1 minute') AS fresh
FROM dead_letter d JOIN letter_source s ON s.id = d.source_id JOIN letter_name n ON n.id = d.dialect_id JOIN letter_name g ON g.id = d.group_id
JOIN letter_name o ON o.id = d.origin_id JOIN letter_name c ON c.id = d.class_id JOIN fault f ON f.id = d.fault_id`)
	if err != nil {
		t.Fatal(err)
	}
	got, err := pgx.CollectExactlyOneRow(rows, pgx.RowToMap)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"cluster": "shop", "broker": int16(1), "name": "order.paid.DLT", "drain_partition": int32(0), "drain_offset": int64(0),
		"dialect": "spring-kafka-dlpr", "event_id": "e-1", "grp": "points", "origin": "order.paid", "origin_partition": int32(0), "origin_offset": int64(5),
		"class": "com.shop.OutOfStock", "error_message": "no stock for order 17", "attempts": int32(4), "timed": true, "state": int16(1),
		"occurrences": int32(1), "flags": int32(0), "keyed": true, "message": "no stock for order #", "fresh": true}
	for column, w := range want {
		if got[column] != w {
			t.Errorf("%s = %v, want %v", column, got[column], w)
		}
	}
	if !got["failed_at"].(time.Time).Equal(at) {
		t.Errorf("failed at %v, want %v", got["failed_at"], at)
	}
	if n := one[int64](t, b.pool, "SELECT next_offset FROM drain_position"); n != 1 {
		t.Errorf("position %d, want 1", n)
	}
	if n := one[int64](t, b.pool, "SELECT n FROM fault_delta WHERE state = 1 AND verdict = 0 AND seen_at IS NOT NULL"); n != 1 {
		t.Errorf("counted %d", n)
	}
}

func TestSameFailureTwiceIsOneLetter(t *testing.T) {
	t.Parallel()
	for _, together := range []bool{true, false} {
		t.Run(fmt.Sprintf("in one batch %v", together), func(t *testing.T) {
			b := setupIntake(t)
			first, second := failure{event: "e", message: "first"}, failure{event: "e", message: "second", attempts: 7, at: time.Now().Add(time.Second)}
			if together {
				b.store(first.record(), second.record())
			} else {
				b.store(first.record())
				b.store(second.record())
			}
			b.wantCounts(map[string]int64{"dead_letter": 1, "letter_occurrence": 1, "letter_identity": 1, "fault": 2, "dead_letter_body": 2})
			b.wantLetter(2, Open, "second")
			if n := one[int32](t, b.pool, "SELECT attempts FROM dead_letter"); n != 7 {
				t.Errorf("attempts %d, want the latest's 7", n)
			}
			if m := one[string](t, b.pool, "SELECT f.message FROM dead_letter d JOIN fault f ON f.id = d.fault_id"); m != "first" {
				t.Errorf("fault %q, want the first's", m)
			}
			own := one[uuid.UUID](t, b.pool, "SELECT body_id FROM letter_occurrence")
			headers := one[[]byte](t, b.pool, "SELECT headers FROM dead_letter_body WHERE id = $1", own)
			if !bytes.Contains(headers, []byte("second")) {
				t.Error("the occurrence's own body is not its own")
			}
		})
	}
}

func (b *intakeBundle) wantLetter(occurrences int32, state State, message string) {
	b.t.Helper()
	var n int32
	var s State
	var m *string
	if err := b.pool.QueryRow(b.ctx, "SELECT occurrences, state, error_message FROM dead_letter ORDER BY id LIMIT 1").Scan(&n, &s, &m); err != nil {
		b.t.Fatal(err)
	}
	if n != occurrences || s != state || deref(m) != message {
		b.t.Errorf("%d occurrences, %s, %q; want %d, %s, %q", n, s, deref(m), occurrences, state, message)
	}
}

func TestEqualCopyHasNoBodyOfItsOwn(t *testing.T) {
	t.Parallel()
	b := setupIntake(t)
	at := time.Now()
	b.store(failure{event: "e", at: at}.record())
	b.store(failure{event: "e", at: at}.record(), failure{event: "e", at: at}.record())
	b.wantCounts(map[string]int64{"dead_letter": 1, "letter_occurrence": 2, "dead_letter_body": 1, "letter_occurrence WHERE body_id IS NULL": 2})
	b.wantLetter(3, Open, "")
}

func TestWhatDiffersInOneFactIsAnotherLetter(t *testing.T) {
	t.Parallel()
	b := setupIntake(t)
	base := failure{event: "e", offset: 5}
	other := func(change func(*failure)) *kgo.Record { f := base; change(&f); return f.record() }
	records := []*kgo.Record{
		base.record(),
		other(func(f *failure) { f.event = "e2" }), other(func(f *failure) { f.event = "" }), other(func(f *failure) { f.group = "stock" }),
		other(func(f *failure) { f.offset = 6 }), other(func(f *failure) { f.partition = 1 }), other(func(f *failure) { f.topic = "order.refunded" }),
	}
	b.store(records...)
	b.wantCounts(map[string]int64{"dead_letter": int64(len(records)), "letter_occurrence": 0})
}

func TestUnknownOriginIsNeverFolded(t *testing.T) {
	t.Parallel()
	b := setupIntake(t)
	plain := func() *kgo.Record { return &kgo.Record{Value: []byte(`{"eventId":"e"}`), Timestamp: time.Now()} }
	b.store(plain(), plain(), plain())
	b.wantCounts(map[string]int64{"dead_letter": 3, "letter_occurrence": 0, "dead_letter WHERE flags & 2 <> 0": 3})
}

func TestRecreatedTopicHasLettersOfItsOwn(t *testing.T) {
	t.Parallel()
	b := setupIntake(t)
	b.store(failure{event: "e"}.record())
	b.topic, b.next = uuid.New(), 0
	b.open(b.topic)
	b.store(failure{event: "e"}.record())
	b.wantCounts(map[string]int64{"dead_letter": 2, "letter_source": 2, "drain_position": 2})
}

func TestStaleReplicaChangesNothing(t *testing.T) {
	t.Parallel()
	b := setupIntake(t)
	mine, theirs := b.part(failure{event: "a"}.record()), *b
	theirs.next = 0
	theirs.store(failure{event: "a"}.record(), failure{event: "b"}.record())
	if err := b.try(mine); err != errStale {
		t.Errorf("got %v, want errStale", err)
	}
	b.wantCounts(map[string]int64{"dead_letter": 2, "letter_occurrence": 0})
	if n := one[int64](t, b.pool, "SELECT next_offset FROM drain_position"); n != 2 {
		t.Errorf("position %d, want 2", n)
	}
}

func TestRereadRecordsChangeNothing(t *testing.T) {
	t.Parallel()
	b := setupIntake(t)
	at := time.Now()
	records := func() []*kgo.Record {
		return []*kgo.Record{failure{event: "e", at: at}.record(), failure{event: "e", at: at.Add(time.Second), message: "again"}.record(), {Value: []byte("x"), Timestamp: at}}
	}
	b.store(records()...)
	if _, err := b.pool.Exec(b.ctx, "UPDATE drain_position SET next_offset = 0"); err != nil {
		t.Fatal(err)
	}
	b.next = 0
	b.store(records()...)
	b.wantCounts(map[string]int64{"dead_letter": 2, "letter_occurrence": 1, "dead_letter_body": 3})
	b.wantLetter(2, Open, "again")
}

func TestClosedLetterReopensOnlyForALaterFailure(t *testing.T) {
	t.Parallel()
	for _, state := range []State{Resolved, Discarded, Replaying} {
		t.Run(state.String(), func(t *testing.T) {
			b := setupIntake(t)
			b.store(failure{event: "e", at: time.Now().Add(-time.Hour)}.record())
			if _, err := b.pool.Exec(b.ctx, "UPDATE dead_letter SET state = $1, state_at = now(), verdict = 10", state); err != nil {
				t.Fatal(err)
			}
			b.store(failure{event: "e", at: time.Now().Add(-time.Minute), message: "late copy"}.record())
			b.wantLetter(2, state, "late copy")
			b.store(failure{event: "e", at: time.Now().Add(time.Minute), message: "failed anew"}.record())
			want := Open
			if state == Replaying {
				want = Replaying // the replay's own outcome decides
			}
			b.wantLetter(3, want, "failed anew")
			if n := one[int64](t, b.pool, "SELECT coalesce(sum(n), 0)::bigint FROM fault_delta WHERE state = $1", state); state != Replaying && n != -1 {
				t.Errorf("%s counts %d, want -1", state, n)
			}
			if n := one[int64](t, b.pool, "SELECT coalesce(sum(n), 0)::bigint FROM fault_delta"); n != 1 {
				t.Errorf("letters count %d, want 1", n)
			}
		})
	}
}

func TestCopyOfADroppedLetterIsALetterAgain(t *testing.T) {
	t.Parallel()
	b := setupIntake(t)
	b.store(failure{event: "e"}.record())
	if _, err := b.pool.Exec(b.ctx, "DELETE FROM dead_letter"); err != nil {
		t.Fatal(err)
	}
	b.store(failure{event: "e"}.record(), failure{event: "e"}.record())
	b.wantCounts(map[string]int64{"dead_letter": 1, "letter_occurrence": 1, "dead_letter WHERE flags & 1 <> 0": 1, "letter_identity i JOIN dead_letter d ON d.id = i.letter_id": 1})
	b.wantLetter(2, Open, "")
}

func TestEventTimeInTheFutureIsUnknown(t *testing.T) {
	t.Parallel()
	b := setupIntake(t)
	stamp := func(at time.Time) *kgo.Record {
		r := failure{event: at.String(), offset: at.Unix()}.record()
		for i, h := range r.Headers {
			if h.Key == "kafka_dlt-original-timestamp" {
				r.Headers[i].Value = binary.BigEndian.AppendUint64(nil, uint64(at.UnixMilli()))
			}
		}
		return r
	}
	b.store(stamp(time.Now().Add(14*time.Minute)), stamp(time.Now().Add(16*time.Minute)))
	b.wantCounts(map[string]int64{"dead_letter WHERE event_time IS NULL AND flags & 256 <> 0": 1, "dead_letter WHERE event_time IS NOT NULL AND flags & 256 = 0": 1})
}

func TestPositionIDCountsAsNone(t *testing.T) {
	t.Parallel()
	b := setupIntake(t)
	b.store(failure{event: "order.paid-0-5", offset: 5}.record())
	b.wantCounts(map[string]int64{"dead_letter WHERE event_id IS NULL AND flags & 4 <> 0": 1})
}

func TestMissingMonthIsMade(t *testing.T) {
	t.Parallel()
	b := setupIntake(t)
	for _, table := range []string{"dead_letter", "dead_letter_body"} {
		if _, err := b.pool.Exec(b.ctx, fmt.Sprintf("DROP TABLE %s_%s", table, time.Now().UTC().Format("200601"))); err != nil {
			t.Fatal(err)
		}
	}
	b.store(failure{event: "e"}.record())
	b.wantCounts(map[string]int64{"dead_letter": 1, "dead_letter_body": 1})
}

func TestMonthsAreMadeAtOnceByMany(t *testing.T) {
	t.Parallel()
	b := setupIntake(t)
	errs := make(chan error)
	for range 4 {
		go func() { errs <- EnsureMonths(b.ctx, b.pool) }()
	}
	for range 4 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	// the database may be a copy of one that was migrated in an earlier month
	if n := b.count("pg_inherits WHERE inhparent = 'dead_letter'::regclass AND right(inhrelid::regclass::text, 6) >= to_char(now() AT TIME ZONE 'UTC', 'YYYYMM')"); n != monthsAhead+1 {
		t.Errorf("%d months, want %d", n, monthsAhead+1)
	}
}

// weird are bodies that must survive byte for byte.
func weird(t *testing.T) []*kgo.Record {
	t.Helper()
	random := make([]byte, 1<<20)
	if _, err := rand.Read(random); err != nil {
		t.Fatal(err)
	}
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	if _, err := w.Write([]byte(strings.Repeat(`{"a":1}`, 1000))); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	hs := func(kv ...kgo.RecordHeader) []kgo.RecordHeader { return kv }
	h := func(k string, v []byte) kgo.RecordHeader { return kgo.RecordHeader{Key: k, Value: v} }
	return []*kgo.Record{
		{Key: random[:300], Value: random, Headers: hs(h("random", random[:1000]))},
		{Key: []byte("gzip"), Value: zipped.Bytes(), Headers: hs(h("content-encoding", []byte("gzip")))},
		{Key: []byte{0xff, 0xfe, 0}, Value: []byte{0xc3, 0x28, 0}, Headers: hs(h("bad", []byte{0xff, 0, 0xfe}), h("", []byte("no name")), h("n\x00\xff", nil))},
		{Key: nil, Value: nil, Headers: nil},
		{Key: []byte{}, Value: []byte{}, Headers: hs(h("empty", []byte{}), h("null", nil))},
		{Key: []byte("repeats"), Value: []byte("v"), Headers: hs(h("a", []byte("1")), h("b", nil), h("a", []byte("2")), h("a", []byte{}), h("b", []byte("3")))},
		{Key: []byte("stack"), Value: []byte("{not json"), Headers: hs(h("kafka_dlt-exception-stacktrace", bytes.Repeat([]byte("\tat com.shop.Deep.call(Deep.java:1)\n"), 6000)),
			h("kafka_dlt-exception-message", []byte("za\x00\xffhl\xc3")), h("kafka_dlt-exception-fqcn", []byte("C\x00")), h("kafka_dlt-original-topic", []byte("ord\x00ers")),
			h("kafka_dlt-original-consumer-group", []byte{0xff}), h("event-id", []byte("e\x00")))},
	}
}

func TestBytesSurvive(t *testing.T) {
	t.Parallel()
	b := setupIntake(t)
	records := weird(t)
	b.store(records...)
	b.wantBodies(records)
}

// wantBodies compares what is stored with the records, by offset.
func (b *intakeBundle) wantBodies(records []*kgo.Record) {
	b.t.Helper()
	rows, err := b.pool.Query(b.ctx, "SELECT b.key, b.value, b.headers FROM dead_letter d JOIN dead_letter_body b ON b.id = d.id ORDER BY d.drain_partition, d.drain_offset")
	if err != nil {
		b.t.Fatal(err)
	}
	i := 0
	var key, value, headers []byte
	_, err = pgx.ForEachRow(rows, []any{&key, &value, &headers}, func() error {
		sameRecord(b.t, i, records[i], key, value, headers)
		key, value, headers = nil, nil, nil
		i++
		return nil
	})
	if err != nil {
		b.t.Fatal(err)
	}
	if i != len(records) {
		b.t.Errorf("%d letters, want %d", i, len(records))
	}
}

func sameRecord(t *testing.T, i int, want *kgo.Record, key, value, encoded []byte) {
	t.Helper()
	same := func(what string, got, want []byte) {
		if !bytes.Equal(got, want) || (got == nil) != (want == nil) {
			t.Errorf("record %d: %s of %d bytes became %d bytes, null %v", i, what, len(want), len(got), got == nil)
		}
	}
	same("key", key, want.Key)
	same("value", value, want.Value)
	headers, err := DecodeHeaders(encoded)
	if err != nil {
		t.Fatal(err)
	}
	if len(headers) != len(want.Headers) {
		t.Fatalf("record %d: %d headers, want %d", i, len(headers), len(want.Headers))
	}
	for j, h := range headers {
		if h.Name != want.Headers[j].Key {
			t.Errorf("record %d: header %d is %q, want %q", i, j, h.Name, want.Headers[j].Key)
		}
		same("header "+h.Name, h.Value, want.Headers[j].Value)
	}
}

// TestCapturedRecordsBecomeLetters feeds what a real Spring application wrote: two
// of its 13 records are failures that were there before.
func TestCapturedRecordsBecomeLetters(t *testing.T) {
	t.Parallel()
	b := setupIntake(t)
	var captured []struct {
		Key       []byte `json:"key_b64"`
		Value     []byte `json:"value_b64"`
		Timestamp int64  `json:"timestamp"`
		Headers   []struct {
			Key   string `json:"key"`
			Value []byte `json:"value_b64"`
		} `json:"headers"`
	}
	text, err := os.ReadFile("dialect/testdata/spring-kafka-dlt.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &captured); err != nil {
		t.Fatal(err)
	}
	var records []*kgo.Record
	for _, c := range captured {
		r := &kgo.Record{Key: c.Key, Value: c.Value, Timestamp: time.UnixMilli(c.Timestamp)}
		for _, h := range c.Headers {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
		}
		records = append(records, r)
	}
	b.store(records...)
	b.wantCounts(map[string]int64{"dead_letter": 11, "letter_occurrence": 2, "dead_letter_body": 13, "dead_letter WHERE occurrences = 2": 2,
		"dead_letter WHERE attempts IS NULL": 8, "dead_letter WHERE attempts = 5 AND event_id = 'evt-9'": 1,
		"dead_letter WHERE group_id = 0 OR class_id = 0 OR origin_id = 0 OR event_time IS NULL": 0})
}

func TestOneRefusedRecordDoesNotHoldTheOthers(t *testing.T) {
	t.Parallel()
	b := setupIntake(t)
	if _, err := b.pool.Exec(b.ctx, "ALTER TABLE dead_letter ADD CHECK (event_id <> 'poison')"); err != nil {
		t.Fatal(err)
	}
	b.store(failure{event: "a", offset: 1}.record(), failure{event: "poison", offset: 2}.record(), failure{event: "b", offset: 3}.record())
	b.wantCounts(map[string]int64{"dead_letter": 3, "dead_letter WHERE event_id IN ('a', 'b')": 2,
		"dead_letter d JOIN letter_name n ON n.id = d.dialect_id WHERE n.name = 'kafka-unknown' AND d.event_id IS NULL": 1})
	if n := one[int64](t, b.pool, "SELECT next_offset FROM drain_position"); n != 3 {
		t.Errorf("position %d, want 3", n)
	}
}

func TestDatabaseThatIsAwayIsNoRecordsFault(t *testing.T) {
	t.Parallel()
	b := setupIntake(t)
	part := b.part(failure{event: "a"}.record())
	if _, err := b.pool.Exec(b.ctx, "ALTER TABLE dead_letter RENAME TO away"); err != nil {
		t.Fatal(err)
	}
	if err := b.try(part); err == nil {
		t.Fatal("no error")
	}
	if _, err := b.pool.Exec(b.ctx, "ALTER TABLE away RENAME TO dead_letter"); err != nil {
		t.Fatal(err)
	}
	b.wantCounts(map[string]int64{"dead_letter": 0, "letter_identity": 0, "drain_position WHERE next_offset = 0": 1})
	if err := b.try(part); err != nil {
		t.Fatal(err)
	}
	b.wantCounts(map[string]int64{"dead_letter": 1})
}

func TestNewFaultsAreCapped(t *testing.T) {
	t.Parallel()
	b := setupIntake(t)
	var records []*kgo.Record
	for i := range newFaultsPerHour + 50 {
		// letters only: nothing that could be normalised
		word := strings.Map(func(r rune) rune { return 'a' + r - '0' }, fmt.Sprintf("%06d", i))
		records = append(records, failure{event: fmt.Sprint("e", i), offset: int64(i), message: "strange " + word}.record())
	}
	b.store(records...)
	b.wantCounts(map[string]int64{"dead_letter": newFaultsPerHour + 50, "fault": newFaultsPerHour + 1})
	if n := one[int64](t, b.pool, "SELECT count(*) FROM dead_letter d JOIN fault f ON f.id = d.fault_id WHERE f.message = $1", otherMessages); n != 50 {
		t.Errorf("%d letters in the other fault, want 50", n)
	}
	b.store(failure{event: "x", offset: 9999, message: "known at last: strange aaaaaa"}.record(), failure{event: "y", offset: 9998, message: "strange aaaaaa"}.record())
	b.wantCounts(map[string]int64{"fault": newFaultsPerHour + 1})
}
