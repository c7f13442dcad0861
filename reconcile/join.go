package reconcile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// errManyRows is a key with several rows, which a join multiplies.
var errManyRows = errors.New("reconcile: a key has several rows")

// joined compares a segment by one full join in the database that has both
// sides. It reads each side twice, and gives what comparison.segment gives, but
// for the candidates' contributions. errManyRows: the segment has to be merged.
func (c *comparison) joined(ctx context.Context, core interval, most int) (t *Tally, keys [][]byte, more bool, err error) {
	t = newTally()
	wide := c.wide(core)
	consumed, effect := c.sides[Consumed], c.sides[Effect]
	err = consumed.db.snapshot(ctx, c.job.Limits, func(state snapshot) error {
		rows := int64(0)
		for _, s := range []*openSide{consumed, effect} {
			n, err := s.sumUpWide(ctx, state, core, wide, t)
			if err != nil {
				return err
			}
			rows += n
		}
		var met int64
		keys, more, met, err = c.fullJoin(ctx, state, core, wide, most, t)
		if err == nil && met != rows {
			return errManyRows
		}
		return err
	})
	return t, keys, more, err
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
	inside := s.within(&st, core)
	amount := "null::text"
	if s.shape.amount.name != "" {
		amount = "(sum(side." + postgres.quote(s.shape.amount.name) + ") filter (where " + inside + "))::text"
	}
	st.text = "select " + postgres.currency(s.shape.currency) + ", " + postgres.keyless(s.shape) + ", count(*) filter (where " + inside + "), " + amount + ", count(*)" +
		" from (" + query + ") side group by 1, 2"
	err = state.texts(ctx, st, func(v []*string) error {
		into, err := t.control(s.party, v)
		if err != nil || into == nil {
			return err
		}
		n, err := strconv.ParseInt(*v[4], 10, 64)
		rows += n
		return err
	})
	return rows, err
}

// control books a row of control totals. It returns nil for one of rows without
// a key.
func (t *Tally) control(p Party, v []*string) (map[string]Total, error) {
	n, err := strconv.ParseInt(*v[2], 10, 64)
	if err != nil {
		return nil, err
	}
	total := Total{Rows: n}
	if v[3] != nil {
		if total.Amount, err = ParseAmount(*v[3]); err != nil {
			return nil, err
		}
	}
	if *v[1] == "1" {
		if n > 0 {
			t.Keyless[p][*v[0]] = total
		}
		return nil, nil
	}
	if n > 0 {
		t.Control[p][*v[0]], t.Totals[p][*v[0]] = total, total
	}
	return t.Control[p], nil
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
	var columns, present []string
	for i, k := range s.shape.key {
		columns = append(columns, fmt.Sprintf("%s k%d", postgres.part(k, c.kinds[i]), i))
		present = append(present, "side."+postgres.quote(k.name)+" is not null")
	}
	amount := "1"
	if s.shape.amount.name != "" {
		amount = "side." + postgres.quote(s.shape.amount.name)
	}
	return "select " + strings.Join(columns, ", ") + ", " + amount + " amount, " + postgres.currency(s.shape.currency) + " currency, (" + s.within(st, core) + ") inside" +
		" from (" + text + ") side where " + strings.Join(present, " and ")
}

const sqlFullJoin = `
with c as not materialized (%[1]s), e as not materialized (%[2]s)
select coalesce(c.currency, e.currency), count(c.k0) + count(e.k0),
  count(*) filter (where %[3]s and c.inside),
  count(*) filter (where %[3]s and c.inside and not e.inside) + count(*) filter (where %[3]s and e.inside and not c.inside),
  (coalesce(sum(c.amount) filter (where %[3]s and c.inside and not e.inside), 0) - coalesce(sum(e.amount) filter (where %[3]s and e.inside and not c.inside), 0))::text,
  json_agg(json_build_array(%[4]s)) filter (where (%[3]s) is not true and (c.inside or e.inside))
from c full join e on %[5]s
group by 1`

func (c *comparison) fullJoin(ctx context.Context, state snapshot, core, wide interval, most int, t *Tally) (keys [][]byte, more bool, met int64, err error) {
	var st bound
	consumed := c.sides[Consumed].keyed(c, &st, core, wide)
	effect := c.sides[Effect].keyed(c, &st, core, wide)
	var on, parts []string
	for i := range c.kinds {
		on = append(on, fmt.Sprintf("c.k%[1]d = e.k%[1]d", i))
		parts = append(parts, c.keyText(i))
	}
	fine := "c.k0 is not null and e.k0 is not null and c.amount = e.amount and c.currency = e.currency"
	st.text = fmt.Sprintf(sqlFullJoin, consumed, effect, fine, strings.Join(parts, ", "), strings.Join(on, " and "))
	err = state.texts(ctx, st, func(v []*string) error {
		n, err := strconv.ParseInt(*v[1], 10, 64)
		if err != nil {
			return err
		}
		met += n
		if err := t.joined(v); err != nil || v[5] == nil {
			return err
		}
		var all [][]string
		if err := json.Unmarshal([]byte(*v[5]), &all); err != nil {
			return err
		}
		for _, key := range all {
			encoded, err := encodeKey(c.kinds, key)
			if err != nil {
				return err
			}
			keys = append(keys, encoded)
		}
		return nil
	})
	if len(keys) > most {
		return keys[:most], true, met, err
	}
	return keys, false, met, err
}

// joined books the keys that one currency's rows agree on.
func (t *Tally) joined(v []*string) error {
	matched, err := strconv.ParseInt(*v[2], 10, 64)
	if err != nil {
		return err
	}
	edges, err := strconv.ParseInt(*v[3], 10, 64)
	if err != nil {
		return err
	}
	amount, err := ParseAmount(*v[4])
	if err != nil {
		return err
	}
	t.Matched += matched
	if edges > 0 {
		t.line(LineEdge, *v[0], edges, amount)
	}
	return nil
}

func (c *comparison) keyText(i int) string {
	name := fmt.Sprintf("coalesce(c.k%[1]d, e.k%[1]d)", i)
	if c.kinds[i] == kindBytes {
		return "encode(" + name + ", 'hex')"
	}
	return name + "::text"
}
