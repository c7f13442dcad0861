package reconcile

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// previewRows is how many rows a preview shows.
const previewRows = 20

// Preview is what a definition would read, before it is trusted.
type Preview struct {
	Plan   string
	Reason string
	Sides  []SidePreview
}

// SidePreview is one side of it. Rows are as the database writes them; whoever
// shows them masks them.
type SidePreview struct {
	Party    Party
	Columns  []string
	Rows     [][]*string
	Explain  []string
	Warnings []Warning
}

// Warning is something that would be regretted later.
type Warning struct {
	Code   string // full_scan, ignores_window, no_zone, no_rows
	Column string // the time's column; empty: the warning is not about it
	Type   string // as that column is declared; only of no_zone
	Text   string // the same in English
}

// Preview asks the databases about a job and one window of it. An error says
// what is wrong with the definition, with its place in the file.
func (r *Runs) Preview(ctx context.Context, job *Job) (*Preview, error) {
	c, err := prepare(ctx, job, r.databases)
	if err != nil {
		return nil, err
	}
	p := &Preview{}
	if p.Plan, p.Reason, err = choosePlan(job, "", r.databases); err != nil {
		return nil, err
	}
	end := job.windowEnd(r.opts.Clock().Add(-job.Window.Grace))
	window := interval{job.windowStart(end).UnixMicro(), end.UnixMicro()}
	for _, party := range job.parties() {
		side, err := c.sides[party].preview(ctx, job.Limits, window)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", job.side(party).Pos, err)
		}
		p.Sides = append(p.Sides, side)
	}
	return p, nil
}

func (s *openSide) preview(ctx context.Context, l Limits, window interval) (SidePreview, error) {
	p := SidePreview{Party: s.party, Columns: s.shape.names()}
	err := s.db.snapshot(ctx, l, func(state snapshot) error {
		if err := s.explain(ctx, state, window, &p); err != nil {
			return err
		}
		if err := s.sample(ctx, state, window, &p); err != nil {
			return err
		}
		return s.probe(ctx, state, window, &p)
	})
	if s.shape.time.class == classLocal && s.Zone == time.UTC {
		name, declared := s.shape.time.name, s.shape.time.declared
		p.warn(Warning{Code: "no_zone", Column: name, Type: declared,
			Text: name + " is " + declared + ", which has no zone: it is taken as UTC; if the application writes local time, give the side a timezone"})
	}
	return p, err
}

func (p *SidePreview) warn(w Warning) { p.Warnings = append(p.Warnings, w) }

func (s shape) names() []string {
	var names []string
	for _, c := range append(slices.Clone(s.key), s.amount, s.currency, s.time) {
		if c.name != "" && !slices.Contains(names, c.name) {
			names = append(names, c.name)
		}
	}
	return names
}

// explain asks for the database's plan, and warns when it reads a whole table.
func (s *openSide) explain(ctx context.Context, state snapshot, window interval, p *SidePreview) error {
	var st bound
	st.text = "explain " + s.windowed(&st, s.shape.time, window)
	full := false
	err := state.texts(ctx, st, func(v []*string) error {
		cells := make([]string, len(v))
		for i, cell := range v {
			if cell != nil {
				cells[i] = *cell
			}
		}
		line := strings.Join(cells, "  ")
		full = full || strings.Contains(line, "Seq Scan") || s.db.dialect() == mysql && slices.Contains(cells, "ALL")
		p.Explain = append(p.Explain, line)
		return nil
	})
	if full {
		name := s.shape.time.name
		p.warn(Warning{Code: "full_scan", Column: name,
			Text: "the database reads a whole table for each window: an index on " + name + ", as the query compares it, avoids that"})
	}
	return err
}

// columns writes the columns that count, in the order of names.
func (s *openSide) columns() string {
	names := s.shape.names()
	for i, n := range names {
		names[i] = "side." + s.db.dialect().quote(n)
	}
	return strings.Join(names, ", ")
}

func (s *openSide) sample(ctx context.Context, state snapshot, window interval, p *SidePreview) error {
	var st bound
	st.text = fmt.Sprintf("select %s from (%s) side limit %d", s.columns(), s.windowed(&st, s.shape.time, window), previewRows)
	err := state.texts(ctx, st, func(v []*string) error {
		p.Rows = append(p.Rows, slices.Clone(v))
		return nil
	})
	if err == nil && len(p.Rows) == 0 {
		p.warn(Warning{Code: "no_rows", Text: "the last window has no rows"})
	}
	return err
}

// probe asks for a window without a length: a query that finds something in it
// does not filter by it.
func (s *openSide) probe(ctx context.Context, state snapshot, window interval, p *SidePreview) error {
	var st bound
	st.text = "select 1 from (" + s.windowed(&st, s.shape.time, interval{window.to, window.to}) + ") side limit 1"
	return state.texts(ctx, st, func([]*string) error {
		p.warn(Warning{Code: "ignores_window", Text: "the query gives rows for a window without a length: it does not filter by :from and :to"})
		return nil
	})
}
