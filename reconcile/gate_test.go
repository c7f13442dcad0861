package reconcile

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"
)

func gatesOf(rooms map[string]int64) gates {
	g := gates{}
	for name, room := range rooms {
		g[name] = &gate{room, semaphore.NewWeighted(room)}
	}
	return g
}

// Whoever is through the gates has all its sessions, there are never more than
// fit, and nobody waits for ever.
func TestGatesGiveAllSessionsAtOnce(t *testing.T) {
	t.Parallel()
	g := gatesOf(map[string]int64{"a": 3, "b": 2})
	var a, b atomic.Int64
	var segments errgroup.Group
	for i := range 64 {
		need := map[string]int64{"a": 1 + int64(i%2), "b": 1 + int64(i/2%2)}
		segments.Go(func() error {
			leave, err := g.pass(t.Context(), need)
			if err != nil {
				return err
			}
			defer leave()
			if a.Add(need["a"]) > 3 || b.Add(need["b"]) > 2 {
				t.Error("more are through than fit")
			}
			a.Add(-need["a"])
			b.Add(-need["b"])
			return nil
		})
	}
	if err := segments.Wait(); err != nil {
		t.Fatal(err)
	}
}

func TestGatesNameWhatIsTooMuch(t *testing.T) {
	t.Parallel()
	g := gatesOf(map[string]int64{"shop": 2})
	if _, err := g.pass(t.Context(), map[string]int64{"shop": 3}); err == nil || !strings.Contains(err.Error(), "connection shop allows 2 sessions at once, and the job needs 3") {
		t.Errorf("three of two: %v", err)
	}
	leave, err := g.pass(t.Context(), map[string]int64{"shop": 2})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("the run is over")
	cancel(why)
	if _, err := g.pass(ctx, map[string]int64{"shop": 1}); !errors.Is(err, why) {
		t.Errorf("waiting for a run that is over: %v", err)
	}
	leave()
	if leave, err = g.pass(t.Context(), map[string]int64{"shop": 2}); err != nil {
		t.Fatal(err)
	}
	leave()
}
