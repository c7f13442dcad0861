package dlq

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"oncemore/internal/access"
	"oncemore/internal/testkit"
)

// brokers runs a test on the in-process broker, and on the real one where there is one.
func brokers(t *testing.T, test func(t *testing.T, addr string)) {
	t.Helper()
	t.Parallel()
	t.Run("kfake", func(t *testing.T) { t.Parallel(); test(t, testkit.FakeKafkaAddr(t)) })
	t.Run("kafka", func(t *testing.T) { t.Parallel(); test(t, testkit.Kafka(t)) })
}

func TestReplayAppliesOnce(t *testing.T) {
	brokers(t, func(t *testing.T, addr string) {
		s := newReplayShop(t, addr)
		points := s.ours("points")
		letter := s.failed("payment-10001", points)
		s.consume(points, applies, s.topic, points+".replay")

		plan := s.plan(ada, PlanRequest{Selection: ids(letter), Target: ToGroup})
		if plan.State != Planned || plan.Total != 1 || plan.Verdicts[Safe] != 1 {
			t.Fatalf("plan %+v", plan)
		}
		s.start(ada, plan.ID)
		s.work(plan.ID)
		if p := s.get(plan.ID); p.State != Done || p.Sent != 1 || outcomes(p) != "applied 1" {
			t.Fatalf("%s, sent %d, %s", p.State, p.Sent, outcomes(p))
		}
		if st := s.letterState(letter); st != Resolved {
			t.Errorf("letter is %s", st)
		}
		again := s.plan(ada, PlanRequest{Selection: ids(letter), Target: ToGroup})
		if again.Verdicts[AlreadyApplied] != 1 || again.Total != 1 {
			t.Fatalf("second plan %+v", again)
		}
		s.start(ada, again.ID)
		s.work(again.ID)
		if p := s.get(again.ID); outcomes(p) != "duplicate 1" {
			t.Errorf("second replay: %s", outcomes(p))
		}
		if n := len(s.sent(points + ".replay")); n != 2 {
			t.Errorf("%d messages were sent", n)
		}
		if st := s.letterState(letter); st != Resolved {
			t.Errorf("letter is %s after the duplicate", st)
		}
		if n := s.count(`SELECT count(*) FROM event_claim`); n != 0 {
			t.Errorf("%d claims are left", n)
		}
	})
}

func TestReplayKeepsBytes(t *testing.T) {
	brokers(t, func(t *testing.T, addr string) {
		s := newReplayShop(t, addr)
		points := s.ours("points")
		sentBack := map[string]*kgo.Record{}
		for i, rec := range []*kgo.Record{
			{Key: nil, Value: nil},
			{Key: []byte{}, Value: []byte{}},
			{Key: []byte{0, 0xff, 0xfe}, Value: []byte{0x1f, 0x8b, 0, 0xc3, 0x28}},
			{Key: []byte("k"), Value: bytes.Repeat([]byte{7}, 1_000_000)},
		} {
			event := "odd-" + string(rune('a'+i))
			rec.Partition = int32(i % shopPartitions)
			rec.Headers = []kgo.RecordHeader{
				{Key: "trace", Value: []byte("1")}, {Key: "event-id", Value: []byte(event)}, {Key: "trace", Value: nil},
				{Key: "", Value: []byte{}}, {Key: "trace", Value: []byte{0xff, 0}}, {Key: "oncemore-replay", Value: []byte("99")},
			}
			s.produce(rec)
			s.deadLetter(rec, points)
			sentBack[event] = rec
		}
		s.drain()
		var letters Selection
		for event := range sentBack {
			letters.LetterIDs = append(letters.LetterIDs, s.letter(event, points))
		}
		s.consume(points, applies, s.topic, points+".replay")
		plan := s.plan(ada, PlanRequest{Selection: letters, Target: ToGroup})
		s.start(ada, plan.ID)
		s.work(plan.ID)
		got := s.sent(points + ".replay")
		if len(got) != len(sentBack) {
			t.Fatalf("%d of %d arrived: %s", len(got), len(sentBack), outcomes(s.get(plan.ID)))
		}
		for _, rec := range got {
			compareSent(t, sentBack[eventOf(rec)], rec)
		}
	})
}

// compareSent fails unless got is want with our two headers at the end.
func compareSent(t *testing.T, want, got *kgo.Record) {
	t.Helper()
	same := func(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }
	event := eventOf(want)
	if !same(want.Key, got.Key) || !same(want.Value, got.Value) {
		t.Errorf("%s: key %q or value (%d bytes) changed to %q (%d bytes)", event, want.Key, len(want.Value), got.Key, len(got.Value))
	}
	if want.Partition != got.Partition {
		t.Errorf("%s: partition %d became %d", event, want.Partition, got.Partition)
	}
	var headers []kgo.RecordHeader
	for _, h := range want.Headers {
		if h.Key != HeaderReplay && h.Key != HeaderItem {
			headers = append(headers, h)
		}
	}
	if len(got.Headers) != len(headers)+2 {
		t.Fatalf("%s: headers %q became %q", event, headers, got.Headers)
	}
	for i, h := range headers {
		if g := got.Headers[i]; g.Key != h.Key || !same(g.Value, h.Value) {
			t.Errorf("%s: header %d: %q=%q became %q=%q", event, i, h.Key, h.Value, g.Key, g.Value)
		}
	}
}

func TestReplayOutcomes(t *testing.T) {
	brokers(t, func(t *testing.T, addr string) {
		for name, c := range map[string]struct {
			do     behaviour
			want   string
			letter State
		}{
			"failed again": {failsAgain, "failed_again 1", Open},
			"swallowed":    {swallows, "swallowed 1", Open},
			"applied":      {applies, "applied 1", Resolved},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := newReplayShop(t, addr)
				points := s.ours("points")
				letter := s.failed("payment-1", points)
				s.consume(points, c.do, s.topic, points+".replay")
				plan := s.plan(ada, PlanRequest{Selection: ids(letter), Target: ToGroup})
				s.start(ada, plan.ID)
				s.work(plan.ID)
				if p := s.get(plan.ID); outcomes(p) != c.want {
					t.Errorf("outcome %s, want %s", outcomes(p), c.want)
				}
				if st := s.letterState(letter); st != c.letter {
					t.Errorf("letter is %s", st)
				}
			})
		}
	})
}

func TestReplayNobodySees(t *testing.T) {
	t.Parallel()
	s := newReplayShop(t, testkit.FakeKafkaAddr(t))
	points := s.ours("points")
	letter := s.failed("payment-1", points)
	s.connect(func(o *ReplayOptions) { o.SettleAfter = time.Second })
	s.skipTo(points, points+".replay") // commits, and then is down
	plan := s.plan(ada, PlanRequest{Selection: ids(letter), Target: ToGroup})
	s.start(ada, plan.ID)
	s.work(plan.ID)
	if p := s.get(plan.ID); outcomes(p) != "not_seen 1" || p.State != Done {
		t.Errorf("%s: %s", p.State, outcomes(p))
	}
	if st := s.letterState(letter); st != Open {
		t.Errorf("letter is %s", st)
	}
}

func TestReplayRefusesWhatItMay(t *testing.T) {
	t.Parallel()
	s := newReplayShop(t, testkit.FakeKafkaAddr(t))
	points := s.ours("points")
	letter := s.failed("payment-1", points)
	plan := s.plan(ada, PlanRequest{Selection: ids(letter), Target: ToGroup})
	viewer := access.Actor{User: "vic", Role: access.Viewer, Reason: "curious"}
	if _, err := s.replays.Plan(t.Context(), viewer, PlanRequest{Selection: ids(letter), Target: ToGroup}); !errors.Is(err, access.ErrForbidden) {
		t.Errorf("a viewer plans: %v", err)
	}
	if err := s.replays.Start(t.Context(), viewer, plan.ID); !errors.Is(err, access.ErrForbidden) {
		t.Errorf("a viewer starts: %v", err)
	}
	silent := ada
	silent.Reason = " "
	unsaid := s.plan(silent, PlanRequest{Selection: ids(letter), Target: ToGroup})
	if err := s.replays.Start(t.Context(), silent, unsaid.ID); !errors.Is(err, access.ErrReasonRequired) {
		t.Errorf("started without a reason: %v", err)
	}
	if _, err := s.replays.Plan(t.Context(), silent, PlanRequest{Selection: ids(letter), Target: ToSafe}); !errors.Is(err, access.ErrReasonRequired) {
		t.Errorf("one click without a reason: %v", err)
	}
	if err := s.replays.Start(t.Context(), ada, 999); !errors.Is(err, ErrNotFound) {
		t.Errorf("an unknown replay: %v", err)
	}
	var conflict *ErrConflict
	if err := s.replays.Resume(t.Context(), ada, plan.ID); !errors.As(err, &conflict) || conflict.State != Planned {
		t.Errorf("resumed what was never started: %v", err)
	}
}
