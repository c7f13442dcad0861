package web

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"oncemore/dlq"
	"oncemore/views"
	"oncemore/views/locale"
	"oncemore/views/ui"
)

// faultQuery is a list's filter as its address says it.
type faultQuery struct {
	filter dlq.FaultFilter
	page   dlq.Page
}

func faultQueryOf(c echo.Context) (faultQuery, error) {
	q := parseQuery(c)
	f := faultQuery{filter: dlq.FaultFilter{
		Tab: dlq.FaultTab(q.take("state")), Cluster: q.take("cluster"), Source: q.take("source"), Dialect: q.take("dialect"),
		Group: q.take("consumer_group"), ErrorClass: q.take("error_class"), OriginTopic: q.take("origin_topic"), Sort: q.take("sort"),
	}}
	f.page = q.page()
	if f.filter.Tab == "" {
		f.filter.Tab = dlq.TabOpen
	}
	return f, q.done()
}

// address is the list's with another tab and place.
func (q faultQuery) address(tab dlq.FaultTab, cursor string) string {
	f := q.filter
	return address("/faults", "state", string(tab), "cluster", f.Cluster, "source", f.Source, "dialect", f.Dialect,
		"consumer_group", f.Group, "error_class", f.ErrorClass, "origin_topic", f.OriginTopic, "sort", f.Sort, "cursor", cursor)
}

func (q faultQuery) narrowed() bool {
	f := q.filter
	f.Tab, f.Sort = "", ""
	return f != (dlq.FaultFilter{})
}

func (s *Server) faultListPage(c echo.Context) error { return s.showFaultList(c, refused{}) }

func (s *Server) showFaultList(c echo.Context, was refused) error {
	q, err := faultQueryOf(c)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	page, err := s.Faults.List(ctx, q.filter, q.page)
	if err != nil {
		return fmt.Errorf("list faults: %w", err)
	}
	counts, err := s.Faults.Counts(ctx, q.filter)
	if err != nil {
		return fmt.Errorf("count faults: %w", err)
	}
	known, err := s.knownNames(ctx)
	if err != nil {
		return err
	}
	open, _, err := s.Letters.Count(ctx, dlq.LetterFilter{State: dlq.Open})
	if err != nil {
		return fmt.Errorf("count open letters: %w", err)
	}
	here := localeOf(c)
	v := views.FaultList{
		Frame: s.pageFrame(c, "faults", here.Text("faults.title"), crumbs(here, "faults", "")...), OpenLetters: int(open),
		Tabs: faultTabs(here, q, counts), Filter: faultFilterBar(here, q, known), Total: int(counts[q.filter.Tab]),
		Caption: here.Text("faults.caption." + string(q.filter.Tab)), Replay: s.replayForm(c, here.Text("faults.reason"), was),
		Empty: noFaults(here, q, counts),
	}
	v.OpenFaults, v.Replay.Target = deref(v.Nav.Faults), "group"
	v.Pager = firstPager(here, q.address(q.filter.Tab, ""), q.page.Cursor, page.Next, func(cursor string) string { return q.address(q.filter.Tab, cursor) })
	for _, f := range page.Items {
		v.Rows = append(v.Rows, faultRow(here, f))
	}
	return render(c, was.status(), views.FaultListPage(v))
}

// firstPager leads to the first and the next page of a list that is read forwards only.
func firstPager(here locale.Locale, first, cursor, next string, at func(cursor string) string) ui.Pages {
	p := ui.Pages{BackLabel: here.Text("pager.first"), NextLabel: here.Text("pager.next")}
	if cursor != "" {
		p.Back = first
	}
	if next != "" {
		p.Next = at(next)
	}
	return p
}

func faultTabs(here locale.Locale, q faultQuery, counts map[dlq.FaultTab]int64) []ui.Tab {
	var tabs []ui.Tab
	for _, tab := range []dlq.FaultTab{dlq.TabOpen, dlq.TabReplaying, dlq.TabMuted, dlq.TabResolved, dlq.TabDiscarded, dlq.TabAll} {
		tabs = append(tabs, ui.Tab{Label: here.Text("faults.tab." + string(tab)), Href: q.address(tab, ""),
			Count: locale.Number(counts[tab]), Current: tab == q.filter.Tab})
	}
	return tabs
}

// names are what filters can be set to: what the faults are made of.
type names struct {
	sources, groups, classes map[string]bool
}

// knownNames reads them off the faults, at most those of the 200 with most open letters.
func (s *Server) knownNames(ctx context.Context) (names, error) {
	n := names{map[string]bool{}, map[string]bool{}, map[string]bool{}}
	page, err := s.Faults.List(ctx, dlq.FaultFilter{Tab: dlq.TabAll}, dlq.Page{Limit: 200})
	if err != nil {
		return n, fmt.Errorf("list names of faults: %w", err)
	}
	for _, f := range page.Items {
		n.sources[f.Source] = true
		n.groups[deref(f.Group)] = true
		n.classes[deref(f.ErrorClass)] = true
	}
	return n, nil
}

// nameChoices are the three filters that faults and letters have in common.
func nameChoices(here locale.Locale, known names, source, group, class string) []ui.Choice {
	return []ui.Choice{
		{Name: "source", Label: here.Text("filter.any_source"), Value: source, Options: withChosen(options(known.sources), source)},
		{Name: "consumer_group", Label: here.Text("filter.any_group"), Value: group, Options: withChosen(options(known.groups), group)},
		{Name: "error_class", Label: here.Text("filter.any_class"), Value: class, Options: withChosen(options(known.classes), class)},
	}
}

func faultFilterBar(here locale.Locale, q faultQuery, known names) views.FilterBar {
	f := q.filter
	bar := views.FilterBar{Action: "/faults", Hidden: params("state", string(f.Tab), "cluster", f.Cluster, "dialect", f.Dialect, "origin_topic", f.OriginTopic)}
	bar.Choices = append(nameChoices(here, known, f.Source, f.Group, f.ErrorClass), ui.Choice{
		Name: "sort", Label: here.Text("filter.sort"), Value: f.Sort, Options: []ui.Option{
			{Value: "-last_seen", Label: here.Text("filter.sort_seen")}, {Value: "first_seen", Label: here.Text("filter.sort_first")},
		}})
	if q.narrowed() || f.Sort != "" {
		bar.Clear = address("/faults", "state", string(f.Tab))
	}
	return bar
}

func noFaults(here locale.Locale, q faultQuery, counts map[dlq.FaultTab]int64) views.Empty {
	switch {
	case q.narrowed():
		return views.Empty{Text: here.Text("faults.none_match"), Href: address("/faults", "state", string(q.filter.Tab)), Link: here.Text("filter.clear")}
	case counts[dlq.TabAll] == 0:
		return views.Empty{Text: here.Text("faults.none_yet"), Href: "/sources", Link: here.Text("sources.title")}
	case q.filter.Tab == dlq.TabOpen:
		return views.Empty{Text: here.Text("faults.none_open")}
	}
	return views.Empty{Text: here.Text("faults.none_tab")}
}

func faultRow(here locale.Locale, f dlq.Fault) views.FaultRow {
	row := views.FaultRow{
		ID: f.ID, Class: deref(f.ErrorClass), Message: f.Message, Group: deref(f.Group), Place: place(f.Broker, f.Source),
		Open: int(f.Open), Since: f.FirstSeen, LastSeen: f.LastSeen, Verdicts: verdictSplit(f.Verdicts), Safe: int(f.SafeCount()),
	}
	for _, n := range f.Hours {
		row.Hours = append(row.Hours, int(n))
	}
	if f.Replaying > 0 {
		row.Badges = append(row.Badges, views.Badge{Hue: "noop", Icon: "player-play", Text: here.Text("fault.badge_running", "n", f.Replaying),
			Href: address("/replays", "fault_id", strconv.Itoa(int(f.ID)))})
	}
	if f.MuteUntil != nil && f.MuteUntil.After(here.Now) {
		row.Badges = append(row.Badges, views.Badge{Hue: "mute", Icon: "eye-off", Text: here.Text("fault.badge_muted", "time", here.Short(*f.MuteUntil))})
	}
	if here.Now.Sub(f.FirstSeen) < newFault {
		row.Badges = append(row.Badges, views.Badge{Hue: "mute", Icon: "bolt", Text: here.Text("fault.new_today")})
	}
	return row
}

// newFault is for how long a fault counts as new.
const newFault = 24 * time.Hour
