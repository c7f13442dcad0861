package web

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
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
	older  string       // older_than as asked
	by     dlq.GroupKey // "" one by one
}

func faultQueryOf(c echo.Context) (faultQuery, error) {
	q := parseQuery(c)
	f := faultQuery{older: q.values.Get("older_than"), by: dlq.GroupKey(q.take("by")), filter: faultFilter(q)}
	f.page = q.page()
	if f.by != "" && !slices.Contains(dlq.GroupKeys, f.by) {
		q.fail("by", "is one of "+strings.Join(groupNames(), ", "))
	}
	return f, q.done()
}

func groupNames() []string {
	var names []string
	for _, k := range dlq.GroupKeys {
		names = append(names, string(k))
	}
	return names
}

// pairs are the filter as an address carries it.
func (q faultQuery) pairs() []string {
	f := q.filter
	return []string{"state", string(f.Tab), "q", f.Search, "cluster", f.Cluster, "source", f.Source, "dialect", f.Dialect,
		"consumer_group", f.Group, "error_class", f.ErrorClass, "origin_topic", f.OriginTopic, "verdict", verdictChoiceNames[f.Verdict],
		"owner", f.Owner, "older_than", q.older, "sort", f.Sort}
}

// address is the list's with another tab and place.
func (q faultQuery) address(tab dlq.FaultTab, cursor string) string {
	q.filter.Tab = tab
	return address("/faults", append(q.pairs(), "by", string(q.by), "cursor", cursor)...)
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
	var page dlq.FaultPage
	if q.by == "" {
		if page, err = s.Faults.List(ctx, q.filter, q.page); err != nil {
			return fmt.Errorf("list faults: %w", err)
		}
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
		Tabs: faultTabs(here, q, counts), Total: int(counts[q.filter.Tab]),
		Caption: here.Text("faults.caption." + string(q.filter.Tab)), Replay: s.replayForm(c, here.Text("faults.reason"), was),
		Empty: noFaults(here, q, counts), Changes: changesURL(c, "/faults"), Exports: exportLinks(here, "/faults/export", q.pairs()),
	}
	if v.Triage, err = s.triageForm(c); err != nil {
		return err
	}
	v.Filter = faultFilterBar(here, q, known, v.Triage.Owners)
	if v.Saved, err = s.savedBar(c, "faults", queryOf(q.address(q.filter.Tab, "")), q.narrowed() || q.by != ""); err != nil {
		return err
	}
	if q.by != "" {
		if v.Groups, err = s.faultGroups(c, q); err != nil {
			return err
		}
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
	found, err := s.Faults.Names(ctx)
	if err != nil {
		return n, fmt.Errorf("list names of faults: %w", err)
	}
	for _, of := range []struct {
		found []string
		known map[string]bool
	}{{found.Sources, n.sources}, {found.Groups, n.groups}, {found.Classes, n.classes}} {
		for _, name := range of.found {
			of.known[name] = true
		}
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

func faultFilterBar(here locale.Locale, q faultQuery, known names, owners []ui.Option) views.FilterBar {
	f := q.filter
	bar := views.FilterBar{Action: "/faults", Hidden: params("state", string(f.Tab), "cluster", f.Cluster, "dialect", f.Dialect, "origin_topic", f.OriginTopic),
		Search: &views.Search{Name: "q", Value: f.Search, Label: here.Text("filter.fault_q")}}
	bar.Choices = append(nameChoices(here, known, f.Source, f.Group, f.ErrorClass), ui.Choice{
		Name: "sort", Label: here.Text("filter.sort"), Value: f.Sort, Options: []ui.Option{
			{Value: "-last_seen", Label: here.Text("filter.sort_seen")}, {Value: "first_seen", Label: here.Text("filter.sort_first")},
			{Value: "-first_seen", Label: here.Text("filter.sort_new")},
		}},
		verdictChoice(here, f.Verdict), ownerChoice(here, f.Owner, owners), olderChoice(here, q.older), groupChoice(here, q.by))
	if q.narrowed() || f.Sort != "" || q.by != "" {
		bar.Clear = address("/faults", "state", string(f.Tab))
	}
	return bar
}

func olderChoice(here locale.Locale, older string) ui.Choice {
	c := ui.Choice{Name: "older_than", Label: here.Text("filter.older"), Value: older}
	for _, age := range []string{"1h", "24h", "7d", "30d"} {
		c.Options = append(c.Options, ui.Option{Value: age, Label: here.Text("filter.older_" + age)})
	}
	c.Options = withChosen(c.Options, older)
	return c
}

func groupChoice(here locale.Locale, by dlq.GroupKey) ui.Choice {
	c := ui.Choice{Name: "by", Label: here.Text("group.none"), Value: string(by)}
	for _, k := range dlq.GroupKeys {
		c.Options = append(c.Options, ui.Option{Value: string(k), Label: here.Text("group.by." + string(k))})
	}
	return c
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
	row.Owner, row.Note, row.Muted = deref(f.Owner), deref(f.Note), f.MuteUntil != nil && f.MuteUntil.After(here.Now)
	if f.CameBackAt != nil && f.Open > 0 {
		row.Badges = append(row.Badges, views.Badge{Hue: "ask", Icon: "rotate-2", Text: here.Text("fault.came_back", "time", here.Short(*f.CameBackAt))})
	}
	if here.Now.Sub(f.FirstSeen) < newFault {
		row.Badges = append(row.Badges, views.Badge{Hue: "mute", Icon: "bolt", Text: here.Text("fault.new_today")})
	}
	return row
}

// newFault is for how long a fault counts as new.
const newFault = 24 * time.Hour
