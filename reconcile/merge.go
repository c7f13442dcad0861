package reconcile

import (
	"bytes"
	"context"
	"fmt"
)

// stream gives the rows of one side in the order of their keys. Its records are
// valid until the next call. It returns nil at the end.
type stream interface {
	next(ctx context.Context) (*record, error)
}

// interval is [from, to) in microseconds since 1970, UTC.
type interval struct{ from, to int64 }

func (i interval) holds(at int64) bool { return i.from <= at && at < i.to }

// cursor is a stream with its next row.
type cursor struct {
	party Party
	from  stream
	row   *record
	last  []byte
}

func (c *cursor) advance(ctx context.Context) error {
	if c.row != nil {
		c.last = append(c.last[:0], c.row.key...)
	}
	var err error
	if c.row, err = c.from.next(ctx); err != nil {
		return fmt.Errorf("read side %s: %w", c.party, err)
	}
	if c.row != nil && bytes.Compare(c.row.key, c.last) < 0 {
		return fmt.Errorf("side %s does not come in byte order of its key: its database sorts by another encoding; use a UTF-8 database or an integer or uuid key", c.party)
	}
	return nil
}

// merge walks over streams in the order of their keys, in constant memory, and
// hands each key with what every party has for it to visit. Neither key nor
// groups may be kept. Rows of a key may have any number and order.
func merge(ctx context.Context, sides map[Party]stream, window interval, visit func(key []byte, g *groups) error) error {
	cursors := make([]*cursor, 0, len(sides))
	for party, s := range sides {
		c := &cursor{party: party, from: s}
		if err := c.advance(ctx); err != nil {
			return err
		}
		cursors = append(cursors, c)
	}
	var key []byte
	var g groups
	for {
		least := smallest(cursors)
		if least == nil {
			return nil
		}
		key = append(key[:0], least.row.key...)
		g = groups{}
		for _, c := range cursors {
			if err := c.collect(ctx, key, window, &g[c.party]); err != nil {
				return err
			}
		}
		if err := visit(key, &g); err != nil {
			return err
		}
	}
}

func smallest(cursors []*cursor) *cursor {
	var least *cursor
	for _, c := range cursors {
		if c.row != nil && (least == nil || bytes.Compare(c.row.key, least.row.key) < 0) {
			least = c
		}
	}
	return least
}

// collect takes in the rows of a key.
func (c *cursor) collect(ctx context.Context, key []byte, window interval, into *group) error {
	for c.row != nil && bytes.Equal(c.row.key, key) {
		if err := into.add(c.row, window.holds(c.row.at)); err != nil {
			return fmt.Errorf("side %s: %w", c.party, err)
		}
		if err := c.advance(ctx); err != nil {
			return err
		}
	}
	into.settle()
	return nil
}
