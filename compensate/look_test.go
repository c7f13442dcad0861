package compensate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"oncemore/internal/testkit"
	"oncemore/reconcile"
)

// Those who ask while a read is under way are answered together by the next one,
// each with its own key; one that cannot be read holds up no other.
func TestLooksAreReadTogether(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var reads [][]int64
	first := make(chan struct{})
	down := errors.New("the ledger is down")
	l := &looks{states: func(_ context.Context, job string, breaks []reconcile.Break) ([]reconcile.Finding, error) {
		var ids []int64
		found := make([]reconcile.Finding, len(breaks))
		for i, b := range breaks {
			ids = append(ids, b.ID)
			found[i].Key = []string{fmt.Sprint(job, b.ID)}
		}
		mu.Lock()
		reads = append(reads, ids)
		n := len(reads)
		mu.Unlock()
		if n == 1 {
			<-first
		}
		for _, b := range breaks {
			if b.ID == 13 {
				return nil, down
			}
		}
		return found, nil
	}}
	ask := func(id int64) { // wants its own
		f, err := l.state(t.Context(), reconcile.Break{ID: id, Job: "j"})
		if id == 13 {
			if !errors.Is(err, down) {
				t.Errorf("an error is lost: %v", err)
			}
			return
		}
		if err != nil || f.Key[0] != fmt.Sprint("j", id) {
			t.Errorf("%d: %v, %v", id, f.Key, err)
		}
	}
	var asked sync.WaitGroup
	asked.Go(func() { ask(0) })
	testkit.Eventually(t, time.Minute, func() bool { mu.Lock(); defer mu.Unlock(); return len(reads) == 1 }, "the first is read")
	for id := range int64(20) {
		asked.Go(func() { ask(id + 1) })
	}
	testkit.Eventually(t, time.Minute, func() bool { l.mu.Lock(); defer l.mu.Unlock(); return len(l.waiting["j"]) == 20 }, "the others wait")
	close(first)
	asked.Wait()
	if len(reads) != 22 || len(reads[1]) != 20 { // together, and one by one for the one that fails
		t.Errorf("reads %v", reads)
	}
	ask(100) // and the next one is answered
}
