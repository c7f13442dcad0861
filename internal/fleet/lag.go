package fleet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

const (
	askTimeout = 3 * time.Second
	keepAnswer = 5 * time.Second // pages refresh faster than lag is worth asking for
)

// Admin is the part of a kadm.Client that lag and members are read with.
type Admin interface {
	ListGroups(ctx context.Context, states ...string) (kadm.ListedGroups, error)
	DescribeGroups(ctx context.Context, groups ...string) (kadm.DescribedGroups, error)
	DescribeConsumerGroups(ctx context.Context, groups ...string) (kadm.DescribedConsumerGroups, error)
	FetchManyOffsets(ctx context.Context, groups ...string) kadm.FetchOffsetsResponses
	ListStartOffsets(ctx context.Context, topics ...string) (kadm.ListedOffsets, error)
	ListEndOffsets(ctx context.Context, topics ...string) (kadm.ListedOffsets, error)
}

// brokerGroup is what a broker says of a group.
type brokerGroup struct {
	topics     []string
	lag        *int64
	err        string // why lag is nil
	members    *int
	partitions *int
	at         time.Time
}

// answer is what a broker says of all groups that matter.
type answer struct {
	groups map[string]brokerGroup
	err    string // the broker could not be asked
}

// lagReader asks one cluster, at most once in keepAnswer.
type lagReader struct {
	admin Admin
	now   func() time.Time

	mu      sync.Mutex
	last    answer
	lastAt  time.Time
	lastFor string
}

// read returns what the broker says of the known groups, and of every other
// group that reads one of the topics.
func (l *lagReader) read(ctx context.Context, known map[string]*Group, topics []string) answer {
	l.mu.Lock()
	defer l.mu.Unlock()
	question := fmt.Sprint(slices.Sorted(maps.Keys(known)), slices.Sorted(slices.Values(topics)))
	if question == l.lastFor && l.now().Sub(l.lastAt) < keepAnswer {
		return l.last
	}
	limited, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	got := l.ask(limited, known, topics)
	if ctx.Err() == nil { // a caller who left proves nothing
		l.last, l.lastAt, l.lastFor = got, l.now(), question
	}
	return got
}

func (l *lagReader) ask(ctx context.Context, known map[string]*Group, topics []string) answer {
	listed, err := l.admin.ListGroups(ctx)
	if err != nil {
		return answer{err: "broker not reachable: " + err.Error()}
	}
	m := describe(ctx, l.admin, listed)
	offsets := l.admin.FetchManyOffsets(ctx, listed.Groups()...)
	reads := reading(known, topics, m, offsets)
	starts, ends := l.logs(ctx, reads)
	out := answer{groups: map[string]brokerGroup{}}
	for name, read := range reads {
		g := brokerGroup{topics: read, at: l.now()}
		if has, ok := m[name]; ok {
			g.members, g.partitions = &has.members, &has.partitions
		}
		g.lag, g.err = lagOf(read, offsets[name], starts, ends)
		out.groups[name] = g
	}
	return out
}

// reading says which topics each group that matters reads: declared ones and
// those that members subscribe to; of a group without members those it has committed.
func reading(known map[string]*Group, origins []string, m map[string]membership, offsets kadm.FetchOffsetsResponses) map[string][]string {
	reads := map[string][]string{}
	for name, commits := range offsets {
		topics := slices.Clone(m[name].topics)
		if g := known[name]; g != nil {
			topics = append(topics, g.Topics...)
		}
		if len(topics) == 0 {
			topics = slices.Collect(maps.Keys(commits.Fetched))
		}
		onOrigin := func(topic string) bool { return slices.Contains(origins, topic) }
		if known[name] == nil && !slices.ContainsFunc(topics, onOrigin) {
			continue
		}
		slices.Sort(topics)
		reads[name] = slices.Compact(topics)
	}
	return reads
}

// logs reads where the logs of all topics begin and end. Errors are in the
// partitions.
func (l *lagReader) logs(ctx context.Context, reads map[string][]string) (starts, ends kadm.ListedOffsets) {
	var topics []string
	for _, t := range reads {
		topics = append(topics, t...)
	}
	slices.Sort(topics)
	topics = slices.Compact(topics)
	if len(topics) == 0 { // kadm takes none for all
		return nil, nil
	}
	starts, _ = l.admin.ListStartOffsets(ctx, topics...) // what failed is absent or carries its error
	ends, _ = l.admin.ListEndOffsets(ctx, topics...)
	return starts, ends
}

// lagOf sums what lies between the committed offsets and the ends. Without a
// commit the whole log lies ahead; records that retention took no longer do. One
// partition that cannot be read makes the sum unknown.
func lagOf(topics []string, commits kadm.FetchOffsetsResponse, starts, ends kadm.ListedOffsets) (*int64, string) {
	if commits.Err != nil {
		return nil, "committed offsets not readable: " + commits.Err.Error()
	}
	if len(topics) == 0 {
		return nil, "the group reads no topic"
	}
	var sum int64
	missing := 0
	for _, topic := range topics {
		if !exists(ends[topic]) {
			missing++ // no topic, no records: <group>.replay, say, before the first replay
			continue
		}
		n, err := lagOn(topic, commits, starts, ends)
		if err != "" {
			return nil, err
		}
		sum += n
	}
	if missing == len(topics) {
		return nil, "topic " + topics[0] + " does not exist, or its log cannot be read"
	}
	return &sum, ""
}

func exists(partitions map[int32]kadm.ListedOffset) bool {
	for _, p := range partitions {
		if !errors.Is(p.Err, kerr.UnknownTopicOrPartition) {
			return true
		}
	}
	return false
}

func lagOn(topic string, commits kadm.FetchOffsetsResponse, starts, ends kadm.ListedOffsets) (sum int64, failure string) {
	for p, end := range ends[topic] {
		start, ok := starts.Lookup(topic, p)
		if end.Err != nil || !ok || start.Err != nil {
			return 0, fmt.Sprintf("topic %s, partition %d not readable", topic, p)
		}
		from := start.Offset
		if commit, ok := commits.Fetched.Lookup(topic, p); ok && commit.Err == nil {
			from = max(from, commit.At)
		}
		sum += max(end.Offset-from, 0)
	}
	return sum, ""
}

// membership is who is in a group, whichever protocol it uses.
type membership struct {
	members    int
	topics     []string // that members subscribe to or have been given
	partitions int
}

// describe asks in the way that each group's type answers to. A group that
// cannot be described is absent.
func describe(ctx context.Context, admin Admin, listed kadm.ListedGroups) map[string]membership {
	var classic, modern []string
	for name, g := range listed {
		if g.GroupType == "consumer" { // KIP-848
			modern = append(modern, name)
		} else if g.ProtocolType == "consumer" || g.ProtocolType == "" {
			classic = append(classic, name)
		}
	}
	out := map[string]membership{}
	if len(classic) > 0 {
		described, _ := admin.DescribeGroups(ctx, classic...) // what failed is absent or carries its error
		for name, d := range described {
			if d.Err == nil {
				out[name] = membersOf(len(d.Members), d.JoinTopics(), d.AssignedPartitions())
			}
		}
	}
	if len(modern) > 0 {
		described, _ := admin.DescribeConsumerGroups(ctx, modern...) // as above
		for name, d := range described {
			if d.Err == nil {
				out[name] = membersOf(len(d.Members), d.SubscribedTopics(), d.AssignedPartitions())
			}
		}
	}
	return out
}

func membersOf(n int, subscribed []string, assigned kadm.TopicsSet) membership {
	m := membership{members: n, topics: subscribed}
	for topic, partitions := range assigned {
		m.partitions += len(partitions)
		if topic != "" { // known by its id alone
			m.topics = append(m.topics, topic)
		}
	}
	return m
}
