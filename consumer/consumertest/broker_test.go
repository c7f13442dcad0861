package consumertest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"oncemore/consumer"
	"oncemore/consumer/consumertest"
)

var byJSON = consumer.EventIDSource{JSON: "$.eventId"}

func event(id string) consumer.Event {
	return consumertest.JSON("order.paid", `{"eventId":"`+id+`"}`)
}

// effects are those of committed and of uncommitted transactions alike: a Memory
// rolls nothing back.
type effects struct {
	mu  sync.Mutex
	ids []string
}

func (e *effects) handle(_ context.Context, _ int, ev consumer.Event) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ids = append(e.ids, ev.ID)
	return nil
}

func (e *effects) count(id string) (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, have := range e.ids {
		if have == id {
			n++
		}
	}
	return n
}

func TestKitDiesAtEachPoint(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		at                   consumertest.Point
		consumed, duplicates int64
		calls                int
	}{
		{consumertest.BeforeCommit, 4, 0, 2}, // the handler of each runs again
		{consumertest.AfterCommit, 0, 4, 1},  // committed, though nobody was told
		{consumertest.DuringAck, 4, 2, 1},    // two of four were acknowledged
	} {
		did := &effects{}
		memory := consumertest.NewMemory(0)
		kit := consumertest.New(t, consumer.Config[int]{Group: "points", Store: memory, EventID: byJSON, Handler: did.handle})
		kit.Crash(c.at, 1)
		r := kit.Deliver(event("a"), event("b"), event("c"), event("d"))
		if r.Crashes != 1 || r.Consumed != c.consumed || r.Duplicates != c.duplicates || len(r.Letters) != 0 || did.count("a") != c.calls {
			t.Errorf("point %d: %+v, %d calls for one event", c.at, r, did.count("a"))
		}
		for _, id := range []string{"a", "b", "c", "d"} {
			if !memory.Has("points", id) {
				t.Errorf("point %d: %s was not consumed", c.at, id)
			}
		}
	}
}

func TestKitDeliversEverythingTwice(t *testing.T) {
	t.Parallel()
	did := &effects{}
	kit := consumertest.New(t, consumer.Config[int]{Group: "points", Store: consumertest.NewMemory(0), EventID: byJSON, Handler: did.handle})
	kit.EveryDeliveryTwice()
	if r := kit.Deliver(event("a"), event("b")); r.Consumed != 2 || r.Duplicates != 6 || did.count("a") != 1 {
		t.Errorf("%+v, %d calls", r, did.count("a"))
	}
}

// The pauses of the policy keep their length, and take no time.
func TestKitWaitsByItsClock(t *testing.T) {
	t.Parallel()
	kit := consumertest.New(t, consumer.Config[int]{Group: "points", Store: consumertest.NewMemory(0), EventID: byJSON,
		Retry:   consumer.RetryPolicy{Attempts: 3, Initial: time.Hour, Max: 24 * time.Hour, Jitter: -1},
		Handler: func(context.Context, int, consumer.Event) error { return errors.New("not yet") }})
	began := time.Now()
	r := kit.Deliver(event("a"))
	if r.Waited != 7*time.Hour || r.Retried != 3 || len(r.Letters) != 1 || time.Since(began) > time.Minute {
		t.Errorf("%+v after %s", r, time.Since(began))
	}
}

// A memory store serves the other strategies, too: keys of a transaction under way
// are contention.
func TestMemoryLocksKeys(t *testing.T) {
	t.Parallel()
	m := consumertest.NewMemory(0)
	first, err := m.ClaimKeys(t.Context(), "g", []string{"a"}, []string{"user/1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.ClaimKeys(t.Context(), "g", []string{"b"}, []string{"user/0", "user/1"}); consumer.OutcomeOf(err) != consumer.OutcomeContention {
		t.Errorf("a locked key: %v, want contention", err)
	}
	first.Rollback(t.Context())
	for range 2 { // unlocked by the end, and nothing is left of what lost
		claim, err := m.Unrecorded().(consumer.KeyStore[int]).ClaimKeys(t.Context(), "g", []string{"a"}, []string{"user/0", "user/1"})
		if err != nil || !claim.Fresh("a") {
			t.Fatalf("after the end of the other: %v", err)
		}
		if err := claim.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if m.Has("g", "a") {
		t.Error("a store without records keeps one")
	}
}

// Members come, go and die at every point, deliveries are doubled: each event has
// its record, none a letter, and only deaths repeat handlers.
func TestBrokerThroughDeaths(t *testing.T) {
	t.Parallel()
	const n = 300
	broker, memory, did := consumertest.NewBroker(3), consumertest.NewMemory(0), &effects{}
	broker.EveryDeliveryTwice()
	cfg := consumer.Config[int]{Group: "points", Store: memory, EventID: byJSON, Handler: did.handle, BatchSize: 7}
	first, second := consumertest.Start(t, broker, cfg, "order.paid"), consumertest.Start(t, broker, cfg, "order.paid")
	first.Crash(consumertest.BeforeCommit, 2)
	second.Crash(consumertest.AfterCommit, 2)
	second.Crash(consumertest.DuringAck, 2)
	for i := range n {
		broker.Publish(event(fmt.Sprint(i)))
	}
	broker.Settled(t)
	for i := range n {
		if !memory.Has("points", fmt.Sprint(i)) {
			t.Errorf("event %d has no record", i)
		}
	}
	if died := first.Status().Reconnects + second.Status().Reconnects; died != 6 || len(broker.Letters("order.paid")) != 0 {
		t.Errorf("%d deaths, letters %v", died, broker.Letters("order.paid"))
	}
	if got := len(did.ids) - n; got < 0 || got > 6*3*7 {
		t.Errorf("%d handlers ran again, for six deaths with at most 7 events on each of 3 partitions", got)
	}
}

// What is given up lies in the dead-letter topic, and a replay by <group>.replay
// reaches this group alone.
func TestBrokerDeadLetterAndReplay(t *testing.T) {
	t.Parallel()
	broker := consumertest.NewBroker(1)
	var mended bool
	var mu sync.Mutex
	points, stock := &effects{}, &effects{}
	handler := func(ctx context.Context, tx int, ev consumer.Event) error {
		mu.Lock()
		defer mu.Unlock()
		if ev.ID == "b" && !mended {
			return consumer.Permanent(errors.New("no such order"))
		}
		return points.handle(ctx, tx, ev)
	}
	consumertest.Start(t, broker, consumer.Config[int]{Group: "points", Store: consumertest.NewMemory(0), EventID: byJSON, Handler: handler}, "order.paid")
	consumertest.Start(t, broker, consumer.Config[int]{Group: "stock", Store: consumertest.NewMemory(0), EventID: byJSON, Handler: stock.handle}, "order.paid")
	broker.Publish(event("a"), event("b"), event("c"))
	broker.Settled(t)
	letters, dead := broker.Letters("order.paid"), broker.Events("order.paid.DLT")
	if len(letters) != 1 || letters[0].ID != "b" || letters[0].Group != "points" || len(dead) != 1 {
		t.Fatalf("letters %+v, dead-letter topic %+v", letters, dead)
	}
	if id, _ := dead[0].Header("event-id"); string(id) != "b" || string(dead[0].Value) != `{"eventId":"b"}` {
		t.Errorf("dead letter %+v", dead[0])
	}
	mu.Lock()
	mended = true
	mu.Unlock()
	replay := letters[0].Event
	replay.Topic = "points.replay"
	broker.Publish(replay)
	broker.Settled(t)
	if points.count("b") != 1 || stock.count("b") != 1 {
		t.Errorf("points took effect %d times, stock %d times", points.count("b"), stock.count("b"))
	}
}

func TestBrokerKeepsOrderPerKey(t *testing.T) {
	t.Parallel()
	broker, did := consumertest.NewBroker(4), &effects{}
	var want []string
	for i := range 100 {
		ev := event(fmt.Sprint(i))
		ev.Key = []byte("account-7")
		broker.Publish(ev)
		want = append(want, fmt.Sprint(i))
	}
	consumertest.Start(t, broker, consumer.Config[int]{Group: "points", Store: consumertest.NewMemory(0), EventID: byJSON, Handler: did.handle}, "order.paid")
	broker.Settled(t)
	if !slices.Equal(did.ids, want) {
		t.Errorf("took effect in the order %v", did.ids)
	}
}

func TestBadConfigsAreRefused(t *testing.T) {
	t.Parallel()
	good := consumer.Config[int]{Group: "points", Store: consumertest.NewMemory(0), EventID: byJSON, Handler: (&effects{}).handle}
	bad := good
	bad.Group = ""
	if _, err := consumertest.NewConsumer(consumertest.NewBroker(1), bad, "t"); err == nil {
		t.Error("a config without a group is taken")
	}
	if _, err := consumertest.NewConsumer(consumertest.NewBroker(1), good); err == nil {
		t.Error("a consumer without topics is taken")
	}
	if said := judge(t, func(tb testing.TB) { consumertest.Start(tb, consumertest.NewBroker(1), bad, "t") }); said == "" {
		t.Error("Start takes a config without a group")
	}
}
