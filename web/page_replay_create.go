package web

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"oncemore/dlq"
	"oncemore/internal/access"
)

// replayOrder is a form that asks for replays: a letter's, a fault's, a list's
// selection or a plan's overrides.
type replayOrder struct {
	selections []dlq.Selection
	overrides  []dlq.Override
	revisions  map[uuid.UUID]int // the form that is sent, where one was chosen
	target     dlq.Target
	reason     string
	key        string
}

// replayCreate plans, and with "safe" also starts: one press, one POST. The key
// of the form makes a second press the same replay.
func (s *Server) replayCreate(c echo.Context) error {
	order, err := orderOf(c)
	if err != nil {
		return err
	}
	from := c.FormValue("from")
	made, err := s.plan(c.Request().Context(), actorBecause(c, order.reason), order)
	if err != nil {
		return s.refuse(c, from, order.reason, fmt.Errorf("plan a replay: %w", err))
	}
	return c.Redirect(http.StatusSeeOther, afterPlan(order, made))
}

// plan makes one replay for each selection: faults have targets of their own.
func (s *Server) plan(ctx context.Context, actor access.Actor, order replayOrder) ([]dlq.Plan, error) {
	if len(order.selections) == 0 {
		return nil, dlq.ErrBadSelection
	}
	var made []dlq.Plan
	for i, selection := range order.selections {
		request := dlq.PlanRequest{Selection: selection, Target: order.target, Overrides: order.overrides, Revisions: order.revisions}
		if order.key != "" {
			request.RequestKey = order.key + "/" + strconv.Itoa(i)
		}
		plan, err := s.Replays.Plan(ctx, actor, request)
		if err != nil {
			return nil, err
		}
		made = append(made, plan)
	}
	return made, nil
}

// afterPlan is where to go: to the plan, to the progress, or to the list where
// there are several.
func afterPlan(order replayOrder, made []dlq.Plan) string {
	if len(made) > 1 {
		return address("/replays", "started", strconv.Itoa(len(made)))
	}
	at := "/replays/" + strconv.FormatInt(made[0].ID, 10)
	if made[0].State == dlq.Planning {
		return at
	}
	if order.target != dlq.ToSafe || made[0].State == dlq.AwaitingApproval || made[0].Total == 0 {
		return at + "/plan"
	}
	return at
}

// refuse shows the form's page again with what was wrong, else the error's own page.
func (s *Server) refuse(c echo.Context, from, reason string, err error) error {
	was, ok := refusal(localeOf(c), err)
	if !ok {
		return err
	}
	return s.refuseAs(c, from, reason, was, err)
}

// refuseAs is refuse where what was wrong has its words already.
func (s *Server) refuseAs(c echo.Context, from, reason string, was refused, err error) error {
	was.Reason = reason
	shown, pageErr := s.again(c, from, was)
	if !shown {
		return err
	}
	return pageErr
}

func orderOf(c echo.Context) (replayOrder, error) {
	form, err := c.FormParams()
	if err != nil {
		return replayOrder{}, fmt.Errorf("read form: %w", err)
	}
	order := replayOrder{key: cutKey(form.Get("request_key")), reason: strings.TrimSpace(form.Get("reason"))}
	if why := badText(order.reason); why != "" {
		return order, invalid("reason", why)
	}
	switch form.Get("action") {
	case "safe":
		order.target = dlq.ToSafe
	case "override":
		return order, order.override(form)
	case "plan":
		order.target = dlq.ToGroup
		if form.Get("target") == "origin" {
			order.target = dlq.ToOrigin
		}
	default:
		return order, invalid("action", "is safe, plan or override")
	}
	if order.selections, err = selectionsOf(c, form); err != nil {
		return order, err
	}
	return order, order.choose(form.Get("revision"))
}

// choose takes the form of the one letter that the order is about.
func (o *replayOrder) choose(revision string) error {
	if revision == "" {
		return nil
	}
	no, err := strconv.Atoi(revision)
	if err != nil || no < 0 {
		return invalid("revision", "is a revision's number, or 0")
	}
	if len(o.selections) != 1 || len(o.selections[0].LetterIDs) != 1 {
		return invalid("revision", "is chosen for one letter")
	}
	o.revisions = map[uuid.UUID]int{o.selections[0].LetterIDs[0]: no}
	return nil
}

// override makes a plan of its own of the ticked letters.
func (o *replayOrder) override(form url.Values) error {
	o.target = dlq.ToGroup
	if form.Get("target") == "origin" {
		o.target = dlq.ToOrigin
	}
	overrides, letters, err := overridesOf(form["override"], o.reason)
	if err != nil {
		return err
	}
	if len(letters) > 0 {
		o.selections, o.overrides = []dlq.Selection{{LetterIDs: letters}}, overrides
	}
	return nil
}

// selectionsOf reads what the form selects: all that match, letters, or faults.
func selectionsOf(c echo.Context, form url.Values) ([]dlq.Selection, error) {
	if form.Get("all") != "" {
		filter, err := filterOf(c, form.Get("filter"))
		if err != nil {
			return nil, err
		}
		return []dlq.Selection{{Filter: &filter}}, nil
	}
	if redo := form.Get("redo_of"); redo != "" {
		id, err := parseID("redo_of", redo, 64)
		return []dlq.Selection{{RedoOf: id}}, err
	}
	if len(form["letter_id"]) > 0 {
		ids, err := letterIDs(form["letter_id"])
		return []dlq.Selection{{LetterIDs: ids}}, err
	}
	var faults []dlq.Selection
	for _, text := range form["fault_id"] {
		id, err := parseID("fault_id", text, 32)
		if err != nil {
			return nil, err
		}
		faults = append(faults, dlq.Selection{FaultID: int32(id)})
	}
	return faults, nil
}

func letterIDs(texts []string) ([]uuid.UUID, error) {
	ids := make([]uuid.UUID, 0, len(texts))
	for _, text := range texts {
		id, err := parseUUID("letter_id", text)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// filterOf reads a list's query as the form carries it.
func filterOf(c echo.Context, raw string) (dlq.LetterFilter, error) {
	q := queryFrom(c, raw)
	f := letterFilter(q)
	if within := q.take("within"); within != "" {
		age, err := choice("within", within, ages)
		q.keep(err)
		f.Since = localeOf(c).Now.Add(-age)
	}
	return f, q.done()
}

func cutKey(key string) string { return key[:min(len(key), 100)] }
