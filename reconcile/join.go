package reconcile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"
)

// errManyRows is a key with several rows, which a join multiplies.
var errManyRows = errors.New("reconcile: a key has several rows")

// joined compares a segment by one full join in the database that has both
// sides, and sums them up beside it, in the same state of the database. It gives
// what comparison.segment gives. errManyRows: the segment has to be merged.
func (c *comparison) joined(ctx context.Context, core interval, most int) (t *Tally, found []candidate, more bool, err error) {
	t = newTally()
	walk := joinWalk{lines: t, kinds: c.kinds, amounts: c.rules.amounts, most: most}
	var met, rows sideRows
	err = c.sides[Consumed].db.snapshot(ctx, c.job.Limits, func(state snapshot) error {
		return state.(postgresSnapshot).beside(ctx, c.job.Limits, func(twin snapshot) error {
			var both errgroup.Group
			both.Go(func() (err error) {
				rows, err = c.sumUpBoth(ctx, twin, core, t)
				return err
			})
			met, err = c.fullJoin(ctx, state, core, &walk)
			return errors.Join(err, both.Wait())
		})
	})
	if err == nil && met != rows {
		err = errManyRows
	}
	for p := range t.Control {
		t.Totals[p] = maps.Clone(t.Control[p])
	}
	t.Matched = walk.matched()
	return t, walk.found, walk.more, err
}

// sideRows is how many rows with a key consumed and effect have in the wide
// window.
type sideRows [2]int64

func (c *comparison) sumUpBoth(ctx context.Context, state snapshot, core interval, t *Tally) (n sideRows, err error) {
	for i, p := range []Party{Consumed, Effect} {
		if n[i], err = c.sides[p].sumUpWide(ctx, state, core, c.wide(core), t); err != nil {
			return n, err
		}
	}
	return n, nil
}

func (c *comparison) wide(core interval) interval {
	overlap := c.job.Window.Overlap.Microseconds()
	return interval{core.from - overlap, core.to + overlap}
}

// sumUpWide reads the control totals of the core, and how many rows with a key
// the wide window has.
func (s *openSide) sumUpWide(ctx context.Context, state snapshot, core, wide interval, t *Tally) (rows int64, err error) {
	var st bound
	query := s.windowed(&st, s.shape.time, wide)
	present, _ := postgres.keys(s.shape)
	name, by := postgres.grouped(s.shape.currency)
	st.text = "select " + name + ", " + postgres.sums(s.shape, s.within(&st, core)+" and ") +
		", count(case when " + present + " then 1 end), count(case when " + s.within(&st, wide) + " then null else 1 end)" +
		" from (" + query + ") side group by " + by
	err = state.texts(ctx, st, func(v []*string) error {
		if *v[6] != "0" {
			return fmt.Errorf("%s: %w", s.Pos, errIgnoresWindow)
		}
		n, err := strconv.ParseInt(*v[5], 10, 64)
		if err != nil {
			return err
		}
		rows += n
		return t.control(s.party, v)
	})
	return rows, err
}

// control books a currency's control totals: rows with a key and their amount,
// and the same of rows without.
func (t *Tally) control(p Party, v []*string) error {
	for i, into := range []map[string]Total{t.Control[p], t.Keyless[p]} {
		rows, amount := v[1+2*i], v[2+2*i]
		n, err := strconv.ParseInt(*rows, 10, 64)
		if err != nil {
			return err
		}
		total := Total{Rows: n}
		if amount != nil {
			if total.Amount, err = ParseAmount(*amount); err != nil {
				return err
			}
		}
		if n > 0 {
			addTotals(into, map[string]Total{*v[0]: total})
		}
	}
	return nil
}

// within writes that a row is in the core.
func (s *openSide) within(st *bound, core interval) string {
	at := s.instants(core)
	st.args = append(st.args, at...)
	n, cast := len(st.args), timeCasts[s.shape.time.class]
	name := "side." + postgres.quote(s.shape.time.name)
	return fmt.Sprintf("%[1]s >= $%[2]d%[4]s and %[1]s < $%[3]d%[4]s", name, n-1, n, cast)
}

// keyed writes a side of the join: its key, amount, currency and place in the
// window. The window's parameters follow those that st has.
func (s *openSide) keyed(c *comparison, st *bound, core, wide interval) string {
	text := s.windowed(st, s.shape.time, wide)
	var columns []string
	for i, k := range s.shape.key {
		columns = append(columns, fmt.Sprintf("%s k%d", postgres.part(k, c.kinds[i]), i))
	}
	present, _ := postgres.keys(s.shape)
	amount := "1"
	if s.shape.amount.name != "" {
		amount = "side." + postgres.quote(s.shape.amount.name)
	}
	return "select " + strings.Join(columns, ", ") + ", " + amount + " amount, " + c.joinedCurrency(s) + " currency, (" + s.within(st, core) + ") inside" +
		" from (" + text + ") side where " + present
}

// joinedCurrency leaves a currency its type where both sides have the same: a
// conversion per row is worth avoiding.
func (c *comparison) joinedCurrency(s *openSide) string {
	if name := s.shape.currency.name; name != "" && c.sides[Consumed].shape.currency.declared == c.sides[Effect].shape.currency.declared {
		return "coalesce(side." + postgres.quote(name) + ` collate "C", '')`
	}
	return postgres.currency(s.shape.currency)
}

// Everything that is fine falls into one group; what is not, and pairs of which
// one row is beside the window's edge, come as they are. Offset 0 hides from the
// planner that there may be many groups: it would sort all rows for them.
const sqlFullJoin = `
with c as not materialized (%[1]s), e as not materialized (%[2]s)
select pair, count(ck), count(ek) from (
  select case when c.amount = e.amount and c.currency = e.currency and c.inside = e.inside then null
    else json_build_array(c.amount = e.amount and c.currency = e.currency, c.inside, e.inside, c.currency::text, c.amount::text, e.amount::text, json_build_array(%[3]s))::text end pair,
    c.k0 ck, e.k0 ek
  from c full join e on %[4]s offset 0
) pairs
group by pair`

// fullJoin hands the join's odd pairs to w, and counts the rows that met.
func (c *comparison) fullJoin(ctx context.Context, state snapshot, core interval, w *joinWalk) (met sideRows, err error) {
	var st bound
	wide := c.wide(core)
	consumed := c.sides[Consumed].keyed(c, &st, core, wide)
	effect := c.sides[Effect].keyed(c, &st, core, wide)
	var on, parts []string
	for i := range c.kinds {
		on = append(on, fmt.Sprintf("c.k%[1]d = e.k%[1]d", i))
		parts = append(parts, c.keyText(i))
	}
	st.text = fmt.Sprintf(sqlFullJoin, consumed, effect, strings.Join(parts, ", "), strings.Join(on, " and "))
	err = state.texts(ctx, st, func(v []*string) error {
		var n sideRows
		for i := range n {
			if n[i], err = strconv.ParseInt(*v[i+1], 10, 64); err != nil {
				return err
			}
			met[i] += n[i]
		}
		if v[0] == nil {
			return nil
		}
		return w.odd(*v[0], n)
	})
	return met, err
}

// joinWalk takes in the pairs of a join that are not simply fine.
type joinWalk struct {
	lines   *Tally
	kinds   []kind
	amounts bool
	most    int

	wrong int64 // consumed rows of the core without their match
	found []candidate
	more  bool
}

// oddPair is what sqlFullJoin writes of a pair; nil: the side has no row.
type oddPair struct {
	fine, consumedInside, effectInside     *bool
	currency, consumedAmount, effectAmount *string
	key                                    []string
}

func (o *oddPair) read(text string) error {
	fields := []any{&o.fine, &o.consumedInside, &o.effectInside, &o.currency, &o.consumedAmount, &o.effectAmount, &o.key}
	if err := json.Unmarshal([]byte(text), &fields); err != nil {
		return fmt.Errorf("read a pair of the join: %w", err)
	}
	return nil
}

func yes(b *bool) bool { return b != nil && *b }

// odd takes a pair, and how many rows of consumed and effect are like it.
func (w *joinWalk) odd(text string, n sideRows) error {
	var o oddPair
	if err := o.read(text); err != nil {
		return err
	}
	switch {
	case yes(o.fine):
		return w.edge(&o)
	case yes(o.consumedInside):
		w.wrong += n[0]
	case !yes(o.effectInside):
		return nil // a neighbour's
	}
	if w.more = w.more || len(w.found) >= w.most; w.more {
		return nil
	}
	key, err := encodeKey(w.kinds, o.key)
	w.found = append(w.found, candidate{key: key, rows: [3]int{Consumed: int(n[0]), Effect: int(n[1])}})
	return err
}

// edge books a pair of which one row is beside the window's edge.
func (w *joinWalk) edge(o *oddPair) error {
	if !w.amounts {
		return nil
	}
	text := *o.consumedAmount
	if *o.effectInside {
		text = *o.effectAmount
	}
	amount, err := ParseAmount(text)
	if err != nil || amount.IsZero() {
		return err
	}
	if *o.effectInside {
		amount = amount.Neg()
	}
	w.lines.line(LineEdge, *o.currency, 1, amount)
	return nil
}

// matched is how many consumed rows of the core have their match.
func (w *joinWalk) matched() int64 {
	n := -w.wrong
	for _, total := range w.lines.Control[Consumed] {
		n += total.Rows
	}
	return n
}

func (c *comparison) keyText(i int) string {
	name := fmt.Sprintf("coalesce(c.k%[1]d, e.k%[1]d)", i)
	if c.kinds[i] == kindBytes {
		return "encode(" + name + ", 'hex')"
	}
	return name + "::text"
}
