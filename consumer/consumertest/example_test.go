package consumertest_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"oncemore/consumer"
	"oncemore/consumer/consumertest"
)

// printing is a testing.TB for examples; in a test it is t.
type printing struct {
	testing.TB
	cleanup []func()
}

func (p *printing) Helper()                  {}
func (p *printing) Context() context.Context { return context.Background() }
func (p *printing) Cleanup(f func())         { p.cleanup = append(p.cleanup, f) }
func (p *printing) Fatal(args ...any)        { fmt.Println(args...); os.Exit(1) }
func (p *printing) Fatalf(format string, args ...any) {
	fmt.Printf(format+"\n", args...)
	os.Exit(1)
}

var t = &printing{}

// A handler whose process dies after the commit and before the acknowledgement:
// the delivery comes again and is recognised.
func ExampleKit_Crash() {
	kit := consumertest.New(t, consumer.Config[int]{
		Group: "points", Store: consumertest.NewMemory(0), EventID: consumer.EventIDSource{JSON: "$.eventId"},
		Handler: func(_ context.Context, _ int, ev consumer.Event) error {
			fmt.Println("100 points for", ev.ID)
			return nil
		},
	})
	kit.Crash(consumertest.AfterCommit, 1)
	r := kit.Deliver(consumertest.JSON("order.paid", `{"eventId":"payment-success-10001"}`))
	fmt.Println(r.Crashes, "crash,", r.Duplicates, "duplicate")
	// Output:
	// 100 points for payment-success-10001
	// 1 crash, 1 duplicate
}

// Pauses between attempts take no time.
func ExampleKit_Deliver() {
	kit := consumertest.New(t, consumer.Config[int]{
		Group: "points", Store: consumertest.NewMemory(0), EventID: consumer.EventIDSource{JSON: "$.eventId"},
		Retry: consumer.RetryPolicy{Attempts: 2, Initial: time.Minute, Max: time.Hour, Jitter: -1},
		Handler: func(_ context.Context, _ int, ev consumer.Event) error {
			return fmt.Errorf("attempt %d: the bonus service is closed", ev.Attempt)
		},
	})
	r := kit.Deliver(consumertest.JSON("order.paid", `{"eventId":"payment-success-10001"}`))
	fmt.Println(r.Letters[0].Err, "after", r.Waited)
	// Output:
	// attempt 3: the bonus service is closed after 3m0s
}

// Two groups on a broker in memory; every delivery comes twice.
func ExampleBroker() {
	broker := consumertest.NewBroker(3)
	broker.EveryDeliveryTwice()
	total := make(chan int, 100)
	for group, each := range map[string]int{"points": 100, "coupons": 1} {
		consumertest.Start(t, broker, consumer.Config[int]{
			Group: group, Store: consumertest.NewMemory(0), EventID: consumer.EventIDSource{JSON: "$.eventId"},
			Handler: func(context.Context, int, consumer.Event) error { total <- each; return nil },
		}, "order.paid")
	}
	for order := range 5 {
		broker.Publish(consumertest.JSON("order.paid", fmt.Sprintf(`{"eventId":"payment-success-%d"}`, order)))
	}
	broker.Settled(t)
	sum := 0
	for len(total) > 0 {
		sum += <-total
	}
	fmt.Println(sum)
	// Output: 505
}

func ExampleClock() {
	clock := consumertest.NewClock(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC))
	<-clock.After(90 * time.Minute)
	fmt.Println(clock.Now().Format(time.TimeOnly))
	// Output: 13:30:00
}
