package web

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"oncemore/dlq"
	"oncemore/views/locale"
)

type revisionJSON struct {
	Revision  int        `json:"revision"`
	Base      int        `json:"base"` // 0: the letter as it arrived
	Sensitive bool       `json:"sensitive"`
	Digest    string     `json:"digest"`
	Reason    string     `json:"reason"`
	CreatedBy string     `json:"created_by"`
	CreatedAt *time.Time `json:"created_at"`
}

func revisionOf(r dlq.Revision) revisionJSON {
	return revisionJSON{Revision: r.No, Base: r.Base, Sensitive: r.Sensitive, Digest: hex.EncodeToString(r.Digest), Reason: r.Reason,
		CreatedBy: r.CreatedBy, CreatedAt: instant(&r.CreatedAt)}
}

func (s *Server) apiRevisions(c echo.Context) error {
	if err := noQuery(c); err != nil {
		return err
	}
	id, err := letterID(c)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	if _, err := s.Letters.Get(ctx, id); err != nil {
		return fmt.Errorf("revisions of letter %s: %w", id, err)
	}
	list, err := s.Revisions.List(ctx, id)
	if err != nil {
		return fmt.Errorf("list revisions of letter %s: %w", id, err)
	}
	return answer(c, http.StatusOK, listOf(list, "", revisionOf))
}

// reviseJSON is the body of an edit. A part that is left out stays as it was; a
// part that is null becomes null. Headers are the whole list.
type reviseJSON struct {
	Base             int             `json:"base"`
	Seen             *int            `json:"seen"`
	Key              *partJSON       `json:"key"`
	Value            *partJSON       `json:"value"`
	Headers          *[]editedHeader `json:"headers"`
	ConfirmSensitive bool            `json:"confirm_sensitive"`
	AsIs             bool            `json:"as_is"`
	DryRun           bool            `json:"dry_run"`
	Reason           string          `json:"reason"`
}

// partJSON is bytes as text or base64, or null: one of the three.
type partJSON struct {
	Text *string `json:"text"`
	B64  *string `json:"b64"`
	Null bool    `json:"null"`
}

type editedHeader struct {
	Name string `json:"name"`
	partJSON
}

func (p partJSON) bytes(field string) ([]byte, error) {
	ways := 0
	for _, given := range []bool{p.Text != nil, p.B64 != nil, p.Null} {
		if given {
			ways++
		}
	}
	switch {
	case ways != 1:
		return nil, invalid(field, `is one of {"text": …}, {"b64": …} and {"null": true}`)
	case p.Null:
		return nil, nil
	case p.Text != nil:
		return []byte(*p.Text), nil
	}
	b, err := base64.StdEncoding.DecodeString(*p.B64)
	if err != nil {
		return nil, invalid(field+"/b64", "is not base64")
	}
	return append([]byte{}, b...), nil
}

// edit lays the body over the form that it edits.
func (b reviseJSON) edit(form dlq.Form, newest int) (dlq.Edit, error) {
	e := dlq.Edit{Base: b.Base, Seen: newest, Key: form.Body.Key, Value: form.Body.Value, Headers: form.Body.Headers,
		Sensitive: b.ConfirmSensitive, AsIs: b.AsIs}
	if b.Seen != nil {
		e.Seen = *b.Seen
	}
	var err error
	if b.Key != nil {
		if e.Key, err = b.Key.bytes("key"); err != nil {
			return e, err
		}
	}
	if b.Value != nil {
		if e.Value, err = b.Value.bytes("value"); err != nil {
			return e, err
		}
	}
	if b.Headers == nil {
		return e, nil
	}
	e.Headers = nil
	for i, h := range *b.Headers {
		value, err := h.bytes(fmt.Sprintf("headers/%d", i))
		if err != nil {
			return e, err
		}
		e.Headers = append(e.Headers, typedAs(form.Body.Headers, dlq.Header{Name: h.Name, Value: value}))
	}
	return e, nil
}

// typedAs gives a header the type that a header of the form with that name has.
func typedAs(headers []dlq.Header, h dlq.Header) dlq.Header {
	if i := slices.IndexFunc(headers, func(was dlq.Header) bool { return was.Name == h.Name }); i >= 0 {
		h.Type = headers[i].Type
	} else if len(headers) > 0 && headers[0].Type != 0 {
		h.Type = 'S'
	}
	return h
}

type proposalJSON struct {
	Changed   []string      `json:"changed"` // value, key, header <name>
	Sensitive bool          `json:"sensitive"`
	Verdict   *string       `json:"verdict"` // of a replay of it, in the letter's own group
	Reason    *string       `json:"reason"`
	Revision  *revisionJSON `json:"revision"` // null in a dry run
}

func (s *Server) apiRevise(c echo.Context) error {
	if err := noQuery(c); err != nil {
		return err
	}
	id, err := letterID(c)
	if err != nil {
		return err
	}
	var body reviseJSON
	if err := decode(c, &body); err != nil {
		return err
	}
	if body.Base < 0 {
		return invalid("base", "is a revision's number, or 0 for the letter as it arrived")
	}
	ctx, actor := c.Request().Context(), actorBecause(c, body.Reason)
	form, err := s.Revisions.Form(ctx, actor, id, body.Base)
	if err != nil {
		return fmt.Errorf("edit letter %s: %w", id, err)
	}
	list, err := s.Revisions.List(ctx, id)
	if err != nil {
		return fmt.Errorf("list revisions of letter %s: %w", id, err)
	}
	edit, err := body.edit(form, len(list))
	if err != nil {
		return err
	}
	proposal, err := s.Revisions.Propose(ctx, actor, id, edit)
	if err != nil {
		return fmt.Errorf("edit letter %s: %w", id, err)
	}
	out := proposalOf(localeOf(c), proposal)
	if body.DryRun {
		return answer(c, http.StatusOK, out)
	}
	made, err := s.Revisions.Create(ctx, actor, id, edit)
	if err != nil {
		return fmt.Errorf("edit letter %s: %w", id, err)
	}
	rev := revisionOf(made)
	out.Revision = &rev
	c.Response().Header().Set(echo.HeaderLocation, fmt.Sprintf("/api/v1/letters/%s/revisions/%d/body", id, made.No))
	return answer(c, http.StatusCreated, out)
}

func proposalOf(here locale.Locale, p dlq.Proposal) proposalJSON {
	j := proposalJSON{Changed: orEmpty(p.Changed), Sensitive: p.Sensitive}
	if p.Verdict != nil {
		own := p.Verdict.Own()
		j.Verdict, j.Reason = verdictName(own.Verdict), localisedReason(here, own.Reason)
	}
	return j
}

// revisionID reads letter and number from the path.
func revisionID(c echo.Context) (uuid.UUID, int, error) {
	id, err := letterID(c)
	if err != nil {
		return id, 0, err
	}
	no, err := strconv.Atoi(c.Param("no"))
	if err != nil || no < 1 {
		return id, 0, dlq.ErrNotFound
	}
	return id, no, nil
}

func (s *Server) apiRevisionBody(c echo.Context) error {
	if err := noQuery(c); err != nil {
		return err
	}
	id, no, err := revisionID(c)
	if err != nil {
		return err
	}
	body, err := s.Revisions.Body(c.Request().Context(), id, no)
	if err != nil {
		return fmt.Errorf("body of revision %d: %w", no, err)
	}
	return answer(c, http.StatusOK, bodyJSON{
		KeyB64: encoded(body.Key), KeyText: readable(body.Key), ValueB64: encoded(body.Value), ValueText: readable(body.Value),
		Headers: headersOf(body.Headers, actorOf(c), nil),
	})
}

type parkedJSON struct {
	Parked  bool `json:"parked"`
	Replays int  `json:"replays"` // since somebody last allowed more
}

// apiUnpark allows a parked letter to be replayed again.
func (s *Server) apiUnpark(c echo.Context) error {
	id, err := letterID(c)
	if err != nil {
		return err
	}
	by, err := commander(c)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	if err := s.Replays.Unpark(ctx, by, id); err != nil {
		return fmt.Errorf("letter %s: %w", id, err)
	}
	parked, n, err := s.Replays.Parked(ctx, id)
	if err != nil {
		return fmt.Errorf("letter %s: %w", id, err)
	}
	return answer(c, http.StatusOK, parkedJSON{Parked: parked, Replays: n})
}
