package dlq

import (
	"database/sql"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Effect is where a group's effect takes place.
type Effect string

// The kinds of effect.
const (
	EffectLocal    Effect = "local"    // in the database that holds the consume record
	EffectExternal Effect = "external" // elsewhere, behind an idempotency key
)

// Group is what is known of a consumer group apart from the broker: declared in
// the config, or known by itself for groups of our own runtime.
type Group struct {
	Name     string
	Cluster  string   // "" : any
	Topics   []string // subscribed topics, known even while the group is down
	Ours     bool     // run by our runtime, so that it serves <group>.replay
	Target   string   // group_target: a topic that reaches only this group; "" none configured
	Effect   Effect
	Window   time.Duration // idempotency window of an external effect; 0: none declared
	OrderKey bool          // order: key
	OrderSet bool          // false: order is not declared, "may apply late" is said
	Evidence *Evidence     // nil: unprotected
}

// Evidence says where a group's consume records are looked up.
type Evidence struct {
	Connection    string        // name in the config
	Pool          *pgxpool.Pool // exactly one of Pool and MySQL is set
	MySQL         *sql.DB       // MySQL 8.0 or MariaDB 10.6 and newer
	Table         string        // may be schema-qualified
	EventID       string        // column names
	ConsumerGroup string        // "": all rows are the group's
	GroupValue    string        // what the group column holds; "": the group's name
	ConsumedAt    string        // "": no column says when
	Where         string        // further condition on the rows, as SQL of the database; "": none
	CompleteSince time.Time     // no record of an event older than this proves nothing
	Retention     time.Duration // 0: kept for ever
}

// GroupBook is what is known of consumer groups apart from the brokers.
type GroupBook []Group

// Find gives the entry of a group on a cluster, or nil. An entry for that very
// cluster comes before one for any.
func (b GroupBook) Find(cluster, name string) *Group {
	var found *Group
	for i := range b {
		if b[i].Name != name || !b[i].on(cluster) {
			continue
		}
		if found == nil || found.Cluster == "" {
			found = &b[i]
		}
	}
	return found
}

// Reading lists the names of groups that are declared to read a topic.
func (b GroupBook) Reading(cluster, topic string) []string {
	var names []string
	for _, g := range b {
		if g.on(cluster) && slices.Contains(g.Topics, topic) {
			names = append(names, g.Name)
		}
	}
	return names
}

func (g Group) on(cluster string) bool { return g.Cluster == "" || g.Cluster == cluster }
