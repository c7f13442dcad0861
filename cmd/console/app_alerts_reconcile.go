package main

import (
	"context"
	"net/url"
	"strconv"

	"oncemore/internal/alert"
	"oncemore/reconcile"
	"oncemore/views/locale"
)

// eachStanding makes conditions of how the jobs stand.
func (a *app) eachStanding(ctx context.Context, look func(reconcile.Standing) []alert.Condition) (out []alert.Condition, err error) {
	all, err := a.reconcile.jobs.Standings(ctx)
	for _, s := range all {
		out = append(out, look(s)...)
	}
	return out, err
}

// lookForFailedRuns finds jobs whose last run failed; the next one that does not
// ends the alert.
func (a *app) lookForFailedRuns(ctx context.Context) ([]alert.Condition, error) {
	return a.eachStanding(ctx, func(s reconcile.Standing) []alert.Condition {
		if s.State != reconcile.Failed {
			return nil
		}
		id := strconv.FormatInt(s.LastRun, 10)
		return []alert.Condition{{Key: "job/" + s.Job, Href: "/runs/" + id, Args: map[string]any{"job": s.Job, "id": id, "why": orMissing(&s.Error)}}}
	})
}

func (a *app) lookForOverdueRuns(ctx context.Context) ([]alert.Condition, error) {
	now, most := a.clock(), a.olderThan("run_overdue")
	return a.eachStanding(ctx, func(s reconcile.Standing) []alert.Condition {
		late := s.Overdue(now)
		if late <= most {
			return nil
		}
		return []alert.Condition{{Key: "job/" + s.Job, Href: jobHref(s.Job), Args: map[string]any{"job": s.Job, "age": int64(late.Seconds())}}}
	})
}

// lookAtRisk finds currencies of a job in which more is open than the config allows.
func (a *app) lookAtRisk(ctx context.Context) ([]alert.Condition, error) {
	limits := a.ruleOf("at_risk").Amounts
	if len(limits) == 0 {
		return nil, nil
	}
	return a.eachStanding(ctx, func(s reconcile.Standing) (out []alert.Condition) {
		for currency, line := range s.AtRisk {
			limit, watched := limits[currencyKey(currency)]
			if !watched {
				continue
			}
			most, err := reconcile.ParseAmount(limit)
			if err != nil || line.Amount.Cmp(most) <= 0 {
				continue // the config was checked
			}
			out = append(out, alert.Condition{Key: "job/" + s.Job + "/" + currency, Href: "/breaks?job=" + s.Job + "&currency=" + url.QueryEscape(currency), Args: map[string]any{
				"job": s.Job, "n": line.Keys, "amount": locale.Money(line.Amount.String(), currency), "limit": locale.Money(limit, currency),
			}})
		}
		return out
	})
}

// currencyKey is what the config calls a currency.
func currencyKey(currency string) string {
	if currency == "" {
		return "none"
	}
	return currency
}

func (a *app) lookForOldBreaks(ctx context.Context) ([]alert.Condition, error) {
	now, most := a.clock(), a.olderThan("break_age")
	return a.eachStanding(ctx, func(s reconcile.Standing) []alert.Condition {
		if s.Oldest == nil || now.Sub(*s.Oldest) <= most {
			return nil
		}
		return []alert.Condition{{Key: "job/" + s.Job, Href: "/breaks?job=" + s.Job, Args: map[string]any{
			"job": s.Job, "n": s.Open(), "age": int64(now.Sub(*s.Oldest).Seconds()),
		}}}
	})
}

func jobHref(job string) string { return "/reconciliations/" + job }
