package dlq

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"oncemore/internal/testkit"
)

// present is half past some hour of this month, so that letters of the hours
// before have a partition.
func present(s *seed) time.Time {
	now := time.Now().UTC().Truncate(time.Hour).Add(30 * time.Minute)
	s.exec("call letter_add_month($1)", now.Add(-26*time.Hour))
	return now
}

func (s *seed) concerns(topo *Topology, now time.Time) *Concerns {
	clock := func() time.Time { return now }
	return NewConcerns(s.pool, NewOverview(s.pool, topo, clock), clock)
}

// A fault grows when it gets more letters than ever in the day before: neither one
// fresh letter nor the usual trickle is growth.
func TestGrowthNeedsARateAboveItsPast(t *testing.T) {
	t.Parallel()
	s := newSeed(t)
	now := present(s)
	many := func(message string, n int, at time.Time) {
		for range n {
			s.add(seedLetter{message: message, at: at})
		}
	}
	many("fresh and single", 1, now.Add(-time.Minute))
	many("fresh and many", 6, now.Add(-time.Minute))
	many("as ever", 8, now.Add(-10*time.Hour))
	many("as ever", 7, now.Add(-time.Minute))
	many("more than ever", 3, now.Add(-10*time.Hour))
	many("more than ever", 7, now.Add(-time.Minute))
	many("muted", 9, now.Add(-time.Minute))
	s.fold()
	s.exec("UPDATE fault SET mute_until = $1 WHERE message = 'muted'", now.Add(time.Hour))
	grown, err := s.concerns(nil, now).Growing(t.Context())
	if err != nil || len(grown) != 2 || grown[0].Message != "more than ever" || grown[1].Message != "fresh and many" {
		t.Errorf("growing %+v, %v", grown, err)
	}
	o, err := NewOverview(s.pool, nil, func() time.Time { return now }).Overview(t.Context())
	if err != nil || len(o.Growing) != 2 {
		t.Errorf("on the overview %+v, %v", o.Growing, err)
	}
}

func TestNewFaultsAreThoseThatNobodyHasTaken(t *testing.T) {
	t.Parallel()
	s := newSeed(t)
	now := present(s)
	s.add(seedLetter{message: "old", at: now.Add(-25 * time.Hour)}, seedLetter{message: "new", at: now.Add(-time.Hour)}, seedLetter{message: "mine", at: now.Add(-time.Hour)},
		seedLetter{message: "muted", at: now.Add(-time.Hour)}, seedLetter{message: "resolved", at: now.Add(-time.Hour), state: Resolved})
	s.fold()
	s.exec("UPDATE fault SET mute_until = $1 WHERE message = 'muted'", now.Add(time.Hour))
	s.exec("UPDATE fault SET owner_id = $1 WHERE message = 'mine'", s.name(4, "chen"))
	s.exec("UPDATE fault SET first_seen = $1 WHERE message = 'old'", now.Add(-25*time.Hour))
	fresh, err := s.concerns(nil, now).NewFaults(t.Context(), now.Add(-24*time.Hour))
	if err != nil || len(fresh) != 1 || fresh[0].Message != "new" {
		t.Errorf("%+v, %v", fresh, err)
	}
}

func TestTheOldestLetterOfEachSource(t *testing.T) {
	t.Parallel()
	s := newSeed(t)
	now := present(s)
	ids := s.add(seedLetter{source: "a.DLT", message: "x", at: now.Add(-3 * time.Hour)}, seedLetter{source: "a.DLT", message: "muted", at: now.Add(-5 * time.Hour)},
		seedLetter{source: "a.DLT", message: "y", at: now.Add(-2 * time.Hour)}, seedLetter{source: "b.DLT", message: "x", at: now.Add(-time.Minute)},
		seedLetter{source: "a.DLT", message: "x", at: now.Add(-4 * time.Hour), state: Discarded})
	s.fold()
	s.exec("UPDATE fault SET mute_until = $1 WHERE message = 'muted'", now.Add(time.Hour))
	old, err := s.concerns(nil, now).OlderThan(t.Context(), now.Add(-time.Hour))
	if err != nil || len(old) != 1 || old[0].Letter != ids[0] || old[0].Source != "a.DLT" || now.Sub(old[0].At).Round(time.Second) != 3*time.Hour {
		t.Errorf("%+v, %v", old, err)
	}
}

func TestSwallowedItemsByReplayAndGroup(t *testing.T) {
	t.Parallel()
	s := newSeed(t)
	now := present(s)
	group := s.name(1, "points")
	for no, outcome := range []Outcome{Swallowed, Swallowed, Applied, NotSeen} {
		s.exec("INSERT INTO replay_outcome (replay_id, item_no, group_id, verdict, outcome, at) VALUES (7, $1, $2, 10, $3, $4)", no, group, int16(outcome), now.Add(-time.Hour))
	}
	s.exec("INSERT INTO replay_outcome (replay_id, item_no, group_id, verdict, outcome, at) VALUES (6, 1, $1, 10, $2, $3)", group, int16(Swallowed), now.Add(-9*24*time.Hour))
	all, err := s.concerns(nil, now).Swallowed(t.Context(), now.Add(-7*24*time.Hour))
	if err != nil || len(all) != 1 || all[0].Replay != 7 || all[0].Group != "points" || all[0].Items != 2 {
		t.Errorf("%+v, %v", all, err)
	}
}

// The broker's records are compared with letters and their occurrences; what was
// not counted is not said to be all right.
func TestTheBrokersCountIsComparedWithOurs(t *testing.T) {
	t.Parallel()
	addr := testkit.FakeKafkaAddr(t)
	s, c := newSeed(t), clusterAt(t, addr)
	now := present(s)
	testkit.MakeTopic(t, addr, "a.DLT", 1)
	for range 5 {
		produce(t, c, "a.DLT", &kgo.Record{Value: []byte("x")})
	}
	for i, id := range s.add(seedLetter{source: "a.DLT"}, seedLetter{source: "a.DLT"}) {
		s.exec("UPDATE dead_letter SET drain_partition = 0, drain_offset = $1 WHERE id = $2", 2*i, id)
	}
	s.exec("INSERT INTO drain_position (cluster, topic_id, topic, partition, next_offset) SELECT 'main', topic_id, name, 0, 4 FROM letter_source")
	concerns := s.concerns(NewTopology(clusters(c), time.Now), now)
	look := func() DrainState {
		t.Helper()
		all, err := concerns.Drains(t.Context(), true)
		if err != nil || len(all) != 1 {
			t.Fatal(all, err)
		}
		return all[0]
	}
	if d := look(); d.Waiting != 1 || d.Retained != 4 || d.Stored == nil || *d.Stored != 2 || d.Missing() != 2 {
		t.Errorf("two letters of four records: %+v", d)
	}
	s.exec(`INSERT INTO letter_occurrence (letter_id, at, source_id, partition, "offset") SELECT id, now(), source_id, 0, o FROM (SELECT id, source_id FROM dead_letter LIMIT 1) d, unnest(ARRAY[1, 3]) o`)
	if d := look(); d.Missing() != 0 {
		t.Errorf("with occurrences: %+v", d)
	}
	fast, err := concerns.Drains(t.Context(), false)
	if err != nil || fast[0].Stored != nil || fast[0].Missing() != 0 || fast[0].Waiting != 1 {
		t.Errorf("without counting: %+v, %v", fast, err)
	}
	c.Close()
	if _, err := concerns.Drains(t.Context(), true); err == nil {
		t.Error("a cluster that is closed answers")
	}
}

// A broker that does not answer fails its look, but what the others say stands.
func TestUnattendedSourcesOfTheClustersThatAnswer(t *testing.T) {
	t.Parallel()
	addr := testkit.FakeKafkaAddr(t)
	s, c := newSeed(t), clusterAt(t, addr)
	testkit.MakeTopic(t, addr, "nobody.DLT", 1)
	produce(t, c, "nobody.DLT", &kgo.Record{Value: []byte("1")})
	down, err := NewCluster("down", kgo.SeedBrokers("127.0.0.1:1"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(down.Close)
	all, err := s.concerns(NewTopology(map[string]*Cluster{"main": c, "down": down}, time.Now), time.Now()).Unattended(t.Context())
	if err == nil || len(all) != 1 || all[0].Topic != "nobody.DLT" {
		t.Errorf("%+v, %v", all, err)
	}
}
