package dlq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/singleflight"
)

const (
	topologyKept    = 5 * time.Second // how long an answer is good
	topologyFailed  = 2 * time.Second // how long a failure is, so that a dead broker is not waited for by everyone
	topologyTimeout = 5 * time.Second
)

// drainGroupPrefix begins the names of our own draining groups, which apply
// nothing.
const drainGroupPrefix = "oncemore-drain-"

// ErrNoCluster is returned for a cluster that is not configured.
var ErrNoCluster = errors.New("dlq: cluster is not configured")

// Topology answers, per cluster, which topics there are and which groups read
// them. Answers are kept for a few seconds and carry their time.
type Topology struct {
	clusters map[string]*Cluster
	clock    func() time.Time
	loads    singleflight.Group
	mu       sync.Mutex
	views    map[string]*clusterView
}

// NewTopology asks the given clusters, by name.
func NewTopology(clusters map[string]*Cluster, clock func() time.Time) *Topology {
	return &Topology{clusters: clusters, clock: clock, views: map[string]*clusterView{}}
}

// topicView is a topic as the broker names it, or a queue.
type topicView struct {
	ID         uuid.UUID // zero: a queue
	Partitions []int32
}

// clusterView is what a cluster said at one time.
type clusterView struct {
	At      time.Time
	Topics  map[string]topicView
	Readers map[string][]string // topic → groups that commit on it or have members on it, sorted
	Err     error               // the cluster did not answer; the rest is empty
	Rabbit  *rabbitView         // nil: Kafka
}

func (v *clusterView) has(topic string) bool {
	_, ok := v.Topics[topic]
	return ok
}

// unasked reports a queue that this answer says nothing of.
func (v *clusterView) unasked(name string) bool {
	return v.Rabbit != nil && v.Rabbit.asked != nil && !v.Rabbit.asked[name]
}

func (v *clusterView) reads(group, topic string) bool {
	return slices.Contains(v.Readers[topic], group)
}

// view gives the newest answer of a cluster. A broker that cannot be asked is
// clusterView.Err. A topic of needed that the kept answer lacks makes it ask
// again, unless the answer is fresh. Errors: ErrNoCluster, or ctx's.
func (t *Topology) view(ctx context.Context, cluster string, needed ...string) (*clusterView, error) {
	c := t.clusters[cluster]
	if c == nil {
		return nil, fmt.Errorf("cluster %q: %w", cluster, ErrNoCluster)
	}
	if v := t.kept(cluster, needed); v != nil {
		return v, nil
	}
	answer := t.loads.DoChan(cluster, func() (any, error) {
		loading, cancel := context.WithTimeout(context.WithoutCancel(ctx), topologyTimeout)
		defer cancel()
		v := c.broker.look(loading, needed)
		v.At = t.clock()
		t.mu.Lock()
		t.views[cluster] = v
		t.mu.Unlock()
		return v, nil
	})
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case r := <-answer:
		return r.Val.(*clusterView), nil
	}
}

func (t *Topology) kept(cluster string, needed []string) *clusterView {
	t.mu.Lock()
	defer t.mu.Unlock()
	v := t.views[cluster]
	if v == nil {
		return nil
	}
	good := topologyKept
	switch {
	case v.Err != nil:
		good = topologyFailed
	case slices.ContainsFunc(needed, v.unasked):
		good = 0
	case slices.ContainsFunc(needed, func(topic string) bool { return !v.has(topic) }):
		good = time.Second
	}
	if t.clock().Sub(v.At) >= good {
		return nil
	}
	return v
}
