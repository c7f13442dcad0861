package dlq

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"oncemore/consumer/rabbit"
)

// WatchQueues tells which queues of a cluster of RabbitMQ are drained; no broker
// says that. Errors: ErrBadPattern.
func (c *Concerns) WatchQueues(cluster string, sources []DrainSource) error {
	patterns, err := compileSources(sources)
	if err != nil {
		return err
	}
	c.queues[cluster] = patterns
	return nil
}

// queueDrains says how much each drained queue holds that is not stored. What is
// stored leaves a queue in the same act, so only a queue that is copied has
// something to compare.
func (c *Concerns) queueDrains(ctx context.Context, on *Cluster, count bool) ([]DrainState, error) {
	held, err := c.heldByQueues(ctx, on)
	if err != nil {
		return nil, err
	}
	var all []DrainState
	for _, h := range held {
		d := DrainState{Cluster: on.Name, Source: h.name, Waiting: h.messages, WhyNot: "a queue gives up what is stored"}
		if h.copied {
			copies, err := c.copies(ctx, on.Name, h.name)
			if err != nil {
				return all, err
			}
			d.Waiting, d.Retained, d.WhyNot = max(h.messages-copies, 0), min(h.messages, copies), ""
			if count {
				c.countOfQueue(ctx, &d)
			}
		}
		all = append(all, d)
	}
	return all, nil
}

// heldQueue is a drained queue and how many messages it has, handed out or not;
// without the management API those that are ready.
type heldQueue struct {
	name     string
	messages int64
	copied   bool
}

func (c *Concerns) heldByQueues(ctx context.Context, on *Cluster) (held []heldQueue, failed error) {
	patterns := c.queues[on.Name]
	if len(patterns) == 0 {
		return nil, nil
	}
	if on.rabbit.api == nil {
		for _, s := range patterns {
			if !s.exact() {
				continue // a drain without the API does not resolve it either
			}
			n := on.rabbit.readyCount(ctx, s.Pattern)
			if n < 0 {
				failed = errors.Join(failed, fmt.Errorf("queue %s of cluster %s did not answer", s.Pattern, on.Name))
				continue
			}
			held = append(held, heldQueue{s.Pattern, n, s.Copy})
		}
		return held, failed
	}
	queues, err := c.watched(ctx, on)
	for _, q := range queues {
		source, _ := matchQueue(patterns, q.Name)
		held = append(held, heldQueue{q.Name, q.Ready + q.Unacked, source.Copy})
	}
	return held, err
}

// watched are the drained queues as the management API lists them, by name.
func (c *Concerns) watched(ctx context.Context, on *Cluster) ([]rabbit.Queue, error) {
	view, err := c.over.topo.view(ctx, on.Name)
	if err == nil {
		err = view.Err
	}
	if err != nil {
		return nil, fmt.Errorf("cluster %s did not answer: %w", on.Name, err)
	}
	var all []rabbit.Queue
	for _, name := range slices.Sorted(maps.Keys(view.Rabbit.queues)) {
		q := view.Rabbit.queues[name]
		if _, drained := matchQueue(c.queues[on.Name], name); drained && !q.IsStream() {
			all = append(all, q)
		}
	}
	return all, nil
}

const sqlCopies = `SELECT coalesce(sum(octet_length(hashes)) / 32, 0)::bigint FROM drain_unacked WHERE cluster = @cluster AND queue = @queue AND copied`

func (c *Concerns) copies(ctx context.Context, cluster, queue string) (n int64, err error) {
	err = c.pool.QueryRow(ctx, sqlCopies, pgx.NamedArgs{"cluster": cluster, "queue": queue}).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count copies of queue %s: %w", queue, err)
	}
	return n, nil
}

const sqlCountOfQueue = `
WITH s AS (SELECT id FROM letter_source WHERE cluster = @cluster AND name = @queue)
SELECT (SELECT count(*) FROM s JOIN dead_letter d ON d.source_id = s.id)
  + (SELECT count(*) FROM s JOIN letter_occurrence o ON o.source_id = s.id)`

// countOfQueue counts what came from a copied queue: at least as much as it holds
// copies of.
func (c *Concerns) countOfQueue(ctx context.Context, d *DrainState) {
	if d.Retained > countRetained {
		d.WhyNot = fmt.Sprintf("more than %d messages are copied", countRetained)
		return
	}
	counting, cancel := context.WithTimeout(ctx, countTime)
	defer cancel()
	var n int64
	if err := c.pool.QueryRow(counting, sqlCountOfQueue, pgx.NamedArgs{"cluster": d.Cluster, "queue": d.Source}).Scan(&n); err != nil {
		d.WhyNot = "the letters could not be counted within " + countTime.String()
		return
	}
	d.Stored = ptr(min(n, d.Retained))
}

// Rival is somebody else who takes messages out of a queue that is drained: what
// they take is never stored.
type Rival struct {
	Cluster, Source string
	Consumers       int64
}

// Rivals lists the drained queues that others consume as well. Clusters without
// the management API cannot say. Errors: as of Unattended.
func (c *Concerns) Rivals(ctx context.Context) (all []Rival, failed error) {
	for _, name := range slices.Sorted(maps.Keys(c.queues)) {
		found, err := c.rivalsOn(ctx, name)
		all, failed = append(all, found...), errors.Join(failed, err)
	}
	return all, failed
}

func (c *Concerns) rivalsOn(ctx context.Context, cluster string) ([]Rival, error) {
	on := c.over.topo.clusters[cluster]
	if on == nil || on.rabbit == nil || on.rabbit.api == nil {
		return nil, nil
	}
	asking, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	consumers, err := on.rabbit.api.Takers(asking)
	if err != nil {
		return nil, fmt.Errorf("cluster %s did not answer: %w", cluster, err)
	}
	others := map[string]int64{}
	for _, one := range consumers {
		if _, drained := matchQueue(c.queues[cluster], one.Queue.Name); drained && !strings.HasPrefix(one.Tag, drainTag) {
			others[one.Queue.Name]++
		}
	}
	var all []Rival
	for _, queue := range slices.Sorted(maps.Keys(others)) {
		all = append(all, Rival{cluster, queue, others[queue]})
	}
	return all, nil
}
