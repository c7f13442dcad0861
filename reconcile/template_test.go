package reconcile

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/migrations/pgtest"
	"oncemore/reconcile/draft"
)

const sqlPlantLetters = `
INSERT INTO letter_name (kind, name) VALUES (1, 'points-consumer-group'), (1, 'other-group');
CALL letter_add_month('2026-11-30 12:00+00');
INSERT INTO dead_letter (id, fault_id, source_id, group_id, class_id, origin_id, dialect_id, event_id, state, state_at)
SELECT (left(letter_month('2026-11-01 00:00+00')::text, 24) || lpad(p.n::text, 12, '0'))::uuid, 1, 1, g.id, 0, 0, 0, p.event, p.state, p.at::timestamptz
FROM (VALUES
  (1, 'whole',     'points-consumer-group', 3, '2026-11-30 13:00+00'),
  (2, 'next day',  'points-consumer-group', 3, '2026-11-30 14:00+00'),
  (3, 'long ago',  'points-consumer-group', 3, '2026-11-30 14:30+00'),
  (4, 'lost',      'points-consumer-group', 3, '2026-11-30 15:00+00'),
  (5, 'open',      'points-consumer-group', 1, '2026-11-30 15:00+00'),
  (6, 'discarded', 'points-consumer-group', 4, '2026-11-30 15:00+00'),
  (7, 'unsolved',  'points-consumer-group', 1, '2026-11-30 15:00+00'),
  (8, NULL,        'points-consumer-group', 3, '2026-11-30 15:00+00'),
  (9, 'other',     'other-group',           3, '2026-11-30 15:00+00')) p (n, event, grp, state, at)
JOIN letter_name g ON g.name = p.grp`

// sqlPlantRecords is what both engines understand, a statement a line.
var sqlPlantRecords = []string{
	"CREATE TABLE mq_consume_record (event_id varchar(64), consumer_group varchar(64), consumed_at TIME_TYPE)",
	"CREATE TABLE letter_event (event_id varchar(64))",
	`INSERT INTO mq_consume_record VALUES ('whole', 'points-consumer-group', '2026-11-30 13:00:01'), ('next day', 'points-consumer-group', '2026-12-01 13:30:00'),
		('long ago', 'points-consumer-group', '2026-11-27 12:00:00'), ('lost', 'other-group', '2026-11-30 15:00:01'),
		('unsolved', 'points-consumer-group', '2026-11-30 15:00:01'), ('of no letter', 'points-consumer-group', '2026-11-30 15:00:01')`,
	"INSERT INTO letter_event VALUES ('whole'), ('next day'), ('long ago'), ('lost'), ('open'), ('discarded'), ('unsolved')",
}

// The template of letters against records runs on the console's own tables as it
// is, and finds the letter that lost its effect.
func TestLettersRecordsTemplate(t *testing.T) {
	t.Parallel()
	text, err := draft.Template("letters-records")
	if err != nil {
		t.Fatal(err)
	}
	b := openBooks(t)
	b.openConsole()
	for _, statement := range sqlPlantRecords {
		b.exec(strings.Replace(statement, "TIME_TYPE", "timestamp", 1))
		b.execMySQL(strings.Replace(statement, "TIME_TYPE", "datetime(6)", 1))
	}
	b.readable()
	want := map[string]Type{"lost": MissingEffect, "next day": Timing, "long ago": Timing, "unsolved": EffectWithoutRecord}
	for _, shop := range []string{"pg", "my"} {
		t.Run(shop, func(t *testing.T) {
			job := parseJob(t, text)
			b.named["shop"] = b.named[shop]
			found, err := Compare(t.Context(), job, b.named, "", noon, noon.Add(24*time.Hour), noon.Add(100*time.Hour), 1000)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]Type{}
			for _, f := range found.Findings {
				got[f.Key[0]] = f.Type
			}
			if !maps.Equal(got, want) || found.Tally.Matched != 1 {
				t.Errorf("%d match and %v are wrong; want 1 and %v", found.Tally.Matched, got, want)
			}
		})
	}
}

// openConsole has the planted letters, read by the role of the books.
func (b *books) openConsole() {
	b.Helper()
	console := pgtest.New(b.T)
	if _, err := console.Exec(b.Context(), sqlPlantLetters+"; GRANT SELECT ON dead_letter, letter_name TO "+b.role()); err != nil {
		b.Fatal(err)
	}
	conf := console.Config().Copy()
	conf.ConnConfig.User, conf.ConnConfig.Password = b.role(), "reader"
	reading, err := pgxpool.NewWithConfig(b.Context(), conf)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(reading.Close)
	b.named["console"] = Database{Name: "console", Postgres: reading}
}
