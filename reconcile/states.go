package reconcile

import (
	"context"
	"fmt"
)

// States reads the keys of a job's breaks again, all at once, and says for each
// break what its key is now. An error is about all of them. It is State for many.
func (r *Runs) States(ctx context.Context, job string, breaks []Break) ([]Finding, error) {
	def, err := r.jobs.Current(ctx, job)
	if err != nil {
		return nil, err
	}
	parsed, err := def.Parse()
	if err != nil {
		return nil, err
	}
	c, err := prepare(ctx, parsed, r.databases)
	if err != nil {
		return nil, err
	}
	keys := make([][]byte, len(breaks))
	for i, b := range breaks {
		if keys[i], err = encodeKey(c.kinds, b.Key); err != nil {
			return nil, fmt.Errorf("key of break %d: %w", b.ID, err)
		}
	}
	found, err := c.reread(ctx, keys, everything, r.opts.Clock())
	if err != nil {
		return nil, err
	}
	by := make(map[string]Finding, len(found))
	for _, f := range found {
		by[string(f.Encoded)] = f
	}
	all := make([]Finding, len(breaks))
	for i, key := range keys {
		all[i] = by[string(key)]
	}
	return all, nil
}
