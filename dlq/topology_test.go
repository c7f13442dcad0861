package dlq

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncemore/internal/testkit"
)

// onBrokers runs a test against the in-process broker and a real one.
func onBrokers(t *testing.T, test func(t *testing.T, addr string)) {
	t.Run("kfake", func(t *testing.T) {
		t.Parallel()
		test(t, testkit.FakeKafkaAddr(t))
	})
	t.Run("kafka", func(t *testing.T) {
		t.Parallel()
		test(t, testkit.Kafka(t))
	})
}

// clusterAt is a cluster named main.
func clusterAt(t testing.TB, addr string) *Cluster {
	t.Helper()
	c, err := NewCluster("main", kgo.SeedBrokers(addr))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func clusters(c *Cluster) map[string]*Cluster { return map[string]*Cluster{c.Name: c} }

// commit makes a group that has committed on a topic and has no members.
func commit(t testing.TB, c *Cluster, group, topic string) {
	t.Helper()
	var offsets kadm.Offsets
	offsets.AddOffset(topic, 0, 1, -1)
	if err := c.Admin.CommitAllOffsets(t.Context(), group, offsets); err != nil {
		t.Fatalf("commit %s on %s: %v", group, topic, err)
	}
}

// join makes a group with a member that has subscribed to a topic.
func join(t testing.TB, addr, group, topic string) {
	t.Helper()
	subscribe(t, addr, kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit())
}

// subscribe polls with a client until the test ends.
func subscribe(t testing.TB, addr string, opts ...kgo.Opt) {
	t.Helper()
	client := testkit.Client(t, addr, opts...)
	ctx, cancel := context.WithCancel(context.Background())
	var polling sync.WaitGroup
	polling.Go(func() {
		for ctx.Err() == nil {
			client.PollFetches(ctx)
		}
	})
	t.Cleanup(func() { cancel(); polling.Wait() })
}

func TestReadersAreCommitsAndMembers(t *testing.T) {
	t.Parallel()
	onBrokers(t, func(t *testing.T, addr string) {
		c := clusterAt(t, addr)
		topic, quiet := testkit.Topic(t, addr, "read", 2), testkit.Topic(t, addr, "quiet", 1)
		committing, member, draining := testkit.Name("commits"), testkit.Name("member"), testkit.Name(drainGroupPrefix+"main")
		commit(t, c, committing, topic)
		commit(t, c, draining, topic)
		join(t, addr, member, topic)
		topo := NewTopology(clusters(c), time.Now)
		want := []string{committing, member}
		slices.Sort(want)
		var view *clusterView
		testkit.Eventually(t, 20*time.Second, func() bool {
			topo.forget()
			var err error
			view, err = topo.view(t.Context(), "main")
			return err == nil && view.Err == nil && slices.Equal(view.Readers[topic], want)
		}, "readers of %s are %v", topic, want)
		if len(view.Readers[quiet]) != 0 || !view.has(quiet) || len(view.Topics[topic].Partitions) != 2 {
			t.Errorf("readers %v of a topic that nobody reads, topic %+v", view.Readers[quiet], view.Topics[topic])
		}
	})
}

func TestMembersOfNewerGroupProtocolsAreReaders(t *testing.T) {
	t.Parallel()
	addr := testkit.Kafka(t)
	c := clusterAt(t, addr)
	topic := testkit.Topic(t, addr, "newer", 1)
	modern, share := testkit.Name("modern"), testkit.Name("share")
	subscribe(t, addr, kgo.ConsumerGroup(modern), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(), kgo.ServerSideBalancer())
	subscribe(t, addr, kgo.ShareGroup(share), kgo.ConsumeTopics(topic))
	topo := NewTopology(clusters(c), time.Now)
	testkit.Eventually(t, 30*time.Second, func() bool {
		topo.forget()
		view, err := topo.view(t.Context(), "main")
		return err == nil && view.Err == nil && view.reads(modern, topic) && view.reads(share, topic)
	}, "%s and %s read %s", modern, share, topic)
}

// forget drops kept answers, as time would.
func (t *Topology) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.views)
}

func TestAnswersAreKeptForSecondsAndAskedAgainForNewTopics(t *testing.T) {
	t.Parallel()
	addr := testkit.FakeKafkaAddr(t)
	now := time.Now()
	var mu sync.Mutex
	pass := func(d time.Duration) { mu.Lock(); now = now.Add(d); mu.Unlock() }
	topo := NewTopology(clusters(clusterAt(t, addr)), func() time.Time { mu.Lock(); defer mu.Unlock(); return now })
	first, err := topo.view(t.Context(), "main", "later")
	if err != nil || first.Err != nil || first.has("later") {
		t.Fatalf("%+v %v", first, err)
	}
	testkit.MakeTopic(t, addr, "later", 1)
	if v, _ := topo.view(t.Context(), "main", "later"); v != first {
		t.Error("asked again at once")
	}
	pass(time.Second)
	if v, _ := topo.view(t.Context(), "main"); v != first {
		t.Error("asked again without need")
	}
	second, _ := topo.view(t.Context(), "main", "later")
	if !second.has("later") {
		t.Error("a topic made a second ago is not seen")
	}
	pass(topologyKept)
	if v, _ := topo.view(t.Context(), "main"); v == second {
		t.Error("an old answer is kept")
	}
	if _, err := topo.view(t.Context(), "elsewhere"); !errors.Is(err, ErrNoCluster) {
		t.Errorf("a cluster that is not configured: %v", err)
	}
}

func TestHalfAnAnswerIsNone(t *testing.T) {
	t.Parallel()
	fake := testkit.FakeKafka(t)
	c := clusterAt(t, fake.ListenAddrs()[0])
	testkit.MakeTopic(t, fake.ListenAddrs()[0], "paid", 1)
	commit(t, c, "points", "paid")
	fake.ControlKey(int16(kmsg.OffsetFetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		resp := req.ResponseKind().(*kmsg.OffsetFetchResponse)
		resp.ErrorCode = kerr.GroupAuthorizationFailed.Code
		for _, g := range req.(*kmsg.OffsetFetchRequest).Groups {
			refused := kmsg.NewOffsetFetchResponseGroup()
			refused.Group, refused.ErrorCode = g.Group, kerr.GroupAuthorizationFailed.Code
			resp.Groups = append(resp.Groups, refused)
		}
		return resp, nil, true
	})
	view, err := NewTopology(clusters(c), time.Now).view(t.Context(), "main")
	if err != nil || view.Err == nil {
		t.Errorf("offsets that may not be read: %+v %v, want an error", view, err)
	}
}
