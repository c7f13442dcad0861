package dlq

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// The kinds of letter_name.
const (
	kindGroup   int16 = 1
	kindClass   int16 = 2
	kindOrigin  int16 = 3
	kindDialect int16 = 5
)

// The values of letter_source.broker.
const (
	brokerKafka  int16 = 1
	brokerRabbit int16 = 2
)

// nameKey is a row of letter_name, sourceKey one of letter_source.
type (
	nameKey struct {
		kind int16
		name string
	}
	sourceKey struct {
		cluster string
		broker  int16
		name    string
		topic   uuid.UUID // zero: a queue
	}
)

// maxCached bounds each cache of names; a full one starts anew.
const maxCached = 200_000

// names gives ids to the names that letters point to, and to faults. It keeps
// what it has seen: rows of these tables are never changed in what is kept here,
// nor deleted.
type names struct {
	pool    *pgxpool.Pool
	mu      sync.Mutex
	ids     map[nameKey]int32
	sources map[sourceKey]int32
	faults  map[uuid.UUID]int32
}

func newNames(pool *pgxpool.Pool) *names {
	return &names{pool: pool, ids: map[nameKey]int32{}, sources: map[sourceKey]int32{}, faults: map[uuid.UUID]int32{}}
}

// resolve gives every arrival the ids of its names and its fault, and creates the
// missing ones in transactions of their own, so that two drains that meet a new
// name do not wait for each other's batch.
func (n *names) resolve(ctx context.Context, arrivals []*arrival) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.loadSources(ctx, arrivals); err != nil {
		return err
	}
	if err := n.loadNames(ctx, arrivals); err != nil {
		return err
	}
	for _, a := range arrivals {
		a.sourceID = n.sources[a.sourceKey()]
		a.dialectID = n.ids[nameKey{kindDialect, a.read.Dialect}]
		a.groupID, a.classID, a.originID = n.id(kindGroup, a.read.Group), n.id(kindClass, a.read.ExceptionClass), n.id(kindOrigin, a.origin())
	}
	return n.loadFaults(ctx, arrivals)
}

// id is 0 for a name that is not known.
func (n *names) id(kind int16, name *string) int32 {
	if name == nil {
		return 0
	}
	return n.ids[nameKey{kind, *name}]
}

const (
	sqlAddSource = `
INSERT INTO letter_source (cluster, broker, name, topic_id) VALUES (@cluster, @broker, @name, @topic)
ON CONFLICT (cluster, name, topic_id) DO NOTHING`
	sqlSourceID = `SELECT id FROM letter_source WHERE cluster = @cluster AND name = @name AND topic_id = @topic`
)

func (n *names) loadSources(ctx context.Context, arrivals []*arrival) error {
	for _, a := range arrivals {
		key := a.sourceKey()
		if _, known := n.sources[key]; known {
			continue
		}
		args := pgx.NamedArgs{"cluster": key.cluster, "broker": key.broker, "name": key.name, "topic": key.topic}
		if _, err := n.pool.Exec(ctx, sqlAddSource, args); err != nil {
			return fmt.Errorf("add source %s: %w", key.name, err)
		}
		var id int32
		if err := n.pool.QueryRow(ctx, sqlSourceID, args).Scan(&id); err != nil {
			return fmt.Errorf("query source %s: %w", key.name, err)
		}
		n.sources[key] = id
	}
	return nil
}

const (
	sqlAddNames = `
INSERT INTO letter_name (kind, name) SELECT k, n FROM unnest(@kinds::smallint[], @names::text[]) u(k, n)
ON CONFLICT (kind, name) DO NOTHING`
	sqlNameIDs = `
SELECT l.kind, l.name, l.id FROM unnest(@kinds::smallint[], @names::text[]) u(k, n)
JOIN letter_name l ON l.kind = u.k AND l.name = u.n`
)

func (n *names) loadNames(ctx context.Context, arrivals []*arrival) error {
	missing := n.missingNames(arrivals)
	if len(missing) == 0 {
		return nil
	}
	if len(n.ids) > maxCached {
		clear(n.ids)
		missing = n.missingNames(arrivals)
	}
	kinds, texts := make([]int16, len(missing)), make([]string, len(missing))
	for i, k := range missing {
		kinds[i], texts[i] = k.kind, k.name
	}
	args := pgx.NamedArgs{"kinds": kinds, "names": texts}
	if _, err := n.pool.Exec(ctx, sqlAddNames, args); err != nil {
		return fmt.Errorf("add names: %w", err)
	}
	rows, err := n.pool.Query(ctx, sqlNameIDs, args)
	if err != nil {
		return fmt.Errorf("query names: %w", err)
	}
	var key nameKey
	var id int32
	if _, err := pgx.ForEachRow(rows, []any{&key.kind, &key.name, &id}, func() error { n.ids[key] = id; return nil }); err != nil {
		return fmt.Errorf("read names: %w", err)
	}
	return nil
}

// missingNames is sorted, so that two drains take the rows in the same order.
func (n *names) missingNames(arrivals []*arrival) []nameKey {
	var missing []nameKey
	note := func(kind int16, name *string) {
		if name == nil {
			return
		}
		if key := (nameKey{kind, *name}); n.ids[key] == 0 {
			missing = append(missing, key)
		}
	}
	for _, a := range arrivals {
		note(kindDialect, &a.read.Dialect)
		note(kindGroup, a.read.Group)
		note(kindClass, a.read.ExceptionClass)
		note(kindOrigin, a.origin())
	}
	slices.SortFunc(missing, func(a, b nameKey) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name))
	})
	return slices.Compact(missing)
}
