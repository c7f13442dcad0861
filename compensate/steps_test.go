package compensate

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"oncemore/internal/testkit"
)

// work carries compensations out by River until the test ends.
func (b *bank) work(c *Compensations) {
	b.Helper()
	workers := river.NewWorkers()
	c.AddWorkers(workers)
	client, err := river.NewClient(riverpgxv5.New(b.console), &river.Config{
		Queues: map[string]river.QueueConfig{Queue: {MaxWorkers: 4}}, Workers: workers, Logger: slog.New(slog.DiscardHandler), FetchPollInterval: 100 * time.Millisecond,
	})
	if err != nil {
		b.Fatal(err)
	}
	if err := client.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { <-client.Stopped() })
}

// Two processes carry out what was approved, by the queue, each of them once and
// at its time: a back-off of a moment does not wait for River's next look at what
// is scheduled.
func TestQueue(t *testing.T) {
	t.Parallel()
	b := openBank(t)
	b.Clock = time.Now
	b.define(strings.Replace(httpCredit, "initial: 10s", "initial: 300ms", 1))
	failed := map[string]bool{}
	b.answers(func(w http.ResponseWriter, r *http.Request) {
		b.mu.Lock()
		first := !failed[r.URL.Path]
		failed[r.URL.Path] = true
		b.mu.Unlock()
		if first {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		b.credit(r)
	})
	var all []*Compensation
	for i := range 3 {
		all = append(all, b.propose("call", b.missing(fmt.Sprintf("e-%d", i), 10)))
	}
	b.work(b.Compensations)
	b.work(b.replica())
	for _, comp := range all {
		if err := b.Approve(t.Context(), checker, comp.ID, comp.Hash); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Eventually(t, 60*time.Second, func() bool {
		n, err := b.Count(t.Context(), Filter{States: []State{Verified}})
		return err == nil && n == len(all)
	}, "not all are verified")
	if calls := b.called(); len(calls) != 2*len(all) {
		t.Errorf("%d calls: %v", len(calls), calls)
	}
	for _, comp := range all {
		attempts, err := b.Attempts(t.Context(), comp.ID)
		if err != nil || len(attempts) != 2 {
			t.Fatalf("%d attempts, %v", len(attempts), err)
		}
		if pause := attempts[1].At.Sub(attempts[0].At); pause < 300*time.Millisecond {
			t.Errorf("tried again after %s", pause)
		}
	}
	for _, state := range b.texts("SELECT state::text FROM river_job WHERE kind = 'compensation_step' AND state = 'scheduled'") {
		t.Errorf("a step is %s", state)
	}
}
