package dlq

import (
	"testing"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"
)

// mixedFault is one fault of points, which has no topic of its own: a replay has
// to pass by sms, whose effect is outside and is not remembered there. What sms
// has consumed is safe to pass by it again, the rest is unprotected.
type mixedFault struct {
	points, sms       string
	id                int32
	bare, nameless    uuid.UUID
	safe, alreadyDone []uuid.UUID
}

func newMixedFault(s *replayShop) mixedFault {
	s.t.Helper()
	f := mixedFault{points: s.foreign("points", s.evidence()), sms: s.foreign("sms", s.evidence())}
	s.groups[len(s.groups)-1].Effect = EffectExternal
	s.connect()
	for _, event := range []string{"safe-1", "safe-2", "safe-3"} {
		f.safe = append(f.safe, s.failed(event, f.points))
		s.consumed(event, f.sms)
	}
	f.alreadyDone = append(f.alreadyDone, s.failed("applied-4", f.points))
	s.consumed("applied-4", f.sms)
	s.consumed("applied-4", f.points)
	f.bare = s.failed("bare-5", f.points)
	s.deadLetter(s.produce(&kgo.Record{Value: []byte("no id")}), f.points)
	s.drain()
	f.nameless = s.letter("", f.points)
	s.must(nil, s.pool.QueryRow(s.t.Context(), `SELECT fault_id FROM dead_letter WHERE id = $1`, f.bare).Scan(&f.id))
	return f
}

func (f mixedFault) all() []uuid.UUID {
	return append(append([]uuid.UUID{f.bare, f.nameless}, f.safe...), f.alreadyDone...)
}

// counted is what the fault's page says without asking any evidence.
func (f mixedFault) counted(s *replayShop) Fault {
	s.t.Helper()
	_, err := s.judge.LookAgain(s.t.Context(), f.all(), ToSafe)
	s.must(nil, err)
	_, err = Fold(s.t.Context(), s.pool)
	s.must(nil, err)
	fault, err := NewFaults(s.pool).Get(s.t.Context(), f.id)
	s.must(nil, err)
	return fault
}

func TestOneClickOnAFaultOfEveryKind(t *testing.T) {
	brokers(t, func(t *testing.T, addr string) {
		s := newReplayShop(t, addr)
		f := newMixedFault(s)
		if n := s.count(`SELECT count(*) FROM dead_letter WHERE fault_id = $1`, f.id); n != 6 {
			t.Fatalf("the fault has %d letters", n)
		}
		s.consume(f.points, applies, s.topic)
		s.consume(f.sms, applies, s.topic)
		s.jobs()
		before := f.counted(s)

		plan := s.plan(ada, PlanRequest{Selection: Selection{FaultID: f.id}, Target: ToSafe})
		if plan.State != Running || plan.Total != 4 || plan.Verdicts[Safe] != 3 || plan.Verdicts[AlreadyApplied] != 1 || plan.Verdicts[Unprotected] != 1 || plan.Verdicts[NoEventID] != 1 {
			t.Fatalf("plan %+v", plan)
		}
		// The button counts letters, the plan items. Here they are as many: each letter is of an event of its own.
		if before.SafeCount() != int64(plan.Total) || before.Open != 6 || plan.Letters != 6 {
			t.Errorf("the button said %d of %d open letters, %d items are sent and %d letters were looked at", before.SafeCount(), before.Open, plan.Total, plan.Letters)
		}
		f.twoStay(t, plan)
		s.waitDone(plan.ID)
		if p := s.get(plan.ID); outcomes(p) != "applied 3, duplicate 5" || p.Sent != 4 || p.Refused != 2 {
			t.Errorf("%s, sent %d, refused %d", outcomes(p), p.Sent, p.Refused)
		}
		if n := len(s.sent(s.topic)); n != 4 {
			t.Errorf("%d messages were sent", n)
		}
		for state, letters := range map[State][]uuid.UUID{Open: {f.bare, f.nameless}, Resolved: append(f.safe, f.alreadyDone...)} {
			for _, id := range letters {
				if got := s.letterState(id); got != state {
					t.Errorf("letter %s is %s, want %s", id, got, state)
				}
			}
		}
	})
}

// twoStay checks that the plan says of both why.
func (f mixedFault) twoStay(t *testing.T, plan Plan) {
	t.Helper()
	why := map[uuid.UUID]Verdict{}
	for _, r := range plan.Refused {
		if why[r.LetterID] = r.Verdict; r.Reason.Text == "" {
			t.Errorf("%s stays without a reason", r.Verdict)
		}
	}
	if len(why) != 2 || why[f.bare] != Unprotected || why[f.nameless] != NoEventID {
		t.Errorf("left out: %v", why)
	}
}
