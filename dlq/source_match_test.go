package dlq_test

import (
	"testing"

	"oncemore/dlq"
)

func TestDrainSourceMatches(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, topic string
		want           bool
	}{
		{"*.DLT", "order.paid.DLT", true},
		{"*.DLT", "order.paid.DLTs", false},
		{"*.DLT", "orderXDLT", false},
		{"order.?-dlt", "order.a-dlt", true},
		{"*", "__consumer_offsets", false},
		{"", "a", false},
	} {
		if got := (dlq.DrainSource{Pattern: c.pattern}).Matches(c.topic); got != c.want {
			t.Errorf("%q matches %q: %t", c.pattern, c.topic, got)
		}
	}
}
