package metrics_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"oncemore/consumer"
	"oncemore/consumer/metrics"
	"oncemore/consumer/outbox"
)

// fixed is a consumer that stands still.
type fixed struct {
	status consumer.Status
	lag    []consumer.Position
	err    error
}

func (f fixed) Run(context.Context) error                        { return nil }
func (f fixed) Pause()                                           {}
func (f fixed) Resume()                                          {}
func (f fixed) Status() consumer.Status                          { return f.status }
func (f fixed) Lag(context.Context) ([]consumer.Position, error) { return f.lag, f.err }

// busy is what a group that works reports.
func busy(state consumer.State) consumer.Status {
	h := consumer.Histogram{Bounds: []float64{1, 100}, Counts: []int64{1, 3}, Count: 4, Sum: 300}
	return consumer.Status{Group: "points", State: state, Consumed: 90, Duplicates: 10, Filtered: 4, Retried: 3, DeadLettered: 1, Discarded: 2,
		Transactions: 4, Fallbacks: 5, Contention: 6, StaleAcks: 7, Reconnects: 8, BatchSize: h, ClaimSeconds: h,
		Assigned: []consumer.Partition{{Topic: "order.paid"}}, LastErrorAt: time.UnixMilli(1_700_000_000_500)}
}

func TestEveryFigureIsThere(t *testing.T) {
	t.Parallel()
	lag := []consumer.Position{{Partition: consumer.Partition{Topic: "order.paid", Partition: 2}, Lag: 12}}
	silent := fixed{status: busy(consumer.Waiting), err: errors.New("down")}
	c := metrics.Consumers(0, silent, fixed{status: busy(consumer.Running), lag: lag})
	want := `
# HELP consumer_batch_size Deliveries of committed transactions.
# TYPE consumer_batch_size histogram
consumer_batch_size_bucket{consumer_group="points",le="1"} 2
consumer_batch_size_bucket{consumer_group="points",le="100"} 6
consumer_batch_size_bucket{consumer_group="points",le="+Inf"} 8
consumer_batch_size_sum{consumer_group="points"} 600
consumer_batch_size_count{consumer_group="points"} 8
# HELP consumer_deliveries_total Deliveries that are finished, by what became of them: consumed, duplicate_store and duplicate_filter (recognised in the database or by the filter before it), discarded, dead_lettered.
# TYPE consumer_deliveries_total counter
consumer_deliveries_total{consumer_group="points",result="consumed"} 180
consumer_deliveries_total{consumer_group="points",result="dead_lettered"} 2
consumer_deliveries_total{consumer_group="points",result="discarded"} 4
consumer_deliveries_total{consumer_group="points",result="duplicate_filter"} 8
consumer_deliveries_total{consumer_group="points",result="duplicate_store"} 12
# HELP consumer_lag Records between the committed offset and the end; RabbitMQ: messages of the queue that are not finished. Absent if the broker does not answer.
# TYPE consumer_lag gauge
consumer_lag{consumer_group="points",partition="2",topic="order.paid"} 12
# HELP consumer_state Members of this process by the state that they are in.
# TYPE consumer_state gauge
consumer_state{consumer_group="points",state="paused"} 0
consumer_state{consumer_group="points",state="running"} 1
consumer_state{consumer_group="points",state="stopped"} 0
consumer_state{consumer_group="points",state="waiting"} 1
`
	if err := testutil.CollectAndCompare(c, strings.NewReader(want), "consumer_batch_size", "consumer_deliveries_total", "consumer_lag", "consumer_state"); err != nil {
		t.Error(err)
	}
	for name, want := range map[string]float64{
		"consumer_retries_total": 6, "consumer_transactions_total": 8, "consumer_fallbacks_total": 10, "consumer_contention_total": 12,
		"consumer_stale_acks_total": 14, "consumer_reconnects_total": 16, "consumer_assigned_partitions": 2, "consumer_last_error_timestamp_seconds": 1_700_000_000.5,
	} {
		if got := only(t, c, name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if problems, err := testutil.CollectAndLint(c); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
}

// only is the value of the one metric of that name.
func only(t *testing.T, c prometheus.Collector, name string) float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name && len(f.Metric) == 1 {
			return f.Metric[0].GetCounter().GetValue() + f.Metric[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("%s is not there", name)
	return 0
}

// What is not known is absent, never zero.
func TestUnreachableIsNoZero(t *testing.T) {
	t.Parallel()
	down := fixed{status: consumer.Status{Group: "points", State: consumer.Stopped}, err: errors.New("down")}
	c := metrics.Consumers(time.Second, down)
	if n := testutil.CollectAndCount(c, "consumer_lag", "consumer_last_error_timestamp_seconds"); n != 0 {
		t.Errorf("%d figures that nobody knows", n)
	}
	o := metrics.Outbox("orders", 0, func(context.Context) (outbox.Stats, error) { return outbox.Stats{}, errors.New("down") })
	if n := testutil.CollectAndCount(o); n != 0 {
		t.Errorf("%d figures of an outbox that does not answer", n)
	}
}

func TestOutboxAge(t *testing.T) {
	t.Parallel()
	o := metrics.Outbox("orders", 0, func(context.Context) (outbox.Stats, error) {
		return outbox.Stats{Pending: 3, Oldest: 90 * time.Second, Dead: 1}, nil
	})
	want := `
# HELP outbox_oldest_pending_seconds Age of the oldest of them, by the database's clock; 0 with none.
# TYPE outbox_oldest_pending_seconds gauge
outbox_oldest_pending_seconds{outbox="orders"} 90
`
	if err := testutil.CollectAndCompare(o, strings.NewReader(want), "outbox_oldest_pending_seconds"); err != nil {
		t.Error(err)
	}
}
