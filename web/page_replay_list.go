package web

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"oncemore/dlq"
	"oncemore/views"
	"oncemore/views/locale"
	"oncemore/views/ui"
)

// replayTabs are the states over the list, in order.
var replayTabs = []dlq.ReplayState{dlq.Running, dlq.AwaitingApproval, dlq.Planned, dlq.Scheduled, dlq.Paused, dlq.Done, dlq.Canceled}

func (s *Server) replayListPage(c echo.Context) error {
	q := parseQuery(c)
	filter := replayFilter(q)
	started, page := q.take("started"), q.page()
	if err := q.done(); err != nil {
		return err
	}
	found, err := s.Replays.List(c.Request().Context(), filter, page)
	if err != nil {
		return fmt.Errorf("list replays: %w", err)
	}
	here := localeOf(c)
	at := func(state dlq.ReplayState, cursor string) string { return replaysAddress(filter, state, cursor) }
	v := views.ReplayList{
		Frame: s.pageFrame(c, "replays", here.Text("replays.title"), crumbs(here, "replays", "")...),
		Pager: firstPager(here, at(filter.State, ""), page.Cursor, found.Next, func(cursor string) string { return at(filter.State, cursor) }),
		Empty: views.Empty{Text: here.Text("replays.none"), Href: "/faults", Link: here.Text("nav.faults")},
	}
	v.Started, _ = strconv.Atoi(started)
	if filter != (dlq.ReplayFilter{}) {
		v.Empty = views.Empty{Text: here.Text("replays.none_tab")}
	}
	v.Tabs = append(v.Tabs, ui.Tab{Label: here.Text("replays.tab.all"), Href: at(0, ""), Current: filter.State == 0})
	for _, state := range replayTabs {
		v.Tabs = append(v.Tabs, ui.Tab{Label: here.Text("state.replay." + state.String()), Href: at(state, ""), Current: filter.State == state})
	}
	for _, r := range found.Items {
		v.Rows = append(v.Rows, replayRow(here, r))
	}
	return render(c, 200, views.ReplayListPage(v))
}

func replaysAddress(f dlq.ReplayFilter, state dlq.ReplayState, cursor string) string {
	fault := ""
	if f.FaultID > 0 {
		fault = strconv.Itoa(int(f.FaultID))
	}
	return address("/replays", "state", state.String(), "fault_id", fault, "by", f.By, "cursor", cursor)
}

func replayRow(here locale.Locale, r dlq.Replay) views.ReplayRow {
	row := views.ReplayRow{
		ID: r.ID, Href: "/replays/" + strconv.FormatInt(r.ID, 10), State: replayStateWord(r), What: replayWhat(here, r),
		Target: targetNamesOf(here, r.Targets), Total: r.Total, Sent: r.Sent, Outcomes: outcomeSplit(r.Outcomes), Whole: outcomeWhole(r),
		By: r.CreatedBy, Created: r.CreatedAt, Says: replaySays(here, r),
	}
	if r.State == dlq.Planned || r.State == dlq.AwaitingApproval {
		row.Href += "/plan"
	}
	if r.FinishedAt != nil {
		start := r.CreatedAt
		if r.StartedAt != nil {
			start = *r.StartedAt
		}
		row.Took = max(r.FinishedAt.Sub(start), time.Millisecond)
	}
	return row
}

// replayStateWord is the state as pages name it: stopped by itself, and done
// without all being seen, have words of their own.
func replayStateWord(r dlq.Replay) string {
	switch {
	case r.State == dlq.Paused && r.PausedBy == "rung":
		return "rung"
	case r.State == dlq.Paused && r.PausedBy == "stop_rule":
		return "stopped"
	case r.State == dlq.Done && unseen(r) > 0:
		return "done_unseen"
	}
	return r.State.String()
}

// unseen is how many outcomes say that nobody knows.
func unseen(r dlq.Replay) int {
	return r.Outcomes[dlq.NotSeen] + r.Outcomes[dlq.Unconfirmed] + r.Outcomes[dlq.Unverified]
}

func replayWhat(here locale.Locale, r dlq.Replay) string {
	letters := here.Text("count.letters", "n", r.Letters)
	if r.FaultID != nil {
		return here.Text("replay.what_fault", "letters", letters, "id", strconv.Itoa(int(*r.FaultID)))
	}
	return letters
}

func targetNamesOf(here locale.Locale, targets []dlq.ReplayTarget) string {
	if len(targets) > 3 {
		return here.Text("plan.targets", "n", len(targets))
	}
	var topics []string
	for _, t := range targets {
		topics = append(topics, t.Topic)
	}
	return here.List(topics)
}

// outcomeWhole is what a full bar stands for: every outcome there will be.
func outcomeWhole(r dlq.Replay) int {
	known := 0
	for o, n := range r.Outcomes {
		if o != 0 {
			known += n
		}
	}
	return max(known+r.Waiting, r.Total)
}

// replaySays is the replay in one sentence, in words that never say more than is known.
func replaySays(here locale.Locale, r dlq.Replay) string {
	var parts []string
	for _, count := range outcomeSplit(r.Outcomes) {
		parts = append(parts, here.Text("replay.said."+count.Name, "n", count.N))
	}
	all := strings.Join(parts, here.Text("list.comma"))
	switch state := replayStateWord(r); {
	case r.State == dlq.Planning:
		return here.Text("replay.says.planning")
	case r.Total == 0 && r.Sent == 0:
		return here.Text("replay.says.nothing")
	case state == "scheduled" && r.Pace.StartAt != nil:
		return here.Text("replay.says.scheduled_at", "n", r.Total, "time", here.Short(*r.Pace.StartAt))
	case state == "planned", state == "awaiting_approval", state == "scheduled":
		return here.Text("replay.says."+state, "n", r.Total)
	case state == "running" && all == "":
		return here.Text("replay.says.running_none", "sent", r.Sent, "n", r.Total)
	case state == "running":
		return here.Text("replay.says.running", "sent", r.Sent, "n", r.Total, "parts", all)
	case state == "paused", state == "stopped", state == "rung":
		return strings.TrimSpace(here.Text("replay.says."+state, "n", r.Waiting, "parts", fullStop(here, all)))
	case state == "canceled":
		return strings.TrimSpace(here.Text("replay.says.canceled", "sent", r.Sent, "n", r.Total, "parts", fullStop(here, all)))
	case all == "":
		return here.Text("replay.says.none")
	case state == "done_unseen":
		return here.Text("replay.says.done_unseen", "n", unseen(r), "parts", all)
	}
	return here.Text("replay.says.done", "parts", all)
}

// fullStop ends text as a sentence; nothing stays nothing.
func fullStop(here locale.Locale, text string) string {
	if text == "" {
		return ""
	}
	return text + here.Text("sentence.stop")
}
