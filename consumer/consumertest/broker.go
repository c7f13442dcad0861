package consumertest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"testing"

	"oncemore/consumer"
)

// Broker is a broker in memory. It behaves as Kafka does with the library's
// adapter: topics have partitions, an event with a key goes to that of its key, a
// group's members share the partitions, each partition is handled in order by one
// of them, and what is not acknowledged is delivered again. Every group reads
// <group>.replay besides its topics, and what is given up lies in <topic>.DLT.
//
// Topics come to be when they are used. A Broker is safe for concurrent use.
type Broker struct {
	partitions int

	mu      sync.Mutex
	changed chan struct{} // closed and made anew whenever anything changes
	topics  map[string][][]consumer.Event
	next    map[string]int // partition of a topic for the next event without key
	groups  map[string]*group
	letters map[string][]consumer.Letter
	twice   bool
}

// group is what the broker knows of a consumer group.
type group struct {
	members []any // in the order of joining
	topics  []string
	offsets map[consumer.Partition]int
	lanes   map[consumer.Partition]chan struct{} // held by who works on a partition
}

// NewBroker makes a broker whose topics have that many partitions; 0 is 1.
func NewBroker(partitions int) *Broker {
	return &Broker{partitions: max(partitions, 1), changed: make(chan struct{}), topics: map[string][][]consumer.Event{},
		next: map[string]int{}, groups: map[string]*group{}, letters: map[string][]consumer.Letter{}}
}

// Publish appends events to their topics.
func (b *Broker) Publish(events ...consumer.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, ev := range events {
		b.put(ev.Topic, b.partitionOf(ev), ev)
	}
	b.tell()
}

// EveryDeliveryTwice has each batch delivered again right after it was acknowledged.
// What is dead-lettered is so at each delivery.
func (b *Broker) EveryDeliveryTwice() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.twice = true
}

// Events are those of a topic, partition by partition.
func (b *Broker) Events(topic string) []consumer.Event {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Concat(b.topics[topic]...)
}

// Letters are what groups have given up of a topic, or of their replays of it.
func (b *Broker) Letters(topic string) []consumer.Letter {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.letters[topic])
}

// Acknowledged is how many events of a topic a group has finished.
func (b *Broker) Acknowledged(group, topic string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for id, at := range b.group(group).offsets {
		if id.Topic == topic {
			n += at
		}
	}
	return n
}

// Wait waits until every group has acknowledged all of its topics, whether its
// members run yet or not. Its error names what is left when ctx ends.
func (b *Broker) Wait(ctx context.Context) error {
	for {
		b.mu.Lock()
		changed, left := b.changed, b.left()
		b.mu.Unlock()
		if left == "" {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("consumertest: %s: %w", left, ctx.Err())
		}
	}
}

// Settled is Wait for tests: after 30 s it fails the test with what is left.
func (b *Broker) Settled(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if err := b.Wait(ctx); err != nil {
		t.Fatal(err)
	}
}

// left names a partition that a group has not finished; "" if there is none. The
// broker is locked, as for all below.
func (b *Broker) left() string {
	for name, g := range b.groups {
		for _, id := range b.read(g) {
			if at, end := g.offsets[id], len(b.topics[id.Topic][id.Partition]); at < end {
				return fmt.Sprintf("group %s is at %d of %d on partition %d of %s", name, at, end, id.Partition, id.Topic)
			}
		}
	}
	return ""
}

func (b *Broker) tell() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// topic returns a topic's partitions, and makes them where there are none.
func (b *Broker) topic(name string) [][]consumer.Event {
	if b.topics[name] == nil {
		b.topics[name] = make([][]consumer.Event, b.partitions)
	}
	return b.topics[name]
}

func (b *Broker) partitionOf(ev consumer.Event) int {
	n := len(b.topic(ev.Topic))
	if ev.Key == nil {
		b.next[ev.Topic]++
		return (b.next[ev.Topic] - 1) % n
	}
	h := fnv.New32a()
	h.Write(ev.Key)
	return int(h.Sum32() % uint32(n))
}

// put appends a copy, which nobody else can change.
func (b *Broker) put(topic string, partition int, ev consumer.Event) {
	log := b.topic(topic)
	ev.ID, ev.Group, ev.Attempt = "", "", 0
	ev.Topic, ev.Partition, ev.Offset = topic, int32(partition), int64(len(log[partition]))
	ev.Key, ev.Value = bytes.Clone(ev.Key), bytes.Clone(ev.Value)
	ev.Headers = slices.Clone(ev.Headers)
	for i, h := range ev.Headers {
		ev.Headers[i].Value = bytes.Clone(h.Value)
	}
	log[partition] = append(log[partition], ev)
}

func (b *Broker) group(name string) *group {
	if b.groups[name] == nil {
		b.groups[name] = &group{offsets: map[consumer.Partition]int{}, lanes: map[consumer.Partition]chan struct{}{}}
	}
	return b.groups[name]
}

// read lists the partitions that a group reads, in order.
func (b *Broker) read(g *group) []consumer.Partition {
	var all []consumer.Partition
	for _, topic := range g.topics {
		for p := range b.topic(topic) {
			all = append(all, consumer.Partition{Topic: topic, Partition: int32(p)})
		}
	}
	return all
}

func (b *Broker) subscribe(name string, topics []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.group(name)
	for _, topic := range topics {
		if !slices.Contains(g.topics, topic) {
			g.topics = append(g.topics, topic)
		}
	}
	b.tell()
}

func (b *Broker) join(name string, member any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.group(name).members = append(b.group(name).members, member)
	b.tell()
}

func (b *Broker) leave(name string, member any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.group(name)
	g.members = slices.DeleteFunc(g.members, func(m any) bool { return m == member })
	b.tell()
}

// assigned lists the partitions of a member, each with its lane, and a channel that
// is closed when that may change.
func (b *Broker) assigned(name string, member any) (map[consumer.Partition]chan struct{}, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.group(name)
	mine := map[consumer.Partition]chan struct{}{}
	for i, id := range b.read(g) {
		if g.lanes[id] == nil {
			g.lanes[id] = make(chan struct{}, 1)
		}
		if g.members[i%len(g.members)] == member {
			mine[id] = g.lanes[id]
		}
	}
	return mine, b.changed
}

// batch is up to n events that the group has not finished, and whether they are to
// be delivered twice. There is at least one; nil: stopped.
func (b *Broker) batch(ctx context.Context, stop <-chan struct{}, name string, id consumer.Partition, n int) ([]consumer.Event, bool) {
	for {
		b.mu.Lock()
		changed, twice := b.changed, b.twice
		waiting := b.topics[id.Topic][id.Partition][b.group(name).offsets[id]:]
		waiting = slices.Clone(waiting[:min(n, len(waiting))])
		b.mu.Unlock()
		if len(waiting) > 0 {
			return waiting, twice
		}
		select {
		case <-changed:
		case <-stop:
			return nil, false
		case <-ctx.Done():
			return nil, false
		}
	}
}

func (b *Broker) acknowledge(name string, id consumer.Partition, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.group(name).offsets[id] += n
	b.tell()
}

// bury keeps a letter, and its event in the dead-letter topic.
func (b *Broker) bury(topic string, l consumer.Letter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.letters[topic] = append(b.letters[topic], l)
	ev, dead := l.Event, topic+".DLT"
	if _, ok := ev.Header("event-id"); !ok && ev.ID != "" {
		ev.Headers = append(slices.Clone(ev.Headers), consumer.Header{Name: "event-id", Value: []byte(ev.ID)})
	}
	b.put(dead, int(ev.Partition)%len(b.topic(dead)), ev)
	b.tell()
}

// positions are a group's, for Lag.
func (b *Broker) positions(name string) []consumer.Position {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.group(name)
	var all []consumer.Position
	for _, id := range b.read(g) {
		at, end := int64(g.offsets[id]), int64(len(b.topics[id.Topic][id.Partition]))
		all = append(all, consumer.Position{Partition: id, Committed: at, End: end, Lag: end - at})
	}
	slices.SortFunc(all, func(a, b consumer.Position) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition.Partition, b.Partition.Partition))
	})
	return all
}

// CreateTopic makes a topic with another number of partitions than the broker's.
func (b *Broker) CreateTopic(name string, partitions int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.topics[name] != nil || partitions < 1 {
		return errors.New("consumertest: topic " + name + " is there already, or has no partitions")
	}
	b.topics[name] = make([][]consumer.Event, partitions)
	return nil
}
