package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"oncemore/consumer"
	"oncemore/internal/testkit"
)

func TestAddGoesWithItsTransaction(t *testing.T) {
	eachFlavour(t, func(t *testing.T, b bundle) {
		to := &broker{}
		b.start(to, fast())
		if b.pool != nil {
			tx, err := b.pool.Begin(t.Context())
			b.must(err)
			b.must(Add(t.Context(), tx, message("undone", "k")))
			b.must(tx.Rollback(t.Context()))
		} else {
			tx, err := b.db.BeginTx(t.Context(), nil)
			b.must(err)
			b.must(AddSQL(t.Context(), tx, MySQL, message("undone", "k")))
			b.must(tx.Rollback())
		}
		commit := b.open(message("open", "k2"))
		b.add(message("done", "k"))
		testkit.Eventually(t, patience, func() bool { return to.has("done") && b.inState(Sent) == 1 }, "the committed one is sent")
		if ids := to.ids(); len(ids) != 1 {
			t.Errorf("sent %v, want only what was committed", ids)
		}
		commit()
		testkit.Eventually(t, patience, func() bool { return to.has("open") }, "the other is sent when it commits")
	})
}

// Of two transactions the one with the smaller id commits last: nothing that
// was sent meanwhile may make a relay pass it.
func TestCommitsInReverse(t *testing.T) {
	eachFlavour(t, func(t *testing.T, b bundle) {
		to := &broker{}
		b.start(to, fast())
		first := b.open(message("first", "a"))
		second := b.open(message("second", "b"))
		second()
		for i := range 50 {
			b.add(message(fmt.Sprint("later-", i), "c"))
		}
		testkit.Eventually(t, patience, func() bool { return to.has("second") && to.has("later-49") }, "those that committed are sent")
		first()
		testkit.Eventually(t, patience, func() bool { return to.has("first") && b.inState(Pending) == 0 }, "the first id is sent last")
	})
}

func TestContentsArrive(t *testing.T) {
	eachFlavour(t, func(t *testing.T, b bundle) {
		to := &broker{}
		headers := []consumer.Header{{Name: "a", Value: []byte("1")}, {Name: "a", Value: nil}, {Name: "a", Value: []byte{}}, {Name: "raw\u00e9", Value: []byte{0xff, 0}}, {Name: "zero", Value: []byte("x\x00y")}}
		b.add(Message{EventID: "e-1", Target: "t", Exchange: "x", Key: []byte{0, 0xff}, AggregateKey: "acc", Value: []byte{0xfe, 0}, Headers: headers},
			Message{EventID: "e-2", Target: "t", AggregateKey: "acc"},
			Message{EventID: "e-3", Target: "t"})
		b.start(to, fast())
		testkit.Eventually(t, patience, func() bool { return len(to.ids()) == 3 }, "all are sent")
		got := map[string]Row{}
		for _, r := range to.got {
			got[r.EventID] = r
		}
		one := got["e-1"]
		if string(one.Key) != "\x00\xff" || string(one.Value) != "\xfe\x00" || one.Exchange != "x" || string(one.OrderKey) != "acc" {
			t.Errorf("first row: %+v", one)
		}
		if !slices.EqualFunc(one.Headers, headers, func(a, b consumer.Header) bool {
			return a.Name == b.Name && string(a.Value) == string(b.Value) && (a.Value == nil) == (b.Value == nil)
		}) {
			t.Errorf("headers %q, want %q", one.Headers, headers)
		}
		if two := got["e-2"]; two.Value != nil || string(two.Key) != "acc" {
			t.Errorf("a tombstone has key %q and value %v", two.Key, two.Value)
		}
		if three := got["e-3"]; three.Key != nil || string(three.OrderKey) != "e-3" {
			t.Errorf("without keys: key %v, order key %q", three.Key, three.OrderKey)
		}
	})
}

// A refused row holds back the later rows of its key, and no others; it is dead
// after its attempts, and goes on by Retry, or its key by Skip.
func TestRefusedRowHoldsBackItsKey(t *testing.T) {
	eachFlavour(t, func(t *testing.T, b bundle) {
		var mended atomic.Bool
		to := &broker{answer: func(r Row) error {
			if r.EventID == "bad-3" || r.EventID == "bad" && !mended.Load() {
				return errors.New("refused \x00 for a reason")
			}
			return nil
		}}
		b.add(message("good", "a"), message("bad", "a"), message("next", "a"), message("other", "b"), message("bad-3", "c"), message("after-3", "c"))
		relay, _ := b.start(to, fast())
		testkit.Eventually(t, patience, func() bool { return b.inState(Dead) == 2 && to.has("other") }, "both are dead after 3 attempts")
		b.add(message("late", "a"))
		s, err := b.box.Stats(t.Context())
		b.must(err)
		if s.Dead != 2 || s.Pending != 3 || s.Oldest <= 0 || s.SentPerMinute != 2 {
			t.Errorf("stats %+v", s)
		}
		testkit.Eventually(t, patience, func() bool { // told after the rows are marked
			st := relay.Status()
			return st.Refused == 6 && st.Died == 2 && st.Sent == 2
		}, "the status says what the table does")
		dead, err := b.box.List(t.Context(), Filter{State: Dead})
		b.must(err)
		if len(dead) != 2 || dead[0].EventID != "bad" || dead[0].Attempts != 3 || !strings.Contains(dead[0].LastError, "for a reason") {
			t.Fatalf("dead: %+v", dead)
		}
		held, err := b.box.List(t.Context(), Filter{State: Pending, Key: []byte("a")})
		b.must(err)
		if len(held) != 2 || held[0].HeldBy == nil || *held[0].HeldBy != dead[0].ID {
			t.Errorf("held: %+v", held)
		}
		if n, err := b.box.Behind(t.Context(), dead[0].ID); err != nil || n != 2 {
			t.Errorf("behind the dead one: %d, %v", n, err)
		}
		if ids := to.ids(); slices.Contains(ids, "next") || slices.Contains(ids, "after-3") {
			t.Errorf("sent %v past a dead row", ids)
		}

		b.must(b.box.Retry(t.Context(), dead[0].ID))
		testkit.Eventually(t, patience, func() bool { return b.inState(Dead) == 2 }, "it is still refused")
		mended.Store(true)
		b.must(b.box.Retry(t.Context(), dead[0].ID))
		testkit.Eventually(t, patience, func() bool { return to.has("late") }, "the key goes on")
		b.must(b.box.Skip(t.Context(), dead[1].ID))
		testkit.Eventually(t, patience, func() bool { return to.has("after-3") && b.inState(Sent) == 6 }, "the other key goes on without its row")
		if b.inState(Skipped) != 1 || to.has("bad-3") {
			t.Error("the skipped row was sent")
		}
		var ofA []string
		for _, id := range to.ids() {
			if slices.Contains([]string{"good", "bad", "next", "late"}, id) {
				ofA = append(ofA, id)
			}
		}
		if !slices.Equal(ofA, []string{"good", "bad", "next", "late"}) {
			t.Errorf("order of key a: %v", ofA)
		}
		if err := b.box.Retry(t.Context(), dead[0].ID); !errors.Is(err, ErrNotDead) {
			t.Errorf("retry of a sent row: %v", err)
		}
		if err := b.box.Skip(t.Context(), 1<<40); !errors.Is(err, ErrNotFound) {
			t.Errorf("skip of no row: %v", err)
		}
	})
}

// A key with more held rows than a look sees does not starve its shard.
func TestHeldKeyStarvesNobody(t *testing.T) {
	eachFlavour(t, func(t *testing.T, b bundle) {
		to := &broker{answer: func(r Row) error {
			if r.EventID == "bad" {
				return errors.New("refused")
			}
			return nil
		}}
		neighbour := ""
		for i := 0; neighbour == ""; i++ {
			if k := fmt.Sprint("n", i); shardOf([]byte(k)) == shardOf([]byte("stuck")) {
				neighbour = k
			}
		}
		held := []Message{message("bad", "stuck")}
		for i := range 3000 {
			held = append(held, message(fmt.Sprint("held-", i), "stuck"))
		}
		b.add(held...)
		o := fast()
		o.MaxRows = 20
		b.start(to, o)
		testkit.Eventually(t, patience, func() bool { return b.inState(Dead) == 1 }, "the first row of the key is dead")
		b.add(message("free", neighbour))
		testkit.Eventually(t, patience, func() bool { return to.has("free") }, "another key of the shard is sent")
		if n := len(to.ids()); n != 1 {
			t.Errorf("%d rows sent, want 1", n)
		}
	})
}

// What nobody's row is to blame for counts no attempt, however long it lasts.
func TestOutageCountsNoAttempt(t *testing.T) {
	eachFlavour(t, func(t *testing.T, b bundle) {
		var down atomic.Bool
		var tries atomic.Int64
		down.Store(true)
		to := &broker{answer: func(Row) error {
			if tries.Add(1); down.Load() {
				return consumer.Unavailable(errors.New("broker is down"))
			}
			return nil
		}}
		b.add(message("e", "k"))
		relay, _ := b.start(to, fast())
		testkit.Eventually(t, patience, func() bool { return tries.Load() >= 4 }, "it tries on")
		if s := relay.Status(); s.Refused != 0 || !strings.Contains(s.LastError, "broker is down") {
			t.Errorf("status %+v", s)
		}
		down.Store(false)
		testkit.Eventually(t, patience, func() bool { return b.inState(Sent) == 1 }, "it is sent")
		if n := b.count("SELECT max(attempts) FROM outbox_message"); n != 0 {
			t.Errorf("%d attempts counted", n)
		}
	})
}

func TestMemoryIsBounded(t *testing.T) {
	eachFlavour(t, func(t *testing.T, b bundle) {
		to := &broker{}
		var all []Message
		for i := range 600 {
			m := message(fmt.Sprint("e", i), fmt.Sprint("k", i%300))
			m.Value = make([]byte, 1000)
			all = append(all, m)
		}
		b.add(all...)
		o := fast()
		o.MaxRows, o.MaxBytes = 1000, 20_000
		b.start(to, o)
		testkit.Eventually(t, patience, func() bool { return b.inState(Sent) == 600 }, "all are sent")
		if to.most > 20 {
			t.Errorf("%d rows of 1000 bytes on their way, want at most 20", to.most)
		}
	})
}

// One row larger than the whole budget still goes.
func TestLargeRowGoesAlone(t *testing.T) {
	b := setupPostgres(t)
	t.Parallel()
	to := &broker{}
	large := message("large", "k")
	large.Value = make([]byte, 5000)
	b.add(message("small", "s"), large, message("small-2", "s2"))
	o := fast()
	o.MaxBytes = 1000
	b.start(to, o)
	testkit.Eventually(t, patience, func() bool { return b.inState(Sent) == 3 }, "all are sent")
}

// Two relays share the shards, and one takes over what the other leaves.
func TestRelaysShare(t *testing.T) {
	eachFlavour(t, func(t *testing.T, b bundle) {
		to := &broker{}
		one, stop := b.start(to, fast())
		testkit.Eventually(t, patience, func() bool { return one.Status().Shards == Shards }, "the first has all")
		two, _ := b.start(to, fast())
		testkit.Eventually(t, patience, func() bool { return one.Status().Shards == Shards/2 && two.Status().Shards == Shards/2 }, "each has half")
		stop()
		testkit.Eventually(t, 5*time.Second, func() bool { return two.Status().Shards == Shards }, "the second has all")
		b.add(message("e", "k"))
		testkit.Eventually(t, patience, func() bool { return to.has("e") }, "and works")
	})
}

// A relay whose session was cut marks nothing that it had on its way, and lets
// no further row of the key go: the next session begins with the first unmarked.
func TestLostSessionIsFenced(t *testing.T) {
	eachFlavour(t, func(t *testing.T, b bundle) {
		free := make(chan struct{})
		var tries atomic.Int64
		to := &broker{hold: func(r Row) <-chan struct{} {
			if r.EventID == "one" && tries.Add(1) == 1 {
				return free // the first time only
			}
			return nil
		}}
		b.add(message("one", "k"), message("two", "k"), message("three", "k"))
		relay, _ := b.start(to, fast())
		testkit.Eventually(t, patience, func() bool { return tries.Load() == 1 }, "the first row is on its way")
		b.cutSessions()
		testkit.Eventually(t, patience, func() bool { return relay.Status().Lost == 1 && b.inState(Sent) == 3 }, "the next session sends all")
		close(free)
		testkit.Eventually(t, patience, func() bool { return len(to.ids()) == 4 }, "the first answer comes at last")
		if ids := to.ids(); !slices.Equal(ids, []string{"one", "two", "three", "one"}) {
			t.Errorf("arrived %v: the lost session went on", ids)
		}
	})
}

// A relay that was asleep for longer than its lease publishes nothing until it
// has heard of its session.
func TestLeaseEnds(t *testing.T) {
	b := setupPostgres(t)
	t.Parallel()
	var asleep atomic.Int64
	o := fast()
	o.Now = func() time.Time { return time.Now().Add(time.Duration(asleep.Load())) }
	sh := newShift(&Relay{box: b.box, opts: o.withDefaults()}, nil, o.Now())
	if err := sh.fence(); err != nil {
		t.Fatal(err)
	}
	asleep.Store(int64(lease + time.Second))
	if err := sh.fence(); !errors.Is(err, errFenced) {
		t.Errorf("after the lease: %v", err)
	}
	b.must(sh.ask(t.Context(), "ask", func(context.Context) error { return nil }))
	if err := sh.fence(); err != nil {
		t.Errorf("after an answer: %v", err)
	}
}

// A relay that stops marks what was on its way: nothing is sent twice.
func TestStopSendsNothingTwice(t *testing.T) {
	eachFlavour(t, func(t *testing.T, b bundle) {
		to := &broker{hold: func(Row) <-chan struct{} {
			free := make(chan struct{})
			time.AfterFunc(2*time.Millisecond, func() { close(free) })
			return free
		}}
		var all []Message
		for i := range 1000 {
			all = append(all, message(fmt.Sprint("e", i), fmt.Sprint("k", i%50)))
		}
		b.add(all...)
		for sent := 0; b.inState(Pending) > 0; {
			_, stop := b.start(to, fast())
			testkit.Eventually(t, patience, func() bool { return len(to.ids()) > sent }, "it sends")
			stop()
			sent = len(to.ids())
		}
		if n := len(to.ids()); n != 1000 {
			t.Errorf("%d arrived of 1000", n)
		}
	})
}

func TestSweep(t *testing.T) {
	eachFlavour(t, func(t *testing.T, b bundle) {
		to := &broker{}
		b.add(message("old", "a"), message("older", "b"), message("young", "c"))
		o := fast()
		o.Keep, o.Sweep = time.Hour, 20*time.Millisecond
		b.start(to, o)
		testkit.Eventually(t, patience, func() bool { return b.inState(Sent) == 3 }, "all are sent")
		b.add(message("pending", "a"))
		ago := "now() - interval '2 hours'"
		if b.pool == nil {
			ago = "UTC_TIMESTAMP(6) - INTERVAL 2 HOUR"
		}
		b.exec("UPDATE outbox_message SET created_at = " + ago)
		b.exec("UPDATE outbox_message SET done_at = " + ago + " WHERE state = 2 AND event_id LIKE 'old%'")
		testkit.Eventually(t, patience, func() bool { return b.count("SELECT count(*) FROM outbox_message WHERE event_id LIKE 'old%'") == 0 }, "old rows go")
		testkit.Eventually(t, patience, func() bool { return to.has("pending") }, "the pending one is sent")
		if n := b.count("SELECT count(*) FROM outbox_message"); n != 2 {
			t.Errorf("%d rows left, want the young ones", n)
		}
		n, err := b.box.Sweep(t.Context(), -time.Hour, 1)
		if err != nil || n != 2 {
			t.Errorf("sweep in steps of one: %d, %v", n, err)
		}
	})
}

func TestInvalidMessages(t *testing.T) {
	t.Parallel()
	b := setupPostgres(t)
	tx, err := b.pool.Begin(t.Context())
	b.must(err)
	defer tx.Rollback(context.WithoutCancel(t.Context())) //nolint:errcheck // nothing was done
	for what, m := range map[string]Message{
		"no id":         {Target: "t"},
		"no target":     {EventID: "e"},
		"long target":   {EventID: "e", Target: strings.Repeat("t", 256)},
		"long key":      {EventID: "e", Target: "t", AggregateKey: strings.Repeat("k", 256)},
		"zero byte":     {EventID: "e", Target: "t\x00"},
		"header":        {EventID: "e", Target: "t", Headers: []consumer.Header{{Value: []byte("v")}}},
		"long exchange": {EventID: "e", Target: "t", Exchange: strings.Repeat("x", 256)},
	} {
		if err := Add(t.Context(), tx, m); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := Add(t.Context(), b.pool, message("e", "k")); !errors.Is(err, ErrNoTransaction) {
		t.Errorf("a pool: %v", err)
	}
	if err := Table("Robert'); --").Validate(); err == nil {
		t.Error("a bad table name")
	}
}
