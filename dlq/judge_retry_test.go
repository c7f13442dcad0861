package dlq

import (
	"slices"
	"testing"
	"time"
)

// Spring Kafka reads the retry topics of a group under names of their own. To a
// route that is meant for the group they are the group, with its records; to
// others, and beside strangers, they are what they are called.
func TestReadersOfRetryTopics(t *testing.T) {
	t.Parallel()
	j := &Judge{clock: time.Now}
	view := &clusterView{Readers: map[string][]string{
		"orders":         {"points"},
		"orders-retry-0": {"points-retry-0", "stranger"},
	}}
	reached := func(r Route) (names []string) {
		q := inquiry{subject: Subject{Group: "points", OriginTopic: "orders"}, route: &r}
		j.addGroups(&q, view)
		for _, a := range q.groups {
			if a.reached {
				names = append(names, a.group)
			}
		}
		return names
	}
	for _, c := range []struct {
		route Route
		want  []string
	}{
		{Route{Topic: "orders-retry-0", Group: "points"}, []string{"points", "stranger"}},
		{Route{Topic: "orders-retry-0"}, []string{"points", "points-retry-0", "stranger"}},
		{Route{Topic: "orders"}, []string{"points"}},
	} {
		if got := reached(c.route); !slices.Equal(got, c.want) {
			t.Errorf("%+v reaches %v, want %v", c.route, got, c.want)
		}
	}
}
