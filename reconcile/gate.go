package reconcile

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sync/semaphore"
)

// gates give a segment all connections that it needs at once. Segments that took
// one after another could each hold what the other waits for, for ever.
type gates map[string]*gate

type gate struct {
	room int64
	*semaphore.Weighted
}

// guarded gives each database its gate, unless it has one.
func guarded(databases map[string]Database) map[string]Database {
	all := make(map[string]Database, len(databases))
	for name, d := range databases {
		if d.gate == nil {
			room := d.connections()
			d.gate = &gate{room, semaphore.NewWeighted(room)}
		}
		all[name] = d
	}
	return all
}

// connections is how many the pool allows.
func (d Database) connections() int64 {
	if d.MySQL == nil {
		return int64(d.Postgres.Config().MaxConns)
	}
	if n := d.MySQL.Stats().MaxOpenConnections; n > 0 {
		return int64(n)
	}
	return 100
}

// pass waits for as many connections of each database as need says; leave gives
// them back.
func (g gates) pass(ctx context.Context, need map[string]int64) (leave func(), err error) {
	var passed []func()
	leave = func() {
		for _, back := range passed {
			back()
		}
	}
	for _, name := range slices.Sorted(maps.Keys(need)) { // all in one order
		through, n := g[name], need[name]
		if n > through.room {
			leave()
			return nil, fmt.Errorf("connection %s allows %d sessions at once, and the job needs %d of it", name, through.room, n)
		}
		if err := through.Acquire(ctx, n); err != nil {
			leave()
			return nil, context.Cause(ctx)
		}
		passed = append(passed, func() { through.Release(n) })
	}
	return leave, nil
}

// enter waits for the connections that comparing a segment or looking up keys
// takes: one for each side.
func (c *comparison) enter(ctx context.Context) (leave func(), err error) {
	need := map[string]int64{}
	for _, side := range c.sides {
		need[side.Connection]++
	}
	return c.gates.pass(ctx, need)
}
