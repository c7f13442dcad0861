package mysqlstore_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"oncemore/consumer"
	"oncemore/consumer/mysqlstore"
)

// partition is a worker's broker, which only counts.
type partition struct{ done int }

func (p *partition) Done(n int) { p.done += n }
func (p *partition) DeadLetter(_ context.Context, l consumer.Letter) error {
	return fmt.Errorf("event %s became a dead letter: %w", l.ID, l.Err)
}
func (p *partition) Waiting(bool) {}

// Four workers get the same events in different orders, in batches that share
// rows, while their connections are killed again and again.
func TestKilledConnectionsChangeNoEffect(t *testing.T) {
	t.Parallel()
	const workers, events = 4, 1500
	db := prepared(t)
	db.SetMaxIdleConns(0)
	cfg, err := consumer.Config[mysqlstore.Tx]{
		Group: "g", Store: db.store(t, mysqlstore.Options{LockTimeout: time.Second}), EventID: consumer.EventIDSource{JSON: "id"},
		BatchSize: 20, Outage: 32 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
		Handler: func(ctx context.Context, tx mysqlstore.Tx, ev consumer.Event) error {
			_, err := tx.ExecContext(ctx, sqlAdd, ev.ID, 1)
			if err == nil {
				_, err = tx.ExecContext(ctx, sqlAdd, "all", 1)
			}
			return err
		},
	}.Complete()
	if err != nil {
		t.Fatal(err)
	}
	var meter consumer.Meter
	var working sync.WaitGroup
	for range workers {
		working.Go(func() {
			port := &partition{}
			if err := consumer.NewWorker(cfg, port, &meter, &consumer.Gate{}).Process(t.Context(), nil, shuffled(events, cfg.EventID)); err != nil || port.done != events {
				t.Errorf("%d of %d finished: %v", port.done, events, err)
			}
		})
	}
	finished := make(chan struct{})
	go func() { working.Wait(); close(finished) }()
	gap := 15 * time.Millisecond
	for kills := 0; ; kills++ {
		gap += gap / 5 // ever rarer, so that it ends on a slow machine
		select {
		case <-finished:
			db.wantOnce(t, events)
			if kills < 5 {
				t.Errorf("finished after %d kills: too few events", kills)
			}
			return
		case <-time.After(gap):
			db.cut(t)
		}
	}
}

func (db database) wantOnce(t *testing.T, events int) {
	t.Helper()
	if n := len(db.records(t, "g")); n != events {
		t.Errorf("%d records, want %d", n, events)
	}
	if n := db.counter(t, "all"); n != events {
		t.Errorf("%d effects, want %d", n, events)
	}
	if twice := query[string](t, db, "SELECT `key` FROM counter WHERE n <> 1 AND `key` <> 'all'"); len(twice) > 0 {
		t.Errorf("not once: %v", twice)
	}
}

// shuffled are deliveries of events 0 to n-1 in random order.
func shuffled(n int, source consumer.EventIDSource) []consumer.Delivery {
	var all []consumer.Delivery
	for _, i := range rand.Perm(n) {
		all = append(all, consumer.NewDelivery(consumer.Event{Group: "g", Value: fmt.Appendf(nil, `{"id":"e%d"}`, i)}, source))
	}
	return all
}
