package web

import (
	"slices"
	"strconv"

	"github.com/labstack/echo/v4"

	"oncemore/dlq"
	"oncemore/reconcile"
	"oncemore/views"
	"oncemore/views/locale"
	"oncemore/views/ui"
)

func (s *Server) breakListPage(c echo.Context) error { return s.showBreakList(c, refused{}) }

// breakQuery is a list's address beside its filter.
type breakQuery struct {
	filter reconcile.BreakFilter
	pairs  []string // the filter as an address carries it, without state and cursor
	state  string
}

func breakQueryOf(c echo.Context) (breakQuery, error) {
	values := c.Request().URL.Query()
	b := breakQuery{state: values.Get("state")}
	for _, name := range []string{"job", "run", "type", "currency", "owner", "event_id", "key", "older_than", "amount_min", "sort"} {
		b.pairs = append(b.pairs, name, values.Get(name))
	}
	var err error
	b.filter, err = breakFilter(parseQuery(c))
	return b, err
}

func (b breakQuery) address(state, cursor string) string {
	return address("/breaks", append(append([]string{}, b.pairs...), "state", state, "cursor", cursor)...)
}

func (b breakQuery) value(name string) string {
	for i := 0; i < len(b.pairs); i += 2 {
		if b.pairs[i] == name {
			return b.pairs[i+1]
		}
	}
	return ""
}

func (b breakQuery) narrowed() bool {
	for i := 1; i < len(b.pairs); i += 2 {
		if b.pairs[i] != "" && b.pairs[i-1] != "sort" {
			return true
		}
	}
	return false
}

func (s *Server) showBreakList(c echo.Context, was refused) error {
	q, err := breakQueryOf(c)
	if err != nil {
		return err
	}
	here := localeOf(c)
	found, more, err := s.Reconcile.Breaks.List(c.Request().Context(), q.filter, s.Clock())
	if err != nil {
		return err
	}
	v := views.BreakList{
		Frame: s.pageFrame(c, "reconciliations", here.Text("breaks.title"), financeCrumbs(here, here.Text("breaks.title"), "")...),
		Tabs:  breakTabs(here, q), Exports: exportLinks(here, "/breaks/export", append(append([]string{}, q.pairs...), "state", q.state)), Error: was.Text,
	}
	if v.Filter, err = s.breakFilterBar(c, q); err != nil {
		return err
	}
	if v.Table, err = s.breakRows(c, found); err != nil {
		return err
	}
	if q.tab() == "outstanding" && len(found) > 1 {
		v.Table.Actions.ProposeAll = address("/compensations/new", append(append([]string{}, q.pairs...), "state", "outstanding")...)
	}
	v.Table.Sort, v.Table.Sorted = q.resorted().address(q.state, ""), q.filter.ByAmount
	v.Table.Empty = views.Empty{Text: here.Text("breaks.none_" + q.tab())}
	if q.narrowed() {
		v.Table.Empty = views.Empty{Text: here.Text("run.none_match"), Href: address("/breaks", "state", q.state), Link: here.Text("filter.clear")}
	}
	v.Pager = firstPager(here, q.address(q.state, ""), cursorText(q.filter.Before), nextNumber(found, more, func(b reconcile.Break) int64 { return b.ID }),
		func(cursor string) string { return q.address(q.state, cursor) })
	return render(c, was.status(), views.BreakListPage(v))
}

// resorted is the same list in the other order.
func (b breakQuery) resorted() breakQuery {
	b.pairs = append(slices.Clone(b.pairs[:len(b.pairs)-2]), "sort", sortWord(!b.filter.ByAmount))
	return b
}

// tab is the state whose absence has words of its own.
func (b breakQuery) tab() string {
	switch b.state {
	case "", "outstanding":
		return "outstanding"
	case "explained":
		return "explained"
	}
	return "other"
}

// breakTabStates are the states over the list, in order.
var breakTabStates = []string{"", "open", "assigned", "reopened", "compensating", "explained", "verified", "closed", "all"}

func breakTabs(here locale.Locale, q breakQuery) []ui.Tab {
	var tabs []ui.Tab
	for _, state := range breakTabStates {
		label := here.Text("breaks.tab_outstanding")
		switch state {
		case "":
		case "all":
			label = here.Text("breaks.tab_all")
		default:
			label = here.Text("state.break." + state)
		}
		tabs = append(tabs, ui.Tab{Label: label, Href: q.address(state, ""), Current: q.state == state || state == "" && q.state == "outstanding"})
	}
	return tabs
}

func (s *Server) breakFilterBar(c echo.Context, q breakQuery) (views.FilterBar, error) {
	here := localeOf(c)
	jobs := ui.Choice{Name: "job", Label: here.Text("breaks.job"), Value: q.value("job")}
	all, err := s.Reconcile.Jobs.List(c.Request().Context(), s.Reconcile.Runs)
	if err != nil {
		return views.FilterBar{}, err
	}
	for _, j := range all {
		jobs.Options = append(jobs.Options, ui.Option{Value: j.Name, Label: j.Name})
	}
	jobs.Options = withChosen(jobs.Options, jobs.Value)
	types := ui.Choice{Name: "type", Label: here.Text("break.type_head"), Value: q.value("type")}
	for _, kind := range ui.BreakTypes {
		types.Options = append(types.Options, ui.Option{Value: kind, Label: here.Text("break.type." + kind)})
	}
	owners, err := s.ownerOptions(c)
	if err != nil {
		return views.FilterBar{}, err
	}
	owner := ui.Choice{Name: "owner", Label: here.Text("break.owner"), Value: q.value("owner"), Options: withChosen(owners, q.value("owner"))}
	older := ui.Choice{Name: "older_than", Label: here.Text("break.age"), Value: q.value("older_than")}
	for _, age := range []string{"24h", "7d", "30d"} {
		older.Options = append(older.Options, ui.Option{Value: age, Label: here.Text("filter.older_" + age)})
	}
	older.Options = withChosen(older.Options, older.Value)
	bar := views.FilterBar{
		Action: "/breaks", Hidden: params("state", q.state, "run", q.value("run"), "event_id", q.value("event_id"), "sort", q.value("sort")),
		Search:  &views.Search{Name: "key", Value: q.value("key"), Label: here.Text("breaks.key")},
		Fields:  []views.Search{{Name: "amount_min", Value: q.value("amount_min"), Label: here.Text("breaks.amount_min")}, {Name: "currency", Value: q.value("currency"), Label: here.Text("run.currency")}},
		Choices: []ui.Choice{jobs, types, owner, older},
	}
	if q.narrowed() {
		bar.Clear = address("/breaks", "state", q.state)
	}
	return bar, nil
}

// breakRows is the list as a table: with the outbox where some job has one.
func (s *Server) breakRows(c echo.Context, found []reconcile.Break) (views.BreakTable, error) {
	ctx, here, book := c.Request().Context(), localeOf(c), s.jobBook()
	letters, err := s.lettersOf(c, found)
	if err != nil {
		return views.BreakTable{}, err
	}
	of := []reconcile.Party{reconcile.Consumed, reconcile.Effect}
	for _, b := range found {
		job, err := book.get(ctx, b.Job)
		if err != nil {
			return views.BreakTable{}, err
		}
		if job.Outbox != nil {
			of = parties(job)
		}
	}
	t, err := s.breakTable(c, of)
	if err != nil {
		return t, err
	}
	t.Jobs, t.Caption, t.Shown = true, here.Text("breaks.title"), here.Text("run.shown", "n", len(found))
	for _, b := range found {
		job, err := book.get(ctx, b.Job)
		if err != nil {
			return t, err
		}
		zoned := here
		zoned.Zone = job.Zone
		row := breakRow(zoned, b, job, letters)
		if len(row.Sides) < len(of) { // its job has no such side
			row.Sides = append([]views.BreakCell{{Amount: "–", None: true}}, row.Sides...)
		}
		t.Rows = append(t.Rows, row)
	}
	return t, nil
}

// lettersOf finds the letters of the events of breaks.
func (s *Server) lettersOf(c echo.Context, found []reconcile.Break) (map[string]dlq.EventLetter, error) {
	var events []string
	for _, b := range found {
		if b.EventID != nil {
			events = append(events, *b.EventID)
		}
	}
	if len(events) == 0 {
		return nil, nil
	}
	letters, err := s.Letters.OfEvents(c.Request().Context(), events)
	return lettersByEvent(letters), err
}

// exportBreaks sends a list's breaks as a file, for pages and API alike.
func (s *Server) exportBreaks(c echo.Context) error {
	q := parseQuery(c)
	format := q.take("format")
	f, err := breakFilter(q)
	if err != nil {
		return err
	}
	return s.sendBreaks(c, "breaks", format, "breaks", func(before int64) ([]reconcile.Break, bool, error) {
		f.Before, f.Limit = before, exportPage
		return s.Reconcile.Breaks.List(c.Request().Context(), f, s.Clock())
	})
}

// exportRun sends what a run said of breaks, as it said it.
func (s *Server) exportRun(c echo.Context) error {
	q := parseQuery(c)
	format := q.take("format")
	if err := q.done(); err != nil {
		return err
	}
	id, err := numberID(c, 64)
	if err != nil {
		return reconcile.ErrNoRun
	}
	if _, err := s.Reconcile.Runs.Get(c.Request().Context(), id); err != nil {
		return err
	}
	name := strconv.FormatInt(id, 10)
	return s.sendBreaks(c, "run-"+name, format, "run/"+name, func(before int64) ([]reconcile.Break, bool, error) {
		found, more, err := s.Reconcile.Breaks.OfRun(c.Request().Context(), id, reconcile.RunBreakFilter{Before: before, Limit: exportPage})
		breaks := make([]reconcile.Break, len(found))
		for i, b := range found {
			breaks[i] = b.Break
		}
		return breaks, more, err
	})
}
