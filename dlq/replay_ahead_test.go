package dlq

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"oncemore/internal/testkit"
)

// noting remembers which letters were judged.
type noting struct {
	Judging
	mu     sync.Mutex
	judged map[uuid.UUID]int
}

func (n *noting) Judge(ctx context.Context, subjects []Subject, target Target) ([]Judged, error) {
	out, err := n.Judging.Judge(ctx, subjects, target)
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range subjects {
		n.judged[s.LetterID]++
	}
	return out, err
}

func (n *noting) times(letter uuid.UUID) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.judged[letter]
}

// A chunk is judged while the one before is on its way. Where that takes its
// time it is judged again: an event that was consumed meanwhile is claimed as
// such, and its outcome says that the replay did nothing.
func TestAnOldJudgementIsAskedAgain(t *testing.T) {
	t.Parallel()
	s := newReplayShop(t, testkit.FakeKafkaAddr(t))
	group := s.ours("points")
	s.connect(func(o *ReplayOptions) { o.ChunkSize = 1 })
	first, second := s.failed("payment-1", group), s.failed("payment-2", group)
	s.consume(group, applies, group+replaySuffix)
	plan := s.plan(ada, PlanRequest{Selection: ids(first, second), Target: ToGroup})
	judge := &noting{Judging: s.replays.judge, judged: map[uuid.UUID]int{}}
	s.replays.judge = judge
	var once sync.Once
	s.replays.reached = func(at moment) {
		if at != momentPublished {
			return
		}
		once.Do(func() {
			testkit.Eventually(t, time.Minute, func() bool { return judge.times(second) == 1 }, "the second letter is judged ahead")
			s.consumed("payment-2", group)
			old := time.Now().Add(judgedAhead)
			testkit.Eventually(t, time.Minute, func() bool { return time.Now().After(old) }, "that judgement is old")
		})
	}
	s.start(ada, plan.ID)
	s.work(plan.ID)
	if p := s.get(plan.ID); p.Outcomes[Applied] != 1 || p.Outcomes[Duplicate] != 1 {
		t.Errorf("%s, want one applied and one duplicate", outcomes(p))
	}
}

// mute judges as if the broker had not said, of the first times that an item is
// about to be sent, where it leads.
type mute struct {
	Judging
	mu    sync.Mutex
	times int
}

func (m *mute) Judge(ctx context.Context, subjects []Subject, target Target) ([]Judged, error) {
	out, err := m.Judging.Judge(ctx, subjects, target)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.times--; m.times >= 0 {
		for i := range out {
			out[i].Route, out[i].NoRoute = nil, reason("reason.unknown.broker", "cluster", "main", "at", "")
		}
	}
	return out, err
}

// A route that cannot be told while a broker is silent is no other route: the
// replay waits for the broker, and sends.
func TestARouteIsAskedForAgain(t *testing.T) {
	t.Parallel()
	s := newReplayShop(t, testkit.FakeKafkaAddr(t))
	group := s.ours("points")
	s.connect()
	letter := s.failed("payment-1", group)
	s.consume(group, applies, group+replaySuffix)
	plan := s.plan(ada, PlanRequest{Selection: ids(letter), Target: ToGroup})
	s.replays.judge = &mute{Judging: s.replays.judge, times: 2}
	s.start(ada, plan.ID)
	s.work(plan.ID)
	if p := s.get(plan.ID); p.LeftOut != 0 || p.Outcomes[Applied] != 1 {
		t.Errorf("%s, %d left out, want one applied", outcomes(p), p.LeftOut)
	}
}
