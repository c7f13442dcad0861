package check_test

import (
	"slices"
	"testing"

	"oncemore/internal/check"
)

func TestNeedsAreThoseOfTheCheck(t *testing.T) {
	t.Parallel()
	in := soundInput(t)
	topic(t, in.Clusters[0].Admin, "order.kept", 1, 3, map[string]string{"retention.ms": "-1"}) // before its metadata are kept
	needs := check.Needs(t.Context(), in)
	if len(needs) != 1 || needs[0].Group != "points" || !needs[0].Known || needs[0].For < 54*day || needs[0].For > 55*day {
		t.Errorf("needs %+v", needs)
	}
	in.Consumers[0].Topics = []string{"order.paid", "order.kept"}
	if needs = check.Needs(t.Context(), in); needs[0].For != check.Endless {
		t.Errorf("a topic that keeps for ever: %+v", needs)
	}
	in.Clusters = nil
	if needs = check.Needs(t.Context(), in); needs[0].Known {
		t.Errorf("without brokers: %+v", needs)
	}
	if check.LeastNeed(0) != check.Endless || check.LeastNeed(30*day) != 40*day {
		t.Error("least need")
	}
}

// What waits in the replay topic comes back, too.
func TestReplayTopicCounts(t *testing.T) {
	t.Parallel()
	in := soundInput(t)
	topic(t, in.Clusters[0].Admin, "sms.replay", 3, 3, map[string]string{"retention.ms": "-1", "min.insync.replicas": "2"})
	in.Consumers[0].Group = "sms"
	if needs := check.Needs(t.Context(), in); needs[0].For != check.Endless {
		t.Errorf("needs %+v", needs)
	}
}

func TestComputedRetentionKeepsThePromise(t *testing.T) {
	t.Parallel()
	in := soundInput(t)
	in.Evidence, in.Consumers[0].Retention = nil, check.Computed
	if f := one(t, run(t, in), "retention.promise.ok"); !slices.Contains(f.Evidence, "kept: 55 d") {
		t.Errorf("evidence %v", f.Evidence)
	}
	in.ReplayWindow = 0
	one(t, run(t, in), "retention.promise.never")
	in.Clusters = nil
	one(t, run(t, in), "retention.promise.unknown")
}
