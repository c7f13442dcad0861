package reconcile

import (
	"context"
	"fmt"
	"slices"
)

// MostRows is how many rows of a key Rows gives per side.
const MostRows = 20

// SideRows are the rows that one side has for a key at this moment, as its
// look-up gives them. Rows are as the database writes them; whoever shows them
// masks them.
type SideRows struct {
	Party    Party
	Columns  []string
	Compared []bool      // of each column: the comparison looks at it
	Rows     [][]*string // nil: NULL
	More     bool        // there are more than MostRows
	Err      error       // this side could not be read
}

// Rows reads a break's key on all sides; nothing is booked. The error is of
// what all sides need: the job, its connections, the shape of its statements.
func (r *Runs) Rows(ctx context.Context, b Break) ([]SideRows, error) {
	def, err := r.jobs.Current(ctx, b.Job)
	if err != nil {
		return nil, err
	}
	job, err := def.Parse()
	if err != nil {
		return nil, err
	}
	c, err := prepare(ctx, job, r.databases)
	if err != nil {
		return nil, err
	}
	var all []SideRows
	for _, p := range job.parties() {
		all = append(all, c.sides[p].rowsOf(ctx, c, b.Key))
	}
	return all, nil
}

func (s *openSide) rowsOf(ctx context.Context, c *comparison, key []string) SideRows {
	out := SideRows{Party: s.party}
	st := s.looked(c.kinds, [][]string{key})
	columns, err := s.db.describe(ctx, st)
	if err != nil {
		out.Err = fmt.Errorf("%s: lookup: %w", s.Pos, err)
		return out
	}
	counts := s.lookup.names()
	for _, col := range columns {
		out.Columns = append(out.Columns, col.name)
		out.Compared = append(out.Compared, slices.Contains(counts, col.name))
	}
	st.text = fmt.Sprintf("select * from (%s) side limit %d", st.text, MostRows+1)
	out.Err = s.db.snapshot(ctx, c.job.Limits, func(state snapshot) error {
		return state.texts(ctx, st, func(v []*string) error {
			if out.holds(c, key, v) {
				out.Rows = append(out.Rows, slices.Clone(v))
			}
			return nil
		})
	})
	if out.More = len(out.Rows) > MostRows; out.More {
		out.Rows = out.Rows[:MostRows]
	}
	return out
}

// holds reports whether a row is of the key: a database may find more than was
// asked for, such as EVT-1 for evt-1.
func (r *SideRows) holds(c *comparison, key []string, row []*string) bool {
	for i, name := range c.job.Key {
		at := slices.Index(r.Columns, name)
		if c.kinds[i] == kindText && at >= 0 && (row[at] == nil || *row[at] != key[i]) {
			return false
		}
	}
	return true
}
