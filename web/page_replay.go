package web

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/a-h/templ"
	"github.com/labstack/echo/v4"

	"oncemore/dlq"
	"oncemore/internal/access"
	"oncemore/views"
	"oncemore/views/locale"
	"oncemore/views/ui"
)

// itemTabs are the tabs over a replay's items that are always there.
var itemTabs = []string{"worth", "all", "waiting"}

func (s *Server) replayPage(c echo.Context) error { return s.showReplay(c, refused{}) }

func (s *Server) showReplay(c echo.Context, was refused) error {
	id, err := numberID(c, 64)
	if err != nil {
		return dlq.ErrNotFound
	}
	q := parseQuery(c)
	tab, page := q.take("tab"), q.page()
	if err := q.done(); err != nil {
		return err
	}
	r, err := s.Replays.Get(c.Request().Context(), id)
	if err != nil {
		return fmt.Errorf("get replay %d: %w", id, err)
	}
	v := s.replayView(c, r, tab, was)
	if err := s.fillReplay(c, &v, r); err != nil {
		return err
	}
	if err := s.fillItems(c, &v, r, page); err != nil {
		return err
	}
	return render(c, was.status(), views.ReplayPage(v))
}

func (s *Server) replayView(c echo.Context, r dlq.Replay, tab string, was refused) views.Replay {
	here, number := localeOf(c), strconv.FormatInt(r.ID, 10)
	v := views.Replay{
		Frame: s.pageFrame(c, "replays", here.Text("replay.title", "id", number), crumbs(here, "replays", "R-"+number)...),
		ID:    r.ID, State: replayStateWord(r), What: replayWhat(here, r), By: r.CreatedBy, FrozenAt: r.CreatedAt,
		Targets: planTargets(r.Targets), Reason: r.Reason, Progress: progressOf(here, r, tab), Error: was.Text, Tab: tab,
		May: actorOf(c).May(access.StartReplay), WhoMay: here.Text("may.replay", "roles", rolesOf(here, access.StartReplay)),
	}
	if v.Tab == "" {
		v.Tab = "all"
		if worth(r) {
			v.Tab = "worth"
		}
	}
	if r.ApprovedBy != nil {
		v.Approved = here.Text("replay.approved", "by", *r.ApprovedBy)
	}
	for _, name := range itemTabs {
		v.Tabs = append(v.Tabs, itemTab(here, r.ID, name, "replay.tab."+name, v.Tab))
	}
	v.Tabs[2].Label = here.Text("outcome.waiting")
	for _, count := range outcomeSplit(r.Outcomes) {
		t := itemTab(here, r.ID, count.Name, "outcome."+count.Name, v.Tab)
		t.Count = locale.Number(int64(count.N))
		v.Tabs = append(v.Tabs, t)
	}
	if r.Refused > 0 {
		t := itemTab(here, r.ID, "refused", "replay.tab.refused", v.Tab)
		t.Count = locale.Number(int64(r.Refused))
		v.Tabs = append(v.Tabs, t)
	}
	return v
}

// fillReplay adds what the page says beyond the replay's own numbers.
func (s *Server) fillReplay(c echo.Context, v *views.Replay, r dlq.Replay) error {
	ctx, here := c.Request().Context(), localeOf(c)
	var err error
	if v.Progress, err = s.progress(ctx, here, r, v.Progress); err != nil {
		return err
	}
	if v.Growing, err = s.growing(c, r); err != nil {
		return err
	}
	n, bounded, err := s.Replays.Arrived(ctx, r)
	if err != nil {
		return fmt.Errorf("count letters that joined replay %d: %w", r.ID, err)
	}
	if n > 0 {
		v.Arrived, v.ArrivedHref = arrivedSays(here, r, n, bounded), arrivedAt(r)
	}
	v.Redo, v.RequestKey, v.PaceForm = r.Failed, hexHash(string(randomBytes(16))), s.paceForm(c, r)
	if !v.May {
		v.Redo = 0
	}
	if r.State == dlq.Planned || r.State == dlq.AwaitingApproval {
		v.PlanHref = v.Progress.Path + "/plan"
	}
	if r.RedoOf != nil {
		v.RedoOf = "R-" + strconv.FormatInt(*r.RedoOf, 10)
	}
	return nil
}

func arrivedSays(here locale.Locale, r dlq.Replay, n int64, bounded bool) string {
	count := locale.Number(n)
	if bounded {
		count += "+"
	}
	if r.FaultID != nil {
		return here.Text("replay.arrived_fault", "n", int(n), "count", count, "id", strconv.Itoa(int(*r.FaultID)))
	}
	return here.Text("replay.arrived", "n", int(n), "count", count)
}

// arrivedAt is the list of the letters that came later.
func arrivedAt(r dlq.Replay) string {
	fault := ""
	if r.FaultID != nil {
		fault = strconv.Itoa(int(*r.FaultID))
	}
	return address("/letters", "state", "open", "fault_id", fault, "since", r.CreatedAt.UTC().Format(time.RFC3339))
}

// progress adds ladder, pace and what holds the replay to its numbers.
func (s *Server) progress(ctx context.Context, here locale.Locale, r dlq.Replay, p views.Progress) (views.Progress, error) {
	p.Judged, p.ToJudge, p.NotWell = r.Letters, r.PlanTotal, r.Failed
	if r.State != dlq.Planning {
		p.Wait, p.WaitSince = reasonText(here, r.Wait), r.WaitSince
	}
	if r.Pace.StopShare > 0 && r.State != dlq.Planning {
		p.Stop = here.Text("replay.stop", "share", r.Pace.StopShare, "bad", r.Failed, "tried", r.Tried, "now", shareText(r.Failed, r.Tried))
	}
	rungs, err := s.Replays.Ladder(ctx, r)
	if err != nil {
		return p, fmt.Errorf("ladder of replay %d: %w", r.ID, err)
	}
	for i, rung := range rungs {
		p.Ladder = append(p.Ladder, rungRow(here, rung, i >= len(r.Pace.Ladder)))
	}
	speed, err := s.Replays.Speed(ctx, r)
	if err != nil {
		return p, fmt.Errorf("speed of replay %d: %w", r.ID, err)
	}
	if speed.PerSecond > 0 {
		p.Pace = here.Text("replay.speed", "rate", rateText(speed.PerSecond), "left", here.Duration(speed.Left))
	}
	return p, nil
}

func rungRow(here locale.Locale, r dlq.Rung, rest bool) views.RungRow {
	size := r.To - r.From + 1
	row := views.RungRow{Name: locale.Number(int64(size)), State: r.State}
	if rest {
		row.Name = here.Text("replay.rest", "n", size)
	}
	parts := []string{here.Text("rung." + r.State)}
	if r.State != "waiting" && (r.State != "passed" || r.Bad > 0 || r.Pending > 0) {
		parts = append(parts, here.Text("rung.sent", "n", r.Sent))
	}
	if r.Bad > 0 {
		parts = append(parts, here.Text("rung.bad", "n", r.Bad))
	}
	if r.Pending > 0 {
		parts = append(parts, here.Text("rung.pending", "n", r.Pending))
	}
	row.Says = strings.Join(parts, here.Text("list.comma"))
	return row
}

// shareText is a share of all with one decimal, cut.
func shareText(part, all int) string {
	if all == 0 {
		return "0%"
	}
	tenths := part * 1000 / all
	return strconv.Itoa(tenths/10) + "." + strconv.Itoa(tenths%10) + "%"
}

// rateText is items per second, with a decimal below ten.
func rateText(perSecond float64) string {
	if perSecond < 10 {
		return strconv.FormatFloat(perSecond, 'f', 1, 64)
	}
	return locale.Number(int64(perSecond))
}

func itemTab(here locale.Locale, id int64, name, key, current string) ui.Tab {
	return ui.Tab{Label: here.Text(key), Href: address("/replays/"+strconv.FormatInt(id, 10), "tab", name), Current: name == current}
}

// worth reports whether anything went otherwise than well.
func worth(r dlq.Replay) bool {
	for _, o := range []dlq.Outcome{dlq.FailedAgain, dlq.Swallowed, dlq.NotSent, dlq.NotSeen, dlq.Unconfirmed} {
		if r.Outcomes[o] > 0 {
			return true
		}
	}
	return r.LeftOut > 0
}

// fillItems reads the tab's part of the list.
func (s *Server) fillItems(c echo.Context, v *views.Replay, r dlq.Replay, page dlq.Page) error {
	ctx, here := c.Request().Context(), localeOf(c)
	at := func(cursor string) string {
		return address("/replays/"+strconv.FormatInt(r.ID, 10), "tab", v.Tab, "cursor", cursor)
	}
	if v.Tab == "refused" {
		left, err := s.Replays.Refused(ctx, r.ID, page)
		if err != nil {
			return fmt.Errorf("list refusals of replay %d: %w", r.ID, err)
		}
		v.RefusedTab, v.Refused = true, refusedRows(here, left.Items)
		v.Pager = firstPager(here, at(""), page.Cursor, left.Next, at)
		return nil
	}
	items, err := s.Replays.Items(ctx, r.ID, dlq.ItemFilter{Tab: v.Tab}, page)
	if err != nil {
		return fmt.Errorf("list items of replay %d: %w", r.ID, err)
	}
	mayRead := actorOf(c).May(access.ReadPayload)
	for _, i := range items.Items {
		v.Items = append(v.Items, itemRow(here, i, mayRead))
	}
	v.Pager = firstPager(here, at(""), page.Cursor, items.Next, at)
	if len(v.Items) == 0 {
		v.Empty = here.Text("replay.none")
		if v.Tab == "worth" {
			v.Empty = here.Text("replay.none_worth")
		}
	}
	return nil
}

func itemRow(here locale.Locale, i dlq.ReplayItem, mayRead bool) views.ItemRow {
	row := views.ItemRow{No: i.No, EventID: deref(i.EventID), State: i.State, SentAt: i.SentAt, Letters: len(i.LetterIDs), Reason: reasonText(here, i.Reason)}
	if len(i.LetterIDs) > 0 {
		row.LetterID = i.LetterIDs[0].String()
	}
	if mayRead && utf8.Valid(i.Key) {
		row.Key = cutText(here, string(i.Key), 60)
	}
	for _, g := range i.Groups {
		outcome := g.Outcome.String()
		if outcome == "" {
			outcome = views.ItemOutcome(i.State)
		}
		row.Groups = append(row.Groups, views.ItemGroup{Name: g.Group, Verdict: g.Verdict.String(), Outcome: outcome, Reason: reasonText(here, g.Reason)})
	}
	return row
}

// tiles are the outcomes that always have one; others appear when they occur.
var tiles = []string{"applied", "duplicate", "failed_again", "not_sent", "not_seen", "pending", "waiting"}

func progressOf(here locale.Locale, r dlq.Replay, tab string) views.Progress {
	path := "/replays/" + strconv.FormatInt(r.ID, 10)
	split := outcomeSplit(r.Outcomes)
	p := views.Progress{
		ID: r.ID, State: replayStateWord(r), Live: live(r), Total: r.Total, Sent: r.Sent, NotSent: r.Outcomes[dlq.NotSent], Waiting: r.Waiting,
		Whole: outcomeWhole(r), Outcomes: split, Refused: r.Refused, RefusedHref: path + "?tab=refused", LeftOut: r.LeftOut,
		Says: replaySays(here, r), UpdatedAt: here.Now, Path: path,
	}
	p.Label = p.Says
	counts := map[string]int{"waiting": r.Waiting}
	for _, count := range split {
		counts[count.Name] = count.N
	}
	for _, name := range ui.OutcomeOrder {
		if counts[name] > 0 || slices.Contains(tiles, name) {
			p.Tiles = append(p.Tiles, views.Tile{Outcome: name, N: counts[name], Href: path + "?tab=" + name + "#items", Current: tab == name})
		}
	}
	return p
}

// live reports whether more is to come.
func live(r dlq.Replay) bool {
	switch r.State {
	case dlq.Running, dlq.Paused, dlq.Scheduled, dlq.Planning:
		return true
	case dlq.Canceled:
		return r.Outcomes[dlq.Pending] > 0
	}
	return false
}

// replayEvents streams the progress while there is any.
func (s *Server) replayEvents(c echo.Context) error {
	id, err := numberID(c, 64)
	if err != nil {
		return dlq.ErrNotFound
	}
	if err := noQuery(c); err != nil {
		return err
	}
	here, began := localeOf(c), ""
	return s.stream(c, func(ctx context.Context) (string, templ.Component, bool, error) {
		version, err := s.Replays.Changed(ctx, id)
		if err != nil {
			return "", nil, false, fmt.Errorf("watch replay %d: %w", id, err)
		}
		r, err := s.Replays.Get(ctx, id)
		if err != nil {
			return "", nil, false, fmt.Errorf("watch replay %d: %w", id, err)
		}
		if began == "" {
			began = replayStateWord(r)
		}
		now := here
		now.Now = s.Clock()
		// Another state has other buttons: the page is loaded anew.
		done := !live(r) || replayStateWord(r) != began
		p, err := s.progress(ctx, now, r, progressOf(now, r, ""))
		if err != nil {
			return "", nil, false, err
		}
		return strconv.FormatInt(version, 10), views.ReplayProgress(p), done, nil
	})
}
