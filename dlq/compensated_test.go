package dlq

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"oncemore/internal/testkit"
)

func (c *court) compensate(m Repair) error {
	c.t.Helper()
	return pgx.BeginFunc(c.t.Context(), c.pool, func(tx pgx.Tx) error { return MarkCompensated(c.t.Context(), tx, m) })
}

// What a compensation has repaired is never replayed, with a record or without
// one, and open letters say so at once.
func TestACompensatedEffectIsNotReplayed(t *testing.T) {
	t.Parallel()
	c := newCourt(t, testkit.FakeKafkaAddr(t))
	ids := c.add(c.letter("e-1"), c.letter("e-2"))
	if _, err := c.judge.LookAgain(t.Context(), ids, ToSafe); err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC)
	for _, id := range []int64{57, 58} { // the first stands
		if err := c.compensate(Repair{"e-1", c.points, id, at}); err != nil {
			t.Fatal(err)
		}
	}
	c.fold()
	if n := c.one("SELECT sum(n)::bigint FROM fault_count WHERE state = 1 AND verdict = 0"); n != 1 {
		t.Errorf("%d letters wait for a verdict", n)
	}
	judged := c.ask(ToSafe, ids...)
	if v := judged[0].Own(); v.Verdict != Compensated || v.Reason.Args["compensation"] != int64(57) || judged[0].Headline.MaySend() || v.Reason.MayOverride(v.Verdict) {
		t.Errorf("compensated: %+v", v)
	}
	if judged[1].Headline != Safe {
		t.Errorf("another event: %+v", judged[1])
	}
	c.consumed("e-1", c.points)
	if v := c.ask(ToSafe, ids[0])[0].Own(); v.Verdict != Compensated || !v.Recorded {
		t.Errorf("with a record: %+v", v)
	}
	for _, bad := range []Repair{{}, {"e-1", "", 1, at}, {"e-1", "g", 0, at}, {"", "g", 1, at}, {"e-1", "g", 1, time.Time{}}} {
		if err := c.compensate(bad); !errors.Is(err, ErrBadCompensated) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// The mark commits with the repair or not at all.
func TestAMarkThatIsRolledBackIsNone(t *testing.T) {
	t.Parallel()
	c := newCourt(t, testkit.FakeKafkaAddr(t))
	id := c.add(c.letter("e-1"))[0]
	failed := errors.New("the repair failed")
	err := pgx.BeginFunc(t.Context(), c.pool, func(tx pgx.Tx) error {
		if err := MarkCompensated(t.Context(), tx, Repair{"e-1", c.points, 57, time.Now()}); err != nil {
			return err
		}
		return failed
	})
	if !errors.Is(err, failed) || c.ask(ToSafe, id)[0].Headline != Safe {
		t.Errorf("%v, %s", err, c.ask(ToSafe, id)[0].Headline)
	}
}

// Two forms of one event are never both under way: as long as what was sent has
// shown no outcome that settles it, the other form is altered.
func TestAnUnsettledSendOfAnotherFormAlters(t *testing.T) {
	t.Parallel()
	c := newCourt(t, testkit.FakeKafkaAddr(t))
	id := c.add(c.letter("e-1"))[0]
	judge := func(revision int, holder int64) GroupVerdict {
		t.Helper()
		subjects, err := c.judge.Subjects(t.Context(), []uuid.UUID{id})
		if err != nil {
			t.Fatal(err)
		}
		subjects[0].Revision, subjects[0].Holder = revision, holder
		judged, err := c.judge.Judge(t.Context(), subjects, ToSafe)
		if err != nil {
			t.Fatal(err)
		}
		return judged[0].Own()
	}
	group := c.one("SELECT id FROM letter_name WHERE kind = 1 AND name = $1", c.points)
	replay := c.one("INSERT INTO replay (state, target, digest, created_by) VALUES (6, 2, '', 'chen') RETURNING id")
	target := c.one("INSERT INTO replay_target (replay_id, cluster, topic, group_id, groups) VALUES ($1, 'main', 't', $2, ARRAY[$2::int]) RETURNING id", replay, group)
	c.exec("INSERT INTO replay_item (replay_id, no, target_id, item_key, letter_id, verdict, state, revision) VALUES ($1, 1, $2, 'e-1', $3, 10, 2, 0)", replay, target, id)
	c.exec("INSERT INTO replay_item_letter (letter_id, replay_id, no) VALUES ($1, $2, 1)", id, replay)
	for _, sent := range []int{0, 1} {
		c.exec("UPDATE replay_item SET revision = $1", sent)
		for outcome, settled := range map[Outcome]bool{0: false, Pending: false, NotSeen: false, Unverified: false, Unconfirmed: false, FailedAgain: true, Swallowed: true, Applied: true} {
			c.exec("DELETE FROM replay_outcome")
			if outcome != 0 {
				c.exec("INSERT INTO replay_outcome (replay_id, item_no, group_id, verdict, outcome, at) VALUES ($1, 1, $2, 10, $3, now())", replay, group, int16(outcome))
			}
			for revision := range 3 {
				v := judge(revision, 0)
				want := Safe
				if !settled && revision != sent {
					want = Altered
				}
				if v.Verdict != want || want == Altered && !v.Reason.MayOverride(v.Verdict) {
					t.Errorf("form %d sent and %q, form %d is %s (%s)", sent, outcome, revision, v.Verdict, v.Reason.Text)
				}
			}
			if v := judge(2, replay); v.Verdict != Safe {
				t.Errorf("the replay's own send is %s", v.Verdict)
			}
		}
	}
	c.exec("DELETE FROM replay_outcome")
	c.consumed("e-1", c.points)
	if v := judge(1, 0); v.Verdict != Altered || v.Reason.MayOverride(v.Verdict) {
		t.Errorf("over a record: %+v", v)
	}
	if v := judge(0, 0); v.Verdict != AlreadyApplied {
		t.Errorf("the original, with a record: %+v", v)
	}
}
