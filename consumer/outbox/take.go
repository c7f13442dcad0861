package outbox

import (
	"cmp"
	"context"
	"slices"
)

// How many candidates of each shard are looked at: few while that fills the
// room, more where one shard has it all, or keys that are on their way.
const (
	minDepth = 48
	maxLook  = 65_536 // candidates in all
)

// refill publishes what there is room for. More says that there may be more.
func (sh *shift) refill(ctx context.Context) (more bool, err error) {
	if sh.onTheWay() > sh.r.opts.MaxRows/2 || sh.bytes > sh.r.opts.MaxBytes/2 || sh.r.opts.Now().Before(sh.outage.until) {
		return false, nil
	}
	shards := sh.kept()
	if len(shards) == 0 {
		return false, nil
	}
	var found []candidate
	err = sh.ask(ctx, "look for rows", func(ctx context.Context) (err error) {
		found, err = sh.s.candidates(ctx, shards, sh.depth)
		return err
	})
	if err != nil {
		return false, err
	}
	chosen, full := sh.choose(found)
	more = sh.deepen(found, full, len(shards))
	if len(chosen) == 0 {
		return more && len(sh.flights) > 0, nil
	}
	return more, sh.take(ctx, chosen)
}

// onTheWay counts the rows that were taken and did not land.
func (sh *shift) onTheWay() (n int) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for _, f := range sh.flights {
		n += len(f.rows) - f.next
	}
	return n
}

// choose takes candidates in the order of their ids while there is room. Full:
// it had to leave some.
func (sh *shift) choose(found []candidate) (chosen []candidate, full bool) {
	slices.SortFunc(found, func(a, b candidate) int { return cmp.Compare(a.id, b.id) })
	rows, bytes := sh.r.opts.MaxRows-sh.onTheWay(), sh.r.opts.MaxBytes-sh.bytes
	perKey := map[string]int{}
	for _, c := range found {
		if sh.flights[c.key] != nil || perKey[c.key] == maxPerKey {
			continue // and so are all later ones of the key
		}
		alone := len(chosen) == 0 && len(sh.flights) == 0
		if rows == 0 || c.bytes > bytes && !alone {
			return chosen, true
		}
		chosen = append(chosen, c)
		perKey[c.key]++
		rows, bytes = rows-1, bytes-c.bytes
	}
	return chosen, false
}

// deepen adapts how far the next look goes, and reports whether there is more
// than this one saw.
func (sh *shift) deepen(found []candidate, full bool, shards int) (more bool) {
	if full {
		sh.depth = max(sh.depth/2, minDepth)
		return true
	}
	seen := map[int16]int{}
	for _, c := range found {
		seen[c.shard]++
		more = more || seen[c.shard] >= sh.depth
	}
	if more {
		sh.depth = min(2*sh.depth, max(maxLook/shards, minDepth))
	}
	return more
}

// take reads the contents of the chosen rows and sends them off, key by key.
func (sh *shift) take(ctx context.Context, chosen []candidate) error {
	ids, by := make([]int64, len(chosen)), make(map[int64]candidate, len(chosen))
	for i, c := range chosen {
		ids[i], by[c.id] = c.id, c
	}
	var rows []Row
	err := sh.ask(ctx, "read rows", func(ctx context.Context) (err error) {
		rows, err = sh.s.load(ctx, ids)
		return err
	})
	if err != nil {
		return err
	}
	var begun []*flight
	for _, row := range rows {
		c := by[row.ID]
		f := sh.flights[c.key]
		if f == nil {
			f = &flight{key: c.key, shard: c.shard}
			sh.flights[c.key] = f
			begun = append(begun, f)
		}
		f.rows = append(f.rows, row)
		sh.bytes += row.bytes()
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.out = append(sh.out, begun...)
	signal(sh.send)
	return nil
}
