package web

import (
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"oncemore/compensate"
	"oncemore/internal/access"
	"oncemore/views"
	"oncemore/views/locale"
)

// batchShown is how many of a batch the page lists; all are added up.
const batchShown = 100

func (s *Server) compensationBatchPage(c echo.Context) error {
	f, err := batchFilter(c)
	if err != nil {
		return err
	}
	return s.showBatch(c, f, refused{}, nil)
}

// batchFilter reads what was selected: single ones, or all that a list holds.
func batchFilter(c echo.Context) (compensate.Filter, error) {
	values := c.QueryParams()
	if values.Get("all") != "" {
		q := queryFrom(c, values.Get("filter"))
		f := compensationFilter(q)
		return f, q.done()
	}
	ids, err := parseIDs("id", values["id"])
	if err == nil && len(ids) == 0 {
		err = &fieldError{Field: "id", Text: "names no compensation: select some in the list"}
	}
	return compensate.Filter{IDs: ids}, err
}

func parseIDs(field string, texts []string) ([]int64, error) {
	ids := make([]int64, 0, len(texts))
	for _, text := range texts {
		id, err := parseID(field, text, 64)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

func (s *Server) showBatch(c echo.Context, f compensate.Filter, was refused, results []compensate.Result) error {
	here, actor := localeOf(c), actorOf(c)
	b, err := s.Compensations.Batch(c.Request().Context(), actor, f)
	if err != nil {
		return err
	}
	n := len(b.Yours)
	v := views.CompensationBatch{
		Frame: s.pageFrame(c, "compensations", here.Text("compensation.batch_title", "n", n), repairCrumbs(here, "compensations", here.Text("compensations.approve"))...),
		N:     n, Shown: min(n, batchShown), Totals: batchTotals(b), NotYours: notYours(here, b), May: actor.May(access.ApproveCompensation),
		WhoMay: here.Text("may.approve_compensation", "roles", rolesOf(here, access.ApproveCompensation)), Error: was.Text, Reason: was.Reason,
	}
	v.Confirm, v.Button = batchConfirm(here, b), here.Text("compensation.batch_approve", "n", n, "amounts", totalsText(here, b.Totals))
	if b.More {
		v.More = here.Text("compensation.batch_more", "n", compensate.BatchLimit)
	}
	for _, r := range b.Yours {
		v.Rows = append(v.Rows, compensationRow(here, r))
		v.Items = append(v.Items, strconv.FormatInt(r.ID, 10)+":"+hex.EncodeToString(r.Hash))
	}
	for _, r := range results {
		if r.Err == nil {
			v.Approved++
			continue
		}
		why, _ := financeRefusal(here, r.Err, "")
		v.Refused = append(v.Refused, views.BatchNote{Text: why.Text, Links: []views.Param{compensationLink(r.ID)}})
	}
	return render(c, was.status(), views.CompensationBatchPage(v))
}

func compensationLink(id int64) views.Param {
	text := strconv.FormatInt(id, 10)
	return views.Param{Name: "C-" + text, Value: "/compensations/" + text}
}

func batchTotals(b compensate.Batch) []views.TotalRow {
	rows := make([]views.TotalRow, 0, len(b.Totals))
	for i, t := range b.Totals {
		largest := compensationLink(b.Largest[i].ID)
		rows = append(rows, views.TotalRow{
			Currency: t.Currency, Items: int(t.Items), Amount: locale.Money(t.Amount.String(), t.Currency),
			Largest: largest.Name, Href: largest.Value, Max: locale.Money(b.Largest[i].Amount.Abs().String(), t.Currency),
		})
	}
	return rows
}

// totalsText lists the amounts of several currencies, which are never added up.
func totalsText(here locale.Locale, totals []compensate.Total) string {
	all := make([]string, 0, len(totals))
	for _, t := range totals {
		all = append(all, locale.Money(t.Amount.String(), t.Currency))
	}
	return here.List(all)
}

// notYours says which of them the reader may not approve, and why.
func notYours(here locale.Locale, b compensate.Batch) []views.BatchNote {
	var notes []views.BatchNote
	add := func(key string, rows []compensate.Row) {
		if len(rows) == 0 {
			return
		}
		note := views.BatchNote{Text: here.Text(key, "n", len(rows))}
		for _, r := range rows[:min(len(rows), 10)] {
			note.Links = append(note.Links, compensationLink(r.ID))
		}
		notes = append(notes, note)
	}
	add("compensation.batch_own", b.Own)
	add("compensation.batch_agreed", b.Agreed)
	if b.Other > 0 {
		notes = append(notes, views.BatchNote{Text: here.Text("compensation.batch_other", "n", b.Other)})
	}
	return notes
}

func batchConfirm(here locale.Locale, b compensate.Batch) string {
	first, more := 0, 0
	for _, r := range b.Yours {
		if r.Checkers > r.Approvals+1 {
			more++
		} else {
			first++
		}
	}
	parts := []string{here.Text("compensation.batch_confirm", "n", len(b.Yours), "amounts", totalsText(here, b.Totals))}
	if more > 0 {
		parts = append(parts, here.Text("compensation.batch_second", "n", more, "start", locale.Number(int64(first))))
	}
	return strings.Join(parts, here.Text("sentence.gap"))
}

// compensationBatchApprove approves each as it was shown. What was not approved
// is said; the others are not held up.
func (s *Server) compensationBatchApprove(c echo.Context) error {
	form, err := c.FormParams()
	if err != nil {
		return fmt.Errorf("read form: %w", err)
	}
	reason, err := reasonOf(c)
	if err != nil {
		return err
	}
	seen, f, err := seenItems(form)
	if err != nil {
		return err
	}
	results, err := s.Compensations.ApproveAll(c.Request().Context(), actorBecause(c, reason), seen)
	if err != nil {
		was, ok := financeRefusal(localeOf(c), err, reason)
		if !ok {
			return err
		}
		return s.showBatch(c, f, was, nil)
	}
	for _, r := range results {
		if r.Err != nil {
			return s.showBatch(c, f, refused{Status: http.StatusConflict}, results)
		}
	}
	return c.Redirect(http.StatusSeeOther, address("/compensations", "state", "at_work", "did", "approved", "n", strconv.Itoa(len(results))))
}

// seenItems reads id:hash of each.
func seenItems(form url.Values) ([]compensate.Seen, compensate.Filter, error) {
	var seen []compensate.Seen
	var f compensate.Filter
	for _, item := range form["item"] {
		number, digest, _ := strings.Cut(item, ":")
		id, err := parseID("item", number, 64)
		if err != nil {
			return nil, f, err
		}
		hash, err := parseHash("item", digest)
		if err != nil {
			return nil, f, err
		}
		seen, f.IDs = append(seen, compensate.Seen{ID: id, Hash: hash}), append(f.IDs, id)
	}
	if len(seen) == 0 {
		return nil, f, invalid("item", "names no compensation")
	}
	return seen, f, nil
}
