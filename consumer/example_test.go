package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"oncemore/consumer"
	"oncemore/consumer/consumertest"
)

// onAMemoryBroker runs a handler on events until all are finished, and returns the
// dead letters. A service has a broker (consumer/kafka, consumer/rabbit) and a
// database (consumer/pgstore, consumer/mysqlstore) in its place.
func onAMemoryBroker(cfg consumer.Config[int], values ...string) []consumer.Letter {
	cfg.Group, cfg.Store, cfg.EventID = "points", consumertest.NewMemory(0), consumer.EventIDSource{JSON: "$.eventId"}
	cfg.Retry, cfg.Logger = consumer.RetryPolicy{Attempts: 2, Initial: time.Millisecond}, slog.New(slog.DiscardHandler)
	broker := consumertest.NewBroker(1)
	for _, value := range values {
		broker.Publish(consumertest.JSON("order.paid", value))
	}
	member, err := consumertest.NewConsumer(broker, cfg, "order.paid")
	if err != nil {
		fmt.Println(err)
		return nil
	}
	ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
	ended := make(chan error, 1)
	go func() { ended <- member.Run(ctx) }()
	err = broker.Wait(ctx)
	stop()
	if err := errors.Join(err, <-ended); err != nil {
		fmt.Println(err)
	}
	return broker.Letters("order.paid")
}

// The same event three times, twice with other bytes: one effect.
func ExampleHandler() {
	onAMemoryBroker(consumer.Config[int]{
		Handler: func(_ context.Context, _ int, ev consumer.Event) error {
			fmt.Println("100 points for", ev.ID)
			return nil
		},
	}, `{"eventId":"payment-success-10001"}`, `{"eventId":"payment-success-10001","again":true}`, `{"eventId":"payment-success-10001","again":2}`)
	// Output: 100 points for payment-success-10001
}

// What no retry mends is a dead letter at once; everything else is tried again.
func ExamplePermanent() {
	tries := 0
	letters := onAMemoryBroker(consumer.Config[int]{
		Handler: func(_ context.Context, _ int, ev consumer.Event) error {
			if strings.Contains(string(ev.Value), `"points":-`) {
				return consumer.Permanent(errors.New("negative points"))
			}
			if tries++; tries < 3 {
				return errors.New("the bonus service is busy")
			}
			fmt.Println("100 points for", ev.ID, "at attempt", ev.Attempt)
			return nil
		},
	}, `{"eventId":"payment-success-10001","points":-100}`, `{"eventId":"payment-success-10002","points":100}`)
	for _, l := range letters {
		fmt.Println("dead letter:", l.ID, "at attempt", l.Attempt, l.Err)
	}
	// Output:
	// 100 points for payment-success-10002 at attempt 3
	// dead letter: payment-success-10001 at attempt 1 negative points
}

// A batch handler gets the fresh events of a transaction at once and names the one
// that is to blame: the others take effect without it.
func ExampleBatchError() {
	letters := onAMemoryBroker(consumer.Config[int]{
		BatchHandler: func(_ context.Context, _ int, events []consumer.Event) error {
			bad := slices.IndexFunc(events, func(ev consumer.Event) bool { return ev.ID == "b" })
			if bad >= 0 {
				return &consumer.BatchError{Index: bad, Err: consumer.Permanent(errors.New("no such order"))}
			}
			for _, ev := range events {
				fmt.Println("100 points for", ev.ID)
			}
			return nil
		},
	}, `{"eventId":"a"}`, `{"eventId":"b"}`, `{"eventId":"c"}`)
	fmt.Println("dead letters:", len(letters))
	// Output:
	// 100 points for a
	// 100 points for c
	// dead letters: 1
}

// Zero rows of a conditional update are a duplicate only where the event was
// processed; else they are an anomaly, which is no success.
func ExampleTransitioned() {
	status := map[string]string{"10001": "PENDING", "10002": "CANCELLED"}
	update := func(order string) (rows int64) { // UPDATE payment_task SET status = 'PROCESSED' WHERE order_id = $1 AND status = 'PENDING'
		if status[order] == "PENDING" {
			status[order], rows = "PROCESSED", 1
		}
		return rows
	}
	for _, order := range []string{"10001", "10001", "10002"} {
		took, err := consumer.Transitioned(context.Background(), update(order), func() (bool, error) { return status[order] == "PROCESSED", nil })
		fmt.Println(order, took, err)
	}
	// Output:
	// 10001 true <nil>
	// 10001 false <nil>
	// 10002 false anomaly: the update found no row in the expected state, and the event was not processed
}
