package web

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"oncemore/compensate"
	"oncemore/consumer/outbox"
	"oncemore/internal/access"
	"oncemore/views"
	"oncemore/views/locale"
	"oncemore/views/ui"
)

// compensationTabs are the views of the list, in order, by the filter's word.
var compensationTabs = []string{"awaiting_approval", "at_work", "needs_attention", "verified", "all"}

func (s *Server) compensationListPage(c echo.Context) error {
	return s.showCompensationList(c, refused{})
}

func (s *Server) showCompensationList(c echo.Context, was refused) error {
	q := parseQuery(c)
	tab := q.values.Get("state")
	f := compensationFilter(q)
	done, n := q.take("did"), q.id("n", 32)
	if err := q.done(); err != nil {
		return err
	}
	ctx, here := c.Request().Context(), localeOf(c)
	counts, err := s.compensationCounts(ctx, f)
	if err != nil {
		return err
	}
	if tab == "" {
		tab = usualTab(counts, f)
		f.States = compensationStates[tab]
	}
	found, more, err := s.Compensations.List(ctx, f)
	if err != nil {
		return fmt.Errorf("list compensations: %w", err)
	}
	at := func(state, cursor string) string { return compensationsAddress(f, state, cursor) }
	v := views.CompensationList{
		Frame:  s.pageFrame(c, "compensations", here.Text("compensations.title"), repairCrumbs(here, "compensations", "")...),
		Filter: compensationFilterBar(here, f, tab), Empty: emptyCompensations(here, f, tab),
		Pager: firstPager(here, at(tab, ""), cursorText(f.Before), nextNumber(found, more, func(r compensate.Row) int64 { return r.ID }), func(cursor string) string { return at(tab, cursor) }),
	}
	for _, name := range compensationTabs {
		v.Tabs = append(v.Tabs, ui.Tab{Label: here.Text("compensations.tab." + name), Href: at(name, ""), Current: name == tab, Count: countText(counts[name])})
	}
	for _, r := range found {
		v.Rows = append(v.Rows, compensationRow(here, r))
	}
	if done != "" && locale.Has("compensations."+done) {
		v.Done = here.Text("compensations."+done, "n", int(n))
	}
	v.Approve = approveBarOf(c, f, tab, counts[tab], more)
	if v.Approve.May && counts[tab] > 0 {
		v.ApproveAll = address("/compensations/approve", "all", "1", "filter", queryPart(at(tab, "")))
	}
	v.Hidden = hiddenAttention(here, f, tab, counts)
	if err := s.fillCompensationList(c, &v, tab, was); err != nil {
		return err
	}
	return render(c, was.status(), views.CompensationListPage(v))
}

// compensationCounts says for each tab how many it holds, under the other filters.
func (s *Server) compensationCounts(ctx context.Context, f compensate.Filter) (map[string]int, error) {
	counts := map[string]int{}
	f.Before = 0
	for _, name := range compensationTabs {
		f.States = compensationStates[name]
		n, err := s.Compensations.Count(ctx, f)
		if err != nil {
			return nil, err
		}
		counts[name] = n
	}
	return counts, nil
}

// usualTab is what the page shows where the address names none: what waits for
// people first.
func usualTab(counts map[string]int, f compensate.Filter) string {
	switch {
	case f.Bulk != 0, f.BreakID != 0, f.EventID != "":
		return "all"
	case counts["needs_attention"] > 0 && counts["awaiting_approval"] == 0:
		return "needs_attention"
	case counts["awaiting_approval"] > 0:
		return "awaiting_approval"
	}
	return "all"
}

// countText writes a count of a tab; "" nothing.
func countText(n int) string {
	switch {
	case n == 0:
		return ""
	case n > compensate.CountLimit:
		return locale.Number(compensate.CountLimit) + "+"
	}
	return locale.Number(int64(n))
}

func compensationsAddress(f compensate.Filter, state, cursor string) string {
	amount := ""
	if f.AmountMin != nil {
		amount = f.AmountMin.String()
	}
	return address("/compensations", "state", state, "action", f.Action, "job", f.Job, "currency", f.Currency, "amount_min", amount, "asked_by", f.AskedBy,
		"break_id", numberText(f.BreakID), "event_id", f.EventID, "bulk_id", numberText(f.Bulk), "older_than", spanText(f.OlderThan), "cursor", cursor)
}

func spanText(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

func numberText(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

func compensationFilterBar(here locale.Locale, f compensate.Filter, tab string) views.FilterBar {
	amount := ""
	if f.AmountMin != nil {
		amount = f.AmountMin.String()
	}
	bar := views.FilterBar{
		Action: "/compensations", Hidden: params("state", tab, "break_id", numberText(f.BreakID), "bulk_id", numberText(f.Bulk)),
		Search: &views.Search{Name: "event_id", Value: f.EventID, Label: here.Text("compensations.filter_event")},
		Fields: []views.Search{
			{Name: "action", Value: f.Action, Label: here.Text("compensations.filter_action")}, {Name: "currency", Value: f.Currency, Label: here.Text("compensations.filter_currency")},
			{Name: "amount_min", Value: amount, Label: here.Text("compensations.filter_amount")}, {Name: "asked_by", Value: f.AskedBy, Label: here.Text("compensations.filter_by")},
		},
	}
	if narrowed(f) {
		bar.Clear = address("/compensations", "state", tab)
	}
	return bar
}

// narrowed reports whether anything but the state limits the list.
func narrowed(f compensate.Filter) bool {
	return f.Action != "" || f.Job != "" || f.Currency != "" || f.AmountMin != nil || f.AskedBy != "" || f.BreakID != 0 || f.EventID != "" || f.Bulk != 0 || f.OlderThan != 0
}

func emptyCompensations(here locale.Locale, f compensate.Filter, tab string) views.Empty {
	if narrowed(f) {
		return views.Empty{Text: here.Text("compensations.none_match"), Href: address("/compensations", "state", tab), Link: here.Text("filter.clear")}
	}
	return views.Empty{Text: here.Text("compensations.none." + tab), Href: "/reconciliations", Link: here.Text("nav.reconciliations")}
}

// hiddenAttention says of those that need attention and that filters leave out:
// such a list must not look as if nothing did.
func hiddenAttention(here locale.Locale, f compensate.Filter, tab string, counts map[string]int) views.Badge {
	n := counts["needs_attention"]
	if !narrowed(f) && (tab == "all" || tab == "needs_attention") || n == 0 && !narrowed(f) {
		return views.Badge{}
	}
	if narrowed(f) {
		return views.Badge{Hue: "", Icon: "filter", Text: here.Text("compensations.filtered"), Href: "/compensations?state=needs_attention"}
	}
	return views.Badge{Hue: "a", Icon: "alert-triangle", Text: here.Text("compensations.attention", "n", n), Href: "/compensations?state=needs_attention"}
}

func approveBarOf(c echo.Context, f compensate.Filter, tab string, total int, more bool) views.ApproveBar {
	bar := views.ApproveBar{May: tab == "awaiting_approval" && actorOf(c).May(access.ApproveCompensation), All: total}
	if more || f.Before != 0 {
		bar.Query = queryPart(compensationsAddress(f, tab, ""))
	}
	return bar
}

// queryPart is an address without its path.
func queryPart(at string) string {
	for i, r := range at {
		if r == '?' {
			return at[i+1:]
		}
	}
	return ""
}

// fillCompensationList adds the kill switch, and rows of outboxes that are dead.
func (s *Server) fillCompensationList(c echo.Context, v *views.CompensationList, tab string, was refused) error {
	kill, err := s.Compensations.Switch(c.Request().Context())
	if err != nil {
		return err
	}
	v.Switch = views.KillSwitch{Known: true, Stopped: kill.StoppedBy != nil, By: deref(kill.StoppedBy), At: kill.StoppedAt, Reason: deref(kill.Reason), Error: was.Text}
	v.Switch.May = actorOf(c).May(access.ControlCompensation)
	if v.Switch.Stopped {
		v.Switch.May = actorOf(c).May(access.ApproveCompensation)
	}
	here := localeOf(c)
	v.MayRetry, v.WhoRetry = actorOf(c).May(access.RetryOutbox), here.Text("may.outbox", "roles", rolesOf(here, access.RetryOutbox))
	if tab == "needs_attention" || tab == "all" {
		v.Dead, v.DeadMore = s.deadRows(c.Request().Context())
	}
	return nil
}

// deadShown is how many dead rows the list shows of each outbox.
const deadShown = 10

// deadRows are the outboxes' rows that nothing sends any more. An outbox that
// does not answer is left to its own page.
func (s *Server) deadRows(ctx context.Context) (rows []views.OutboxRow, more string) {
	if s.Outboxes == nil {
		return nil, ""
	}
	ctx, cancel := context.WithTimeout(ctx, outboxPatience)
	defer cancel()
	for _, box := range s.Outboxes.All() {
		found, err := box.Read.List(ctx, outbox.Filter{State: outbox.Dead, Limit: deadShown})
		if err != nil {
			s.Logger.Warn("read dead rows", "outbox", box.Name(), "error", err)
			continue
		}
		for _, r := range found {
			rows = append(rows, outboxRowView(box, r))
		}
		if len(found) == deadShown {
			more = address("/outbox", "outbox", box.Name(), "state", "dead")
		}
	}
	return rows, more
}

func compensationRow(here locale.Locale, r compensate.Row) views.CompensationRow {
	id := strconv.FormatInt(r.ID, 10)
	row := views.CompensationRow{
		ID: r.ID, Href: "/compensations/" + id, Name: "C-" + id, Action: here.Text("compensations.action", "action", r.Action, "version", strconv.Itoa(r.Version)),
		Event: deref(r.EventID), Effect: effectSays(here, r.Compensation), Currency: r.Currency, State: compensationWord(r), Tries: r.Tries,
		AskedAt: r.AskedAt, AskedBy: personName(here, r.AskedBy), Why: deref(r.Why),
	}
	row.For, row.ForHref = subjectOf(here, r.Compensation)
	if hasAmount(r.Compensation) {
		row.Amount = locale.Money(r.Amount.String(), r.Currency)
	}
	if r.State == compensate.Proposed && r.Checkers > 1 {
		row.Approved = here.Text("compensation.approvals", "have", r.Approvals, "n", r.Checkers)
	}
	return row
}

// hasAmount: a letter is worth something only where its action says how much.
func hasAmount(c compensate.Compensation) bool { return c.BreakID != nil || !c.Amount.IsZero() }

// subjectOf names what is repaired, and where it can be seen.
func subjectOf(here locale.Locale, c compensate.Compensation) (label, href string) {
	switch {
	case c.BreakID != nil:
		id := strconv.FormatInt(*c.BreakID, 10)
		return here.Text("compensation.of_break", "id", id), "/breaks/" + id
	case c.LetterID != nil:
		return here.Text("compensation.of_letter"), "/letters/" + c.LetterID.String()
	}
	return "", ""
}

// personName is a user, or what the schedule is called.
func personName(here locale.Locale, user string) string {
	if user == "system" {
		return here.Text("word.schedule")
	}
	return user
}

// effectSays is what would be done, or was, in one sentence.
func effectSays(here locale.Locale, c compensate.Compensation) string {
	e := c.Effect
	amount := ""
	if hasAmount(c) {
		amount = locale.Money(c.Amount.Abs().String(), c.Currency)
	}
	switch {
	case len(e) == 0:
		return here.Text("effect.says.none")
	case e[0].Says != "":
		return e[0].Says
	case len(e) > 1:
		names := make([]string, len(e))
		for i, s := range e {
			names[i] = s.Step
		}
		return withAmount(here, "effect.says.saga", amount, "n", len(e), "steps", here.List(names))
	case e[0].Kind == compensate.ReplayEvent:
		return here.Text("effect.says.replay", "event", deref(c.EventID), "group", deref(c.Group))
	case e[0].Kind == compensate.SQL:
		return withAmount(here, "effect.says.sql", amount, "action", c.Action)
	}
	return withAmount(here, "effect.says.http", amount, "method", e[0].Method, "url", e[0].URL)
}

// withAmount takes the sentence that names the amount, where there is one.
func withAmount(here locale.Locale, key, amount string, args ...any) string {
	if amount == "" {
		return here.Text(key, args...)
	}
	return here.Text(key+"_amount", slices.Concat(args, []any{"amount", amount})...)
}

// repairCrumbs are the steps to a page of finance.
func repairCrumbs(here locale.Locale, section, last string) []views.Crumb {
	list := views.Crumb{Label: here.Text("nav." + section), Href: "/" + section}
	if last == "" {
		list.Href = ""
		return []views.Crumb{{Label: here.Text("nav.finance")}, list}
	}
	return []views.Crumb{{Label: here.Text("nav.finance")}, list, {Label: last}}
}
