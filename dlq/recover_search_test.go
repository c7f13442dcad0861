package dlq

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"oncemore/internal/testkit"
)

// A search whose time is over keeps what it found and how far it came: a target
// that is busier than one search is through in the end, and nothing that was
// found is sent again.
func TestASearchGoesOnWhereItWas(t *testing.T) {
	t.Parallel()
	s := newReplayShop(t, testkit.FakeKafkaAddr(t), quickRecovery)
	points := s.ours("points")
	s.consume(points, applies, points+".replay")
	plan := s.plan(ada, PlanRequest{Selection: ids(s.failed("payment-1", points), s.failed("payment-2", points)), Target: ToGroup})
	s.start(ada, plan.ID)
	s.crash(plan.ID, momentPublished)

	st := &step{r: s.replays, id: plan.ID, log: testLog()}
	testkit.Eventually(t, 20*time.Second, func() bool {
		var wait time.Duration
		var err error
		st.epoch, wait, err = s.replays.acquire(t.Context(), stepArgs{Replay: plan.ID, Epoch: 1})
		return err == nil && wait == 0
	}, "the crashed step is overtaken")
	rows, err := s.pool.Query(t.Context(), sqlOpenChunks, pgx.NamedArgs{"id": plan.ID, "window": time.Duration(0)})
	s.must(nil, err)
	chunk, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[openChunk])
	s.must(nil, err)
	target := slices.Collect(maps.Keys(chunk.Ends))[0]
	to := sendTarget{ID: target, Cluster: "shop", Topic: points + ".replay", Group: points}
	all, err := s.cluster.broker.search(t.Context(), plan.ID, to, maps.Clone(chunk.Ends[target]))
	s.must(nil, err)
	if len(all.found) != 2 || all.next != nil {
		t.Fatalf("%+v", all)
	}
	// The first search came as far as the first message.
	first := all.found[1]
	half := searched{found: map[int]sendResult{1: first}, next: maps.Clone(chunk.Ends[target])}
	half.next[first.partition] = first.offset + 1
	s.must(nil, st.keepSearch(t.Context(), chunk, target, to.Topic, half))
	if p := s.get(plan.ID); p.Sent != 1 || p.Wait.Key != "reason.wait.searching" {
		t.Errorf("sent %d, %+v", p.Sent, p.Wait)
	}
	st.giveBack(t.Context(), errNotYet)
	s.work(plan.ID)
	if p := s.get(plan.ID); p.Sent != 2 || outcomes(p) != "applied 2" {
		t.Errorf("sent %d, %s", p.Sent, outcomes(p))
	}
	if n := len(s.sent(points + ".replay")); n != 2 {
		t.Errorf("%d messages: something was sent twice", n)
	}
}
