package web

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"oncemore/internal/audit"
)

type auditJSON struct {
	ID     int64           `json:"id"`
	At     *time.Time      `json:"at"`
	Actor  string          `json:"actor"`
	Via    string          `json:"via"`
	From   *string         `json:"from"`
	Action string          `json:"action"`
	Target *string         `json:"target"`
	Reason *string         `json:"reason"`
	Detail json.RawMessage `json:"detail"`
}

func auditOf(r audit.Row) auditJSON {
	return auditJSON{ID: r.ID, At: instant(&r.At), Actor: r.Actor, Via: r.Via, From: known(r.From),
		Action: r.Action, Target: known(r.Target), Reason: known(r.Reason), Detail: r.Detail}
}

func (s *Server) apiAudit(c echo.Context) error {
	q := parseQuery(c)
	filter := audit.Filter{Actor: q.take("actor"), Action: q.take("action"), Target: q.take("target"),
		Since: q.time("since"), Until: q.time("until")}
	page := q.page()
	if err := q.done(); err != nil {
		return err
	}
	found, err := audit.List(c.Request().Context(), s.Pool, filter, page.Limit, page.Cursor)
	if err != nil {
		return fmt.Errorf("list audit: %w", err)
	}
	return answer(c, http.StatusOK, listOf(found.Items, found.Next, auditOf))
}
