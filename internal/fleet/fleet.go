package fleet

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Options say what is known beforehand. The zero value knows only what replicas report.
type Options struct {
	Declared []Declared       // groups of the config, ours and foreign
	Brokers  map[string]Admin // by cluster
	// Origins lists the topics that drained letters came from: groups that read
	// them are shown even if the config does not name them. Nil: none.
	Origins func(context.Context) ([]Topic, error)
	Logger  *slog.Logger     // nil: slog.Default()
	Now     func() time.Time // nil: time.Now
}

// Fleet lists the groups and takes commands for them. It is safe for concurrent use.
type Fleet struct {
	pool     *pgxpool.Pool
	declared []Declared
	origins  func(context.Context) ([]Topic, error)
	lags     map[string]*lagReader
	log      *slog.Logger
}

// New makes a fleet on the console's database.
func New(pool *pgxpool.Pool, o Options) *Fleet {
	if o.Now == nil {
		o.Now = time.Now
	}
	f := &Fleet{
		pool: pool, declared: o.Declared, origins: o.Origins,
		lags: map[string]*lagReader{}, log: cmp.Or(o.Logger, slog.Default()),
	}
	for cluster, admin := range o.Brokers {
		f.lags[cluster] = &lagReader{admin: admin, now: o.Now}
	}
	return f
}

// Groups lists every group that is known: reported, declared, or seen on a
// broker reading a topic that letters came from. Worst state first, then by
// name. A broker that cannot be asked is no error: the group says so.
func (f *Fleet) Groups(ctx context.Context) ([]Group, error) {
	reported, err := f.reported(ctx)
	if err != nil {
		return nil, err
	}
	book := newBook(f.declared, reported)
	f.askBrokers(ctx, book)
	groups := slices.Collect(maps.Values(book.groups))
	slices.SortFunc(groups, func(a, b *Group) int {
		return cmp.Or(cmp.Compare(a.State, b.State), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Cluster, b.Cluster))
	})
	out := make([]Group, len(groups))
	for i, g := range groups {
		out[i] = *g
	}
	return out, nil
}

// Group returns one group by name. Of groups that share a name on several
// clusters it is the worst. ErrUnknownGroup: there is none.
func (f *Fleet) Group(ctx context.Context, name string) (Group, error) {
	groups, err := f.Groups(ctx)
	if err != nil {
		return Group{}, err
	}
	for _, g := range groups {
		if g.Name == name {
			return g, nil
		}
	}
	return Group{}, fmt.Errorf("%w: %s", ErrUnknownGroup, name)
}

// askBrokers adds lag and members, and the groups that only a broker knows.
func (f *Fleet) askBrokers(ctx context.Context, b *book) {
	origins := f.originTopics(ctx)
	answers := map[string]answer{}
	var mu sync.Mutex
	var wait sync.WaitGroup
	for cluster, reader := range f.lags {
		known := b.on(cluster)
		wait.Go(func() {
			a := reader.read(ctx, known, origins[cluster])
			mu.Lock()
			defer mu.Unlock()
			answers[cluster] = a
		})
	}
	wait.Wait()
	for cluster, a := range answers {
		b.answer(cluster, a)
	}
	b.explainMissing()
}

func (f *Fleet) originTopics(ctx context.Context) map[string][]string {
	topics := map[string][]string{}
	if f.origins == nil {
		return topics
	}
	origins, err := f.origins(ctx)
	if err != nil {
		f.log.Warn("origin topics unknown, groups that only the broker knows are not listed", "error", err)
	}
	for _, o := range origins {
		topics[o.Cluster] = append(topics[o.Cluster], o.Name)
	}
	return topics
}
