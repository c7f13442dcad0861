package web

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"oncemore/dlq"
	"oncemore/internal/access"
	"oncemore/reconcile"
	"oncemore/views"
	"oncemore/views/locale"
	"oncemore/views/ui"
)

// runQuery is which breaks of a run its page lists, as its address says it.
type runQuery struct {
	run    int64
	what   string // open | new | closed
	kind   string // break type; "" all
	state  string
	owner  string
	age    string // one of breakAges; "" any
	sorted bool   // by amount
	before int64
	states []reconcile.BreakState
	actor  string
}

// whats are what a run said, by the word of the address.
var whats = map[string][]int{
	"open":      {reconcile.SaidNew, reconcile.SaidThere, reconcile.SaidBack},
	"new":       {reconcile.SaidNew, reconcile.SaidBack},
	"explained": {reconcile.SaidExplained},
	"closed":    {reconcile.SaidWhole},
}

func runQueryOf(q *query, run int64) (runQuery, error) {
	r := runQuery{run: run, what: q.take("what"), kind: q.take("type"), state: q.take("state"), owner: q.take("owner"), age: q.take("age"), sorted: byAmount(q), before: q.id("cursor", 64), actor: q.actor.User}
	if r.what == "" {
		r.what = "open"
	}
	if _, err := choice("what", r.what, whats); err != nil {
		q.keep(err)
	}
	if r.kind != "" {
		_, err := choice("type", r.kind, breakTypes)
		q.keep(err)
	}
	if r.state != "" {
		state, ok := reconcile.ParseBreakState(r.state)
		if !ok {
			q.fail("state", "is one of open, assigned, explained, compensating, verified, closed, reopened")
		}
		r.states = []reconcile.BreakState{state}
	}
	if r.age != "" && !slices.Contains(breakAges, r.age) {
		q.fail("age", "is one of "+strings.Join(breakAges, ", "))
	}
	return r, q.done()
}

func (r runQuery) with(what, kind string) runQuery {
	r.what, r.kind = what, kind
	return r
}

// address is a place in the same list.
func (r runQuery) address(cursor string) string {
	what := r.what
	if what == "open" {
		what = ""
	}
	return address(runHref(r.run), "what", what, "type", r.kind, "state", r.state, "owner", r.owner, "age", r.age, "sort", sortWord(r.sorted), "cursor", cursor)
}

// sortWord is an order as an address says it.
func sortWord(byAmount bool) string {
	if byAmount {
		return "-amount"
	}
	return ""
}

func (r runQuery) filter(run *reconcile.Run) reconcile.RunBreakFilter {
	f := reconcile.RunBreakFilter{What: whats[r.what], Type: reconcile.Type(r.kind), States: r.states, Owner: r.owner, ByAmount: r.sorted, Before: r.before, Limit: breakPageSize}
	if r.owner == "me" {
		f.Owner = r.actor
	}
	if r.age != "" {
		f.Opened = opened(r.age, *run.FinishedAt)
	}
	return f
}

// breakPageSize is how many breaks a page shows.
const breakPageSize = 50

// fillRun adds what only a finished run has.
func (s *Server) fillRun(c echo.Context, v *views.Run, f runFacts, q runQuery) error {
	here := localeOf(c)
	found, more, err := s.Reconcile.Breaks.OfRun(c.Request().Context(), f.run.ID, q.filter(f.run))
	if err != nil {
		return err
	}
	if f.run.Tally != nil && f.run.State != reconcile.Failed && f.run.Kind != reconcile.OfKeys {
		v.Tiles, v.Proof, v.Roll, v.Hops = runTiles(here, f), proofView(here, f), rollView(here, f), hopViews(here, f)
		v.Aging = agingView(here, f, q)
	}
	if f.run.State == reconcile.Failed && len(f.figures) == 0 {
		return nil
	}
	v.Faults = s.faultsOfRun(here, f)
	v.Tabs = runTabs(here, q, f.figures)
	if v.Breaks, err = s.breakTable(c, parties(f.job)); err != nil {
		return err
	}
	v.Breaks.Caption = here.Text("run.breaks")
	other := q
	other.sorted = !q.sorted
	v.Breaks.Sort, v.Breaks.Sorted = other.address("")+"#breaks", q.sorted
	letters := lettersByEvent(f.letters)
	for _, b := range found {
		row := breakRow(here, b.Break, f.job, letters)
		row.Said = saidNames[b.What]
		v.Breaks.Rows = append(v.Breaks.Rows, row)
	}
	v.Breaks.Shown = here.Text("run.shown", "n", len(found))
	if len(found) > 1 && q.state == "" && q.owner == "" && q.age == "" {
		v.Breaks.Actions.ProposeAll = address("/compensations/new", "job", f.run.Job, "run", numberText(q.run), "type", q.kind, "state", "outstanding")
	}
	v.Breaks.Empty = runEmpty(here, q)
	next := nextNumber(found, more, func(b reconcile.RunBreak) int64 { return b.ID })
	v.Pager = firstPager(here, q.address("")+"#breaks", cursorText(q.before), next, func(cursor string) string { return q.address(cursor) + "#breaks" })
	return nil
}

func runEmpty(here locale.Locale, q runQuery) views.Empty {
	if q.kind != "" || q.state != "" || q.owner != "" || q.age != "" || q.before != 0 {
		return views.Empty{Text: here.Text("run.none_match"), Href: runHref(q.run) + "#breaks", Link: here.Text("filter.clear")}
	}
	return views.Empty{Text: here.Text("run.none_" + q.what)}
}

// breakTable is a table of breaks without its rows: columns, and what this
// person may do with them.
func (s *Server) breakTable(c echo.Context, of []reconcile.Party) (views.BreakTable, error) {
	here := localeOf(c)
	t := views.BreakTable{From: backTo(c.Request().URL.RequestURI())}
	for _, p := range of {
		t.Parties = append(t.Parties, sideWord(here, p))
	}
	var err error
	t.Actions, err = s.breakActions(c)
	return t, err
}

func (s *Server) breakActions(c echo.Context) (views.BreakActions, error) {
	here, actor := localeOf(c), actorOf(c)
	a := views.BreakActions{Assign: actor.May(access.RunJob), Explain: actor.May(access.ExplainBreak), Propose: actor.May(access.ProposeCompensation),
		WhoMay: here.Text("may.breaks", "roles", rolesOf(here, access.RunJob))}
	if !a.Assign {
		return a, nil
	}
	owners, err := s.ownerOptions(c)
	if err != nil {
		return a, err
	}
	a.Owners = owners
	for _, code := range reconcile.ReasonCodes {
		a.Codes = append(a.Codes, ui.Option{Value: code, Label: here.Text("reason_code." + code)})
	}
	return a, nil
}

// ownerOptions are the accounts, oneself first.
func (s *Server) ownerOptions(c echo.Context) ([]ui.Option, error) {
	names, err := s.accounts.Names(c.Request().Context())
	if err != nil {
		return nil, err
	}
	user := actorOf(c).User
	if i := slices.Index(names, user); i > 0 {
		names = slices.Insert(slices.Delete(names, i, i+1), 0, user)
	}
	var all []ui.Option
	for _, n := range names {
		all = append(all, ui.Option{Value: n, Label: n})
	}
	return all, nil
}

// lettersByEvent keeps the newest letter of each event.
func lettersByEvent(all []dlq.EventLetter) map[string]dlq.EventLetter {
	by := map[string]dlq.EventLetter{}
	for _, l := range all {
		if _, ok := by[l.EventID]; !ok {
			by[l.EventID] = l
		}
	}
	return by
}

func breakHref(id int64) string { return "/breaks/" + strconv.FormatInt(id, 10) }

func breakRow(here locale.Locale, b reconcile.Break, job *reconcile.Job, letters map[string]dlq.EventLetter) views.BreakRow {
	row := views.BreakRow{
		ID: b.ID, Href: breakHref(b.ID), Key: b.Key, Job: b.Job, Type: string(b.Type), Difference: amountText(b.Amount, b.Currency), Currency: b.Currency,
		Age: ageText(here, here.Now.Sub(b.OpenedAt)), OpenedAt: here.Exact(b.OpenedAt), Owner: deref(b.Owner), State: b.State.String(), Pick: !b.State.Done(),
	}
	for _, p := range parties(job) {
		row.Sides = append(row.Sides, breakCell(here, b.Sides[p], b.Currency, job.Match.Amount != ""))
	}
	switch {
	case b.State == reconcile.Explained && b.ReasonCode != nil:
		row.Detail = here.Text("reason_code."+*b.ReasonCode) + here.Text("list.comma") + deref(b.Explanation)
	case b.State.Done() && b.ClosedRun != nil:
		row.Detail = here.Text("break.closed_by", "id", strconv.FormatInt(*b.ClosedRun, 10))
	}
	if l, ok := letters[deref(b.EventID)]; ok && b.EventID != nil {
		row.LetterHref, row.Verdict = "/letters/"+l.ID.String(), l.Verdict.String()
		if l.State != dlq.Open {
			row.Verdict = ""
			row.LetterHref = ""
		}
	}
	return row
}

// breakCell is what a side has for a key: none is not NULL, and NULL is not 0.
func breakCell(here locale.Locale, s reconcile.FindingSide, currency string, amounts bool) views.BreakCell {
	rows := here.Text("break.rows", "n", s.Rows)
	switch {
	case s.Rows == 0:
		return views.BreakCell{Amount: here.Text("break.none"), None: true}
	case !amounts:
		return views.BreakCell{Amount: rows}
	}
	cell := views.BreakCell{Amount: amountText(s.Amount, s.Currency)}
	if s.Currency != currency {
		cell.Amount = money(s.Amount, s.Currency)
	}
	if s.Nulls == s.Rows {
		cell.Amount = "NULL"
	}
	if s.Rows > 1 {
		cell.Rows = rows
	}
	if s.Nulls > 0 && s.Nulls < s.Rows {
		cell.Rows = here.Text("break.rows_null", "n", s.Rows, "nulls", strconv.Itoa(s.Nulls))
	}
	return cell
}

// jobBook remembers definitions while a page is made.
type jobBook struct {
	s    *Server
	jobs map[string]*reconcile.Job
}

func (s *Server) jobBook() *jobBook { return &jobBook{s, map[string]*reconcile.Job{}} }

func (b *jobBook) get(ctx context.Context, name string) (*reconcile.Job, error) {
	if job, ok := b.jobs[name]; ok {
		return job, nil
	}
	job, _, err := b.s.jobAt(ctx, name, 0)
	if err != nil {
		return nil, fmt.Errorf("read job of breaks: %w", err)
	}
	b.jobs[name] = job
	return job, nil
}
