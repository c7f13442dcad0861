package dlq

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/internal/testkit"
)

// court is a console's database, a business database and a broker.
type court struct {
	*seed
	addr    string
	cluster *Cluster
	shop    *pgxpool.Pool
	topic   string // read by points and legacy
	points  string // ours, with evidence
	legacy  string // no evidence
	judge   *Judge
}

func newCourt(t *testing.T, addr string) *court {
	t.Helper()
	c := &court{seed: newSeed(t), addr: addr, cluster: clusterAt(t, addr), shop: shop(t),
		topic: testkit.Topic(t, addr, "paid", 1), points: testkit.Name("points"), legacy: testkit.Name("legacy")}
	testkit.MakeTopic(t, addr, c.points+replaySuffix, 1)
	commit(t, c.cluster, c.points, c.topic)
	commit(t, c.cluster, c.legacy, c.topic)
	c.judge = NewJudge(c.pool, clusters(c.cluster), GroupBook{
		{Name: c.points, Ours: true, Topics: []string{c.topic}, Effect: EffectLocal, Evidence: shopEvidence(c.shop)},
	}, time.Now)
	return c
}

// letter is one of points that came from the topic an hour ago.
func (c *court) letter(event string) seedLetter {
	return seedLetter{event: event, group: c.points, topic: c.topic, partition: ptr(int32(0)), offset: ptr(int64(0)),
		eventTime: ptr(time.Now().Add(-time.Hour)), message: "boom"}
}

func (c *court) consumed(event, group string) {
	c.t.Helper()
	run(c.t, c.shop, "INSERT INTO mq_consume_record (event_id, consumer_group) VALUES ($1, $2)", event, group)
}

func (c *court) ask(target Target, ids ...uuid.UUID) []Judged {
	c.t.Helper()
	judged, err := c.judge.JudgeLetters(context.Background(), ids, target)
	if err != nil {
		c.t.Fatal(err)
	}
	return judged
}

func verdictOf(j Judged, group string) (GroupVerdict, bool) {
	i := slices.IndexFunc(j.Groups, func(g GroupVerdict) bool { return g.Group == group })
	if i < 0 {
		return GroupVerdict{}, false
	}
	return j.Groups[i], true
}

func TestTheTargetDecidesWhoIsReached(t *testing.T) {
	t.Parallel()
	onBrokers(t, func(t *testing.T, addr string) {
		c := newCourt(t, addr)
		id := c.add(c.letter("e-1"))[0]
		for _, target := range []Target{ToGroup, ToSafe} {
			j := c.ask(target, id)[0]
			if j.Route == nil || *j.Route != (Route{Cluster: "main", Topic: c.points + replaySuffix, Group: c.points}) || j.Headline != Safe {
				t.Errorf("target %d: %+v", target, j)
			}
			if legacy, ok := verdictOf(j, c.legacy); !ok || legacy.Reached || legacy.Verdict != Unprotected {
				t.Errorf("target %d, the other group: %+v", target, legacy)
			}
		}
		j := c.ask(ToOrigin, id)[0]
		if j.Route == nil || *j.Route != (Route{Cluster: "main", Topic: c.topic}) || j.Headline != Unprotected || len(j.Groups) != 2 || j.Groups[0].Group != c.points {
			t.Errorf("origin: %+v", j)
		}
		if legacy, _ := verdictOf(j, c.legacy); !legacy.Reached {
			t.Errorf("the origin does not reach %s", c.legacy)
		}
		c.consumed("e-1", c.points)
		if j := c.ask(ToSafe, id)[0]; j.Headline != AlreadyApplied || j.Groups[0].ConsumedAt == nil {
			t.Errorf("with a record: %+v", j)
		}
	})
}

func TestWhereAGroupTargetLeads(t *testing.T) {
	t.Parallel()
	addr := testkit.FakeKafkaAddr(t)
	c := newCourt(t, addr)
	for _, topic := range []string{"foreign.replay", "retry-0"} {
		testkit.MakeTopic(t, addr, topic, 1)
	}
	commit(t, c.cluster, "foreign", "foreign.replay")
	commit(t, c.cluster, "stranger", "retry-0")
	testkit.MakeTopic(t, addr, "idle.replay", 1) // nobody reads it
	c.judge.groups = append(c.judge.groups, Group{Name: "config", Target: "retry-0"}, Group{Name: "down", Ours: true}, Group{Name: "lost", Target: "nowhere"})
	for group, want := range map[string]struct {
		topic, reason string
		headline      Verdict
	}{
		"foreign": {"foreign.replay", "", Unprotected}, "config": {"retry-0", "", Unprotected},
		"down": {"down.replay", "reason.unknown.target_missing", Unknown}, "lost": {"nowhere", "reason.unknown.target_missing", Unknown},
		"idle": {"", "reason.no_group_target", Unknown}, "plain": {"", "reason.no_group_target", Unknown}, "": {"", "reason.no_group", Unknown},
	} {
		l := c.letter("e-1")
		l.group = group
		id := c.add(l)[0]
		j := c.ask(ToGroup, id)[0]
		switch {
		case want.topic == "" && (j.Route != nil || j.NoRoute.Key != want.reason):
			t.Errorf("%q: route %+v because of %q, want none because of %s", group, j.Route, j.NoRoute.Key, want.reason)
		case want.topic != "" && (j.Route == nil || j.Route.Topic != want.topic):
			t.Errorf("%q: route %+v, want %s", group, j.Route, want.topic)
		case want.topic != "" && want.reason != "" && j.Groups[0].Reason.Key != want.reason:
			t.Errorf("%q: %s, want %s", group, j.Groups[0].Reason.Key, want.reason)
		}
		if j.Headline != want.headline {
			t.Errorf("%q: headline %s, want %s", group, j.Headline, want.headline)
		}
		safe := c.ask(ToSafe, id)[0]
		if want.topic == "" && (safe.Route == nil || safe.Route.Topic != c.topic) {
			t.Errorf("%q: the narrowest target is %+v, want the origin", group, safe.Route)
		}
	}
	l := c.letter("e-1")
	l.group = "config"
	if stranger, ok := verdictOf(c.ask(ToGroup, c.add(l)[0])[0], "stranger"); !ok || !stranger.Reached {
		t.Error("another reader of the group's target is not reached")
	}
}

func TestLookingNeverMakesATopic(t *testing.T) {
	t.Parallel()
	onBrokers(t, func(t *testing.T, addr string) { // kfake makes topics on first use
		c := newCourt(t, addr)
		l := c.letter("e-1")
		l.topic, l.group = testkit.Name("missing"), c.legacy
		id := c.add(l)[0]
		j := c.ask(ToOrigin, id)[0]
		if own := j.Groups[0]; own.Verdict != Unknown || own.Reason.Key != "reason.unknown.origin_missing" || !strings.Contains(own.Reason.Text, "does not exist") {
			t.Errorf("%+v", j)
		}
		if o, err := NewOrigins(c.pool, c.judge.Topology()).Original(t.Context(), id); err != nil || o.State != OriginalGone || o.Reason.Key != "reason.original.no_topic" {
			t.Errorf("original: %+v %v", o, err)
		}
		topics, err := c.cluster.Admin.ListTopics(t.Context())
		if err != nil || topics.Has(l.topic) {
			t.Errorf("topic %s exists after looking: %v", l.topic, err)
		}
		testkit.MakeTopic(t, addr, l.topic, 1)
		testkit.Eventually(t, 5*time.Second, func() bool { return c.ask(ToOrigin, id)[0].Headline == Unprotected }, "the topic made since is seen")
	})
}

func TestASilentBrokerMakesUnknown(t *testing.T) {
	t.Parallel()
	c := newCourt(t, testkit.FakeKafkaAddr(t))
	ids := c.add(c.letter("e-1"), c.letter(""), seedLetter{event: "e-2", cluster: "elsewhere", group: c.points, topic: "x"})
	c.judge.topo.clusters["main"] = clusterAt(t, "127.0.0.1:1")
	c.judge.topo.forget()
	judged := c.ask(ToOrigin, ids...)
	for i, want := range []string{"reason.unknown.broker", "reason.no_event_id.none", "reason.unknown.no_cluster"} {
		if own := judged[i].Groups[0]; own.Reason.Key != want {
			t.Errorf("letter %d: %s, want %s", i, own.Reason.Key, want)
		}
	}
}

func TestClaimsOfOthersAreInFlight(t *testing.T) {
	t.Parallel()
	c := newCourt(t, testkit.FakeKafkaAddr(t))
	l := c.letter("e-1")
	l.alt = "e-1-alt"
	ids := c.add(l, c.letter("e-2"))
	c.exec(`INSERT INTO event_claim (event_id, group_id, kind, holder_id, item_no, verdict) VALUES ('e-1', $1, 1, 412, 1, 10), ('e-2', $2, 1, 412, 2, 10)`,
		c.name(1, c.points), c.name(1, c.legacy))
	judged := c.ask(ToGroup, ids...)
	if v := judged[0].Groups[0]; v.Verdict != InFlight || v.Reason.Args["replay"] != int64(412) {
		t.Errorf("claimed: %+v", v)
	}
	if v := judged[1].Groups[0]; v.Verdict != Safe {
		t.Errorf("claimed in another group: %+v", v)
	}
	subjects, err := c.judge.Subjects(t.Context(), ids)
	if err != nil {
		t.Fatal(err)
	}
	for i := range subjects {
		subjects[i].Holder = 412
	}
	own, err := c.judge.Judge(t.Context(), subjects, ToGroup)
	if err != nil || own[0].Headline != Safe {
		t.Errorf("its own claim: %+v %v", own, err)
	}
}

func TestEitherFormOfAnIDCounts(t *testing.T) {
	t.Parallel()
	c := newCourt(t, testkit.FakeKafkaAddr(t))
	l := c.letter(`"e-1"`)
	l.alt = "e-1"
	id := c.add(l)[0]
	if j := c.ask(ToGroup, id)[0]; j.Headline != Safe {
		t.Errorf("before: %+v", j)
	}
	c.consumed("e-1", c.points)
	if j := c.ask(ToGroup, id)[0]; j.Headline != AlreadyApplied {
		t.Errorf("a record under the unquoted form: %+v", j)
	}
}

func TestSavedVerdictsMoveTheCounters(t *testing.T) {
	t.Parallel()
	c := newCourt(t, testkit.FakeKafkaAddr(t))
	applied, safe, none := c.letter("e-1"), c.letter("e-2"), c.letter("")
	closed := c.letter("e-3")
	closed.state = Resolved
	ids := c.add(applied, safe, none, closed)
	c.consumed("e-1", c.points)
	ask := func() { // twice the same must move nothing twice
		if _, err := c.judge.LookAgain(t.Context(), append(ids, ids[0]), ToOrigin); err != nil {
			t.Fatal(err)
		}
	}
	ask()
	ask()
	c.fold()
	ask()
	c.fold()
	f, err := NewFaults(c.pool).List(t.Context(), FaultFilter{}, Page{})
	if err != nil || len(f.Items) != 1 {
		t.Fatal(f, err)
	}
	got := f.Items[0].Verdicts
	if got[AlreadyApplied] != 1 || got[Safe] != 1 || got[NoEventID] != 1 || got[0] != 0 || f.Items[0].Open != 3 || f.Items[0].Resolved != 1 {
		t.Errorf("counters %v of %+v", got, f.Items[0])
	}
	if n := c.one("SELECT n FROM fault_count WHERE state = 3 AND verdict = 10"); n != 1 {
		t.Errorf("a resolved letter's verdict counts %d times", n)
	}
	d, err := NewLetters(c.pool).Get(t.Context(), ids[0])
	if err != nil || d.Verdict != AlreadyApplied || len(d.Verdicts) != 2 || d.Verdicts[0].Group != c.points || !d.Verdicts[0].Reached || d.Verdicts[1].Reached {
		t.Errorf("cached verdicts: %+v %v", d.Verdicts, err)
	}
}

// A letter whose own group is safe, but whose only way leads past a group that is
// not, must not count as safe: one click would leave it.
func TestTheCachedVerdictIsTheHeadline(t *testing.T) {
	t.Parallel()
	c := newCourt(t, testkit.FakeKafkaAddr(t))
	foreign := testkit.Name("foreign")
	c.judge.groups = append(c.judge.groups, Group{Name: foreign, Topics: []string{c.topic}, Effect: EffectLocal, Evidence: shopEvidence(c.shop)})
	l := c.letter("e-1")
	l.group = foreign
	id := c.add(l)[0]
	judged, err := c.judge.LookAgain(t.Context(), []uuid.UUID{id}, ToSafe)
	if err != nil || judged[0].Own().Verdict != Safe || judged[0].Headline != Unprotected {
		t.Fatalf("%+v, %v", judged, err)
	}
	d, err := NewLetters(c.pool).Get(t.Context(), id)
	if err != nil || d.Verdict != Unprotected {
		t.Errorf("cached %s, want that of %s: %v", d.Verdict, c.legacy, err)
	}
	c.fold()
	if n := c.one("SELECT n FROM fault_count WHERE state = 1 AND verdict = $1", int16(Unprotected)); n != 1 {
		t.Errorf("%d letters count as unprotected", n)
	}
}

func TestCachedVerdictsTouchNoIndex(t *testing.T) {
	t.Parallel()
	c := newCourt(t, testkit.FakeKafkaAddr(t))
	letters := make([]seedLetter, 400)
	for i := range letters {
		letters[i] = c.letter("e")
	}
	var scattered []uuid.UUID
	for i, id := range c.add(letters...) {
		if i%20 == 0 {
			scattered = append(scattered, id)
		}
	}
	for range 5 {
		if _, err := c.judge.LookAgain(t.Context(), scattered, ToSafe); err != nil {
			t.Fatal(err)
		}
	}
	updates := func(column string) int64 {
		return c.one("SELECT coalesce(sum(" + column + "), 0)::bigint FROM pg_stat_user_tables WHERE relname LIKE 'dead_letter_2%'")
	}
	testkit.Eventually(t, 30*time.Second, func() bool { return updates("n_tup_upd") == 100 }, "100 updates are counted")
	if hot := updates("n_tup_hot_upd"); hot < 60 { // an indexed column would make it 0
		t.Errorf("%d of 100 updates are HOT", hot)
	}
}

func TestAnOlderAnswerDoesNotReplaceANewerOne(t *testing.T) {
	t.Parallel()
	c := newCourt(t, testkit.FakeKafkaAddr(t))
	id := c.add(c.letter("e-1"))[0]
	early := c.ask(ToSafe, id)
	c.consumed("e-1", c.points)
	late := c.ask(ToSafe, id)
	for _, judged := range [][]Judged{late, early} {
		if err := c.judge.Save(t.Context(), judged); err != nil {
			t.Fatal(err)
		}
	}
	d, err := NewLetters(c.pool).Get(t.Context(), id)
	if err != nil || d.Verdict != AlreadyApplied || d.Verdicts[0].Verdict != AlreadyApplied {
		t.Errorf("kept %s and %+v, %v", d.Verdict, d.Verdicts, err)
	}
}

func TestNewLettersAreJudgedSoonAndOldOnesAgain(t *testing.T) {
	t.Parallel()
	c := newCourt(t, testkit.FakeKafkaAddr(t))
	letters := make([]seedLetter, 1200)
	for i := range letters {
		letters[i] = c.letter("e-" + string(rune('a'+i%26)))
	}
	c.add(letters...)
	c.consumed("e-a", c.points)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{}, 2)
	for range 2 { // two replicas
		go func() {
			c.judge.RunJudge(ctx, slog.New(slog.DiscardHandler), 100*time.Millisecond)
			ended <- struct{}{}
		}()
	}
	start := time.Now()
	testkit.Eventually(t, 20*time.Second, func() bool { return c.one("SELECT count(*) FROM dead_letter WHERE verdict = 0") == 0 }, "all judged")
	t.Logf("1,200 letters judged in %v", time.Since(start))
	fresh := c.add(c.letter("e-new"))[0]
	start = time.Now()
	testkit.Eventually(t, 10*time.Second, func() bool { return c.one("SELECT verdict FROM dead_letter WHERE id = $1", fresh) == int64(Safe) }, "a new letter is judged")
	t.Logf("a new letter judged after %v", time.Since(start))
	c.consumed("e-new", c.points)
	testkit.Eventually(t, 20*time.Second, func() bool {
		return c.one("SELECT verdict FROM dead_letter WHERE id = $1", fresh) == int64(AlreadyApplied)
	}, "an open letter is judged again")
	cancel()
	for range 2 {
		<-ended
	}
	c.fold()
	if n := c.one("SELECT coalesce(sum(n), 0)::bigint FROM fault_count WHERE state = 1 AND verdict = 0"); n != 0 {
		t.Errorf("counters hold %d letters that are not judged", n)
	}
}
