package dlq

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"oncemore/internal/testkit"
)

// manyFailed makes n orders that group gave up and drains them.
func (s *replayShop) manyFailed(n int, group string) {
	s.t.Helper()
	recs := make([]*kgo.Record, n)
	for i := range recs {
		event := fmt.Sprintf("payment-%06d", i)
		recs[i] = &kgo.Record{Topic: s.topic, Partition: int32(i % shopPartitions), Key: []byte("key-" + event), Value: []byte(`{"eventId":"` + event + `"}`),
			Headers: []kgo.RecordHeader{{Key: "event-id", Value: []byte(event)}}}
	}
	s.must(nil, s.producer.ProduceSync(context.Background(), recs...).FirstErr())
	dead := make([]*kgo.Record, n)
	for i, rec := range recs {
		dead[i] = s.deadRecord(rec, group)
	}
	s.must(nil, s.producer.ProduceSync(context.Background(), dead...).FirstErr())
	s.drain()
}

// BenchmarkReplay plans and replays letters of one group, with a real broker and
// a table of evidence: items/s planned, and judged, claimed, sent and recorded.
// A member of the group reads along and applies.
func BenchmarkReplay(b *testing.B) {
	const letters = 20_000
	for b.Loop() {
		b.StopTimer()
		s := newReplayShop(b, testkit.Kafka(b))
		group := s.ours("points")
		s.connect(func(o *ReplayOptions) { o.ApprovalSize, o.StepTime, o.SettleAfter = letters, time.Second, time.Hour })
		s.manyFailed(letters, group)
		s.must(s.pool.Exec(b.Context(), "analyze"))
		s.skipTo(group, group+".replay")
		b.StartTimer()
		began := time.Now()
		plan := s.plan(ada, PlanRequest{Selection: Selection{Filter: &LetterFilter{}}, Target: ToGroup})
		planned := time.Since(began)
		s.start(ada, plan.ID)
		began = time.Now()
		for s.get(plan.ID).Waiting > 0 {
			s.stepOnce(s.replays, plan.ID)
		}
		sent := time.Since(began)
		b.StopTimer()
		s.applyAll(group)
		b.StartTimer()
		began = time.Now()
		s.work(plan.ID)
		told := time.Since(began)
		if p := s.get(plan.ID); p.Sent != letters || p.Outcomes[Applied] != letters {
			b.Fatalf("sent %d, %s", p.Sent, outcomes(p))
		}
		b.ReportMetric(letters/planned.Seconds(), "planned/s")
		b.ReportMetric(letters/sent.Seconds(), "sent/s")
		b.ReportMetric(letters/told.Seconds(), "told/s")
	}
}

// applyAll is a group that has consumed everything.
func (s *replayShop) applyAll(group string) {
	s.t.Helper()
	s.must(s.shop.Exec(s.t.Context(), "analyze"))
	rows, err := s.pool.Query(s.t.Context(), "SELECT DISTINCT event_id FROM dead_letter")
	s.must(nil, err)
	var events []string
	for rows.Next() {
		var e string
		s.must(nil, rows.Scan(&e))
		events = append(events, e)
	}
	s.must(s.shop.Exec(s.t.Context(), "insert into mq_consume_record (event_id, consumer_group) select e, $2 from unnest($1::text[]) e", events, group))
	s.skipTo(group, group+".replay")
}
