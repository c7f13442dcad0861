package web

import (
	"fmt"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"oncemore/compensate"
	"oncemore/dlq"
	"oncemore/dlq/payload"
	"oncemore/reconcile"
	"oncemore/views"
)

// letterAddress is what a letter's address says besides its id.
type letterAddress struct {
	id     uuid.UUID
	target string // group | origin | "" the narrowest there is
	view   string // one of payload.Views; "" what suits the bytes
	header string // how header values are read, one of headerViews; "" as suits each
	list   string // query of the list it was opened from; "" none
}

func letterAddressOf(c echo.Context) (letterAddress, error) {
	id, err := letterID(c)
	if err != nil {
		return letterAddress{}, dlq.ErrNotFound
	}
	q := parseQuery(c)
	a := letterAddress{id: id, target: q.take("target"), view: q.take("view"), header: q.take("headers"), list: q.take("list")}
	if a.target != "" {
		_, err := choice("target", a.target, replayTargets)
		q.keep(err)
	}
	if a.view != "" {
		_, err := choice("view", a.view, payloadViews)
		q.keep(err)
	}
	if a.header != "" {
		_, err := choice("headers", a.header, headerViews)
		q.keep(err)
	}
	return a, q.done()
}

// with is the same letter's address with another target or view.
func (a letterAddress) with(target, view string) string {
	return address("/letters/"+a.id.String(), "target", target, "view", view, "headers", a.header, "list", a.list)
}

// filter is the list that the letter was opened from. A list that cannot be read
// any more is all letters: an old link must not break the page.
func (a letterAddress) filter(c echo.Context) dlq.LetterFilter {
	q := queryFrom(c, a.list)
	f := letterFilter(q)
	if within, ok := ages[q.take("within")]; ok {
		f.Since = localeOf(c).Now.Add(-within)
	}
	if q.err != nil {
		return dlq.LetterFilter{}
	}
	return f
}

// letterFacts is all that a letter's page reads.
type letterFacts struct {
	letter   dlq.LetterDetail
	body     dlq.Body
	opened   *payload.Opened
	judged   map[string]dlq.Judged // by target
	original dlq.Original
	triage   views.TriageForm
	said     []dlq.Comment
	discard  *dlq.Bulk         // that closed it; nil: none
	breaks   []reconcile.Break // of its event, over all jobs
	repairs  []compensate.Row
	newer    uuid.UUID
	older    uuid.UUID
}

func (s *Server) letterPage(c echo.Context) error { return s.showLetter(c, refused{}) }

func (s *Server) showLetter(c echo.Context, was refused) error {
	at, err := letterAddressOf(c)
	if err != nil {
		return err
	}
	facts, err := s.letterFacts(c, at)
	if err != nil {
		return err
	}
	v := s.letterView(c, at, facts, was)
	if v.Revisions, err = s.revisionsView(c, facts.letter); err != nil {
		return err
	}
	return render(c, was.status(), views.LetterPage(v))
}

func (s *Server) letterFacts(c echo.Context, at letterAddress) (letterFacts, error) {
	ctx := c.Request().Context()
	f := letterFacts{judged: map[string]dlq.Judged{}}
	var err error
	if f.letter, err = s.Letters.Get(ctx, at.id); err != nil {
		return f, fmt.Errorf("get letter %s: %w", at.id, err)
	}
	if f.body, err = s.Letters.Body(ctx, at.id); err != nil {
		return f, fmt.Errorf("get body of letter %s: %w", at.id, err)
	}
	f.opened = s.openBody(ctx, f.letter.Cluster, f.body)
	if f.original, err = s.Origins.Original(ctx, at.id); err != nil {
		return f, fmt.Errorf("get original of letter %s: %w", at.id, err)
	}
	for name, target := range replayTargets {
		judged, err := s.Judge.JudgeLetters(ctx, []uuid.UUID{at.id}, target)
		if err != nil {
			return f, fmt.Errorf("judge letter %s: %w", at.id, err)
		}
		if len(judged) == 1 {
			f.judged[name] = judged[0]
		}
	}
	if err := s.addRemarks(c, &f); err != nil {
		return f, err
	}
	if f.breaks, err = s.breaksOfEvent(ctx, deref(f.letter.EventID)); err != nil {
		return f, err
	}
	if f.repairs, err = s.repairsOfLetter(ctx, f.letter.Letter); err != nil {
		return f, err
	}
	if f.newer, f.older, err = s.Letters.Neighbours(ctx, at.id, at.filter(c)); err != nil {
		return f, fmt.Errorf("find neighbours of letter %s: %w", at.id, err)
	}
	return f, nil
}
