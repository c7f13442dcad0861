package web

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"oncemore/dlq"
	"oncemore/views/locale"
)

// planJSON is the body of POST /replays. Pointers tell absent from empty.
type planJSON struct {
	RedoOf    *int64          `json:"redo_of"`
	Pace      *paceJSON       `json:"pace"`
	Revisions map[string]int  `json:"revisions"`
	LetterIDs *[]string       `json:"letter_ids"`
	Filter    *map[string]any `json:"filter"` // the parameters of GET /letters
	Target    *string         `json:"target"`
	Reason    string          `json:"reason"`
	DryRun    bool            `json:"dry_run"`
	Start     *string         `json:"start"`
	Overrides []overrideJSON  `json:"overrides"`
}

type overrideJSON struct {
	LetterID      string  `json:"letter_id"`
	ConsumerGroup *string `json:"consumer_group"` // null: the letter names none
	Verdict       string  `json:"verdict"`
	Reason        string  `json:"reason"`
}

type plannedJSON struct {
	ID           *int64         `json:"id,omitempty"` // absent in a dry run
	State        string         `json:"state"`
	Letters      int            `json:"letters"`
	Total        int            `json:"total"`
	Verdicts     map[string]int `json:"verdicts"`
	Refused      []refusalJSON  `json:"refused"`
	RefusedTotal int            `json:"refused_total"` // more than refused holds: GET replays/{id}/refused
}

type refusalJSON struct {
	LetterID      uuid.UUID `json:"letter_id"`
	EventID       *string   `json:"event_id"`
	ConsumerGroup *string   `json:"consumer_group"`
	Verdict       *string   `json:"verdict"`
	Reason        *string   `json:"reason"`
}

func refusalOf(here locale.Locale) func(dlq.Refusal) refusalJSON {
	return func(r dlq.Refusal) refusalJSON {
		return refusalJSON{LetterID: r.LetterID, EventID: r.EventID, ConsumerGroup: known(r.Group),
			Verdict: verdictName(r.Verdict), Reason: localisedReason(here, r.Reason)}
	}
}

func (s *Server) apiReplayPlan(c echo.Context) error {
	if err := noQuery(c); err != nil {
		return err
	}
	var body planJSON
	if err := decode(c, &body); err != nil {
		return err
	}
	request, err := body.request(c)
	if err != nil {
		return err
	}
	ctx, actor := c.Request().Context(), actorBecause(c, body.Reason)
	if body.DryRun {
		plan, err := s.Replays.DryRun(ctx, actor, request)
		if err != nil {
			return fmt.Errorf("try a replay: %w", err)
		}
		return answer(c, http.StatusOK, planOf(localeOf(c), plan))
	}
	plan, err := s.Replays.Plan(ctx, actor, request)
	if err != nil {
		return fmt.Errorf("plan a replay: %w", err)
	}
	c.Response().Header().Set(echo.HeaderLocation, fmt.Sprintf("/api/v1/replays/%d", plan.ID))
	return answer(c, http.StatusCreated, planOf(localeOf(c), plan))
}

func planOf(here locale.Locale, p dlq.Plan) plannedJSON {
	planned := plannedJSON{State: p.State.String(), Letters: p.Letters, Total: p.Total, Verdicts: verdictCounts(p.Verdicts),
		Refused: listOf(p.Refused, "", refusalOf(here)).Items, RefusedTotal: p.RefusedN}
	if p.ID != 0 {
		planned.ID = &p.ID
	}
	return planned
}

// request checks what the domain cannot see: what was absent, and how it was spelled.
func (b planJSON) request(c echo.Context) (dlq.PlanRequest, error) {
	key := c.Request().Header.Get("Idempotency-Key")
	request := dlq.PlanRequest{RequestKey: key}
	if len(key) > 200 || strings.ContainsFunc(key, func(r rune) bool { return r < 0x21 || r > 0x7e }) {
		return request, &fieldError{Field: "Idempotency-Key", Text: "has at most 200 visible ASCII characters"}
	}
	var err error
	if request.Target, err = b.target(); err != nil {
		return request, err
	}
	if request.Selection, err = b.selection(c); err != nil {
		return request, err
	}
	if request.Pace, err = b.Pace.pace(); err != nil {
		return request, err
	}
	if request.Revisions, err = b.revisions(); err != nil {
		return request, err
	}
	for i, o := range b.Overrides {
		override, err := o.override(fmt.Sprintf("overrides/%d/", i))
		if err != nil {
			return request, err
		}
		request.Overrides = append(request.Overrides, override)
	}
	return request, nil
}

var replayTargets = map[string]dlq.Target{"origin": dlq.ToOrigin, "group": dlq.ToGroup}

var targetNames = map[dlq.Target]string{dlq.ToOrigin: "origin", dlq.ToGroup: "group", dlq.ToSafe: "safe"}

func (b planJSON) target() (dlq.Target, error) {
	switch {
	case b.Start != nil && *b.Start != "safe":
		return 0, invalid("start", `can only be "safe"; a planned replay is started by POST replays/{id}/start`)
	case b.Start != nil && b.Target != nil:
		return 0, invalid("target", `is chosen per letter with start "safe": leave it out`)
	case b.Start != nil:
		return dlq.ToSafe, nil
	case b.Target == nil:
		return 0, invalid("target", "is missing: origin or group")
	}
	target, ok := replayTargets[*b.Target]
	if !ok {
		return 0, invalid("target", "is origin or group")
	}
	return target, nil
}

func (b planJSON) selection(c echo.Context) (dlq.Selection, error) {
	ways := 0
	for _, named := range []bool{b.LetterIDs != nil, b.Filter != nil, b.RedoOf != nil} {
		if named {
			ways++
		}
	}
	switch {
	case ways != 1:
		return dlq.Selection{}, invalid("letter_ids", "name the letters in one way: letter_ids, filter or redo_of")
	case b.RedoOf != nil && *b.RedoOf <= 0:
		return dlq.Selection{}, invalid("redo_of", "is the number of a replay")
	case b.RedoOf != nil:
		return dlq.Selection{RedoOf: *b.RedoOf}, nil
	case b.Filter != nil:
		filter, err := openFilter(c, *b.Filter)
		return dlq.Selection{Filter: &filter}, err
	case len(*b.LetterIDs) == 0:
		return dlq.Selection{}, invalid("letter_ids", "is empty")
	}
	ids := make([]uuid.UUID, 0, len(*b.LetterIDs))
	for i, text := range *b.LetterIDs {
		id, err := parseUUID(fmt.Sprintf("letter_ids/%d", i), text)
		if err != nil {
			return dlq.Selection{}, err
		}
		ids = append(ids, id)
	}
	return dlq.Selection{LetterIDs: ids}, nil
}

// openFilter is a filter of a plan, which takes open letters only.
func openFilter(c echo.Context, members map[string]any) (dlq.LetterFilter, error) {
	filter, err := filterFromJSON(c, members)
	if err != nil {
		return filter, err
	}
	if filter.State != 0 && filter.State != dlq.Open {
		return filter, invalid("filter/state", "can only be open")
	}
	filter.State = dlq.Open
	return filter, nil
}

func (o overrideJSON) override(at string) (dlq.Override, error) {
	id, err := parseUUID(at+"letter_id", o.LetterID)
	if err != nil {
		return dlq.Override{}, err
	}
	verdict, ok := verdictsByName[o.Verdict]
	if !ok {
		return dlq.Override{}, invalid(at+"verdict", "is the name of a verdict")
	}
	override := dlq.Override{LetterID: id, Verdict: verdict, Reason: strings.TrimSpace(o.Reason)}
	if override.Reason == "" {
		return override, invalid(at+"reason", "is required")
	}
	if o.ConsumerGroup != nil {
		override.Group = *o.ConsumerGroup
	}
	return override, nil
}

var verdictsByName = func() map[string]dlq.Verdict {
	named := map[string]dlq.Verdict{}
	for v := dlq.NoEventID; v <= dlq.AlreadyApplied; v++ {
		named[v.String()] = v
	}
	return named
}()

// invalid is a field that can be read, but not used.
func invalid(field, why string) error {
	return &fieldError{Field: field, Text: why, Status: http.StatusUnprocessableEntity}
}
