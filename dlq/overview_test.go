package dlq

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"oncemore/internal/testkit"
)

func TestOverviewFootsWithTheLetters(t *testing.T) {
	t.Parallel()
	s := newSeed(t)
	addr := testkit.FakeKafkaAddr(t)
	c := clusterAt(t, addr)
	now := time.Date(2026, 11, 30, 14, 30, 0, 0, time.UTC)
	if m := time.Now(); m.Month() != now.Month() || m.Year() != now.Year() {
		now = m.UTC().Truncate(time.Hour).Add(30 * time.Minute)
		s.exec("call letter_add_month($1)", now)
	}
	s.add(
		seedLetter{source: "a.DLT", message: "old", at: now.Add(-50 * time.Hour)},
		seedLetter{source: "a.DLT", message: "old", at: now.Add(-3 * time.Hour)},
		seedLetter{source: "b.DLT", message: "muted", at: now.Add(-2 * time.Minute)},
	)
	for range 4 {
		s.add(seedLetter{source: "b.DLT", message: "growing", at: now.Add(-time.Minute)})
	}
	s.fold()
	s.add(seedLetter{source: "b.DLT", message: "growing", at: now.Add(-time.Minute)}, seedLetter{message: "done", state: Resolved, at: now.Add(-90 * time.Minute)})
	s.exec("UPDATE fault SET mute_until = $1 WHERE message = 'muted'", now.Add(time.Hour))
	s.exec(`INSERT INTO drain_gap (cluster, topic_id, topic, partition, from_offset, to_offset) VALUES ('main', gen_random_uuid(), 'a.DLT', 0, 10, 25), ('main', gen_random_uuid(), 'a.DLT', 1, 0, 1)`)
	s.exec(`INSERT INTO drain_position (cluster, topic_id, topic, partition, next_offset) VALUES ('main', gen_random_uuid(), 'a.DLT', 0, 1), ('main', gen_random_uuid(), 'a.DLT', 1, 1)`)
	s.exec(`INSERT INTO replay (state, target, digest, created_by, created_at, total, sent) VALUES (6, 2, '', 'chen', $1, 2, 2), (2, 1, '', 'lin', $2, 9, 0)`, now.Add(-time.Hour), now.Add(-30*time.Hour))
	s.exec(`INSERT INTO replay_outcome (replay_id, item_no, group_id, verdict, outcome, at) SELECT min(id), n, 0, 10, 1 + n, now() FROM replay, generate_series(1, 2) n GROUP BY n`)
	for _, topic := range []string{"a.DLT", "nobody.DLT", "empty.dlq", "order.paid"} {
		testkit.MakeTopic(t, addr, topic, 1)
	}
	produce(t, c, "a.DLT", &kgo.Record{Value: []byte("1")})
	produce(t, c, "nobody.DLT", &kgo.Record{Value: []byte("1")}, &kgo.Record{Value: []byte("2")})
	produce(t, c, "order.paid", &kgo.Record{Value: []byte("1")})

	o, err := NewOverview(s.pool, NewTopology(clusters(c), time.Now), func() time.Time { return now }).Overview(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if o.Open != 8 || o.OpenFaults != 3 || o.Stuck != 1 || o.StuckBounded || !o.OldestOpenAt.Equal(now.Add(-50*time.Hour)) {
		t.Errorf("counts: %+v", o)
	}
	if o.Hours[23].Arrived != 6 || o.Hours[20].Arrived != 1 || !o.Hours[23].Hour.Equal(now.Truncate(time.Hour)) {
		t.Errorf("hours: %+v", o.Hours)
	}
	if len(o.NeedSomeone) != 2 || o.NeedSomeone[0].Message != "growing" || len(o.Growing) != 1 || o.Growing[0].LastHour != 5 {
		t.Errorf("faults: %+v, growing %+v", o.NeedSomeone, o.Growing)
	}
	if len(o.Ages) != 2 || o.Ages[0] != (AgeRow{Cluster: "main", Broker: "kafka", Source: "b.DLT", Open: 6, Hour: 6}) ||
		o.Ages[1] != (AgeRow{Cluster: "main", Broker: "kafka", Source: "a.DLT", Open: 2, Day: 1, Older: 1}) {
		t.Errorf("ages: %+v", o.Ages)
	}
	if o.Gaps != 2 || o.Lost != 16 || o.Sources != 1 {
		t.Errorf("gaps %d, lost %d, sources %d", o.Gaps, o.Lost, o.Sources)
	}
	if len(o.Replays) != 1 || o.Replays[0].Outcomes[Applied] != 1 || o.Replays[0].Outcomes[Duplicate] != 1 || len(o.Waiting) != 1 || o.Waiting[0].CreatedBy != "lin" {
		t.Errorf("replays %+v, waiting %+v", o.Replays, o.Waiting)
	}
	if len(o.Unattended) != 1 || o.Unattended[0] != (UnattendedSource{"main", "nobody.DLT", 2}) || o.UnattendedErr != "" {
		t.Errorf("unattended: %+v %s", o.Unattended, o.UnattendedErr)
	}
}

func TestOverviewOfNothing(t *testing.T) {
	t.Parallel()
	o, err := NewOverview(newSeed(t).pool, NewTopology(clusters(clusterAt(t, "127.0.0.1:1")), time.Now), time.Now).Overview(t.Context())
	if err != nil || o.Open != 0 || o.OldestOpen != nil || len(o.NeedSomeone)+len(o.Ages)+len(o.Replays) != 0 {
		t.Errorf("%+v %v", o, err)
	}
	if o.UnattendedErr == "" {
		t.Error("a silent broker reads as: nothing is unattended")
	}
}
