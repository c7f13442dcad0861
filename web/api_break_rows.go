package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/labstack/echo/v4"

	"oncemore/internal/access"
	"oncemore/reconcile"
)

type sideRowsJSON struct {
	Side    string      `json:"side"` // outbox, consumed, effect
	Columns []string    `json:"columns"`
	Rows    [][]*string `json:"rows"`   // as the database writes them; null: NULL
	Masked  []string    `json:"masked"` // columns whose values the reader may not see
	More    bool        `json:"more"`
	Error   *string     `json:"error"` // why this side could not be read
}

// apiBreakRows reads a break's key on all sides, as it is now.
func (s *Server) apiBreakRows(c echo.Context) error {
	if err := noQuery(c); err != nil {
		return err
	}
	id, err := numberID(c, 64)
	if err != nil {
		return err
	}
	b, err := s.Reconcile.Breaks.Get(c.Request().Context(), id)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Request().Context(), rowsPatience)
	defer cancel()
	sides, err := s.Reconcile.Runs.Rows(ctx, b)
	if err != nil {
		return fmt.Errorf("read rows of break %d: %w", id, err)
	}
	masked := !actorOf(c).May(access.ReadPayload)
	return answer(c, http.StatusOK, listOf(sides, "", func(r reconcile.SideRows) sideRowsJSON { return s.sideRowsJSON(c, r, masked) }))
}

func (s *Server) sideRowsJSON(c echo.Context, r reconcile.SideRows, masked bool) sideRowsJSON {
	out := sideRowsJSON{Side: r.Party.String(), Columns: orEmpty(r.Columns), Rows: [][]*string{}, Masked: []string{}, More: r.More}
	if r.Err != nil {
		out.Error = ptr(s.rowsTrouble(c, r.Err))
		return out
	}
	for i, name := range r.Columns {
		if masked && !r.Compared[i] {
			out.Masked = append(out.Masked, name)
		}
	}
	for _, row := range r.Rows {
		cells := make([]*string, len(row))
		for i, value := range row {
			if cell := liveCell(value, masked && !r.Compared[i]); !cell.Masked && !cell.Null {
				cells[i] = &cell.Text
			}
		}
		out.Rows = append(out.Rows, cells)
	}
	return out
}

// apiBreakAttach keeps the request's bytes as evidence under the name that the
// address gives.
func (s *Server) apiBreakAttach(c echo.Context) error {
	q := parseQuery(c)
	name := q.take("name")
	if err := q.done(); err != nil {
		return err
	}
	id, err := numberID(c, 64)
	if err != nil {
		return err
	}
	content, err := io.ReadAll(io.LimitReader(c.Request().Body, reconcile.MostFile+1))
	if err != nil {
		return fmt.Errorf("read the file: %w", err)
	}
	if err := s.Reconcile.Breaks.Attach(c.Request().Context(), actorOf(c), id, name, content); err != nil {
		return err
	}
	return s.answerBreak(c, id)
}

type versionJSON struct {
	Version    int    `json:"version"`
	Hash       string `json:"hash"` // SHA-256 of the text, in hex
	Definition string `json:"definition"`
	LoadedAt   string `json:"loaded_at"`
	LoadedBy   string `json:"loaded_by"`
}

// apiJobVersions lists a job's definitions, newest first.
func (s *Server) apiJobVersions(c echo.Context) error {
	if err := noQuery(c); err != nil {
		return err
	}
	name, err := jobName(c)
	if err != nil {
		return err
	}
	all, err := s.Reconcile.Jobs.Versions(c.Request().Context(), name)
	if err != nil {
		return err
	}
	return answer(c, http.StatusOK, listOf(all, "", func(d reconcile.Definition) versionJSON {
		return versionJSON{d.Version, fmt.Sprintf("%x", d.Hash), d.Text, rfc(d.LoadedAt), d.LoadedBy}
	}))
}

type previewJSON struct {
	Plan   string            `json:"plan"`
	Reason string            `json:"plan_reason"`
	Sides  []previewSideJSON `json:"sides"`
}

type previewSideJSON struct {
	Side     string        `json:"side"`
	Columns  []string      `json:"columns"`
	Rows     [][]*string   `json:"rows"`
	Masked   []string      `json:"masked"`
	Explain  []string      `json:"explain"`
	Warnings []warningJSON `json:"warnings"`
}

type warningJSON struct {
	Code string `json:"code"` // full_scan, ignores_window, no_zone, no_rows
	Text string `json:"text"`
}

// apiJobPreview asks the databases what a job's present definition would read.
func (s *Server) apiJobPreview(c echo.Context) error {
	if err := noQuery(c); err != nil {
		return err
	}
	name, err := jobName(c)
	if err != nil {
		return err
	}
	job, _, err := s.jobAt(c.Request().Context(), name, 0)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Request().Context(), previewPatience)
	defer cancel()
	p, err := s.Reconcile.Runs.Preview(ctx, job)
	if errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if err != nil {
		return &fieldError{Field: "definition", Text: "cannot be previewed: " + err.Error(), Status: http.StatusUnprocessableEntity}
	}
	return answer(c, http.StatusOK, jobPreviewOf(p, job, !actorOf(c).May(access.ReadPayload)))
}

func jobPreviewOf(p *reconcile.Preview, job *reconcile.Job, masked bool) previewJSON {
	out := previewJSON{Plan: p.Plan, Reason: p.Reason, Sides: []previewSideJSON{}}
	for _, side := range p.Sides {
		one := previewSideJSON{Side: side.Party.String(), Columns: side.Columns, Rows: [][]*string{}, Masked: []string{}, Explain: orEmpty(side.Explain), Warnings: []warningJSON{}}
		for _, w := range side.Warnings {
			one.Warnings = append(one.Warnings, warningJSON{w.Code, w.Text})
		}
		for _, name := range side.Columns {
			if masked && isKey(job, name) {
				one.Masked = append(one.Masked, name)
			}
		}
		for _, row := range side.Rows {
			cells := make([]*string, len(row))
			for i, value := range row {
				if cell := liveCell(value, masked && isKey(job, side.Columns[i])); !cell.Masked && !cell.Null {
					cells[i] = &cell.Text
				}
			}
			one.Rows = append(one.Rows, cells)
		}
		out.Sides = append(out.Sides, one)
	}
	return out
}
