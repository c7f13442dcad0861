package reconcile

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sync/errgroup"
)

// lookupKeys is how many keys one look-up asks for.
const lookupKeys = 500

// lookupBatch is lookupKeys, or fewer where the many ways to write several UUIDs
// would go beyond the 65,535 parameters of a statement.
func lookupBatch(kinds []kind) int {
	n, uuids := lookupKeys, 0
	for _, k := range kinds {
		if k != kindUUID {
			continue
		}
		if uuids++; uuids > 2 {
			n /= len(uuidForms)
		}
	}
	return max(n, 1)
}

// everything is a window that nothing is outside of.
var everything = interval{math.MinInt64, math.MaxInt64}

// looked binds the side's look-up to keys.
func (s *openSide) looked(kinds []kind, keys [][]string) bound {
	d := s.db.dialect()
	var st bound
	st.text, _ = bind(d, s.Lookup, keyParams, func(string) string {
		var tuples []string
		for _, key := range keys {
			for _, form := range s.forms(kinds, key) {
				tuples = append(tuples, s.tuple(&st, form))
			}
		}
		if len(tuples) == 0 { // an empty list is no SQL
			tuples = []string{nothing(len(kinds))}
		}
		return strings.Join(tuples, ", ")
	})
	return st
}

// nothing is a key that no row has.
func nothing(columns int) string {
	if columns == 1 {
		return "null"
	}
	return "(" + strings.Repeat("null, ", columns-1) + "null)"
}

// tuple writes one key: a parameter, or (a, b) of several.
func (s *openSide) tuple(st *bound, parts []any) string {
	marks := make([]string, len(parts))
	for i, part := range parts {
		st.args = append(st.args, part)
		marks[i] = "?"
		if s.db.dialect() == postgres {
			marks[i] = "$" + strconv.Itoa(len(st.args))
			if s.classOf(i) == classInt { // an int column is asked for what it cannot hold, too
				marks[i] += "::bigint"
			}
		}
	}
	if len(marks) == 1 {
		return marks[0]
	}
	return "(" + strings.Join(marks, ", ") + ")"
}

// forms are the ways in which a key may be written in the side's columns: one,
// but for UUIDs kept as text, each of which has its own, and none for what the
// columns cannot hold.
func (s *openSide) forms(kinds []kind, key []string) [][]any {
	written := [][]any{nil}
	for i, part := range key {
		var longer [][]any
		for _, form := range s.arguments(i, kinds[i], part) {
			for _, start := range written {
				longer = append(longer, append(slices.Clone(start), form))
			}
		}
		written = longer
	}
	return written
}

// uuidForms are how UUIDs are written as text, from how they usually are.
var uuidForms = []func(string) string{
	func(id string) string { return id },
	strings.ToUpper,
	func(id string) string { return strings.ReplaceAll(id, "-", "") },
	func(id string) string { return strings.ToUpper(strings.ReplaceAll(id, "-", "")) },
}

func (s *openSide) classOf(i int) class {
	if i < len(s.shape.key) {
		return s.shape.key[i].class
	}
	return classOther
}

// arguments are a key's part as the side's column may have it; none: no row of the
// side has it. MySQL compares an integer column with text as binary fractions, so
// it gets numbers.
func (s *openSide) arguments(i int, k kind, part string) []any {
	switch c := s.classOf(i); {
	case c == classText && k == kindUUID:
		forms := make([]any, len(uuidForms))
		for n, form := range uuidForms {
			forms[n] = form(part)
		}
		return forms
	case c == classBytes:
		if b, err := appendRaw(k, part); err == nil {
			return []any{b}
		}
		return nil
	case c == classInt:
		if v, err := strconv.ParseInt(part, 10, 64); err == nil {
			return []any{v}
		}
		if v, err := strconv.ParseUint(part, 10, 64); err == nil && s.db.dialect() == mysql {
			return []any{v}
		}
		return nil
	}
	if s.db.dialect() == postgres && !isText(part) {
		return nil
	}
	return []any{part}
}

// isText reports whether PostgreSQL can hold a text.
func isText(part string) bool { return utf8.ValidString(part) && !strings.Contains(part, "\x00") }

// appendRaw is a key's part as the bytes of a binary column.
func appendRaw(k kind, part string) ([]byte, error) {
	if k == kindText {
		return []byte(part), nil
	}
	key, err := appendPart(nil, k, part)
	if err != nil || k == kindUUID {
		return key, err
	}
	b, _, err := unescape(key)
	return b, err
}

// reread reads keys in full on all sides, without the window, and says what is
// wrong with each. What is whole has an empty type. The answers are in the order
// of their keys; core is the window that they contribute to.
func (c *comparison) reread(ctx context.Context, keys [][]byte, core interval, now time.Time) ([]Finding, error) {
	keys = slices.Clone(keys)
	slices.SortFunc(keys, bytes.Compare)
	keys = slices.CompactFunc(keys, bytes.Equal)
	var all []Finding
	for batch := range slices.Chunk(keys, lookupBatch(c.kinds)) {
		found, err := c.rereadBatch(ctx, batch, core, now)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

func (c *comparison) rereadBatch(ctx context.Context, keys [][]byte, core interval, now time.Time) ([]Finding, error) {
	parts := make([][]string, len(keys))
	for i, key := range keys {
		var err error
		if parts[i], err = decodeKey(c.kinds, key); err != nil {
			return nil, err
		}
	}
	found := make([]Finding, len(keys))
	for i := range found {
		found[i] = Finding{Key: parts[i], Encoded: keys[i]}
	}
	leave, err := c.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	streams, wait := c.lookUp(ctx, parts)
	err = merge(ctx, streams, core, func(key []byte, g *groups) error {
		// A database may find more than was asked for, such as EVT-1 for evt-1.
		if i, ok := slices.BinarySearchFunc(keys, key, bytes.Compare); ok {
			c.judge(&found[i], g, now)
		}
		return nil
	})
	if failed := wait(err); err == nil {
		err = failed
	}
	if err != nil {
		return nil, err
	}
	return found, nil
}

// judge fills in a finding. A key that no side has any more is whole.
func (c *comparison) judge(f *Finding, g *groups, now time.Time) {
	f.Type, f.Difference, f.Spared = c.rules.compare(g)
	f.Currency = g.currency()
	if all := g.currencies(); f.Type != "" && len(all) > 1 {
		f.Currency, f.Difference = g.amiss(all)
	}
	f.inside = contribution(g)
	if c.rules.outbox {
		f.upstream = between(g, Outbox, Consumed)
	}
	for p := range g {
		f.Sides[p] = findingSide(&g[p])
	}
	if (f.Type == MissingEffect || f.Type == PublishedNotConsumed) && c.rules.young(g, now) {
		f.Type = Timing
	}
}

// lookUp streams what the sides have for keys. wait has to be called with how
// the reading went.
func (c *comparison) lookUp(ctx context.Context, keys [][]string) (map[Party]stream, func(error) error) {
	ctx, cancel := context.WithCancelCause(ctx)
	streams := map[Party]stream{}
	var reading errgroup.Group
	for party, side := range c.sides {
		finished := make(chan error, 1)
		streams[party] = newPump(ctx, func(ctx context.Context, emit func(record) error) error {
			err := side.scanKeys(ctx, c, keys, emit)
			finished <- err
			return err
		})
		reading.Go(func() error { return <-finished })
	}
	return streams, func(err error) error {
		cancel(err)
		return reading.Wait()
	}
}

func (s *openSide) scanKeys(ctx context.Context, c *comparison, keys [][]string, emit func(record) error) error {
	err := s.db.snapshot(ctx, c.job.Limits, func(state snapshot) error {
		st := s.looked(c.kinds, keys)
		st.text = s.db.dialect().ordered(st.text, s.lookup, c.kinds)
		return state.scan(ctx, st, s.lookup, c.kinds, s.Zone, emit)
	})
	if err != nil {
		return fmt.Errorf("%s: look up keys: %w", s.Pos, err)
	}
	return nil
}
