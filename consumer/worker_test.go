package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// memory is a Store in memory. An effect is the event's id, appended by the handler.
type memory struct {
	records map[string]bool
	effects []string
	fault   func(at string) error // asked at "claim" and "commit"; nil: no faults
	lose    func() bool           // the commit's answer is lost
	claims  [][]string
}

type memoryTx struct{ effects []string }

type memoryClaim struct {
	m     *memory
	fresh map[string]bool
	tx    memoryTx
}

func newMemory() *memory { return &memory{records: map[string]bool{}} }

func (m *memory) Check(context.Context, string) error { return nil }

func (m *memory) Claim(_ context.Context, _ string, ids []string) (Claim[*memoryTx], error) {
	if err := m.faultAt("claim"); err != nil {
		return nil, err
	}
	m.claims = append(m.claims, ids)
	c := &memoryClaim{m: m, fresh: map[string]bool{}}
	for _, id := range ids {
		if c.fresh[id] {
			panic("claimed twice in one call: " + id)
		}
		c.fresh[id] = !m.records[id]
	}
	return c, nil
}

func (m *memory) faultAt(at string) error {
	if m.fault == nil {
		return nil
	}
	return m.fault(at)
}

func (c *memoryClaim) Fresh(id string) bool     { return c.fresh[id] }
func (c *memoryClaim) Tx() *memoryTx            { return &c.tx }
func (c *memoryClaim) Blame(err error) error    { return err }
func (c *memoryClaim) Rollback(context.Context) {}
func (c *memoryClaim) Commit(context.Context) error {
	if err := c.m.faultAt("commit"); err != nil {
		return err
	}
	for id, fresh := range c.fresh {
		if fresh {
			c.m.records[id] = true
		}
	}
	c.m.effects = append(c.m.effects, c.tx.effects...)
	if c.m.lose != nil && c.m.lose() {
		return Unavailable(errors.New("connection lost while waiting for the answer"))
	}
	return nil
}

// recorder is a Port that keeps what it is told.
type recorder struct {
	done    int
	letters []Letter
	waits   []bool
	refuse  func() error
	onDone  func(n int)
}

func (r *recorder) Done(n int) {
	r.done += n
	if r.onDone != nil {
		r.onDone(n)
	}
}

func (r *recorder) DeadLetter(_ context.Context, l Letter) error {
	if r.refuse != nil {
		if err := r.refuse(); err != nil {
			return err
		}
	}
	r.letters = append(r.letters, l)
	return nil
}

func (r *recorder) Waiting(on bool) { r.waits = append(r.waits, on) }

// bench is a worker with everything around it.
type bench struct {
	store *memory
	port  *recorder
	meter Meter
	gate  Gate
	cfg   Config[*memoryTx]
}

func apply(_ context.Context, tx *memoryTx, ev Event) error {
	tx.effects = append(tx.effects, ev.ID)
	return nil
}

func setup(h Handler[*memoryTx]) *bench {
	b := &bench{store: newMemory(), port: &recorder{}}
	b.cfg = Config[*memoryTx]{Group: "g", Store: b.store, Handler: h, EventID: EventIDSource{JSON: "id"},
		Retry: RetryPolicy{Jitter: -1}, Logger: slog.New(slog.DiscardHandler)}
	return b
}

func (b *bench) process(t testing.TB, ids ...string) {
	t.Helper()
	if err := b.worker(t).Process(context.Background(), nil, deliveries(ids...)); err != nil {
		t.Fatalf("process: %v", err)
	}
}

func (b *bench) worker(t testing.TB) *Worker[*memoryTx] {
	t.Helper()
	cfg, err := b.cfg.Complete()
	if err != nil {
		t.Fatal(err)
	}
	return NewWorker(cfg, b.port, &b.meter, &b.gate)
}

// deliveries makes one for each id, in order of offset; an empty id has none.
func deliveries(ids ...string) []Delivery {
	all := make([]Delivery, len(ids))
	for i, id := range ids {
		all[i] = NewDelivery(Event{Topic: "t", Offset: int64(i), Value: fmt.Appendf(nil, `{"id":%q}`, id)}, EventIDSource{JSON: "id"})
	}
	return all
}

func (b *bench) status() Status {
	var s Status
	b.meter.Fill(&s)
	return s
}

func TestBatchCollapsesCopiesAndSkipsDuplicates(t *testing.T) {
	t.Parallel()
	b := setup(apply)
	b.store.records["old"] = true
	b.process(t, "a", "b", "a", "old", "b", "c")
	if want := []string{"a", "b", "c"}; !slices.Equal(b.store.effects, want) {
		t.Errorf("effects %v, want %v", b.store.effects, want)
	}
	if s := b.status(); b.port.done != 6 || s.Consumed != 3 || s.Duplicates != 3 {
		t.Errorf("done %d, consumed %d, duplicates %d", b.port.done, s.Consumed, s.Duplicates)
	}
	if len(b.store.claims) != 1 {
		t.Errorf("%d transactions for one batch", len(b.store.claims))
	}
}

func TestOnlyTheCulpritMeetsTheRetryPolicy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls := map[string]int{}
		b := setup(func(ctx context.Context, tx *memoryTx, ev Event) error {
			calls[ev.ID]++
			if ev.ID == "bad" {
				return errors.New("boom")
			}
			return apply(ctx, tx, ev)
		})
		var doneAt []time.Duration
		start := time.Now()
		b.port.onDone = func(int) { doneAt = append(doneAt, time.Since(start)) }
		b.process(t, "a", "bad", "b", "c")
		if want := []string{"a", "b", "c"}; !slices.Equal(b.store.effects, want) {
			t.Errorf("effects %v, want %v", b.store.effects, want)
		}
		// In the batch once, then one delivery and three retries.
		if calls["bad"] != 5 || calls["a"] != 2 || calls["b"] != 1 {
			t.Errorf("calls %v", calls)
		}
		if len(b.port.letters) != 1 || b.port.letters[0].ID != "bad" || b.port.letters[0].Attempt != 4 {
			t.Errorf("letters %+v", b.port.letters)
		}
		if want := []time.Duration{0, 7 * time.Second, 7 * time.Second, 7 * time.Second}; !slices.Equal(doneAt, want) {
			t.Errorf("finished at %v, want %v", doneAt, want)
		}
		if want := []bool{true, false}; !slices.Equal(b.port.waits, want) {
			t.Errorf("waiting was told as %v, want %v", b.port.waits, want)
		}
		if s := b.status(); s.Retried != 3 || s.DeadLettered != 1 || s.Consumed != 3 || s.LastError != "boom" {
			t.Errorf("status %+v", s)
		}
	})
}

func TestOutcomesOfOneDelivery(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	cases := []struct {
		name      string
		errs      []error // of each call, the last repeats
		panics    bool
		letters   int
		attempt   int
		effects   int
		discarded int64
		took      time.Duration
	}{
		{"permanent", []error{Permanent(boom)}, false, 1, 1, 0, 0, 0},
		{"permanent at the second", []error{boom, Permanent(boom)}, false, 1, 2, 0, 0, time.Second},
		{"exhausted", []error{boom}, false, 1, 4, 0, 0, 7 * time.Second},
		{"mended by the third", []error{boom, boom, nil}, false, 0, 0, 1, 0, 3 * time.Second},
		{"retry after", []error{RetryAfter(boom, 90*time.Second), nil}, false, 0, 0, 1, 0, 90 * time.Second},
		{"discard", []error{Discard(boom)}, false, 0, 0, 0, 1, 0},
		{"panic", []error{boom}, true, 1, 4, 0, 0, 7 * time.Second},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				calls, start := 0, time.Now()
				b := setup(func(ctx context.Context, tx *memoryTx, ev Event) error {
					err := c.errs[min(calls, len(c.errs)-1)]
					calls++
					if ev.Attempt != calls {
						t.Errorf("call %d says attempt %d", calls, ev.Attempt)
					}
					if c.panics {
						panic(err)
					}
					if err != nil {
						return err
					}
					return apply(ctx, tx, ev)
				})
				b.process(t, "a")
				if took := time.Since(start); took != c.took {
					t.Errorf("took %s, want %s", took, c.took)
				}
				if len(b.port.letters) != c.letters || len(b.store.effects) != c.effects || b.port.done != 1 || b.status().Discarded != c.discarded {
					t.Fatalf("letters %d, effects %d, done %d", len(b.port.letters), len(b.store.effects), b.port.done)
				}
				if c.letters == 1 && b.port.letters[0].Attempt != c.attempt {
					t.Errorf("letter says attempt %d, want %d", b.port.letters[0].Attempt, c.attempt)
				}
				if c.panics && !strings.Contains(ErrorTrace(b.port.letters[0].Err), "worker_test.go") {
					t.Errorf("the panic's stack does not name where it happened:\n%s", ErrorTrace(b.port.letters[0].Err))
				}
				if c.discarded == 1 && b.store.records["a"] {
					t.Error("a discarded event left a record")
				}
			})
		})
	}
}

func TestContentionAndOutageAreNoAttempts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := 0
		b := setup(apply)
		b.cfg.Retry.Attempts = -1
		b.store.fault = func(at string) error {
			n++
			switch {
			case n <= 40 && at == "commit":
				return Contention(errors.New("deadlock"))
			case n > 40 && n <= 80:
				return Unavailable(errors.New("down"))
			}
			return nil
		}
		b.process(t, "a", "b", "c", "d")
		if len(b.port.letters) != 0 || len(b.store.effects) != 4 {
			t.Errorf("letters %v, effects %v", b.port.letters, b.store.effects)
		}
		if s := b.status(); s.Contention != 20 || s.Retried != 0 || s.Consumed != 4 {
			t.Errorf("status %+v", s)
		}
		if last := b.store.claims[0]; len(last) != 4 {
			t.Errorf("first transaction had %d events", len(last))
		}
		if one := b.store.claims[10]; len(one) != 1 {
			t.Errorf("after ten losses a transaction still has %d events", len(one))
		}
	})
}

func TestDeadLetterThatIsNotConfirmedHoldsTheDelivery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		b := setup(func(context.Context, *memoryTx, Event) error {
			calls++
			return Permanent(errors.New("no such order"))
		})
		b.cfg.Outage = 32 * time.Second
		refused := 0
		b.port.refuse = func() error {
			if b.port.done != 0 {
				t.Error("the delivery was done before its letter was confirmed")
			}
			if refused++; refused <= 6 {
				return errors.New("not enough replicas")
			}
			return nil
		}
		start := time.Now()
		b.process(t, "a")
		if calls != 1 || len(b.port.letters) != 1 || b.port.done != 1 {
			t.Errorf("calls %d, letters %d, done %d", calls, len(b.port.letters), b.port.done)
		}
		if took := time.Since(start); took < 47*time.Second || took > 63*time.Second {
			t.Errorf("waited %s for 1+2+4+8+16+32 s less a quarter at most", took)
		}
	})
}

func TestRejectedDeliveryIsALetterInItsPlace(t *testing.T) {
	t.Parallel()
	b := setup(apply)
	var doneWhen []int
	b.port.onDone = func(n int) { doneWhen = append(doneWhen, n) }
	b.process(t, "a", "b", "", "c")
	if want := []int{2, 1, 1}; !slices.Equal(doneWhen, want) {
		t.Errorf("done in steps %v, want %v", doneWhen, want)
	}
	if len(b.port.letters) != 1 || !errors.Is(b.port.letters[0].Err, ErrNoEventID) || b.port.letters[0].Attempt != 1 {
		t.Errorf("letters %+v", b.port.letters)
	}
}

func TestStopAndPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(func(context.Context, *memoryTx, Event) error { return RetryAfter(errors.New("later"), time.Hour) })
		stop := make(chan struct{})
		ended := make(chan error, 1)
		worker := b.worker(t)
		go func() { ended <- worker.Process(context.Background(), stop, deliveries("a")) }()
		synctest.Wait()
		close(stop)
		if err := <-ended; !errors.Is(err, ErrStopped) {
			t.Errorf("a stopped back-off returned %v", err)
		}
		b.gate.Close()
		b.cfg.Handler = apply
		go func() { ended <- b.worker(t).Process(context.Background(), nil, deliveries("b")) }()
		synctest.Wait()
		if len(b.store.claims) != 1 {
			t.Error("a paused worker began a transaction")
		}
		b.gate.Open()
		if err := <-ended; err != nil || len(b.store.claims) != 2 {
			t.Error("a resumed worker did not go on")
		}
	})
}

// TestEffectsOnceWhateverFails plays random batches against random faults of
// store, handler and broker.
func TestEffectsOnceWhateverFails(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOfN(rapid.StringMatching(`[a-h]?`), 1, 40).Draw(t, "ids")
		fate := map[string]string{}
		left := map[string]int{}
		for _, id := range ids {
			fate[id] = rapid.SampledFrom([]string{"fine", "fine", "fine", "permanent", "exhausted", "mends", "discard", "flaky store"}).Draw(t, "fate of "+id)
			left[id] = 3
		}
		b := setup(nil)
		b.cfg.BatchSize = rapid.IntRange(1, 12).Draw(t, "batch")
		b.cfg.Retry = RetryPolicy{Attempts: 3, Initial: 1, Max: 1}
		b.cfg.Outage = 32
		b.cfg.Handler = func(ctx context.Context, tx *memoryTx, ev Event) error {
			if err := fated(fate[ev.ID], ev.ID, left); err != nil {
				return err
			}
			return apply(ctx, tx, ev)
		}
		budget := rapid.IntRange(0, 8).Draw(t, "faults")
		b.store.fault = func(string) error {
			if budget == 0 || !rapid.Bool().Draw(t, "fault") {
				return nil
			}
			budget--
			if budget%4 == 0 {
				return Contention(errors.New("lost"))
			}
			return Unavailable(errors.New("down"))
		}
		b.store.lose = func() bool {
			if budget == 0 || !rapid.Bool().Draw(t, "lost answer") {
				return false
			}
			budget--
			return true
		}
		all := deliveries(ids...)
		finished := 0
		b.port.onDone = func(n int) {
			for _, d := range all[finished : finished+n] {
				if !b.store.records[d.ID] && fate[d.ID] != "discard" && !hasLetter(b.port.letters, d.Offset) {
					t.Fatalf("offset %d (%s) was finished without record or letter", d.Offset, fate[d.ID])
				}
			}
			finished += n
		}
		cfg, err := b.cfg.Complete()
		if err != nil {
			t.Fatal(err)
		}
		if err := NewWorker(cfg, b.port, &b.meter, &b.gate).Process(context.Background(), nil, all); err != nil {
			t.Fatal(err)
		}
		checkOnce(t, b, all, fate)
	})
}

func fated(fate, id string, left map[string]int) error {
	switch fate {
	case "permanent":
		return Permanent(errors.New("no"))
	case "exhausted":
		return errors.New("never")
	case "discard":
		return Discard(errors.New("not ours"))
	case "mends", "flaky store":
		if left[id] > 0 {
			left[id]--
			if fate == "mends" {
				return errors.New("not yet")
			}
			return Contention(errors.New("lost"))
		}
	}
	return nil
}

func hasLetter(letters []Letter, offset int64) bool {
	return slices.ContainsFunc(letters, func(l Letter) bool { return l.Offset == offset })
}

func checkOnce(t *rapid.T, b *bench, all []Delivery, fate map[string]string) {
	if b.port.done != len(all) {
		t.Fatalf("%d of %d finished", b.port.done, len(all))
	}
	var wantEffects []string
	for _, d := range all {
		fine := fate[d.ID] == "fine" || fate[d.ID] == "mends" || fate[d.ID] == "flaky store"
		if d.ID != "" && fine && !slices.Contains(wantEffects, d.ID) {
			wantEffects = append(wantEffects, d.ID)
		}
		wantLetter := d.ID == "" || fate[d.ID] == "permanent" || fate[d.ID] == "exhausted"
		if hasLetter(b.port.letters, d.Offset) != wantLetter {
			t.Fatalf("offset %d, fate %s: letter %t", d.Offset, fate[d.ID], !wantLetter)
		}
	}
	if !slices.Equal(b.store.effects, wantEffects) {
		t.Fatalf("effects %v, want %v once and in order", b.store.effects, wantEffects)
	}
	if s := b.status(); s.DeadLettered != int64(len(b.port.letters)) {
		t.Fatalf("%d letters counted, %d published", s.DeadLettered, len(b.port.letters))
	}
}
