package dlq

import (
	"testing"
	"time"

	"oncemore/internal/testkit"
)

// BenchmarkLargePlan judges and freezes a fault of 100,000 letters in steps:
// letters/s, and the longest that one step took.
func BenchmarkLargePlan(b *testing.B) {
	const letters = 100_000
	for b.Loop() {
		b.StopTimer()
		s := newReplayShop(b, testkit.Kafka(b), func(o *ReplayOptions) { o.StepTime = 20 * time.Second })
		group := s.ours("points")
		s.manyFailed(letters, group)
		s.must(s.pool.Exec(b.Context(), "analyze"))
		b.StartTimer()
		began := time.Now()
		plan := s.plan(ada, PlanRequest{Selection: Selection{Filter: &LetterFilter{}}, Target: ToGroup})
		asked := time.Since(began)
		var longest time.Duration
		for s.get(plan.ID).State == Planning {
			step := time.Now()
			s.stepOnce(s.replays, plan.ID)
			longest = max(longest, time.Since(step))
		}
		if p := s.get(plan.ID); p.Total != letters {
			b.Fatalf("%s, %d of %d", p.State, p.Total, p.Letters)
		}
		b.ReportMetric(letters/time.Since(began).Seconds(), "planned/s")
		b.ReportMetric(asked.Seconds()*1000, "ms-request")
		b.ReportMetric(longest.Seconds(), "s-longest-step")
	}
}
