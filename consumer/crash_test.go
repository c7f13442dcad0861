package consumer_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"oncemore/consumer"
	"oncemore/consumer/consumertest"
)

// ledger is a store whose effects commit and roll back with its records, as a
// database's do. Its transactions are the effects that they would leave.
type ledger struct {
	*consumertest.Memory[*[]string]
	committed []string
}

func newLedger() *ledger { return &ledger{Memory: consumertest.NewMemory[*[]string](nil)} }

// Claim begins a transaction of its own.
func (l *ledger) Claim(ctx context.Context, group string, ids []string) (consumer.Claim[*[]string], error) {
	claim, err := l.Memory.Claim(ctx, group, ids)
	if err != nil {
		return nil, err
	}
	return &ledgerClaim{Claim: claim, ledger: l, tx: new([]string)}, nil
}

type ledgerClaim struct {
	consumer.Claim[*[]string]
	ledger *ledger
	tx     *[]string
}

func (c *ledgerClaim) Tx() *[]string { return c.tx }

func (c *ledgerClaim) Commit(ctx context.Context) error {
	if err := c.Claim.Commit(ctx); err != nil {
		return err
	}
	c.ledger.committed = append(c.ledger.committed, *c.tx...)
	return nil
}

// The process dies at random points, transactions fail, answers are lost, and
// every delivery comes twice: each event takes effect once, in its place.
func TestEffectsOnceThroughDeaths(t *testing.T) {
	t.Parallel()
	points := []consumertest.Point{consumertest.BeforeCommit, consumertest.AfterCommit, consumertest.DuringAck}
	rapid.Check(t, func(r *rapid.T) {
		l := newLedger()
		kit := consumertest.New(t, consumer.Config[*[]string]{
			Group: "g", Store: l, EventID: consumer.EventIDSource{JSON: "id"}, BatchSize: rapid.IntRange(1, 8).Draw(r, "batch"),
			Handler: func(_ context.Context, tx *[]string, ev consumer.Event) error { *tx = append(*tx, ev.ID); return nil },
		})
		if rapid.Bool().Draw(r, "twice") {
			kit.EveryDeliveryTwice()
		}
		var want []string
		for call := range rapid.IntRange(1, 4).Draw(r, "calls") {
			for _, at := range points {
				kit.Crash(at, rapid.IntRange(0, 2).Draw(r, fmt.Sprint("deaths at ", at)))
			}
			kit.FailBeforeCommit(rapid.IntRange(0, 2).Draw(r, "failures"))
			kit.LoseCommit(rapid.IntRange(0, 2).Draw(r, "lost answers"))
			var events []consumer.Event
			for _, id := range rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f"}), 1, 12).Draw(r, fmt.Sprint("events of call ", call)) {
				events = append(events, consumertest.JSON("t", `{"id":"`+id+`"}`))
				if !slices.Contains(want, id) {
					want = append(want, id)
				}
			}
			if got := kit.Deliver(events...); len(got.Letters) != 0 {
				r.Fatalf("letters %+v", got.Letters)
			}
		}
		if !slices.Equal(l.committed, want) {
			r.Fatalf("took effect as %v, want %v", l.committed, want)
		}
	})
}
