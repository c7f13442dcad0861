package web_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"oncemore/consumer"
	"oncemore/internal/access"
	"oncemore/internal/fleet"
)

// figures is a consumer that stands still.
type figures struct{ status consumer.Status }

func (f figures) Run(context.Context) error                        { return nil }
func (f figures) Pause()                                           {}
func (f figures) Resume()                                          {}
func (f figures) Status() consumer.Status                          { return f.status }
func (f figures) Lag(context.Context) ([]consumer.Position, error) { return nil, nil }

// What a consumer reports is on its page, in the API and in the metrics.
func TestFiguresOfAConsumer(t *testing.T) {
	t.Parallel()
	s := setupShop(t)
	reporter := fleet.NewReporter(s.pool, slog.New(slog.NewTextHandler(io.Discard, nil)))
	reporter.Add(figures{status: consumer.Status{Group: "busy", Topics: []string{"order.paid"}, State: consumer.Running, Started: time.Now(),
		Consumed: 1200, Duplicates: 300, Filtered: 250, Discarded: 3, Transactions: 500, Fallbacks: 41, Contention: 52, StaleAcks: 63, Reconnects: 74}},
		"shop-kafka", "consume_record")
	if err := reporter.Tick(t.Context()); err != nil {
		t.Fatal(err)
	}
	contains(t, s.get(t, s.signIn(t, access.Viewer), "/consumers/busy"), http.StatusOK,
		"How it runs", "Per transaction", "2.5", "Fallbacks", "41", "Contention", "52", "Known to Redis", "250", "Reconnects", "74", "Late acknowledgements", "63")
	contains(t, s.get(t, http.DefaultClient, "/metrics"), http.StatusOK,
		`oncemore_consumer_records_total{cluster="shop-kafka",consumer_group="busy",result="filtered"} 250`,
		`oncemore_consumer_records_total{cluster="shop-kafka",consumer_group="busy",result="discarded"} 3`,
		`oncemore_consumer_transactions_total{cluster="shop-kafka",consumer_group="busy"} 500`,
		`oncemore_consumer_fallbacks_total{cluster="shop-kafka",consumer_group="busy"} 41`,
		`oncemore_consumer_contention_total{cluster="shop-kafka",consumer_group="busy"} 52`,
		`oncemore_consumer_stale_acks_total{cluster="shop-kafka",consumer_group="busy"} 63`,
		`oncemore_consumer_reconnects_total{cluster="shop-kafka",consumer_group="busy"} 74`)
	token := s.token(t, access.Viewer)
	busy := s.object(t, token, "GET", "/api/v1/consumers/busy", "")
	for name, want := range map[string]float64{"filtered": 250, "discarded": 3, "transactions": 500, "fallbacks": 41, "contention": 52, "stale_acks": 63, "reconnects": 74} {
		if busy[name] != want {
			t.Errorf("%s is %v, want %v", name, busy[name], want)
		}
	}
}
