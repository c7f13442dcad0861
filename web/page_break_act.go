package web

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"oncemore/dlq"
	"oncemore/reconcile"
)

// breakAct does what the forms of breaks ask for: a selection's, or one break's.
func (s *Server) breakAct(c echo.Context) error {
	form, err := c.FormParams()
	if err != nil {
		return fmt.Errorf("read form: %w", err)
	}
	for _, field := range []string{"reason", "owner", "comment"} {
		if why := badText(form.Get(field)); why != "" {
			return invalid(field, why)
		}
	}
	next, err := s.doBreaks(c, form)
	if err != nil {
		return s.refuseFinance(c, form.Get("from"), form.Get("reason"), err)
	}
	return c.Redirect(http.StatusSeeOther, next)
}

func (s *Server) doBreaks(c echo.Context, form url.Values) (next string, err error) {
	ids, err := breakIDs(form["break"])
	if err != nil {
		return "", err
	}
	ctx, back, actor := c.Request().Context(), backTo(form.Get("from")), actorBecause(c, form.Get("reason"))
	switch do := form.Get("do"); {
	case len(ids) == 0:
		return "", dlq.ErrBadSelection
	case do == "assign" && form.Get("owner") == "":
		return "", invalid("owner", "is missing")
	case do == "assign":
		if err := s.checkOwnerName(ctx, form.Get("owner")); err != nil {
			return "", err
		}
		return back, s.Reconcile.Breaks.Assign(ctx, actor, ids, form.Get("owner"))
	case do == "explain":
		return back, s.Reconcile.Breaks.Explain(ctx, actor, ids, form.Get("code"))
	case do == "propose":
		return proposeAddress(ids), nil
	case len(ids) > 1:
		return "", ErrNoSuchButton
	case do == "comment":
		return back, s.Reconcile.Breaks.Comment(ctx, actor, ids[0], strings.TrimSpace(form.Get("comment")))
	case do == "unexplain":
		return back, s.Reconcile.Breaks.Unexplain(ctx, actor, ids[0])
	case do == "recheck":
		run, err := s.recheckBreak(c, ids[0])
		return runHref(run), err
	}
	return "", ErrNoSuchButton
}

// proposeAddress is the form of a compensation for breaks.
func proposeAddress(ids []int64) string {
	values := url.Values{}
	for _, id := range ids {
		values.Add("break", strconv.FormatInt(id, 10))
	}
	return "/compensations/new?" + values.Encode()
}

func breakIDs(texts []string) ([]int64, error) {
	var ids []int64
	for _, text := range texts {
		id, err := parseID("break", text, 64)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// fileLimit is the longest request that carries a file of evidence.
const fileLimit = reconcile.MostFile + bodyLimit

// attachesFile reports the routes that take files of evidence.
func attachesFile(path string) bool {
	return (strings.HasPrefix(path, "/breaks/") || strings.HasPrefix(path, "/api/v1/breaks/")) && strings.HasSuffix(path, "/files")
}

// breakAttach keeps a file that a form sent as a break's evidence.
func (s *Server) breakAttach(c echo.Context) error {
	id, err := numberID(c, 64)
	if err != nil {
		return reconcile.ErrNoBreak
	}
	name, content, err := evidenceOf(c)
	if err == nil {
		err = s.Reconcile.Breaks.Attach(c.Request().Context(), actorOf(c), id, name, content)
	}
	if err != nil {
		return s.refuseFinance(c, breakHref(id), "", err)
	}
	return c.Redirect(http.StatusSeeOther, breakHref(id)+"#files")
}

// evidenceOf reads the form's file, up to a byte more than may be kept.
func evidenceOf(c echo.Context) (name string, content []byte, err error) {
	header, err := c.FormFile("file")
	if err != nil {
		return "", nil, fmt.Errorf("%w: none was chosen", reconcile.ErrFile)
	}
	file, err := header.Open()
	if err != nil {
		return "", nil, fmt.Errorf("open the uploaded file: %w", err)
	}
	defer file.Close()
	content, err = io.ReadAll(io.LimitReader(file, reconcile.MostFile+1))
	return header.Filename, content, err
}

// breakFile sends a file of evidence as what it is kept as: a download, never
// something that a browser runs.
func (s *Server) breakFile(c echo.Context) error {
	id, err := parseID("file", c.Param("file"), 64)
	if err != nil {
		return reconcile.ErrNoBreak
	}
	of, err := numberID(c, 64)
	if err != nil {
		return reconcile.ErrNoBreak
	}
	f, err := s.Reconcile.Breaks.File(c.Request().Context(), id)
	if err != nil {
		return err
	}
	if f.BreakID != of {
		return fmt.Errorf("%w: file %d is of another break", reconcile.ErrNoBreak, id)
	}
	c.Response().Header().Set(echo.HeaderContentDisposition, "attachment; filename*=UTF-8''"+url.PathEscape(f.Name))
	return c.Blob(http.StatusOK, f.MediaType, f.Content)
}
