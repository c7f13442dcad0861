package web

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
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

	columns []string // shown beside the event; nil: the usual ones
}

// ages are the choices of the filter by arrival.
var ages = map[string]time.Duration{"1h": time.Hour, "24h": 24 * time.Hour, "7d": 7 * 24 * time.Hour}

func letterQueryOf(c echo.Context) (letterQuery, error) {
	q := parseQuery(c)
	l := letterQuery{within: q.takeWithin()}
	l.filter, l.page, l.columns = letterFilter(q), q.page(), q.columns()
	return l, q.done()
}

// takeWithin turns the parameter within into since. It comes before the filters:
// a text is looked for within it.
func (q *query) takeWithin() string {
	within := q.take("within")
	if within != "" {
		age, err := choice("within", within, ages)
		q.keep(err)
		q.values.Set("since", rfc(q.now.Add(-age).Truncate(time.Second)))
	}
	return within
}

// pairs are the filter as an address carries it.
func (q letterQuery) pairs() []string {
	if q.within != "" {
		q.filter.Since = time.Time{}
	}
	return append(letterPairs(q.filter), "within", q.within, "columns", strings.Join(q.columns, ","))
}

func rfc(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// address is another place in the same list. A cursor belongs to the moment that
// within meant when the list began.
func (q letterQuery) address(cursor string) string {
	if cursor != "" {
		return address("/letters", append(letterPairs(q.filter), "columns", strings.Join(q.columns, ","), "cursor", cursor)...)
	}
	return address("/letters", q.pairs()...)
}

// inState is the same list in another state.
func (q letterQuery) inState(state dlq.State) string {
	q.filter.State = state
	return q.address("")
}

func (q letterQuery) narrowed() bool {
	f := q.filter
	f.State, f.Sort = 0, ""
	return f != (dlq.LetterFilter{})
}

func (s *Server) letterListPage(c echo.Context) error { return s.showLetterList(c, refused{}) }

func (s *Server) showLetterList(c echo.Context, was refused) error {
	here := localeOf(c)
	q, err := letterQueryOf(c)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	page, err := s.Letters.List(ctx, q.filter, q.page)
	if err != nil {
		return fmt.Errorf("list letters: %w", err)
	}
	total, bounded, err := s.letterTotal(c, q, page)
	if err != nil {
		return err
	}
	known, err := s.knownNames(ctx)
	if err != nil {
		return err
	}
	v := views.LetterList{
		Frame: s.pageFrame(c, "letters", here.Text("letters.title"), crumbs(here, "letters", "")...),
		Tabs:  letterTabs(here, q), Total: int(total), Bounded: bounded,
		States: q.filter.State == 0, Open: q.filter.State == dlq.Open || q.filter.State == 0, Discarded: q.filter.State == dlq.Discarded,
		Replay: s.replayForm(c, here.Text("letters.reason"), was), Changes: changesURL(c, "/letters"),
		Exports: exportLinks(here, "/letters/export", q.pairs()),
	}
	v.Columns = columnMenu(here, q)
	v.Replay.Target = "group"
	if q.filter.State == dlq.Open || q.filter.State == dlq.Discarded {
		v.Query = address("", letterPairs(q.filter)...) // as of this moment
	}
	if v.Triage, err = s.triageForm(c); err != nil {
		return err
	}
	v.Filter = letterFilterBar(here, q, known, v.Triage.Owners, actorOf(c))
	if v.Notices, err = s.searchNotices(c, q, page); err != nil {
		return err
	}
	if v.Saved, err = s.savedBar(c, "letters", queryOf(q.address("")), q.narrowed()); err != nil {
		return err
	}
	if len(page.Items) == 0 {
		if v.Empty, err = s.noLetters(c, q); err != nil {
			return err
		}
	}
	v.Pager = letterPager(here, q, page)
	for _, l := range page.Items {
		v.Rows = append(v.Rows, s.letterRow(actorOf(c), l, address("", q.pairs()...)))
	}
	return render(c, was.status(), views.LetterListPage(v))
}

// letterTotal counts what matches. What is compared letter by letter is counted
// as far as this page went: counting further would cost a search of its own.
func (s *Server) letterTotal(c echo.Context, q letterQuery, page dlq.LetterPage) (int64, bool, error) {
	if q.filter.Compared() {
		return int64(len(page.Items)), page.Next != "" || page.Prev != "", nil
	}
	total, bounded, err := s.Letters.Count(c.Request().Context(), q.filter)
	if err != nil {
		return 0, false, fmt.Errorf("count letters: %w", err)
	}
	return total, bounded, nil
}

func letterPager(here locale.Locale, q letterQuery, page dlq.LetterPage) ui.Pages {
	p := ui.Pages{BackLabel: here.Text("pager.newer"), NextLabel: here.Text("pager.older")}
	if q.filter.Sort == dlq.SortOldest {
		p.BackLabel, p.NextLabel = here.Text("pager.older"), here.Text("pager.newer")
	}
	if page.Prev != "" {
		p.Back = q.address(page.Prev)
	}
	if page.Next != "" {
		p.Next = q.address(page.Next)
	}
	return p
}

func letterTabs(here locale.Locale, q letterQuery) []ui.Tab {
	var tabs []ui.Tab
	for _, state := range []dlq.State{dlq.Open, dlq.Replaying, dlq.Resolved, dlq.Discarded} {
		tabs = append(tabs, ui.Tab{Label: here.Text("state.letter." + letterStateNames[state]), Href: q.inState(state), Current: q.filter.State == state})
	}
	return append(tabs, ui.Tab{Label: here.Text("letters.tab_all"), Href: q.inState(0), Current: q.filter.State == 0})
}

func letterFilterBar(here locale.Locale, q letterQuery, known names, owners []ui.Option, reader access.Actor) views.FilterBar {
	f := q.filter
	bar := views.FilterBar{Action: "/letters",
		Hidden: params("state", letterStateNames[f.State], "cluster", f.Cluster, "dialect", f.Dialect, "origin_topic", f.OriginTopic,
			"fault_id", plainID(f.FaultID), "attempts_max", plainID(f.AttemptsMax), "until", rfc(f.Until),
			"columns", strings.Join(q.columns, ",")),
		Search: &views.Search{Name: "q", Value: f.Search, Label: here.Text("filter.q")},
	}
	var textCase []ui.Choice
	if f.EventID != "" {
		bar.Fields = append(bar.Fields, views.Search{Name: "event_id", Value: f.EventID, Label: here.Text("filter.event_id")})
	}
	if q.within == "" && !f.Since.IsZero() {
		bar.Hidden = append(bar.Hidden, params("since", rfc(f.Since))...)
	}
	if reader.May(access.ReadPayload) {
		bar.Fields = append(bar.Fields, views.Search{Name: "text", Value: f.Text, Label: here.Text("filter.text")})
		if f.Text != "" {
			textCase = append(textCase, ui.Choice{Name: "text_case", Label: here.Text("filter.case_exact"), Value: caseName(f), Options: []ui.Option{{Value: "any", Label: here.Text("filter.case_any")}}})
		}
	}
	bar.Choices = append(textCase, append(nameChoices(here, known, f.Source, f.Group, f.ErrorClass),
		verdictChoice(here, f.Verdict),
		ui.Choice{Name: "within", Label: here.Text("filter.since"), Value: q.within, Options: []ui.Option{
			{Value: "1h", Label: here.Text("filter.since_1h")}, {Value: "24h", Label: here.Text("filter.since_24h")}, {Value: "7d", Label: here.Text("filter.since_7d")},
		}},
		ui.Choice{Name: "attempts_min", Label: here.Text("filter.attempts"), Value: plainID(f.AttemptsMin), Options: withChosen(attemptOptions(here), plainID(f.AttemptsMin))},
		ownerChoice(here, f.Owner, owners),
		ui.Choice{Name: "sort", Label: here.Text("filter.sort_newest"), Value: f.Sort, Options: []ui.Option{{Value: dlq.SortOldest, Label: here.Text("filter.sort_oldest")}}},
	)...)
	if q.narrowed() || f.Sort != "" {
		bar.Clear = address("/letters", "state", letterStateNames[f.State])
	}
	return bar
}

func verdictChoice(here locale.Locale, v dlq.Verdict) ui.Choice {
	c := ui.Choice{Name: "verdict", Label: here.Text("filter.verdict"), Value: verdictChoiceNames[v]}
	for _, name := range ui.VerdictOrder {
		if name != "" {
			c.Options = append(c.Options, ui.Option{Value: name, Label: here.Text(ui.VerdictKey(name))})
		}
	}
	c.Options = append(c.Options, ui.Option{Value: "not_judged", Label: here.Text("filter.not_judged")})
	return c
}

func attemptOptions(here locale.Locale) []ui.Option {
	var all []ui.Option
	for _, n := range []int{2, 3, 5, 10} {
		all = append(all, ui.Option{Value: strconv.Itoa(n), Label: here.Text("filter.attempts_n", "n", n)})
	}
	return all
}

func ownerChoice(here locale.Locale, owner string, owners []ui.Option) ui.Choice {
	c := ui.Choice{Name: "owner", Label: here.Text("filter.owner"), Value: owner,
		Options: append(slices.Clone(owners), ui.Option{Value: dlq.OwnerNone, Label: here.Text("triage.nobody")})}
	c.Options = withChosen(c.Options, owner)
	return c
}

// searchNotices say how far a search looked, and how far it could.
func (s *Server) searchNotices(c echo.Context, q letterQuery, page dlq.LetterPage) ([]views.Badge, error) {
	here := localeOf(c)
	var all []views.Badge
	if page.Stopped != nil {
		all = append(all, views.Badge{Hue: "hold", Icon: "hourglass-off", Text: here.Text("letters.stopped", "time", here.Exact(*page.Stopped)), Href: q.address(page.Next)})
	}
	if q.filter.Search == "" {
		return all, nil
	}
	index, err := s.Letters.TokenIndex(c.Request().Context())
	if err != nil {
		return nil, fmt.Errorf("ask the search index: %w", err)
	}
	if index.Lag > 0 {
		text := here.Text("letters.index_none")
		if !index.Until.IsZero() {
			text = here.Text("letters.index_lag", "time", here.Exact(index.Until))
		}
		all = append(all, views.Badge{Icon: "clock", Text: text})
	}
	return all, nil
}

// noLetters is the sentence in an empty list's place, with the nearest wider list.
func (s *Server) noLetters(c echo.Context, q letterQuery) (views.Empty, error) {
	here, ctx := localeOf(c), c.Request().Context()
	if !q.narrowed() {
		return views.Empty{Text: here.Text("letters.none"), Href: "/sources", Link: here.Text("sources.title")}, nil
	}
	clear := views.Empty{Href: address("/letters", "state", letterStateNames[q.filter.State]), Link: here.Text("filter.clear")}
	if q.filter.State != 0 && !q.filter.Compared() {
		wider := q.filter
		wider.State = 0
		n, bounded, err := s.Letters.Count(ctx, wider)
		if err != nil {
			return clear, fmt.Errorf("count letters of any state: %w", err)
		}
		if n > 0 {
			return views.Empty{Text: here.Text("letters.none_in_state", "count", countWords(here, n, bounded)), Href: q.inState(0), Link: here.Text("letters.show_all")}, nil
		}
	}
	if q.filter.EventID != "" {
		clear.Text = here.Text("search.none", "query", q.filter.EventID)
		return clear, nil
	}
	open, bounded, err := s.Letters.Count(ctx, dlq.LetterFilter{State: dlq.Open})
	if err != nil {
		return clear, fmt.Errorf("count open letters: %w", err)
	}
	clear.Text = here.Text("letters.none_match_open", "count", countWords(here, open, bounded))
	return clear, nil
}

// letterRow is one letter of a list; list is the list's query, for its neighbours.
func (s *Server) letterRow(reader access.Actor, l dlq.Letter, list string) views.LetterRow {
	row := views.LetterRow{
		ID: l.ID.String(), EventID: deref(l.EventID), State: letterStateNames[l.State], Group: deref(l.Group),
		Place: place(l.Broker, l.Source), Dialect: l.Dialect, Class: deref(l.ErrorClass), Message: deref(messageFor(reader, l.ErrorMessage)),
		Verdict: l.Verdict.String(), Attempts: small(l.Attempts), Occurrences: int(l.Occurrences), Arrived: l.DrainedAt, FailedAt: l.FailedAt,
		Owner: deref(l.Owner), KeptUntil: s.keptUntil(l), Origin: originText(l.Origin), Replays: int(l.ReplayCount), EventTime: l.EventTime,
	}
	row.Href = address("/letters/"+row.ID, "list", queryOf(list))
	return row
}

// originText is where a letter was first, as far as it is known.
func originText(o dlq.Origin) string {
	text := deref(o.Topic)
	if o.Partition != nil {
		text += "[" + strconv.Itoa(int(*o.Partition)) + "]"
	}
	if o.Offset != nil {
		text += "@" + strconv.FormatInt(*o.Offset, 10)
	}
	return text
}

// keptUntil is when a closed letter may be dropped; nil: it is not closed, or never.
func (s *Server) keptUntil(l dlq.Letter) *time.Time {
	if s.Retention == nil || l.State != dlq.Resolved && l.State != dlq.Discarded {
		return nil
	}
	if at := s.Retention.KeptUntil(l.ID); !at.IsZero() {
		return &at
	}
	return nil
}

// queryOf is an address' query without the question mark.
func queryOf(href string) string {
	u, err := url.Parse(href)
	if err != nil {
		return ""
	}
	return u.RawQuery
}

// exportLinks offer a list in each format.
func exportLinks(here locale.Locale, path string, pairs []string) []views.OutLink {
	var links []views.OutLink
	for _, format := range []string{"csv", "jsonl", "xlsx"} {
		links = append(links, views.OutLink{Label: here.Text("export." + format), Href: address(path, append(slices.Clone(pairs), "format", format)...)})
	}
	return links
}
