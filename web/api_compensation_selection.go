package web

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"oncemore/compensate"
	"oncemore/internal/access"
)

func (s *Server) registerSelectionAPI(g *echo.Group) {
	read := s.allow(access.Read)
	g.POST("/compensations/selections", s.apiSelectionPropose, s.allow(access.ProposeCompensation))
	g.GET("/compensations/selections/:id", s.apiSelection, read)
	g.GET("/compensations/selections/:id/passed-over", s.apiSelectionPassedOver, read)
	g.GET("/compensations/switch", s.apiSwitch, read)
	g.POST("/compensations/stop", s.apiSwitchTo(s.Compensations.Stop), s.allow(access.ControlCompensation))
	g.POST("/compensations/allow", s.apiSwitchTo(s.Compensations.Go), s.allow(access.ApproveCompensation))
}

// selectionAskedJSON is the body of POST /compensations/selections.
type selectionAskedJSON struct {
	Action       string         `json:"action"`
	Breaks       []int64        `json:"break_ids"`
	Letters      []string       `json:"letter_ids"`
	Filter       map[string]any `json:"filter"`        // the parameters of GET /breaks
	LetterFilter map[string]any `json:"letter_filter"` // the parameters of GET /letters
	Reason       string         `json:"reason"`
}

type selectionJSON struct {
	ID         int64       `json:"id"`
	Action     string      `json:"action"`
	Version    int         `json:"version"`
	State      string      `json:"state"`
	Total      int         `json:"total"`
	Proposed   int         `json:"proposed"`
	PassedOver int         `json:"passed_over"`
	Totals     []totalJSON `json:"totals"` // of what was proposed so far
	Digest     string      `json:"digest"` // of the frozen set
	AskedBy    string      `json:"asked_by"`
	Reason     string      `json:"reason"`
	CreatedAt  *time.Time  `json:"created_at"`
	FinishedAt *time.Time  `json:"finished_at"`
}

func (s *Server) apiSelectionPropose(c echo.Context) error {
	if err := noQuery(c); err != nil {
		return err
	}
	var body selectionAskedJSON
	if err := decode(c, &body); err != nil {
		return err
	}
	sel, err := body.selection(c)
	if err != nil {
		return err
	}
	key := c.Request().Header.Get("Idempotency-Key")
	if len(key) > 200 || strings.ContainsFunc(key, func(r rune) bool { return r < 0x21 || r > 0x7e }) {
		return &fieldError{Field: "Idempotency-Key", Text: "has at most 200 visible ASCII characters"}
	}
	bulk, err := s.Compensations.ProposeMany(c.Request().Context(), actorBecause(c, body.Reason), body.Action, sel, key)
	if errors.Is(err, compensate.ErrSelection) {
		return invalid("break_ids", plainText(err))
	}
	if err != nil {
		return err
	}
	c.Response().Header().Set(echo.HeaderLocation, fmt.Sprintf("/api/v1/compensations/selections/%d", bulk.ID))
	return s.answerSelection(c, http.StatusAccepted, bulk)
}

func (b selectionAskedJSON) selection(c echo.Context) (sel compensate.Selection, err error) {
	if b.Action == "" {
		return sel, invalid("action", "is missing")
	}
	sel.Breaks = b.Breaks
	if sel.Letters, err = letterIDs(b.Letters); err != nil {
		return sel, err
	}
	if b.Filter != nil {
		q, err := queryFromJSON(c, b.Filter)
		if err != nil {
			return sel, err
		}
		f, err := breakFilter(q)
		if err != nil {
			return sel, inFilter(err)
		}
		sel.BreakFilter = &f
	}
	if b.LetterFilter != nil {
		f, err := filterFromJSON(c, b.LetterFilter)
		if err != nil {
			return sel, err
		}
		sel.Letter = &f
	}
	return sel, nil
}

func (s *Server) answerSelection(c echo.Context, status int, b compensate.Bulk) error {
	totals, err := s.Compensations.Totals(c.Request().Context(), compensate.Filter{Bulk: b.ID})
	if err != nil {
		return err
	}
	return answer(c, status, selectionJSON{
		ID: b.ID, Action: b.Action, Version: b.Version, State: b.State.String(), Total: b.Total, Proposed: b.Proposed, PassedOver: b.PassedOver,
		Totals: totalsOf(totals), Digest: hex.EncodeToString(b.Digest), AskedBy: b.AskedBy, Reason: b.Reason, CreatedAt: instant(&b.CreatedAt), FinishedAt: instant(b.FinishedAt),
	})
}

func (s *Server) apiSelection(c echo.Context) error {
	if err := noQuery(c); err != nil {
		return err
	}
	id, err := numberID(c, 64)
	if err != nil {
		return err
	}
	bulk, err := s.Compensations.Bulk(c.Request().Context(), id)
	if err != nil {
		return err
	}
	return s.answerSelection(c, http.StatusOK, bulk)
}

// passedOverJSON is one of a selection that nothing was proposed for.
type passedOverJSON struct {
	No       int        `json:"no"`
	BreakID  *int64     `json:"break_id"`
	LetterID *uuid.UUID `json:"letter_id"`
	Why      string     `json:"why"`
}

const passedOverLimit = 200

func (s *Server) apiSelectionPassedOver(c echo.Context) error {
	q := parseQuery(c)
	after := q.id("after", 31)
	if err := q.done(); err != nil {
		return err
	}
	id, err := numberID(c, 64)
	if err != nil {
		return err
	}
	if _, err := s.Compensations.Bulk(c.Request().Context(), id); err != nil {
		return err
	}
	items, err := s.Compensations.BulkItems(c.Request().Context(), id, true, int(after), passedOverLimit)
	if err != nil {
		return err
	}
	out := struct {
		Items []passedOverJSON `json:"items"`
	}{Items: []passedOverJSON{}}
	for _, i := range items {
		out.Items = append(out.Items, passedOverJSON{i.No, i.BreakID, i.LetterID, plainText(errors.New(*i.Why))})
	}
	return answer(c, http.StatusOK, out)
}

// switchJSON is the kill switch of what runs by itself.
type switchJSON struct {
	Stopped   bool       `json:"stopped"`
	StoppedBy *string    `json:"stopped_by"`
	StoppedAt *time.Time `json:"stopped_at"`
	Reason    *string    `json:"reason"`
}

func (s *Server) apiSwitch(c echo.Context) error {
	if err := noQuery(c); err != nil {
		return err
	}
	return s.answerSwitch(c)
}

func (s *Server) answerSwitch(c echo.Context) error {
	now, err := s.Compensations.Switch(c.Request().Context())
	if err != nil {
		return err
	}
	return answer(c, http.StatusOK, switchJSON{now.StoppedBy != nil, now.StoppedBy, instant(now.StoppedAt), now.Reason})
}

func (s *Server) apiSwitchTo(flip func(context.Context, access.Actor) error) echo.HandlerFunc {
	return func(c echo.Context) error {
		by, err := commander(c)
		if err != nil {
			return err
		}
		if err := flip(c.Request().Context(), by); err != nil {
			return err
		}
		return s.answerSwitch(c)
	}
}
