package dlq

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestALetterWithAllThatHappenedToIt(t *testing.T) {
	t.Parallel()
	s := newSeed(t)
	produced := time.Now().Add(-time.Hour).Truncate(time.Microsecond)
	ids := s.add(seedLetter{
		event: "payment-success-10001", group: "points", class: "Boom", topic: "order.paid", message: "boom",
		partition: ptr(int32(3)), offset: ptr(int64(8841207)), eventTime: &produced, failedAt: ptr(produced.Add(8 * time.Second)),
		attempts: ptr(int32(4)), key: bytes.Repeat([]byte("k"), 300), value: []byte("{}"),
		headers: []Header{{Name: "a", Value: []byte("1")}, {Name: "a", Value: nil}, {Name: "b", Value: []byte{}}},
	})
	id := ids[0]
	own := seedID(time.Now())
	group, other := s.name(1, "points"), s.name(1, "ledger")
	s.exec("INSERT INTO dead_letter_body (id, value, headers) VALUES ($1, 'other', '')", own)
	s.exec(`INSERT INTO letter_occurrence (letter_id, at, source_id, partition, "offset", body_id, error_message, replay_id, item_no)
VALUES ($1, now(), $2, 0, 7, $3, 'again', NULL, NULL), ($1, now() + interval '1 s', $2, 0, 9, NULL, NULL, 12, 1)`, id, s.source("main", "t.DLT"), own)
	s.exec(`INSERT INTO letter_verdict (letter_id, group_id, verdict, reached, reason, reason_key, reason_args, consumed_at, asked_at) VALUES
($1, $2, 11, false, 'Record.', 'reason.already_applied.record', '{"at": "x"}', now() - interval '50 min', now()), ($1, $3, 10, true, 'None.', '', '{}', NULL, now())`, id, other, group)
	s.exec(`INSERT INTO replay (id, state, target, digest, created_by) OVERRIDING SYSTEM VALUE VALUES (12, 6, 2, '', 'chen')`)
	s.exec(`INSERT INTO replay_target (id, replay_id, cluster, topic, group_id, groups) OVERRIDING SYSTEM VALUE VALUES (1, 12, 'main', 'points.replay', $1, ARRAY[$1::int])`, group)
	s.exec(`INSERT INTO replay_item (replay_id, no, target_id, item_key, letter_id, verdict, state, sent_partition, sent_offset, sent_at, bytes_from) VALUES (12, 1, 1, 'k', $1, 10, 2, 0, 5, now(), 2)`, id)
	s.exec(`INSERT INTO replay_item_letter (letter_id, replay_id, no) VALUES ($1, 12, 1)`, id)
	s.exec(`INSERT INTO replay_outcome (replay_id, item_no, group_id, verdict, outcome, at) VALUES (12, 1, $1, 10, 5, now() + interval '2 s')`, group)

	d, err := NewLetters(s.pool).Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if d.KeySize != 300 || len(d.KeyPreview) != 128 || d.BodySize != 2 || d.FaultMessage != "boom" || d.FaultOpen != 1 {
		t.Errorf("sizes and fault: %+v", d)
	}
	if len(d.Occurrences) != 2 || *d.Occurrences[0].OwnBody != own || *d.Occurrences[1].ReplayID != 12 {
		t.Errorf("occurrences: %+v", d.Occurrences)
	}
	if len(d.Verdicts) != 2 || d.Verdicts[0].Group != "points" || d.Verdicts[1].ConsumedAt == nil || d.Verdicts[1].Reason.Key != "reason.already_applied.record" {
		t.Errorf("verdicts, own group first: %+v", d.Verdicts)
	}
	r := d.Replays[0]
	if len(d.Replays) != 1 || r.State != Done || r.ItemState != "sent" || r.BytesFrom != "origin" || r.Topic != "points.replay" || len(r.Outcomes) != 1 || r.Outcomes[0].Outcome != FailedAgain {
		t.Errorf("replays: %+v", d.Replays)
	}
	var kinds []string
	for _, e := range d.Timeline() {
		kinds = append(kinds, e.Kind)
		if strings.ContainsAny(e.Text, "{}") || e.Text == "" {
			t.Errorf("unfilled sentence %q of %s", e.Text, e.Key)
		}
	}
	want := "produced failed dead_lettered applied_elsewhere drained replay_planned replay_sent occurrence reopened outcome"
	if got := strings.Join(kinds, " "); sortedWords(got) != sortedWords(want) || !strings.HasPrefix(got, "produced failed dead_lettered applied_elsewhere drained") {
		t.Errorf("timeline %s, want %s", got, want)
	}

	b, err := NewLetters(s.pool).Body(t.Context(), id)
	if err != nil || !reflect.DeepEqual(b.Headers, []Header{{Name: "a", Value: []byte("1")}, {Name: "a", Value: nil}, {Name: "b", Value: []byte{}}}) || string(b.Value) != "{}" {
		t.Errorf("body %+v %v", b, err)
	}
	if b, err := NewLetters(s.pool).OccurrenceBody(t.Context(), id, own); err != nil || string(b.Value) != "other" || b.Key != nil {
		t.Errorf("an occurrence's body: %+v %v", b, err)
	}
}

func sortedWords(text string) string {
	return strings.Join(slices.Sorted(slices.Values(strings.Fields(text))), " ")
}

func TestWhatIsNotThereIsNotFound(t *testing.T) {
	t.Parallel()
	s := newSeed(t)
	letters := NewLetters(s.pool)
	ids := s.add(seedLetter{}, seedLetter{value: []byte{}})
	absent := seedID(time.Now())
	if _, err := letters.Get(t.Context(), absent); !errors.Is(err, ErrNotFound) {
		t.Errorf("letter: %v", err)
	}
	if _, err := letters.Body(t.Context(), absent); !errors.Is(err, ErrNotFound) {
		t.Errorf("body: %v", err)
	}
	if _, err := letters.Timeline(t.Context(), absent); !errors.Is(err, ErrNotFound) {
		t.Errorf("timeline: %v", err)
	}
	if _, err := letters.OccurrenceBody(t.Context(), ids[0], ids[1]); !errors.Is(err, ErrNotFound) {
		t.Errorf("another letter's body: %v", err)
	}
	null, err := letters.Body(t.Context(), ids[0])
	if err != nil || null.Value != nil || null.Key != nil {
		t.Errorf("a null value came back as %v, %v", null.Value, err)
	}
	empty, err := letters.Body(t.Context(), ids[1])
	if err != nil || empty.Value == nil {
		t.Errorf("an empty value came back as null, %v", err)
	}
}

func TestALettersPlaceInItsFault(t *testing.T) {
	t.Parallel()
	s := newSeed(t)
	ids := s.add(seedLetter{message: "a"}, seedLetter{message: "b"}, seedLetter{message: "a"}, seedLetter{message: "a", state: Resolved}, seedLetter{message: "a"})
	for i, want := range map[int]int{0: 3, 1: 1, 2: 2, 3: 0, 4: 1} {
		d, err := NewLetters(s.pool).Get(t.Context(), ids[i])
		if err != nil || d.FaultPlace != want {
			t.Errorf("letter %d stands at %d of %d, want %d (%v)", i, d.FaultPlace, d.FaultOpen, want, err)
		}
	}
}
