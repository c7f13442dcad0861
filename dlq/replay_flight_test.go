package dlq

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"

	"oncemore/internal/testkit"
)

// flown is a shop with a running replay of six letters, two in a chunk, to a group
// that applies them once.
func flown(t *testing.T, addr string) (s *replayShop, points string, replay int64) {
	t.Helper()
	s = newReplayShop(t, addr)
	points = s.ours("points")
	s.connect(func(o *ReplayOptions) { quickRecovery(o); o.ChunkSize = 2 })
	for i := range 6 {
		s.deadLetter(s.order(fmt.Sprintf("payment-%d", i)), points)
	}
	s.drain()
	s.consume(points, applies, points+replaySuffix)
	plan := s.plan(ada, PlanRequest{Selection: Selection{Filter: &LetterFilter{}}, Target: ToGroup})
	s.start(ada, plan.ID)
	return s, points, plan.ID
}

func (s *replayShop) eachSentOnce(t *testing.T, points string, replay int64) {
	t.Helper()
	events := map[string]int{}
	for _, rec := range s.sent(points + replaySuffix) {
		events[eventOf(rec)]++
	}
	for event, n := range events {
		if n != 1 {
			t.Errorf("%s was sent %d times", event, n)
		}
	}
	if p := s.get(replay); len(events) != 6 || p.Sent != 6 || outcomes(p) != "applied 6" {
		t.Errorf("%d events, sent %d, %s", len(events), p.Sent, outcomes(p))
	}
	s.settled(t)
}

// A process is killed with one chunk on its way and the next one claimed: nothing
// is sent twice, and nothing is forgotten.
func TestKilledWithTheNextChunkClaimed(t *testing.T) {
	for name, crash := range map[string]crashChild{
		"the first one is on its way":    {At: momentClaimed, Times: 2},
		"the first one is not recorded":  {At: momentPublished, Times: 1},
		"the second one is not recorded": {At: momentPublished, Times: 2},
	} {
		t.Run(name, func(t *testing.T) {
			brokers(t, func(t *testing.T, addr string) {
				s, points, replay := flown(t, addr)
				c := crash
				c.Replay, c.ChunkSize = replay, 2
				s.crashAs(c)
				if n := s.count(`SELECT count(*) FROM replay_chunk WHERE state = 0`); n == 0 {
					t.Error("no chunk is open after the kill")
				}
				s.work(replay)
				s.eachSentOnce(t, points, replay)
			})
		})
	}
}

// awayAt refuses what producers send from the claim of the nth chunk until that
// chunk is back, and tells each claim, from the first on.
func (s *replayShop) awayAt(fake *kfake.Cluster, nth int, each func(claimed int)) {
	var away atomic.Bool
	refuseWhile(fake, kerr.NotLeaderForPartition.Code, &away)
	s.stepsMayFail = true
	claimed := 0
	s.replays.reached = func(at moment) {
		if at == momentPublished {
			if away.Swap(false) {
				each(-1)
			}
			return
		}
		if claimed++; claimed == nth {
			away.Store(true)
		}
		each(claimed)
	}
}

// unhurried looks for nothing between two chunks.
func unhurried(o *ReplayOptions) {
	quickRecovery(o)
	o.ChunkSize, o.Poll = 2, 3*time.Second
}

// The broker takes no message of a chunk: a later one that was claimed meanwhile
// is given back, and none leaves before that one is settled.
func TestAChunkBehindAnUnansweredOneWaits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pace          Pace
		claimed, open int // claims in all, chunks open at once
	}{
		"claimed meanwhile": {Pace{}, 5, 2},
		"one by one":        {Pace{Rate: MaxRate}, 4, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fake := testkit.FakeKafka(t)
			s, points, replay := flown(t, fake.ListenAddrs()[0])
			s.connect(unhurried)
			s.repace(replay, c.pace)
			last, open := 0, 0
			s.awayAt(fake, 2, func(claimed int) {
				last, open = max(last, claimed), max(open, s.count(`SELECT count(*) FROM replay_chunk WHERE state = 0`))
				if claimed == c.claimed-1 {
					if n := s.count(`SELECT count(*) FROM replay_item WHERE state <> 0 AND no > 4`); n != 0 {
						t.Errorf("%d items of the last chunk are taken before the one before is settled", n)
					}
					if n := s.count(`SELECT count(*) FROM event_claim WHERE item_no > 2`); n != 2 {
						t.Errorf("%d events are claimed, want those of one chunk", n)
					}
				}
			})
			s.work(replay)
			if last != c.claimed || open != c.open {
				t.Errorf("%d chunks were claimed, %d open at once, want %d and %d", last, open, c.claimed, c.open)
			}
			s.eachSentOnce(t, points, replay)
		})
	}
}

// A rung ends when its last chunk is back, not when it has left.
func TestARungWaitsForItsLastChunk(t *testing.T) {
	t.Parallel()
	fake := testkit.FakeKafka(t)
	s, points, replay := flown(t, fake.ListenAddrs()[0])
	s.connect(unhurried)
	s.repace(replay, Pace{Ladder: []int{4}})
	back := false
	s.awayAt(fake, 2, func(claimed int) {
		if claimed == -1 {
			back = true
			if p := s.get(replay); p.State != Running {
				t.Errorf("it is %s while the rung's last chunk is on its way", p.State)
			}
		}
	})
	s.work(replay)
	if p := s.get(replay); !back || p.State != Paused || p.Rung != 0 || p.Sent != 4 {
		t.Fatalf("it is %s in rung %d, sent %d", p.State, p.Rung, p.Sent)
	}
	s.must(nil, s.replays.Resume(t.Context(), ada, replay))
	s.work(replay)
	s.eachSentOnce(t, points, replay)
}

// repace changes the pace of a running replay.
func (s *replayShop) repace(replay int64, pace Pace) {
	s.t.Helper()
	s.must(nil, s.replays.Pause(s.t.Context(), ada, replay))
	s.must(nil, s.replays.SetPace(s.t.Context(), ada, replay, pace))
	s.must(nil, s.replays.Resume(s.t.Context(), ada, replay))
}

// A rate is kept: a chunk is claimed only when it may leave.
func TestAChunkIsNotClaimedBeforeItsTime(t *testing.T) {
	t.Parallel()
	s, points, replay := flown(t, testkit.FakeKafkaAddr(t))
	s.repace(replay, Pace{Rate: 2})
	var open atomic.Int32
	s.replays.reached = func(at moment) {
		if at == momentClaimed {
			open.Store(max(open.Load(), int32(s.count(`SELECT count(*) FROM replay_chunk WHERE state = 0`))))
		}
	}
	began := time.Now()
	s.work(replay)
	if took := time.Since(began); open.Load() != 1 || took < 2*time.Second {
		t.Errorf("%d chunks were open at once, and six items at two a second took %s", open.Load(), took)
	}
	s.eachSentOnce(t, points, replay)
}
