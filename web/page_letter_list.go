package web

import (
	"fmt"
	"net/url"
	"time"

	"github.com/labstack/echo/v4"

	"oncemore/dlq"
	"oncemore/internal/access"
	"oncemore/views"
	"oncemore/views/locale"
	"oncemore/views/ui"
)

// letterQuery is a list's filter as its address says it.
type letterQuery struct {
	filter dlq.LetterFilter
	page   dlq.Page
	within string // of the age filters: since_1h, …; resolved into filter
}

// ages are the choices of the filter by arrival.
var ages = map[string]time.Duration{"1h": time.Hour, "24h": 24 * time.Hour, "7d": 7 * 24 * time.Hour}

func letterQueryOf(c echo.Context, now time.Time) (letterQuery, error) {
	q := parseQuery(c)
	l := letterQuery{filter: letterFilter(q), within: q.take("within")}
	l.page = q.page()
	if l.within != "" {
		age, err := choice("within", l.within, ages)
		q.keep(err)
		l.filter.Since = now.Add(-age)
	}
	return l, q.done()
}

// pairs are the filter as an address carries it.
func (q letterQuery) pairs() []string {
	f := q.filter
	fault := ""
	if f.FaultID > 0 {
		fault = fmt.Sprint(f.FaultID)
	}
	all := []string{"state", letterStateNames[f.State], "cluster", f.Cluster, "source", f.Source, "dialect", f.Dialect, "event_id", f.EventID,
		"consumer_group", f.Group, "fault_id", fault, "error_class", f.ErrorClass, "origin_topic", f.OriginTopic}
	if q.within != "" {
		return append(all, "within", q.within, "until", rfc(f.Until))
	}
	return append(all, "since", rfc(f.Since), "until", rfc(f.Until))
}

func rfc(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

func (q letterQuery) address(cursor string) string {
	return address("/letters", append(q.pairs(), "cursor", cursor)...)
}

// inState is the same list in another state.
func (q letterQuery) inState(state dlq.State) string {
	q.filter.State = state
	return q.address("")
}

func (q letterQuery) narrowed() bool {
	f := q.filter
	f.State = 0
	return f != (dlq.LetterFilter{})
}

func (s *Server) letterListPage(c echo.Context) error { return s.showLetterList(c, refused{}) }

func (s *Server) showLetterList(c echo.Context, was refused) error {
	here := localeOf(c)
	q, err := letterQueryOf(c, here.Now)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	page, err := s.Letters.List(ctx, q.filter, q.page)
	if err != nil {
		return fmt.Errorf("list letters: %w", err)
	}
	total, bounded, err := s.Letters.Count(ctx, q.filter)
	if err != nil {
		return fmt.Errorf("count letters: %w", err)
	}
	known, err := s.knownNames(ctx)
	if err != nil {
		return err
	}
	v := views.LetterList{
		Frame: s.pageFrame(c, "letters", here.Text("letters.title"), crumbs(here, "letters", "")...),
		Tabs:  letterTabs(here, q), Filter: letterFilterBar(here, q, known), Total: int(total), Bounded: bounded,
		States: q.filter.State == 0, Open: q.filter.State == dlq.Open || q.filter.State == 0, Replay: s.replayForm(c, here.Text("letters.reason"), was),
	}
	v.Replay.Target = "group"
	if q.filter.State == dlq.Open {
		v.Query = address("", q.pairs()...)
	}
	if v.Empty, err = s.noLetters(c, q); err != nil {
		return err
	}
	v.Pager = ui.Pages{BackLabel: here.Text("pager.newer"), NextLabel: here.Text("pager.older")}
	if page.Prev != "" {
		v.Pager.Back = q.address(page.Prev)
	}
	if page.Next != "" {
		v.Pager.Next = q.address(page.Next)
	}
	for _, l := range page.Items {
		v.Rows = append(v.Rows, letterRow(actorOf(c), l, address("", q.pairs()...)))
	}
	return render(c, was.status(), views.LetterListPage(v))
}

func letterTabs(here locale.Locale, q letterQuery) []ui.Tab {
	var tabs []ui.Tab
	for _, state := range []dlq.State{dlq.Open, dlq.Replaying, dlq.Resolved, dlq.Discarded} {
		tabs = append(tabs, ui.Tab{Label: here.Text("state.letter." + letterStateNames[state]), Href: q.inState(state), Current: q.filter.State == state})
	}
	return append(tabs, ui.Tab{Label: here.Text("letters.tab_all"), Href: q.inState(0), Current: q.filter.State == 0})
}

func letterFilterBar(here locale.Locale, q letterQuery, known names) views.FilterBar {
	f := q.filter
	fault := ""
	if f.FaultID > 0 {
		fault = fmt.Sprint(f.FaultID)
	}
	bar := views.FilterBar{Action: "/letters",
		Hidden: params("state", letterStateNames[f.State], "cluster", f.Cluster, "dialect", f.Dialect, "origin_topic", f.OriginTopic, "fault_id", fault, "until", rfc(f.Until)),
		Search: &views.Search{Name: "event_id", Value: f.EventID, Label: here.Text("filter.event_id")},
	}
	bar.Choices = append(nameChoices(here, known, f.Source, f.Group, f.ErrorClass), ui.Choice{
		Name: "within", Label: here.Text("filter.since"), Value: q.within, Options: []ui.Option{
			{Value: "1h", Label: here.Text("filter.since_1h")}, {Value: "24h", Label: here.Text("filter.since_24h")}, {Value: "7d", Label: here.Text("filter.since_7d")},
		}})
	if q.narrowed() {
		bar.Clear = address("/letters", "state", letterStateNames[f.State])
	}
	return bar
}

// noLetters is the sentence in an empty list's place.
func (s *Server) noLetters(c echo.Context, q letterQuery) (views.Empty, error) {
	here := localeOf(c)
	if !q.narrowed() {
		return views.Empty{Text: here.Text("letters.none"), Href: "/sources", Link: here.Text("sources.title")}, nil
	}
	clear := address("/letters", "state", letterStateNames[q.filter.State])
	if q.filter.EventID != "" {
		return views.Empty{Text: here.Text("search.none", "query", q.filter.EventID), Href: clear, Link: here.Text("filter.clear")}, nil
	}
	open, bounded, err := s.Letters.Count(c.Request().Context(), dlq.LetterFilter{State: dlq.Open})
	if err != nil {
		return views.Empty{}, fmt.Errorf("count open letters: %w", err)
	}
	return views.Empty{Text: here.Text("letters.none_match_open", "count", countWords(here, open, bounded)),
		Href: clear, Link: here.Text("filter.clear")}, nil
}

// letterRow is one letter of a list; list is the list's query, for its neighbours.
func letterRow(reader access.Actor, l dlq.Letter, list string) views.LetterRow {
	row := views.LetterRow{
		ID: l.ID.String(), EventID: deref(l.EventID), State: letterStateNames[l.State], Group: deref(l.Group),
		Place: place(l.Broker, l.Source), Dialect: l.Dialect, Class: deref(l.ErrorClass), Message: deref(messageFor(reader, l.ErrorMessage)),
		Verdict: l.Verdict.String(), Attempts: small(l.Attempts), Occurrences: int(l.Occurrences), Arrived: l.DrainedAt, FailedAt: l.FailedAt,
	}
	row.Href = address("/letters/"+row.ID, "list", queryOf(list))
	return row
}

// queryOf is an address' query without the question mark.
func queryOf(href string) string {
	u, err := url.Parse(href)
	if err != nil {
		return ""
	}
	return u.RawQuery
}
