package main

import (
	"context"
	"net/url"
	"slices"
	"strconv"

	"oncemore/compensate"
	"oncemore/internal/alert"
	"oncemore/views/locale"
)

// lookForAttention finds actions whose repairs have stopped and need a person.
func (a *app) lookForAttention(ctx context.Context) ([]alert.Condition, error) {
	return a.eachRepairFigure(ctx, func(f compensate.Figure) bool { return f.State == compensate.NeedsAttention }, "needs_attention")
}

// lookForApprovals finds actions whose proposals wait too long for somebody.
func (a *app) lookForApprovals(ctx context.Context) ([]alert.Condition, error) {
	now, most := a.clock(), a.olderThan("approval_age")
	return a.eachRepairFigure(ctx, func(f compensate.Figure) bool { return f.State == compensate.Proposed && now.Sub(f.Oldest) > most }, "awaiting_approval")
}

func (a *app) eachRepairFigure(ctx context.Context, is func(compensate.Figure) bool, state string) (out []alert.Condition, err error) {
	figures, err := a.compensations.Figures(ctx)
	for _, f := range figures {
		if is(f) {
			out = append(out, alert.Condition{Key: "action/" + f.Action, Href: "/compensations?state=" + state + "&action=" + f.Action,
				Args: map[string]any{"action": f.Action, "n": f.Items, "age": int64(a.clock().Sub(f.Oldest).Seconds())}})
		}
	}
	return out, err
}

// lookAtSwitch tells while nothing is repaired by itself.
func (a *app) lookAtSwitch(ctx context.Context) ([]alert.Condition, error) {
	kill, err := a.compensations.Switch(ctx)
	if err != nil || kill.StoppedBy == nil {
		return nil, err
	}
	return []alert.Condition{{Key: "compensations", Href: "/compensations", Args: map[string]any{"by": *kill.StoppedBy, "why": orMissing(kill.Reason)}}}, nil
}

// lookAtDayLimits finds currencies of an action that wait for tomorrow: something
// is approved, and it would be more than is left of today.
func (a *app) lookAtDayLimits(ctx context.Context) (out []alert.Condition, err error) {
	waiting, _, err := a.compensations.List(ctx, compensate.Filter{States: []compensate.State{compensate.Approved}, Limit: 1000})
	if err != nil || len(waiting) == 0 {
		return nil, err
	}
	spent := map[string]map[string]compensate.Spent{}
	told := map[string]bool{}
	for _, w := range slices.Backward(waiting) { // the oldest first: what comes after it waits, too
		if spent[w.Action] == nil {
			today, err := a.compensations.SpentToday(ctx, w.Action)
			if err != nil {
				return nil, err
			}
			spent[w.Action] = map[string]compensate.Spent{}
			for _, s := range today {
				spent[w.Action][s.Currency] = s
			}
		}
		s, key := spent[w.Action][w.Currency], "action/"+w.Action+"/"+w.Currency
		if s.Limit == nil || told[key] || s.Amount.Add(w.Amount.Abs()).Cmp(*s.Limit) <= 0 {
			continue
		}
		told[key] = true
		out = append(out, alert.Condition{Key: key, Href: "/compensations?state=approved&action=" + w.Action + "&currency=" + url.QueryEscape(w.Currency), Args: map[string]any{
			"action": w.Action, "n": s.Items, "amount": locale.Money(s.Amount.String(), w.Currency), "limit": locale.Money(s.Limit.String(), w.Currency), "id": strconv.FormatInt(w.ID, 10),
		}})
	}
	return out, nil
}
