package dlq

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"

	"oncemore/internal/testkit"
)

func TestReplayListPagesAndFilters(t *testing.T) {
	t.Parallel()
	s := newReplayShop(t, testkit.FakeKafkaAddr(t))
	points := s.ours("points")
	letter := s.failed("payment-1", points)
	var made []int64
	for i := range 5 {
		actor := ada
		if i%2 == 1 {
			actor = bob
		}
		made = append(made, s.plan(actor, PlanRequest{Selection: ids(letter), Target: ToGroup}).ID)
	}
	s.must(nil, s.replays.Cancel(t.Context(), ada, made[0]))
	var seen []int64
	for cursor := ""; ; {
		page, err := s.replays.List(t.Context(), ReplayFilter{State: Planned}, Page{Limit: 3, Cursor: cursor})
		s.must(nil, err)
		for _, p := range page.Items {
			seen = append(seen, p.ID)
			if p.Waiting != 1 || p.Total != 1 || p.Verdicts[Safe] != 1 || len(p.Targets) != 1 || p.Targets[0].Groups[0] != points {
				t.Errorf("replay %+v", p)
			}
		}
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	if fmt.Sprint(seen) != fmt.Sprint([]int64{made[4], made[3], made[2], made[1]}) {
		t.Errorf("seen %v of %v", seen, made)
	}
	byBob, err := s.replays.List(t.Context(), ReplayFilter{By: "bob"}, Page{})
	s.must(nil, err)
	if len(byBob.Items) != 2 || byBob.Next != "" {
		t.Errorf("%d replays of bob", len(byBob.Items))
	}
	var bad *ErrBadFilter
	if _, err := s.replays.List(t.Context(), ReplayFilter{By: "bob"}, Page{Cursor: "%00zz"}); !errors.As(err, &bad) || bad.Field != "cursor" {
		t.Errorf("a broken cursor: %v", err)
	}
	if _, err := s.replays.List(t.Context(), ReplayFilter{State: 99}, Page{}); !errors.As(err, &bad) || bad.Field != "state" {
		t.Errorf("a state that is none: %v", err)
	}
	if _, err := s.replays.List(t.Context(), ReplayFilter{}, Page{Limit: 201}); !errors.As(err, &bad) || bad.Field != "limit" {
		t.Errorf("a limit too high: %v", err)
	}
}

func TestReplayItemsAndRefusalsPage(t *testing.T) {
	t.Parallel()
	s := newReplayShop(t, testkit.FakeKafkaAddr(t))
	points := s.ours("points")
	for i := range 7 {
		s.deadLetter(s.order(fmt.Sprintf("payment-%d", i)), points)
		s.deadLetter(s.produce(&kgo.Record{Value: []byte{byte(i)}}), points)
	}
	s.drain()
	plan := s.plan(ada, PlanRequest{Selection: Selection{Filter: &LetterFilter{Group: points}}, Target: ToGroup})
	if plan.Total != 7 || plan.RefusedN != 7 {
		t.Fatalf("plan %+v", plan)
	}
	nos, letters := map[int]bool{}, map[uuid.UUID]bool{}
	for cursor := ""; ; {
		page, err := s.replays.Items(t.Context(), plan.ID, ItemFilter{Tab: "waiting"}, Page{Limit: 2, Cursor: cursor})
		s.must(nil, err)
		for _, it := range page.Items {
			nos[it.No] = true
			if it.EventID == nil || it.State != "waiting" || len(it.LetterIDs) != 1 || len(it.Groups) != 1 || it.Groups[0].Outcome != 0 || len(it.Key) == 0 {
				t.Errorf("item %+v", it)
			}
		}
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	for cursor := ""; ; {
		page, err := s.replays.Refused(t.Context(), plan.ID, Page{Limit: 3, Cursor: cursor})
		s.must(nil, err)
		for _, f := range page.Items {
			letters[f.LetterID] = true
			if f.EventID != nil || f.Group != points || f.Verdict != NoEventID || f.Reason.Key != "reason.no_event_id.none" {
				t.Errorf("refusal %+v", f)
			}
		}
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	if len(nos) != 7 || len(letters) != 7 {
		t.Errorf("%d items and %d refusals", len(nos), len(letters))
	}
	var bad *ErrBadFilter
	if _, err := s.replays.Items(t.Context(), plan.ID, ItemFilter{Tab: "nice"}, Page{}); !errors.As(err, &bad) || bad.Field != "tab" {
		t.Errorf("a tab that is none: %v", err)
	}
	for what, err := range map[string]error{
		"items":    second(s.replays.Items(t.Context(), 999, ItemFilter{}, Page{})),
		"refusals": second(s.replays.Refused(t.Context(), 999, Page{})),
		"replay":   second(s.replays.Get(t.Context(), 999)),
		"version":  second(s.replays.Changed(t.Context(), 999)),
	} {
		if !errors.Is(err, ErrNotFound) {
			t.Errorf("%s of an unknown replay: %v", what, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestChangedGrowsWithEveryChange(t *testing.T) {
	t.Parallel()
	s := newReplayShop(t, testkit.FakeKafkaAddr(t))
	points := s.ours("points")
	letter := s.failed("payment-1", points)
	s.consume(points, applies, points+".replay")
	plan := s.plan(ada, PlanRequest{Selection: ids(letter), Target: ToGroup})
	last := int64(-1)
	grew := func(after string) {
		t.Helper()
		v, err := s.replays.Changed(t.Context(), plan.ID)
		s.must(nil, err)
		if v <= last {
			t.Errorf("after %s: %d, before %d", after, v, last)
		}
		last = v
	}
	grew("plan")
	s.start(ada, plan.ID)
	grew("start")
	s.must(nil, s.replays.Pause(t.Context(), bob, plan.ID))
	grew("pause")
	s.must(nil, s.replays.Resume(t.Context(), bob, plan.ID))
	grew("resume")
	s.work(plan.ID)
	grew("the work")
	of, err := s.replays.OfLetter(t.Context(), letter)
	s.must(nil, err)
	if len(of) != 1 || of[0].Outcome != Applied || of[0].ReplayID != plan.ID || of[0].Group != points || of[0].At == nil {
		t.Errorf("of the letter: %+v", of)
	}
	if n := s.count(`SELECT count(*) FROM audit_log WHERE target = $1 AND actor <> '' AND detail->>'digest' <> ''`, fmt.Sprintf("replay/%d", plan.ID)); n != 4 {
		t.Errorf("%d audit rows for plan, start, pause and resume", n)
	}
}
