package dlq

import (
	"testing"
	"time"

	"github.com/google/uuid"
)

// sentItem stores a letter of points and the item 1 of replay 7 that sent it to
// order.paid 0/50.
func sentItem(t *testing.T) (*intakeBundle, uuid.UUID) {
	t.Helper()
	b := setupIntake(t)
	b.store(failure{event: "e", offset: 5, at: time.Now().Add(-time.Hour)}.record())
	id := one[uuid.UUID](t, b.pool, "SELECT id FROM dead_letter")
	b.exec(`UPDATE dead_letter SET state = 2, verdict = 10`)
	b.exec(`INSERT INTO replay (id, state, target, digest, created_by) OVERRIDING SYSTEM VALUE VALUES (7, 4, 1, '', 'olga')`)
	b.exec(`INSERT INTO replay_target (id, replay_id, cluster, topic, groups) OVERRIDING SYSTEM VALUE VALUES (70, 7, 'shop', 'order.paid', '{}')`)
	b.exec(`INSERT INTO replay_item (replay_id, no, target_id, item_key, letter_id, verdict, state, sent_partition, sent_offset) VALUES (7, 1, 70, 'e', $1, 10, 2, 0, 50)`, id)
	b.exec(`INSERT INTO replay_item_letter (letter_id, replay_id, no) VALUES ($1, 7, 1)`, id)
	return b, id
}

func (b *intakeBundle) exec(sql string, args ...any) {
	b.t.Helper()
	if _, err := b.pool.Exec(b.ctx, sql, args...); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
}

// again is the failure of the sent item.
func again() failure {
	return failure{event: "e", offset: 50, replay: "7", item: "1", message: "failed again"}
}

const laterReplay = `
WITH i AS (INSERT INTO replay_item (replay_id, no, target_id, item_key, letter_id, verdict, state) SELECT 9, 1, 70, 'e', id, 10, 2 FROM dead_letter)
INSERT INTO replay_item_letter (letter_id, replay_id, no) SELECT id, 9, 1 FROM dead_letter`

func TestRepeatFailureJoinsItsLetter(t *testing.T) {
	t.Parallel()
	b, id := sentItem(t)
	b.store(again().record())
	b.wantLetter(2, Open, "failed again")
	b.wantCounts(map[string]int64{"dead_letter": 1, "letter_occurrence WHERE replay_id = 7 AND item_no = 1 AND body_id IS NOT NULL": 1})
	if n := one[int64](t, b.pool, "SELECT sum(n)::bigint FROM fault_delta WHERE state = 2 AND verdict = 10"); n != -1 {
		t.Errorf("replaying counts %d, want -1", n)
	}
	if n := one[int64](t, b.pool, "SELECT sum(n)::bigint FROM fault_delta WHERE state = 1 AND verdict = 0 AND seen_at IS NOT NULL"); n != 2 { // the first arrival, and this one
		t.Errorf("open counts %d, want 2", n)
	}
	b.wantCounts(map[string]int64{"dead_letter WHERE verdict = 0 AND verdict_at IS NULL": 1}) // judged anew
	b.exec("UPDATE dead_letter SET state = 2, state_at = now() + interval '1 hour'")
	b.exec(laterReplay)
	b.store(again().record()) // a second publish of the same failure, while the next replay is under way
	b.wantLetter(3, Replaying, "failed again")
	if got := one[uuid.UUID](t, b.pool, "SELECT letter_id FROM letter_identity ORDER BY letter_id LIMIT 1"); got != id {
		t.Errorf("identity of %s", got)
	}
	b.wantCounts(map[string]int64{"dead_letter": 1, "letter_identity": 2})
}

func TestStrangersDoNotJoin(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		change func(*failure)
		sql    string
	}{
		"without headers":                   {change: func(f *failure) { f.replay = "" }},
		"another replay":                    {change: func(f *failure) { f.replay = "8" }},
		"another item":                      {change: func(f *failure) { f.item = "2" }},
		"headers that are no number":        {change: func(f *failure) { f.replay, f.item = "seven", "-1" }},
		"another event":                     {change: func(f *failure) { f.event = "e2" }},
		"no event":                          {change: func(f *failure) { f.event = "" }},
		"another group":                     {change: func(f *failure) { f.group = "stock" }},
		"another topic":                     {change: func(f *failure) { f.topic = "order.refunded" }},
		"another offset":                    {change: func(f *failure) { f.offset = 51 }},
		"another partition":                 {change: func(f *failure) { f.partition = 3 }},
		"an item not sent":                  {sql: "UPDATE replay_item SET state = 4"},
		"an item that waits":                {sql: "UPDATE replay_item SET state = 0"},
		"an item that applied":              {sql: "INSERT INTO replay_outcome (replay_id, item_no, group_id, verdict, outcome, at) SELECT 7, 1, group_id, 10, 2, now() FROM dead_letter"},
		"another cluster":                   {sql: "UPDATE replay_target SET cluster = 'pay'"},
		"a letter that a later replay sent": {sql: laterReplay},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, _ := sentItem(t)
			f := again()
			if c.change != nil {
				c.change(&f)
			}
			if c.sql != "" {
				b.exec(c.sql)
			}
			b.store(f.record())
			b.wantCounts(map[string]int64{"dead_letter": 2, "letter_occurrence": 0, "dead_letter WHERE state = 2 AND occurrences = 1": 1})
		})
	}
}

func TestItemWithoutAnEventIDJoinsByItsLetter(t *testing.T) {
	t.Parallel()
	b, _ := sentItem(t)
	b.exec("UPDATE dead_letter SET event_id = NULL")
	f := again()
	f.event = ""
	b.store(f.record())
	b.wantLetter(2, Open, "failed again")
}

func TestItemNotConfirmedYetJoinsByTopic(t *testing.T) {
	t.Parallel()
	b, _ := sentItem(t)
	b.exec("UPDATE replay_item SET state = 1, sent_partition = NULL, sent_offset = NULL")
	b.store(again().record())
	b.wantLetter(2, Open, "failed again")
}

func TestItemSentToARetryTopicJoinsByTheOriginTopic(t *testing.T) {
	t.Parallel()
	b, _ := sentItem(t)
	b.exec("UPDATE replay_target SET topic = 'order.paid-retry-0'")
	f := again()
	f.offset = 5 // the retry topic's own headers still name the first record
	b.store(f.record())
	b.wantLetter(2, Open, "failed again")
}

func TestEachGroupOfAnItemJoinsItsOwnLetter(t *testing.T) {
	t.Parallel()
	b, _ := sentItem(t)
	b.store(failure{event: "e", offset: 5, group: "stock"}.record())
	b.exec(`INSERT INTO replay_item_letter (letter_id, replay_id, no) SELECT id, 7, 1 FROM dead_letter WHERE state = 1`)
	f := again()
	f.group = "stock"
	b.store(f.record(), again().record())
	b.wantCounts(map[string]int64{"dead_letter": 2, "dead_letter WHERE occurrences = 2 AND state = 1": 2, "letter_occurrence WHERE replay_id = 7": 2})
}
