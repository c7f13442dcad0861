package dlq

import (
	"slices"
	"testing"
)

func TestOriginTopics(t *testing.T) {
	t.Parallel()
	s := newSeed(t)
	s.add(
		seedLetter{topic: "order.paid", message: "a"},
		seedLetter{topic: "order.paid", message: "b", state: Resolved},
		seedLetter{cluster: "other", topic: "order.sent", message: "c"},
		seedLetter{message: "origin not known"},
	)
	got, err := NewFaults(s.pool).OriginTopics(t.Context())
	if want := []OriginTopic{{"main", "order.paid"}, {"other", "order.sent"}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("origin topics %v, %v, want %v", got, err, want)
	}
}
