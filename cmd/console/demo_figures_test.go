package main

import (
	"io"
	"strings"
	"time"

	"oncemore/internal/testkit"
)

// wantFigures: the process's own consumers, and the sums over all replicas, are
// there for Prometheus.
func wantFigures(d *running) {
	d.Helper()
	testkit.Eventually(d, 20*time.Second, func() bool {
		resp, err := d.client.Get(d.info.URL + "/metrics")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			return false
		}
		for _, want := range []string{
			`consumer_batch_size_count{consumer_group="points-consumer-group"}`, `consumer_lag{consumer_group="points-consumer-group",partition="0",topic="order.paid"}`,
			`oncemore_consumer_transactions_total{cluster="shop-kafka",consumer_group="points-consumer-group"}`,
		} {
			if !strings.Contains(string(body), want) {
				return false
			}
		}
		return true
	}, "figures of a consumer")
}
