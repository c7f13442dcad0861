package fleet

import (
	"cmp"
	"slices"
	"time"
)

// book puts together what several places know of a group.
type book struct {
	groups map[groupKey]*Group
}

// groupKey names a group. Cluster is "" for one that is declared without.
type groupKey struct{ cluster, name string }

func newBook(declared []Declared, reports []report) *book {
	b := &book{groups: map[groupKey]*Group{}}
	for _, d := range declared {
		g := b.add(d.Cluster, d.Name)
		g.Topics = append(g.Topics, d.Topics...)
		g.Ours, g.Strategy, g.EvidenceSince = d.Ours, d.Strategy, d.EvidenceSince
		g.State = Unknown
		if d.Ours {
			g.State = Stopped
			g.count(counters{}) // ours to know: nothing was counted yet
		}
	}
	for _, r := range reports {
		b.report(r)
	}
	return b
}

// add returns the group of that name, and makes it where there is none. A group
// declared without a cluster is on any.
func (b *book) add(cluster, name string) *Group {
	for _, key := range []groupKey{{cluster, name}, {"", name}} {
		if g := b.groups[key]; g != nil {
			return g
		}
	}
	g := &Group{Name: name, Cluster: cluster}
	b.groups[groupKey{cluster, name}] = g
	return g
}

// of returns the group that a report is about. One without replicas no longer
// says its cluster.
func (b *book) of(r report) *Group {
	for key, g := range b.groups {
		if r.cluster == "" && key.name == r.group {
			return g
		}
	}
	return b.add(r.cluster, r.group)
}

func (b *book) report(r report) {
	g := b.of(r)
	g.Ours = true
	g.Cluster, g.Strategy = cmp.Or(r.cluster, g.Cluster), cmp.Or(r.strategy, g.Strategy)
	for _, topic := range r.topics {
		g.addTopic(topic)
	}
	g.count(r.counters)
	live := 0
	for _, replica := range r.replicas {
		g.Replicas = append(g.Replicas, replica)
		g.noteError(replica.LastError, replica.LastErrorAt)
		if !replica.Stale {
			live += replica.Partitions
		}
	}
	g.noteError(r.lastError, r.lastErrorAt)
	g.State = worst(g.Replicas)
	g.Partitions = &live
	g.Command = r.command
	g.StateReason = g.reason()
}

func (g *Group) reason() string {
	switch {
	case g.State == Paused && g.Command != nil && g.Command.Reason != "":
		return g.Command.Actor + ": " + g.Command.Reason
	case g.State == Paused && g.Command != nil:
		return g.Command.Actor
	case g.State == Waiting || g.State == Failed:
		return g.LastError
	}
	return ""
}

// worst is the state of the live replicas; of a group without any it is Stale
// if a replica vanished, else Stopped.
func worst(replicas []Replica) State {
	state, vanished := Stopped, false
	for _, r := range replicas {
		switch {
		case !r.Stale:
			state = min(state, r.State)
		case r.State != Stopped:
			vanished = true
		}
	}
	if state == Stopped && vanished {
		return Stale
	}
	return state
}

func (g *Group) count(c counters) {
	g.Consumed, g.Duplicates, g.Retried, g.DeadLettered = &c.consumed, &c.duplicates, &c.retried, &c.deadLettered
	g.Filtered, g.Discarded, g.Transactions, g.Fallbacks = &c.filtered, &c.discarded, &c.transactions, &c.fallbacks
	g.Contention, g.StaleAcks, g.Reconnects = &c.contention, &c.staleAcks, &c.reconnects
}

// noteError keeps the latest.
func (g *Group) noteError(text string, at *time.Time) {
	if text == "" || at == nil || g.LastErrorAt != nil && !at.After(*g.LastErrorAt) {
		return
	}
	g.LastError, g.LastErrorAt = text, at
}

func (g *Group) addTopic(topic string) {
	if !slices.Contains(g.Topics, topic) {
		g.Topics = append(g.Topics, topic)
	}
}

// on returns the groups that are, or may be, on the cluster.
func (b *book) on(cluster string) map[string]*Group {
	known := map[string]*Group{}
	for _, g := range b.groups {
		if g.Cluster == cluster || g.Cluster == "" {
			known[g.Name] = g
		}
	}
	return known
}

// answer takes over what a broker says.
func (b *book) answer(cluster string, a answer) {
	known := b.on(cluster)
	for name, broker := range a.groups {
		g := known[name]
		if g == nil {
			g = b.add(cluster, name)
			g.State = Unknown
		}
		g.fill(cluster, broker)
	}
	for name, g := range known {
		if _, ok := a.groups[name]; !ok && g.LagAt == nil {
			g.LagError = cmp.Or(a.err, "the broker knows no such group: it has never committed")
		}
	}
}

func (g *Group) fill(cluster string, a brokerGroup) {
	g.Cluster = cluster
	g.Lag, g.LagError, g.LagAt, g.Members = a.lag, a.err, &a.at, a.members
	if a.partitions != nil {
		g.Partitions = a.partitions
	}
	for _, topic := range a.topics {
		g.addTopic(topic)
	}
}

// explainMissing says why there is no lag where no broker was there to ask.
func (b *book) explainMissing() {
	for _, g := range b.groups {
		if g.Lag == nil && g.LagError == "" {
			g.LagError = "no Kafka cluster of the config runs this group"
		}
	}
}
