package reconcile

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
)

// comparison is a job with its databases asked for what they have: everything
// that is the same for all segments of a run.
type comparison struct {
	job   *Job
	plan  string
	rules rules
	sides map[Party]*openSide
	kinds []kind
	gates gates
}

// openSide is a side with its database and the shape of its result.
type openSide struct {
	*Side
	party  Party
	db     reader
	shape  shape
	lookup shape
}

// prepare asks each database about the columns of a side's statements, and
// refuses connections that could write.
func prepare(ctx context.Context, job *Job, databases map[string]Database) (*comparison, error) {
	databases = guarded(databases)
	c := &comparison{job: job, rules: job.rules(), sides: map[Party]*openSide{}, gates: gates{}}
	var shapes []shape
	for _, p := range job.parties() {
		s, err := openParty(ctx, job, p, databases)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", job.side(p).Pos, err)
		}
		c.sides[p], c.gates[s.Connection] = s, databases[s.Connection].gate
		shapes = append(shapes, s.shape, s.lookup)
	}
	var err error
	if c.kinds, err = job.kinds(shapes); err != nil {
		return nil, fmt.Errorf("%s: %w", job.Pos, err)
	}
	return c, nil
}

func openParty(ctx context.Context, job *Job, p Party, databases map[string]Database) (*openSide, error) {
	side := job.side(p)
	db, ok := databases[side.Connection]
	if !ok {
		return nil, fmt.Errorf("there is no connection %s in the config", side.Connection)
	}
	if err := db.CheckReadOnly(ctx); err != nil {
		return nil, err
	}
	s := &openSide{Side: side, party: p, db: db.reader()}
	var err error
	var st bound
	st.text = s.windowed(&st, column{class: classInstant}, interval{})
	if s.shape, err = s.describe(ctx, job, st, "query"); err != nil {
		return nil, err
	}
	s.lookup, err = s.describe(ctx, job, s.looked(make([]kind, len(job.Key)), [][]string{make([]string, len(job.Key))}), "lookup")
	return s, err
}

func (s *openSide) describe(ctx context.Context, job *Job, st bound, what string) (shape, error) {
	columns, err := s.db.describe(ctx, st)
	if err != nil {
		return shape{}, fmt.Errorf("%s: %w", what, err)
	}
	sh, err := job.shape(s.party, columns)
	if err != nil {
		return shape{}, fmt.Errorf("%s: %w", what, err)
	}
	return sh, nil
}

// timeCasts give a time's parameter the type of the column it is compared with.
var timeCasts = map[class]string{classLocal: "::timestamp", classInstant: "::timestamptz"}

// windowed binds the side's query to a window; its parameters follow those that
// st has.
func (s *openSide) windowed(st *bound, timeColumn column, w interval) string {
	d := s.db.dialect()
	text, _ := bind(d, s.Query, windowParams, func(name string) string {
		at := w.from
		if name == "to" {
			at = w.to
		}
		st.args = append(st.args, s.db.instant(time.UnixMicro(at).UTC(), timeColumn, s.Zone))
		if d == mysql {
			return "?"
		}
		return "$" + strconv.Itoa(len(st.args)) + timeCasts[timeColumn.class]
	})
	return text
}

// instants are a window's edges as arguments.
func (s *openSide) instants(w interval) []any {
	return []any{
		s.db.instant(time.UnixMicro(w.from).UTC(), s.shape.time, s.Zone),
		s.db.instant(time.UnixMicro(w.to).UTC(), s.shape.time, s.Zone),
	}
}

// segment compares one window in one state of each database. It returns what it
// counted, and the keys that are worth a second look, up to most; more tells
// whether there were more.
func (c *comparison) segment(ctx context.Context, core interval, most int) (t *Tally, found []candidate, more bool, err error) {
	t = newTally()
	if c.rules.outbox {
		t.Upstream = Lines{}
	}
	var seen booked
	wide := c.wide(core)
	ctx, cancel := context.WithCancelCause(ctx)
	streams := map[Party]stream{}
	var reading errgroup.Group
	controls := map[Party]*Tally{}
	for party, side := range c.sides {
		controls[party] = newTally()
		pipe, done := side.read(ctx, c, core, wide, controls[party])
		streams[party] = pipe
		reading.Go(done)
	}
	err = merge(ctx, streams, core, func(key []byte, g *groups) error {
		if c.weigh(t, &seen, g, core) {
			return nil
		}
		if more = len(found) >= most; !more {
			found = append(found, candidateOf(key, g))
		}
		return nil
	})
	cancel(err)
	if failed := reading.Wait(); err == nil {
		err = failed
	}
	seen.into(t)
	for party, ctl := range controls {
		t.Control[party], t.Keyless[party] = ctl.Control[party], ctl.Keyless[party]
	}
	return t, found, more, err
}

// weigh books a key. False: it is worth a second look.
func (c *comparison) weigh(t *Tally, seen *booked, g *groups, core interval) bool {
	if !g.inside() {
		return true // it belongs to a neighbour
	}
	for p := range g {
		seen[p].book(&g[p])
	}
	if !c.rules.quick(g) {
		return false
	}
	if core.holds(g.anchor()) {
		t.Matched++
	}
	if !balanced(g, Consumed, Effect) {
		for currency, amount := range contribution(g) {
			t.line(LineEdge, currency, 1, amount)
		}
	}
	if c.rules.outbox && !balanced(g, Outbox, Consumed) {
		for currency, amount := range between(g, Outbox, Consumed) {
			t.Upstream.line(LineEdge, currency, 1, amount)
		}
	}
	return true
}

// booked adds up the rows of a segment by party and currency, without
// allocating.
type booked [3]currencyParts

type currencyParts struct {
	of       map[string]*part
	currency string // the last one, and its part: nearly always the next one, too
	part     *part
}

func (p *currencyParts) book(g *group) {
	p.add(g.currency, g.within)
	for currency, other := range g.others {
		p.add(currency, other.within)
	}
}

func (p *currencyParts) add(currency string, rows part) {
	if rows.rows == 0 {
		return
	}
	if p.part == nil || p.currency != currency {
		p.currency, p.part = currency, p.in(currency)
	}
	p.part.add(rows.rows, rows.sum)
}

func (p *currencyParts) in(currency string) *part {
	if p.of == nil {
		p.of = map[string]*part{}
	}
	have := p.of[currency]
	if have == nil {
		have = &part{}
		p.of[currency] = have
	}
	return have
}

func (b *booked) into(t *Tally) {
	for p, parts := range b {
		for currency, have := range parts.of {
			t.Totals[p][currency] = Total{have.rows, have.sum.value()}
		}
	}
}

var errIgnoresWindow = errors.New("the query gives rows outside of :from and :to: it has to filter by the column that match names as its time")

// read opens a state of the side's database, streams the wide window and sums up
// the core. done waits for the end.
func (s *openSide) read(ctx context.Context, c *comparison, core, wide interval, into *Tally) (stream, func() error) {
	finished := make(chan error, 1)
	pipe := newPump(ctx, func(ctx context.Context, emit func(record) error) error {
		err := s.db.snapshot(ctx, c.job.Limits, func(state snapshot) error {
			currency, several, err := s.walk(ctx, c, state, wide, emit)
			if err != nil {
				return err
			}
			return s.sumUp(ctx, state, core, currency, several, into)
		})
		if err != nil {
			err = fmt.Errorf("%s: %w", s.Pos, err)
		}
		finished <- err
		return err
	})
	return pipe, func() error { return <-finished }
}

// walk streams a window in the order of its keys. It gives the currency of the
// last row, and whether others are of other ones.
func (s *openSide) walk(ctx context.Context, c *comparison, state snapshot, wide interval, emit func(record) error) (currency string, several bool, err error) {
	var st bound
	st.text = s.db.dialect().ordered(s.windowed(&st, s.shape.time, wide), s.shape, c.kinds)
	rows := 0
	err = state.scan(ctx, st, s.shape, c.kinds, s.Zone, func(r record) error {
		if !wide.holds(r.at) {
			return errIgnoresWindow
		}
		if rows++; rows > 1 && r.currency != currency {
			several = true
		}
		currency = r.currency
		return emit(r)
	})
	return currency, several, err
}

// sumUp reads the control totals.
func (s *openSide) sumUp(ctx context.Context, state snapshot, core interval, currency string, several bool, into *Tally) error {
	d := s.db.dialect()
	if d == mysql && !several {
		if booked, err := s.sumUpOne(ctx, state, core, currency, into); booked || err != nil {
			return err
		}
	}
	var st bound
	st.text = d.totals(s.windowed(&st, s.shape.time, core), s.shape)
	return state.texts(ctx, st, func(v []*string) error { return into.control(s.party, v) })
}

// sumUpOne reads the control totals where all rows are of one currency. False: they
// are not, or some have no key.
func (s *openSide) sumUpOne(ctx context.Context, state snapshot, core interval, currency string, into *Tally) (booked bool, err error) {
	var st bound
	st.text = s.db.dialect().oneTotal(s.windowed(&st, s.shape.time, core), s.shape)
	none := "0"
	err = state.texts(ctx, st, func(v []*string) error {
		if booked = *v[2] == "1"; !booked {
			return nil
		}
		return into.control(s.party, []*string{&currency, v[0], v[1], &none, nil})
	})
	return booked, err
}
