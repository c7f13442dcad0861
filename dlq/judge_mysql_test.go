package dlq

import (
	"testing"

	"oncemore/internal/testkit"
)

// The verdicts by evidence in MySQL, whose collation takes more ids for the same
// than the producer does.
func TestVerdictsByEvidenceInMySQL(t *testing.T) {
	t.Parallel()
	c := newCourt(t, testkit.FakeKafkaAddr(t))
	db := mariaShop(t)
	c.judge.groups = GroupBook{{Name: c.points, Ours: true, Topics: []string{c.topic}, Effect: EffectLocal, OrderSet: true, Evidence: mariaEvidence(db)}}
	runMySQL(t, db, "INSERT INTO mq_consume_record (event_id, consumer_group) VALUES ('EVT-1', ?), ('em-😀', ?)", c.points, c.points)
	want := map[string]Verdict{"EVT-1": AlreadyApplied, "evt-1": Collides, "em-😀": AlreadyApplied, "em-😁": Collides, "EVT-2": Safe}
	events := []string{"EVT-1", "evt-1", "em-😀", "em-😁", "EVT-2"}
	letters := make([]seedLetter, len(events))
	for i, e := range events {
		letters[i] = c.letter(e)
	}
	ids := c.add(letters...)
	for i, j := range c.ask(ToGroup, ids...) {
		v := j.Own()
		if v.Verdict != want[events[i]] || j.Headline != want[events[i]] {
			t.Errorf("%s: %s (%s), want %s", events[i], v.Verdict, v.Reason.Text, want[events[i]])
		}
		if v.Verdict == Collides && (v.Verdict.MaySend() || v.Reason.MayOverride(v.Verdict)) {
			t.Errorf("%s: a collision may be sent", events[i])
		}
	}
	db.Close() // down: unknown, and never safe
	for i, j := range c.ask(ToGroup, ids...) {
		if v := j.Own(); v.Verdict != Unknown || v.Reason.Key != "reason.unknown.evidence" || v.Verdict.MaySend() {
			t.Errorf("%s without the database: %s (%s)", events[i], v.Verdict, v.Reason.Key)
		}
	}
}
