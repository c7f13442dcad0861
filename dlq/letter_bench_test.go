package dlq

import (
	"context"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"
)

// sqlManyLetters makes n letters of the last hours: 500 faults over 20 sources,
// 15 groups and 60 classes, every tenth letter in the first fault.
const sqlManyLetters = `
WITH g AS (SELECT i, CASE WHEN i % 10 = 0 THEN 0 ELSE i % 499 + 1 END AS f FROM generate_series(1::bigint, $1::bigint) i),
l AS (
  INSERT INTO dead_letter (id, fault_id, source_id, group_id, class_id, origin_id, origin_partition, origin_offset, failed_at, attempts,
    dialect_id, event_id, error_message, state, state_at, verdict)
  SELECT (lpad(to_hex((extract(epoch FROM now() - interval '3 hours') * 1000)::bigint + i * 10000000 / $1), 12, '0') || '7000' || '8000' || lpad(to_hex(i), 12, '0'))::uuid,
    1 + f, 1 + f % 20, 1 + f % 15, 100 + f % 60, 200, 0, i, now(), 1 + (i % 5)::int, 300, 'payment-' || i, 'boom ' || f,
    CASE WHEN i % 7 < 4 OR f = 0 THEN 1 WHEN i % 7 < 6 THEN 3 ELSE 4 END, now(), (i % 11)::smallint
  FROM g RETURNING id, fault_id, state, verdict, event_id),
b AS (
  INSERT INTO dead_letter_body (id, key, value, headers)
  SELECT id, convert_to('k-' || event_id, 'UTF8'), convert_to('{"eventId":"' || event_id || '","orderId":' || substr(event_id, 9) || ',"amount":"100.00","status":"PAID","note":"双十一跨店满减 ' || repeat('x', 400) || '"}', 'UTF8'), ''
  FROM l)
INSERT INTO fault_delta (fault_id, state, verdict, n, seen_at) SELECT fault_id, state, verdict, count(*), now() FROM l GROUP BY 1, 2, 3`

func manyLetters(b testing.TB, n int) *seed {
	b.Helper()
	s := newSeed(b)
	s.exec("INSERT INTO letter_source (id, cluster, broker, name) OVERRIDING SYSTEM VALUE SELECT i, 'main', 1, 'topic-' || i || '.DLT' FROM generate_series(1, 20) i")
	s.exec("INSERT INTO letter_name (id, kind, name) OVERRIDING SYSTEM VALUE SELECT i, 1, 'group-' || i FROM generate_series(1, 15) i")
	s.exec("INSERT INTO letter_name (id, kind, name) OVERRIDING SYSTEM VALUE SELECT i, 2, 'class-' || i FROM generate_series(100, 159) i")
	s.exec("INSERT INTO letter_name (id, kind, name) OVERRIDING SYSTEM VALUE VALUES (200, 3, 'order.paid'), (300, 5, 'spring-kafka-dlpr')")
	s.exec(`INSERT INTO fault (id, fingerprint, source_id, origin_id, group_id, class_id, dialect_id, message, first_seen, last_seen) OVERRIDING SYSTEM VALUE
SELECT 1 + f, gen_random_uuid(), 1 + f % 20, 200, 1 + f % 15, 100 + f % 60, 300, 'boom ' || f, now(), now() FROM generate_series(0, 499) f`)
	s.exec(sqlManyLetters, n)
	s.fold()
	for _, table := range []string{"dead_letter", "dead_letter_body", "fault", "fault_count"} {
		s.exec("VACUUM ANALYZE " + table)
	}
	return s
}

// BenchmarkLetterLists reads pages of lists; ONCEMORE_LETTERS says of how many
// letters, default 100,000.
func BenchmarkLetterLists(b *testing.B) {
	n := 100_000
	if text := os.Getenv("ONCEMORE_LETTERS"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			b.Fatal(err)
		}
	}
	s := manyLetters(b, n)
	start := time.Now()
	indexed := 0
	for {
		k, err := IndexTokens(b.Context(), s.pool, -time.Minute)
		if err != nil {
			b.Fatal(err)
		}
		if indexed += k; k == 0 {
			break
		}
	}
	took := time.Since(start)
	b.Run("index", func(b *testing.B) { b.ReportMetric(float64(indexed)/took.Seconds(), "letters/s") })
	s.exec("VACUUM ANALYZE letter_token")
	letters, faults := NewLetters(s.pool), NewFaults(s.pool)
	middle := s.middle(b)
	for _, c := range []struct {
		name string
		f    LetterFilter
	}{
		{"all", LetterFilter{}}, {"state", LetterFilter{State: Resolved}}, {"oldest first", LetterFilter{State: Open, Sort: SortOldest}},
		{"source", LetterFilter{Source: "topic-3.DLT"}}, {"group", LetterFilter{Group: "group-4"}}, {"class", LetterFilter{ErrorClass: "class-110"}},
		{"fault", LetterFilter{FaultID: 1}}, {"event", LetterFilter{EventID: "payment-777"}}, {"group and class", LetterFilter{Group: "group-4", ErrorClass: "class-103", State: Open}},
		{"source and time", LetterFilter{Source: "topic-3.DLT", Since: time.Now().Add(-2 * time.Hour)}}, {"dialect", LetterFilter{Dialect: "spring-kafka-dlpr"}},
		{"verdict", LetterFilter{Verdict: Safe, State: Open}}, {"rare verdict in a fault", LetterFilter{Verdict: Safe, AttemptsMin: 5, FaultID: 1}}, {"absent verdict", LetterFilter{Verdict: AlreadyApplied}},
		{"attempts", LetterFilter{AttemptsMin: 5}}, {"owner, none has", LetterFilter{Owner: "ada"}},
		{"token order id", LetterFilter{Search: "json.orderId:77777"}}, {"token in all", LetterFilter{Search: "json.status:PAID"}}, {"token absent", LetterFilter{Search: "nowhere-at-all"}},
		{"text in the big fault", LetterFilter{Text: "payment-1230", FaultID: 1}},
	} {
		b.Run(c.name, func(b *testing.B) {
			measure(b, func() error { _, err := letters.List(b.Context(), c.f, Page{}); return err })
		})
		if !c.f.Compared() {
			b.Run(c.name+" deep", func(b *testing.B) {
				cursor := cursor{direction: c.f.direction(), id: middle}.encode(c.f)
				measure(b, func() error { _, err := letters.List(b.Context(), c.f, Page{Cursor: cursor}); return err })
			})
			b.Run(c.name+" count", func(b *testing.B) {
				measure(b, func() error { _, _, err := letters.Count(b.Context(), c.f); return err })
			})
		}
	}
	b.Run("faults", func(b *testing.B) {
		measure(b, func() error { _, err := faults.List(b.Context(), FaultFilter{}, Page{}); return err })
	})
	b.Run("faults by verdict", func(b *testing.B) {
		measure(b, func() error { _, err := faults.List(b.Context(), FaultFilter{Verdict: Safe}, Page{}); return err })
	})
	b.Run("groups by class", func(b *testing.B) {
		measure(b, func() error { _, err := faults.GroupBy(b.Context(), FaultFilter{}, ByClass, nil); return err })
	})
	b.Run("groups by shape", func(b *testing.B) {
		measure(b, func() error { _, err := faults.GroupBy(b.Context(), FaultFilter{}, ByShape, nil); return err })
	})
	b.Run("one fault", func(b *testing.B) {
		measure(b, func() error { _, err := faults.Get(b.Context(), 1); return err })
	})
	b.Run("discard and take back", func(b *testing.B) { s.benchBulk(b) })
}

func (s *seed) middle(b *testing.B) (id uuid.UUID) {
	b.Helper()
	if err := s.pool.QueryRow(context.Background(), "SELECT id FROM dead_letter WHERE id > $1 ORDER BY id LIMIT 1", idAt(time.Now().Add(-100*time.Minute).UnixMilli())).Scan(&id); err != nil {
		b.Fatal(err)
	}
	return id
}

// benchBulk discards the largest fault and takes it back.
func (s *seed) benchBulk(b *testing.B) {
	b.Helper()
	bulks := newBulks(b, s, 0)
	start := time.Now()
	asked, err := bulks.Discard(context.Background(), operator, BulkRequest{Selection: Selection{FaultID: 1}})
	if err != nil {
		b.Fatal(err)
	}
	answered := time.Since(start)
	done := s.finish(bulks, asked.ID)
	took := time.Since(start)
	b.ReportMetric(float64(done.Changed), "letters")
	b.ReportMetric(answered.Seconds()*1000, "answered-ms")
	b.ReportMetric(float64(done.Changed)/took.Seconds(), "discarded/s")
	start = time.Now()
	undo, err := bulks.Undo(context.Background(), operator, asked.ID)
	if err != nil {
		b.Fatal(err)
	}
	undo = s.finish(bulks, undo.ID)
	b.ReportMetric(float64(undo.Changed)/time.Since(start).Seconds(), "restored/s")
	b.ReportMetric(0, "ns/op")
}

// measure reports the 50th and 99th percentile in milliseconds.
func measure(b *testing.B, do func() error) {
	b.Helper()
	var took []time.Duration
	for b.Loop() {
		start := time.Now()
		if err := do(); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
	b.ReportMetric(0, "ns/op")
}
