package dlq

import (
	"context"
	"sync"
	"testing"
	"time"

	"oncemore/consumer/pgstore"
)

// Old records are looked up where they were moved to, and none is missed while
// it moves.
func TestEvidenceIsFoundInTheArchive(t *testing.T) {
	t.Parallel()
	pool := shop(t)
	run(t, pool, `INSERT INTO mq_consume_record (event_id, consumer_group, consumed_at)
		SELECT 'e-' || i, 'points', now() - interval '100 days' FROM generate_series(1, 400) i`)
	if err := pgstore.MigrateArchive(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	keeper, err := pgstore.NewKeeper(pool, pgstore.KeeperOptions{Archive: true, Hot: 24 * time.Hour, Chunk: 4,
		Keep: func(context.Context) (map[string]time.Duration, error) { return nil, nil }})
	if err != nil {
		t.Fatal(err)
	}
	var moving sync.WaitGroup
	moved := make(chan struct{})
	moving.Go(func() {
		defer close(moved)
		if done, err := keeper.RunOnce(t.Context()); err != nil || done.Moved != 400 {
			t.Errorf("moved %d: %v", done.Moved, err)
		}
	})
	for asked, ended := 0, false; !ended; asked++ {
		select {
		case <-moved:
			ended = true // and once more, from the archive alone
		default:
		}
		for _, id := range []string{"e-1", "e-200", "e-399", "e-400"} {
			r, ok, failed := askOne(t, shopEvidence(pool), id, "points")
			if !ok || failed != nil || !r.exact || r.at == nil || time.Since(*r.at) < 99*24*time.Hour {
				t.Fatalf("%s: record %+v %v %v", id, r, ok, failed)
			}
		}
	}
	moving.Wait()
	if _, ok, failed := askOne(t, shopEvidence(pool), "e-401", "points"); ok || failed != nil {
		t.Errorf("an event that was never consumed: %v, %v", ok, failed)
	}
	public := shopEvidence(pool)
	public.Table, public.ConsumedAt = "public.mq_consume_record", ""
	if _, ok, failed := askOne(t, public, "e-1", "points"); !ok || failed != nil {
		t.Errorf("by the schema's name: %v, %v", ok, failed)
	}
}
