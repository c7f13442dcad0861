package web

import (
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"oncemore/compensate"
	"oncemore/reconcile"
)

// proposeLimit is how many breaks one command may name or find.
const proposeLimit = 1000

// proposeJSON is the body of POST /compensations.
type proposeJSON struct {
	Action string         `json:"action"`
	Breaks []int64        `json:"break_ids"`
	Filter map[string]any `json:"filter"` // the parameters of GET /breaks
	Reason string         `json:"reason"`
	DryRun bool           `json:"dry_run"`
}

type proposedJSON struct {
	Action string              `json:"action"`
	IDs    []int64             `json:"ids"` // empty in a dry run
	Totals []totalJSON         `json:"totals"`
	Items  []repairPreviewJSON `json:"items"` // in a dry run
	More   bool                `json:"more"`  // the filter found more than one command takes
}

type totalJSON struct {
	Currency string `json:"currency"`
	Items    int64  `json:"items"`
	Amount   string `json:"amount"` // without signs
}

type repairPreviewJSON struct {
	BreakID  int64         `json:"break_id"`
	EventID  *string       `json:"event_id"`
	Currency string        `json:"currency"`
	Amount   string        `json:"amount"`
	Checkers int           `json:"checkers"`
	Effect   []effectJSON  `json:"effect"`
	Hash     *string       `json:"hash"`
	Counted  []countedJSON `json:"counted"`
	Problem  *string       `json:"problem"` // null: it can be proposed
	Already  *int64        `json:"compensation_id"`
}

func totalsOf(totals []compensate.Total) []totalJSON {
	all := make([]totalJSON, 0, len(totals))
	for _, t := range totals {
		all = append(all, totalJSON{t.Currency, t.Items, t.Amount.String()})
	}
	return all
}

func repairPreviewOf(p compensate.Preview) repairPreviewJSON {
	out := repairPreviewJSON{
		BreakID: p.Break.ID, EventID: p.Break.EventID, Currency: p.Break.Currency, Amount: p.Break.Amount.String(), Checkers: p.Checkers,
		Effect: effectOf(p.Effect), Hash: known(hex.EncodeToString(p.Hash)), Counted: countedOf(p.Counted),
	}
	if p.Problem != nil {
		out.Problem = known(plainText(p.Problem))
	}
	if p.Already != 0 {
		out.Already = &p.Already
	}
	return out
}

func (s *Server) apiCompensationPropose(c echo.Context) error {
	if err := noQuery(c); err != nil {
		return err
	}
	var body proposeJSON
	if err := decode(c, &body); err != nil {
		return err
	}
	breaks, more, err := s.breaksOf(c, body)
	if err != nil {
		return err
	}
	ctx, actor := c.Request().Context(), actorBecause(c, body.Reason)
	out := proposedJSON{Action: body.Action, IDs: []int64{}, Items: []repairPreviewJSON{}, More: more}
	if !body.DryRun {
		if out.IDs, err = s.Compensations.Propose(ctx, actor, body.Action, breaks); err != nil {
			return err
		}
		totals, err := s.Compensations.Totals(ctx, compensate.Filter{IDs: out.IDs})
		if err != nil {
			return err
		}
		out.Totals = totalsOf(totals)
		return answer(c, http.StatusCreated, out)
	}
	previews, err := s.Compensations.Preview(ctx, actor, body.Action, breaks, previewCounted)
	if err != nil {
		return err
	}
	for _, p := range previews {
		out.Items = append(out.Items, repairPreviewOf(p))
	}
	out.Totals = totalsOf(previewTotals(previews))
	return answer(c, http.StatusOK, out)
}

// previewCounted is of how many the rows are counted: each asks a business database.
const previewCounted = 50

// previewTotals adds up what can be proposed.
func previewTotals(previews []compensate.Preview) []compensate.Total {
	by := map[string]compensate.Total{}
	for _, p := range previews {
		if p.Problem == nil {
			t := by[p.Break.Currency]
			by[p.Break.Currency] = compensate.Total{Currency: p.Break.Currency, Items: t.Items + 1, Amount: t.Amount.Add(p.Break.Amount.Abs())}
		}
	}
	var all []compensate.Total
	for _, currency := range sortedKeys(by) {
		all = append(all, by[currency])
	}
	return all
}

// breaksOf is what the body names, or finds, and whether it finds more.
func (s *Server) breaksOf(c echo.Context, body proposeJSON) ([]int64, bool, error) {
	switch {
	case body.Action == "":
		return nil, false, invalid("action", "is missing")
	case (len(body.Breaks) > 0) == (body.Filter != nil):
		return nil, false, invalid("break_ids", "is given, or filter is: one of both")
	case len(body.Breaks) > proposeLimit:
		return nil, false, invalid("break_ids", fmt.Sprintf("names at most %d breaks", proposeLimit))
	case body.Filter == nil:
		return body.Breaks, false, nil
	}
	q, err := queryFromJSON(c, body.Filter)
	if err != nil {
		return nil, false, err
	}
	f, err := breakFilter(q)
	if err != nil {
		return nil, false, inFilter(err)
	}
	return s.findBreaks(c, f)
}

// findBreaks lists what a filter finds, oldest first, up to the limit.
func (s *Server) findBreaks(c echo.Context, f reconcile.BreakFilter) ([]int64, bool, error) {
	f.Limit = proposeLimit
	found, more, err := s.Reconcile.Breaks.List(c.Request().Context(), f, s.Clock())
	if err != nil {
		return nil, false, err
	}
	ids := make([]int64, len(found))
	for i, b := range found {
		ids[len(found)-1-i] = b.ID
	}
	return ids, more, nil
}

// batchJSON is the body of POST /compensations/approve. A dry run names
// compensations, and answers what an approval would be bound to; an approval
// names each with the hash that was shown.
type batchJSON struct {
	IDs     []int64        `json:"ids"`
	Filter  map[string]any `json:"filter"` // the parameters of GET /compensations
	Approve []seenJSON     `json:"approve"`
	Reason  string         `json:"reason"`
	DryRun  bool           `json:"dry_run"`
}

type seenJSON struct {
	ID   int64  `json:"id"`
	Hash string `json:"hash"`
}

type batchItemJSON struct {
	ID       int64  `json:"id"`
	Hash     string `json:"hash"`
	Action   string `json:"action"`
	Currency string `json:"currency"`
	Amount   string `json:"amount"`
	AskedBy  string `json:"asked_by"`
}

type approvingJSON struct {
	Totals  []totalJSON     `json:"totals"`
	Items   []batchItemJSON `json:"items"`   // that may be approved, the largest amount of a currency first
	Own     []int64         `json:"own"`     // asked for by the reader: somebody else has to approve them
	Agreed  []int64         `json:"agreed"`  // approved by the reader; others are still needed
	More    bool            `json:"more"`    // the filter found more than one command takes
	Results []resultJSON    `json:"results"` // of an approval
}

type resultJSON struct {
	ID      int64   `json:"id"`
	Problem *string `json:"problem"` // null: approved
}

func (s *Server) apiCompensationsApprove(c echo.Context) error {
	if err := noQuery(c); err != nil {
		return err
	}
	var body batchJSON
	if err := decode(c, &body); err != nil {
		return err
	}
	if body.DryRun {
		return s.answerBatch(c, body)
	}
	seen, err := body.seen()
	if err != nil {
		return err
	}
	results, err := s.Compensations.ApproveAll(c.Request().Context(), actorBecause(c, body.Reason), seen)
	if err != nil {
		return err
	}
	out := approvingJSON{Totals: []totalJSON{}, Items: []batchItemJSON{}, Own: []int64{}, Agreed: []int64{}, Results: []resultJSON{}}
	for _, r := range results {
		one := resultJSON{ID: r.ID}
		if r.Err != nil {
			one.Problem = known(plainText(r.Err))
		}
		out.Results = append(out.Results, one)
	}
	return answer(c, http.StatusOK, out)
}

func (b batchJSON) seen() ([]compensate.Seen, error) {
	if len(b.Approve) == 0 || len(b.Approve) > compensate.BatchLimit {
		return nil, invalid("approve", fmt.Sprintf("names 1 to %d compensations with the hash that was shown", compensate.BatchLimit))
	}
	seen := make([]compensate.Seen, 0, len(b.Approve))
	for i, one := range b.Approve {
		hash, err := parseHash(fmt.Sprintf("approve/%d/hash", i), one.Hash)
		if err != nil {
			return nil, err
		}
		seen = append(seen, compensate.Seen{ID: one.ID, Hash: hash})
	}
	return seen, nil
}

func (s *Server) answerBatch(c echo.Context, body batchJSON) error {
	if (len(body.IDs) > 0) == (body.Filter != nil) {
		return invalid("ids", "is given, or filter is: one of both")
	}
	f := compensate.Filter{IDs: body.IDs}
	if body.Filter != nil {
		q, err := queryFromJSON(c, body.Filter)
		if err != nil {
			return err
		}
		f = compensationFilter(q)
		if err := q.done(); err != nil {
			return inFilter(err)
		}
	}
	b, err := s.Compensations.Batch(c.Request().Context(), actorOf(c), f)
	if err != nil {
		return err
	}
	out := approvingJSON{Totals: totalsOf(b.Totals), Items: []batchItemJSON{}, Own: idsOf(b.Own), Agreed: idsOf(b.Agreed), More: b.More, Results: []resultJSON{}}
	for _, r := range b.Yours {
		out.Items = append(out.Items, batchItemJSON{r.ID, hex.EncodeToString(r.Hash), r.Action, r.Currency, r.Amount.String(), r.AskedBy})
	}
	return answer(c, http.StatusOK, out)
}

// plainText is an error of compensate/ without the package's name.
func plainText(err error) string { return strings.TrimPrefix(err.Error(), "compensate: ") }

func idsOf(rows []compensate.Row) []int64 {
	ids := make([]int64, 0, len(rows))
	for _, r := range rows {
		ids = append(ids, r.ID)
	}
	return ids
}
