package shop

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// How many failures of each kind a newcomer finds.
const (
	seedHealthy = 12
	seedStuck   = 7 // of the points group; the first seedAgain of them are delivered again
	seedAgain   = 2
	seedLegacy  = 2
	seedPaid    = 2 * time.Hour // before: what is stuck is in the ledger's first window
)

// seed makes what a newcomer finds, once per data folder.
func (s *Shop) seed(ctx context.Context) error {
	done, err := s.has(ctx, "seeded")
	if done {
		s.sentOnce.Do(func() { close(s.ordered) })
	}
	if err != nil || done {
		return err
	}
	if err := s.makeFailures(ctx); err != nil {
		return err
	}
	_, err = s.once(ctx, "seeded", time.Now().UTC().Format(time.RFC3339))
	return err
}

// makeFailures makes real failures by real means: the points rules reject some
// orders until they are dead letters, then they are repaired, and two of the
// orders are delivered once more and go through.
func (s *Shop) makeFailures(ctx context.Context) error {
	before, err := s.letters(ctx, DeadLetters)
	if err != nil {
		return err
	}
	stuck, err := s.seedOrders(ctx)
	if err != nil {
		return err
	}
	s.sentOnce.Do(func() { close(s.ordered) })
	// The nameless order is given up by three groups.
	if err := s.waitLetters(ctx, DeadLetters, before+seedStuck+3, 60*time.Second); err != nil {
		return err
	}
	if err := s.unstick(ctx, stuck...); err != nil {
		return err
	}
	return s.send(ctx, stuck[:seedAgain]...)
}

func (s *Shop) seedOrders(ctx context.Context) (stuck []order, err error) {
	all := make([]order, seedHealthy+seedStuck+seedLegacy+1)
	for i := range all {
		if all[i], err = s.newOrder(ctx); err != nil {
			return nil, err
		}
	}
	stuck = all[seedHealthy : seedHealthy+seedStuck]
	for i := range seedLegacy {
		all[seedHealthy+seedStuck+i].Tier = troubled
	}
	for i := range stuck {
		stuck[i].PaidAt = stuck[i].PaidAt.Add(-seedPaid)
	}
	nameless := &all[len(all)-1]
	nameless.EventID = "" // from a till that knows no event ids
	if err := s.stick(ctx, stuck...); err != nil {
		return nil, err
	}
	return stuck, s.send(ctx, all...)
}

const sqlStick = `insert into stuck_order (order_id) select unnest($1::text[]) on conflict do nothing`

// stick makes the points rules reject the orders.
func (s *Shop) stick(ctx context.Context, orders ...order) error {
	if _, err := s.pool.Exec(ctx, sqlStick, ids(orders)); err != nil {
		return fmt.Errorf("make orders fail: %w", err)
	}
	return nil
}

const sqlUnstick = `delete from stuck_order where order_id = any($1::text[])`

func (s *Shop) unstick(ctx context.Context, orders ...order) error {
	if _, err := s.pool.Exec(ctx, sqlUnstick, ids(orders)); err != nil {
		return fmt.Errorf("let orders through: %w", err)
	}
	return nil
}

func ids(orders []order) []string {
	out := make([]string, len(orders))
	for i, o := range orders {
		out[i] = o.OrderID
	}
	return out
}

// waitLetters waits until the dead-letter topic holds n records. After most it
// goes on without: a slow machine shows fewer letters, and no error. The error
// is that of ctx.
func (s *Shop) waitLetters(ctx context.Context, topic string, n int64, most time.Duration) error {
	end := time.After(most)
	for {
		if held, err := s.letters(ctx, topic); err == nil && held >= n {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-end:
			s.log.WarnContext(ctx, "fewer letters than expected", "topic", topic)
			return nil
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// letters is how many records the dead-letter topic holds at present.
func (s *Shop) letters(ctx context.Context, topic string) (int64, error) {
	ends, err := s.admin.ListEndOffsets(ctx, topic)
	if err != nil {
		return 0, fmt.Errorf("end of %s: %w", topic, err)
	}
	return total(ends), nil
}

func total(ends kadm.ListedOffsets) (n int64) {
	ends.Each(func(o kadm.ListedOffset) { n += max(o.Offset, 0) })
	return n
}
