package web

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"oncemore/dlq"
	"oncemore/internal/access"
	"oncemore/internal/fleet"
	"oncemore/views"
	"oncemore/views/locale"
	"oncemore/views/ui"
)

// refusedShown is how many refusals the plan's page lists.
const refusedShown = 100

func (s *Server) replayPlanPage(c echo.Context) error { return s.showReplayPlan(c, refused{}) }

func (s *Server) showReplayPlan(c echo.Context, was refused) error {
	id, err := numberID(c, 64)
	if err != nil {
		return dlq.ErrNotFound
	}
	if err := noQuery(c); err != nil {
		return err
	}
	ctx, here := c.Request().Context(), localeOf(c)
	r, err := s.Replays.Get(ctx, id)
	if err != nil {
		return fmt.Errorf("get replay %d: %w", id, err)
	}
	left, err := s.Replays.Refused(ctx, id, dlq.Page{Limit: refusedShown})
	if err != nil {
		return fmt.Errorf("list refusals of replay %d: %w", id, err)
	}
	name := "R-" + strconv.FormatInt(id, 10)
	form := s.replayForm(c, r.Reason, was)
	v := views.ReplayPlan{
		Frame: s.pageFrame(c, "replays", here.Text("plan.title", "id", strconv.FormatInt(id, 10)), crumbs(here, "replays", name)...),
		ID:    id, State: replayStateWord(r), By: r.CreatedBy, FrozenAt: r.CreatedAt, What: replayWhat(here, r), Total: r.Total,
		Verdicts: verdictSplit(r.Verdicts), Targets: planTargets(r.Targets), Refused: refusedRows(here, left.Items), RefusedN: r.Refused,
		Overrides: overrideRows(r.Overrides), Form: form, Confirm: planConfirm(here, r), Approval: approvalOf(c, r),
		Target: targetNames[r.Target],
	}
	if err := s.fillPlan(c, &v, r); err != nil {
		return err
	}
	if r.Target == dlq.ToGroup {
		v.Targetless = targetless(left.Items)
	}
	if left.Next != "" {
		v.RefusedAll = address("/replays/"+strconv.FormatInt(id, 10), "tab", "refused")
	}
	return render(c, was.status(), views.ReplayPlanPage(v))
}

// fillPlan adds pace, elders, and whether the fault still grows.
func (s *Server) fillPlan(c echo.Context, v *views.ReplayPlan, r dlq.Replay) error {
	ctx, here := c.Request().Context(), localeOf(c)
	v.Pace, v.Bound, v.EldersN, v.EldersCut = s.paceForm(c, r), r.Bound(), r.Elders, r.EldersBounded
	if r.State == dlq.Canceled {
		v.Failed = reasonText(here, r.Wait)
	}
	if r.Elders > 0 {
		elders, err := s.Replays.Elders(ctx, r.ID, eldersListed)
		if err != nil {
			return fmt.Errorf("list elders of replay %d: %w", r.ID, err)
		}
		for _, e := range elders {
			v.Elders = append(v.Elders, views.ElderRow{LetterID: e.LetterID.String(), EventID: deref(e.EventID), ItemKey: strings.TrimPrefix(e.ItemKey, "\x01")})
		}
	}
	var err error
	v.Growing, err = s.growing(c, r)
	return err
}

// eldersListed is how many elders the plan's page names.
const eldersListed = 10

// growing says whether the replay's fault still gets letters, and whose consumer
// might be paused first; nil where it does not grow, or the replay has ended.
func (s *Server) growing(c echo.Context, r dlq.Replay) (*views.Growing, error) {
	if r.FaultID == nil || r.State == dlq.Done || r.State == dlq.Canceled {
		return nil, nil
	}
	ctx := c.Request().Context()
	f, err := s.Faults.Get(ctx, *r.FaultID)
	if errors.Is(err, dlq.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get fault %d: %w", *r.FaultID, err)
	}
	if s.Clock().Sub(f.LastSeen) > growsWithin {
		return nil, nil
	}
	g := &views.Growing{FaultID: strconv.Itoa(int(f.ID)), LastHour: int(f.LastHour), Group: deref(f.Group), Back: c.Request().URL.Path}
	if g.Group == "" || s.Fleet == nil {
		return g, nil
	}
	group, err := s.Fleet.Group(ctx, g.Group)
	if errors.Is(err, fleet.ErrUnknownGroup) {
		return g, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get consumer group %s: %w", g.Group, err)
	}
	g.Paused = group.Command != nil && group.Command.Paused
	g.May = group.Ours && actorOf(c).May(access.PauseConsumer)
	return g, nil
}

// growsWithin is how recent a fault's last letter is while it counts as growing.
const growsWithin = 10 * time.Minute

func planTargets(targets []dlq.ReplayTarget) []views.PlanTarget {
	var all []views.PlanTarget
	for _, t := range targets {
		row := views.PlanTarget{Cluster: t.Cluster, Topic: t.Topic, Groups: t.Groups}
		for _, g := range t.Groups {
			row.Splits = append(row.Splits, verdictSplit(t.Verdicts[g]))
		}
		all = append(all, row)
	}
	return all
}

// refusedRows joins the groups of one letter. A letter may be overridden if all
// that keeps it may be.
func refusedRows(here locale.Locale, refusals []dlq.Refusal) []views.RefusedRow {
	var rows []views.RefusedRow
	for _, f := range refusals {
		id := f.LetterID.String()
		if len(rows) == 0 || rows[len(rows)-1].LetterID != id {
			rows = append(rows, views.RefusedRow{LetterID: id, EventID: deref(f.EventID), Override: id})
		}
		row := &rows[len(rows)-1]
		row.Groups = append(row.Groups, views.RefusedGroup{Name: f.Group, Verdict: f.Verdict.String(), Reason: reasonText(here, f.Reason)})
		if row.Override != "" {
			row.Override += "|" + f.Verdict.String() + "|" + f.Group
		}
		if !f.Reason.MayOverride(f.Verdict) {
			row.Override = ""
		}
	}
	return rows
}

// targetless are the refused letters that no topic reaches only their own group.
func targetless(refusals []dlq.Refusal) []string {
	var ids []string
	for _, f := range refusals {
		if f.Reason.Key == "reason.no_group_target" || f.Reason.Key == "reason.no_group" {
			ids = append(ids, f.LetterID.String())
		}
	}
	return ids
}

// overridesOf reads the ticked boxes back: letter|verdict|group|verdict|group…
func overridesOf(ticked []string, reason string) ([]dlq.Override, []uuid.UUID, error) {
	var overrides []dlq.Override
	var letters []uuid.UUID
	for _, value := range ticked {
		parts := strings.Split(value, "|")
		id, err := parseUUID("override", parts[0])
		if err != nil {
			return nil, nil, err
		}
		letters = append(letters, id)
		for i := 1; i+1 < len(parts); i += 2 {
			verdict, err := choice("override", parts[i], verdictsByName)
			if err != nil {
				return nil, nil, err
			}
			overrides = append(overrides, dlq.Override{LetterID: id, Verdict: verdict, Group: parts[i+1], Reason: reason})
		}
	}
	return overrides, letters, nil
}

func overrideRows(overrides []dlq.Override) []views.OverrideRow {
	var rows []views.OverrideRow
	for _, o := range overrides {
		rows = append(rows, views.OverrideRow{LetterID: o.LetterID.String(), EventID: o.EventID, Group: o.Group, Verdict: o.Verdict.String(), Reason: o.Reason})
	}
	return rows
}

// planConfirm says count, target and split: what starting will do.
func planConfirm(here locale.Locale, r dlq.Replay) string {
	if r.Total == 0 {
		return here.Text("plan.confirm_nothing", "n", r.Letters)
	}
	var split []string
	for _, count := range verdictSplit(r.Verdicts) {
		split = append(split, here.Text("fault.stay_one", "n", count.N, "verdict", here.Inside(here.Text(ui.VerdictKey(count.Name)))))
	}
	key := "plan.confirm"
	if r.Refused > 0 { // the verdicts are those of all, not of what is sent
		key = "plan.confirm_stay"
	}
	return here.Text(key, "stay", r.Refused, "items", here.Text("plan.items", "n", r.Total), "target", targetNamesOf(here, r.Targets),
		"split", strings.Join(split, here.Text("list.comma")))
}

func approvalOf(c echo.Context, r dlq.Replay) views.Approval {
	here, actor := localeOf(c), actorOf(c)
	v := views.Approval{Needed: r.ApprovalNeeded, At: r.ApprovedAt, Reason: r.ApprovalReason, By: deref(r.ApprovedBy), Until: r.ApprovedUntil, Because: here.Text("approval.because_size")}
	switch {
	case len(r.Overrides) > 0:
		v.Because = here.Text("approval.because_override")
	case r.Sensitive:
		v.Because = here.Text("approval.because_sensitive")
	}
	if r.RejectedBy != nil {
		v.Rejected, v.By, v.At = true, *r.RejectedBy, r.FinishedAt
	}
	roles := rolesOf(here, access.ApproveReplay)
	switch {
	case r.State != dlq.AwaitingApproval:
	case r.CreatedBy == actor.User:
		v.Says = here.Text("approval.yours", "roles", roles)
	case actor.May(access.ApproveReplay):
		v.May = true
	default:
		v.Says = here.Text("may.approve", "roles", roles)
	}
	return v
}
