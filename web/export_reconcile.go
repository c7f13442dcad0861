package web

import (
	"encoding/hex"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"oncemore/dlq/export"
	"oncemore/internal/audit"
	"oncemore/reconcile"
)

// exportPage is how many rows an export reads at once.
const exportPage = 1000

var breakColumns = []string{"id", "job", "key", "event_id", "type", "state", "currency", "difference",
	"published_rows", "published_amount", "consumed_rows", "consumed_amount", "effect_rows", "effect_amount",
	"opened_at", "opened_run", "seen_at", "seen_run", "closed_at", "closed_run", "closed_how", "returns", "owner", "reason_code", "explanation", "explained_by"}

// breakCells are a break's cells: ids and amounts as text, exact, so that no
// program rounds them.
func breakCells(b reconcile.Break) []any {
	cells := []any{b.ID, b.Job, strings.Join(b.Key, " · "), b.EventID, string(b.Type), b.State.String(), b.Currency, b.Amount.String()}
	for _, side := range b.Sides {
		cells = append(cells, int64(side.Rows), sideAmount(side))
	}
	return append(cells, b.OpenedAt, b.OpenedRun, b.SeenAt, b.SeenRun, b.ClosedAt, b.ClosedRun, b.ClosedHow, int64(b.Returns), b.Owner, b.ReasonCode, b.Explanation, b.ExplainedBy)
}

// sideAmount is what a side has, nil where it has nothing.
func sideAmount(s reconcile.FindingSide) any {
	if s.Rows == 0 || s.Nulls == s.Rows {
		return nil
	}
	return s.Amount.String()
}

// sendBreaks writes down that somebody takes breaks with them, and sends them
// page by page.
func (s *Server) sendBreaks(c echo.Context, name, format, target string, page func(before int64) ([]reconcile.Break, bool, error)) error {
	return s.export(c, name, export.Format(format), breakColumns, func(put func(...any) error) error {
		if err := s.note(c, actorOf(c), audit.Entry{Action: "breaks.exported", Target: target, Detail: map[string]string{"format": format}}); err != nil {
			return err
		}
		for before := int64(0); ; {
			found, more, err := page(before)
			if err != nil {
				return err
			}
			for _, b := range found {
				if err := put(breakCells(b)...); err != nil {
					return err
				}
			}
			if !more {
				return nil
			}
			before = found[len(found)-1].ID
		}
	})
}

var runColumnNames = []string{"id", "job", "kind", "window_from", "window_to", "state", "sign_off", "currency", "matched", "published_rows", "published_amount",
	"consumed_rows", "consumed_amount", "effect_rows", "effect_amount", "difference", "unaccounted", "opening_breaks", "opening_amount", "closing_breaks", "closing_amount",
	"at_risk_breaks", "at_risk_amount", "asked_by", "started_at", "finished_at", "seal"}

// exportRuns sends a job's runs, a row for each currency.
func (s *Server) exportRuns(c echo.Context) error {
	q := parseQuery(c)
	format := q.take("format")
	if err := q.done(); err != nil {
		return err
	}
	name, err := jobName(c)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	if _, err := s.Reconcile.Jobs.Current(ctx, name); err != nil {
		return err
	}
	return s.export(c, "runs-"+fileName(name), export.Format(format), runColumnNames, func(put func(...any) error) error {
		if err := s.note(c, actorOf(c), audit.Entry{Action: "runs.exported", Target: "job/" + name, Detail: map[string]string{"format": format}}); err != nil {
			return err
		}
		for f := (reconcile.RunFilter{Job: name, Limit: exportPage}); ; {
			runs, more, err := s.Reconcile.Runs.List(ctx, f)
			if err != nil {
				return err
			}
			for _, r := range runs {
				for _, cells := range runCells(r) {
					if err := put(cells...); err != nil {
						return err
					}
				}
			}
			if !more {
				return nil
			}
			f.Before = runs[len(runs)-1].ID
		}
	})
}

// fileName keeps what every file system takes.
func fileName(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '_'
	}, s)
}

func runCells(r reconcile.Run) [][]any {
	tally, roll := r.Tally, map[string]reconcile.RollCurrency{}
	if r.Roll != nil {
		roll = r.Roll.Currencies
	}
	of := currencies(roll)
	if tally != nil {
		of = slices.Compact(slices.Sorted(slices.Values(slices.Concat(of, currencies(r.AtRisk), tally.Currencies()))))
	}
	if len(of) == 0 {
		of = []string{""}
	}
	var rows [][]any
	for _, currency := range of {
		rows = append(rows, runCellsOf(r, currency, roll[currency]))
	}
	return rows
}

func runCellsOf(r reconcile.Run, currency string, roll reconcile.RollCurrency) []any {
	cells := []any{r.ID, r.Job, runKinds[r.Kind], r.From, r.To, r.State.String(), r.Sign.String(), currency}
	if r.Tally == nil {
		cells = append(cells, nil, nil, nil, nil, nil, nil, nil, nil, nil)
	} else {
		cells = append(cells, r.Tally.Matched)
		for _, total := range r.Tally.Control {
			cells = append(cells, total[currency].Rows, total[currency].Amount.String())
		}
		cells = append(cells, r.Tally.Difference(currency).String(), r.Tally.Unexplained(currency).String())
	}
	risk := r.AtRisk[currency]
	return append(cells, roll.Opening.Keys, roll.Opening.Amount.String(), roll.Closing.Keys, roll.Closing.Amount.String(),
		risk.Keys, risk.Amount.String(), r.AskedBy, r.StartedAt, r.FinishedAt, hexOf(r.Seal))
}

func hexOf(b []byte) any {
	if b == nil {
		return nil
	}
	return hex.EncodeToString(b)
}
