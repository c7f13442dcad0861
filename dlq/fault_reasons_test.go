package dlq

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// explain keeps a verdict of a letter for a group, as Judge.Save does.
func (s *seed) explain(letter uuid.UUID, group string, v Verdict, r Reason, reached bool) {
	s.t.Helper()
	kept := storeReason(r)
	s.exec(`INSERT INTO letter_verdict (letter_id, group_id, verdict, reached, reason, reason_key, reason_args, asked_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7::jsonb, now())`, letter, s.name(1, group), int16(v), reached, kept.Text, kept.Key, string(kept.Args))
}

// The reasons of a fault are of its newest open letters that do not go, each
// verdict with the most frequent one.
func TestFaultReasons(t *testing.T) {
	t.Parallel()
	s := newSeed(t)
	start := time.Now().Add(-time.Hour)
	n := 0
	add := func(v Verdict, state State, key string, pairs ...any) {
		t.Helper()
		n++
		id := s.add(seedLetter{group: "points", message: "boom", at: start.Add(time.Duration(n) * time.Second), state: state, verdict: v})[0]
		s.explain(id, "points", v, reason(key, pairs...), true)
		s.explain(id, "stock", Safe, reason("reason.safe.no_record", "group", "stock"), true)
	}
	for range 5 { // pushed out of the sample by what is newer
		add(Unknown, Open, "reason.unknown.evidence", "connection", "shop", "at", instant(start))
	}
	for range 150 {
		add(Expired, Open, "reason.expired.event_time_unknown")
	}
	for range 30 {
		add(Expired, Open, "reason.expired.complete_since", "since", "2026-01-01T00:00:00.000Z", "event_time", "2025-12-01T00:00:00.000Z")
	}
	for range 10 {
		add(Safe, Open, "reason.safe.no_record", "group", "points")
	}
	for i := range 10 {
		add(OutOfOrder, Open, "reason.out_of_order.later", "topic", "order.paid", "partition", 0, "offset", int64(i))
	}
	for range 20 {
		add(NoEventID, Discarded, "reason.no_event_id.none")
	}
	var fault int32
	for _, id := range s.faults {
		fault = id
	}
	got, err := NewFaults(s.pool).Reasons(t.Context(), fault)
	if err != nil || got.Sample != ReasonSample || len(got.Items) != 2 {
		t.Fatalf("%+v %v", got, err)
	}
	first, second := got.Items[0], got.Items[1]
	if first.Verdict != Expired || first.N != 150 || first.Varies || first.Reason.Key != "reason.expired.event_time_unknown" {
		t.Errorf("first %+v", first)
	}
	if second.Verdict != OutOfOrder || second.N != 10 || !second.Varies || second.Reason.Args["offset"] != int64(9) {
		t.Errorf("second %+v", second)
	}
	if none, err := NewFaults(s.pool).Reasons(t.Context(), fault+1); err != nil || len(none.Items) != 0 {
		t.Errorf("a fault without letters: %+v %v", none, err)
	}
}

// The sample is read by the index of the fault, however the fault's letters lie
// among the others: here all are older than 5,000 of another.
func TestFaultReasonsReadTheFaultsIndex(t *testing.T) {
	t.Parallel()
	s := newSeed(t)
	at := time.Now().Add(-time.Hour)
	letters := make([]seedLetter, 10_000)
	for i := range letters {
		letters[i] = seedLetter{message: []string{"old", "new"}[i/5000], at: at.Add(time.Duration(i) * time.Millisecond)}
	}
	first := s.add(letters...)[0]
	s.exec("ANALYZE dead_letter")
	fault := s.one("SELECT fault_id FROM dead_letter WHERE id = $1", first)
	rows, err := s.pool.Query(t.Context(), "EXPLAIN "+sqlFaultReasons, pgx.NamedArgs{"fault": int32(fault), "sample": ReasonSample})
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if plan := strings.Join(lines, "\n"); err != nil || !strings.Contains(plan, "_fault_id_state_id_idx") || strings.Contains(plan, "Seq Scan on dead_letter") || strings.Contains(plan, "_pkey on dead_letter") {
		t.Errorf("%v\n%s", err, plan)
	}
}

// A search finds the items that hold a letter, with their outcomes and the place
// in the replay's list.
func TestFindReplaysOfLetters(t *testing.T) {
	t.Parallel()
	s := newSeed(t)
	ids := s.add(seedLetter{group: "points", event: "e-1", message: "a"}, seedLetter{group: "stock", event: "e-1", message: "b"}, seedLetter{event: "e-2", message: "c"})
	for replay, state := range []int16{itemSent, itemLeftOut, itemSent} {
		s.exec(`INSERT INTO replay (id, state, target, digest, created_by) OVERRIDING SYSTEM VALUE VALUES ($1, 1, 1, '', 'ada')`, replay+1)
		target := s.one(`INSERT INTO replay_target (replay_id, cluster, topic, groups) VALUES ($1, 'main', 'order.paid', '{}') RETURNING id`, replay+1)
		for no := range 3 { // e-1 is the third item, with both its letters
			s.exec(`INSERT INTO replay_item (replay_id, no, target_id, item_key, letter_id, verdict, state) VALUES ($1, $2, $3, $4, $5, 1, $6)`,
				replay+1, no+1, target, fmt.Sprint("e-", 3-no), ids[0], state)
		}
		s.exec(`INSERT INTO replay_item_letter (letter_id, replay_id, no) VALUES ($1, $3, 3), ($2, $3, 3)`, ids[0], ids[1], replay+1)
	}
	s.exec(`INSERT INTO replay_outcome (replay_id, item_no, group_id, verdict, outcome, at) SELECT 1, 3, g, 1, $1, now() FROM generate_series(1, 2) g`, int16(Applied))
	replays := &Replays{pool: s.pool}
	found, more, err := replays.Find(t.Context(), ids[:2], 5)
	if err != nil || more || len(found) != 3 {
		t.Fatalf("%+v, more %v, %v", found, more, err)
	}
	oldest := found[2]
	if oldest.ReplayID != 1 || oldest.No != 3 || oldest.State != "sent" || oldest.To != "order.paid" || len(oldest.Outcomes) != 1 || oldest.Outcomes[0] != Applied {
		t.Errorf("%+v", oldest)
	}
	if found[0].ReplayID != 3 || found[1].State != "left_out" || len(found[1].Outcomes) != 0 {
		t.Errorf("%+v", found)
	}
	page, err := replays.Items(t.Context(), 1, ItemFilter{Tab: "all"}, Page{Cursor: oldest.Before})
	if err != nil || len(page.Items) != 1 || page.Items[0].No != 3 {
		t.Errorf("the item list starts at %+v %v", page.Items, err)
	}
	if found, more, err = replays.Find(t.Context(), ids[:2], 2); err != nil || !more || len(found) != 2 {
		t.Errorf("bounded: %d, more %v, %v", len(found), more, err)
	}
	if found, _, err = replays.Find(t.Context(), ids[2:], 2); err != nil || len(found) != 0 {
		t.Errorf("a letter that was not replayed: %+v %v", found, err)
	}
}
