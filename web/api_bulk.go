package web

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"oncemore/dlq"
	"oncemore/internal/access"
)

// bulkRequestJSON is the body of POST /letters/discard, restore and assign.
type bulkRequestJSON struct {
	LetterIDs *[]string       `json:"letter_ids"`
	FaultID   *int32          `json:"fault_id"`
	Filter    *map[string]any `json:"filter"` // the parameters of GET /letters
	Reason    string          `json:"reason"`
}

type bulkAssignJSON struct {
	LetterIDs *[]string       `json:"letter_ids"`
	FaultID   *int32          `json:"fault_id"`
	Filter    *map[string]any `json:"filter"` // the parameters of GET /letters
	Reason    string          `json:"reason"`
	Owner     *string         `json:"owner"` // null: nobody
}

// filterFromJSON reads a filter by the names of the list's parameters.
func filterFromJSON(c echo.Context, members map[string]any) (dlq.LetterFilter, error) {
	q, err := queryFromJSON(c, members)
	if err != nil {
		return dlq.LetterFilter{}, err
	}
	q.takeWithin()
	filter := letterFilter(q)
	if err := q.done(); err != nil {
		return filter, inFilter(err)
	}
	return filter, nil
}

// queryFromJSON is a list's query whose parameters stand in a body.
func queryFromJSON(c echo.Context, members map[string]any) (*query, error) {
	q := queryFrom(c, "")
	for name, value := range members {
		switch v := value.(type) {
		case string:
			q.values.Set(name, v)
		case float64:
			q.values.Set(name, strconv.FormatFloat(v, 'f', -1, 64))
		default:
			return nil, invalid("filter/"+printable(name), "is a text or a number")
		}
	}
	return q, nil
}

// inFilter names the field where it stands in the body.
func inFilter(err error) error {
	if bad, ok := errors.AsType[*fieldError](err); ok {
		return &fieldError{Field: "filter/" + bad.Field, Text: bad.Text, Status: bad.Status}
	}
	return fmt.Errorf("filter: %w", err)
}

// bulkJSON is a command on letters.
type bulkJSON struct {
	ID         int64      `json:"id"`
	Kind       string     `json:"kind"`
	State      string     `json:"state"`
	FaultID    *int32     `json:"fault_id"`
	Owner      *string    `json:"owner"`
	Undoes     *int64     `json:"undoes"`
	UndoneBy   *int64     `json:"undone_by"`
	Total      int64      `json:"total"`
	Changed    int64      `json:"changed"`
	PassedOver int64      `json:"passed_over"`
	Digest     *string    `json:"digest"`
	Reason     *string    `json:"reason"`
	CreatedBy  string     `json:"created_by"`
	CreatedAt  *time.Time `json:"created_at"`
	FinishedAt *time.Time `json:"finished_at"`
}

func commandOf(b dlq.Bulk) bulkJSON {
	j := bulkJSON{ID: b.ID, Kind: b.Kind.String(), State: b.State.String(), FaultID: b.FaultID, Owner: b.Owner, Undoes: b.Undoes, UndoneBy: b.UndoneBy,
		Total: b.Total, Changed: b.Changed, PassedOver: b.PassedOver, Reason: known(b.Reason), CreatedBy: b.CreatedBy,
		CreatedAt: instant(&b.CreatedAt), FinishedAt: instant(b.FinishedAt)}
	if b.State != dlq.BulkFreezing {
		j.Digest = known(hex.EncodeToString(b.Digest))
	}
	return j
}

func (b bulkRequestJSON) request(c echo.Context) (dlq.BulkRequest, error) {
	r := dlq.BulkRequest{RequestKey: c.Request().Header.Get("Idempotency-Key")}
	if len(r.RequestKey) > 200 || strings.ContainsFunc(r.RequestKey, func(r rune) bool { return r < 0x21 || r > 0x7e }) {
		return r, &fieldError{Field: "Idempotency-Key", Text: "has at most 200 visible ASCII characters"}
	}
	if b.LetterIDs != nil {
		if len(*b.LetterIDs) == 0 {
			return r, invalid("letter_ids", "is empty")
		}
		for i, text := range *b.LetterIDs {
			id, err := parseUUID(fmt.Sprintf("letter_ids/%d", i), text)
			if err != nil {
				return r, err
			}
			r.Selection.LetterIDs = append(r.Selection.LetterIDs, id)
		}
	}
	if b.FaultID != nil {
		if r.Selection.FaultID = *b.FaultID; *b.FaultID <= 0 {
			return r, invalid("fault_id", "is a positive whole number")
		}
	}
	if b.Filter != nil {
		filter, err := filterFromJSON(c, *b.Filter)
		if err != nil {
			return r, err
		}
		r.Selection.Filter = &filter
	}
	return r, nil
}

func (s *Server) apiBulk(do func(context.Context, access.Actor, dlq.BulkRequest) (dlq.Bulk, error)) echo.HandlerFunc {
	return func(c echo.Context) error {
		if err := noQuery(c); err != nil {
			return err
		}
		var body bulkRequestJSON
		if err := decode(c, &body); err != nil {
			return err
		}
		request, err := body.request(c)
		if err != nil {
			return err
		}
		done, err := do(c.Request().Context(), actorBecause(c, body.Reason), request)
		if err != nil {
			return fmt.Errorf("command on letters: %w", err)
		}
		return answerCommand(c, done)
	}
}

// answerCommand is 200 for what is done and 202 for what goes on.
func answerCommand(c echo.Context, b dlq.Bulk) error {
	c.Response().Header().Set(echo.HeaderLocation, fmt.Sprintf("/api/v1/commands/%d", b.ID))
	status := http.StatusAccepted
	if b.State == dlq.BulkDone {
		status = http.StatusOK
	}
	return answer(c, status, commandOf(b))
}

func (s *Server) apiBulkAssign(c echo.Context) error {
	if err := noQuery(c); err != nil {
		return err
	}
	var body bulkAssignJSON
	if err := decode(c, &body); err != nil {
		return err
	}
	request, err := bulkRequestJSON{body.LetterIDs, body.FaultID, body.Filter, body.Reason}.request(c)
	if err != nil {
		return err
	}
	request.Owner = deref(body.Owner)
	if err := s.checkOwnerName(c.Request().Context(), request.Owner); err != nil {
		return err
	}
	done, err := s.Bulks.Assign(c.Request().Context(), actorBecause(c, body.Reason), request)
	if err != nil {
		return fmt.Errorf("assign letters: %w", err)
	}
	return answerCommand(c, done)
}

func (s *Server) apiCommand(c echo.Context) error {
	if err := noQuery(c); err != nil {
		return err
	}
	id, err := numberID(c, 64)
	if err != nil {
		return err
	}
	b, err := s.Bulks.Get(c.Request().Context(), id)
	if err != nil {
		return fmt.Errorf("get command %d: %w", id, err)
	}
	return answer(c, http.StatusOK, commandOf(b))
}

type undoJSON struct {
	Reason string `json:"reason"`
}

func (s *Server) apiCommandUndo(c echo.Context) error {
	id, err := numberID(c, 64)
	if err != nil {
		return err
	}
	var body undoJSON
	if err := decodeOptional(c, &body); err != nil {
		return err
	}
	b, err := s.Bulks.Undo(c.Request().Context(), actorBecause(c, body.Reason), id)
	if err != nil {
		return fmt.Errorf("undo command %d: %w", id, err)
	}
	return answerCommand(c, b)
}

// faultCommand reads the body of a command on one fault and answers with the fault.
func faultCommand[B any](s *Server, c echo.Context, do func(ctx context.Context, id int32, body B) error) error {
	if err := noQuery(c); err != nil {
		return err
	}
	id, err := numberID(c, 32)
	if err != nil {
		return err
	}
	var body B
	if err := decode(c, &body); err != nil {
		return err
	}
	ctx := c.Request().Context()
	if err := do(ctx, int32(id), body); err != nil {
		return err
	}
	fault, err := s.Faults.Get(ctx, int32(id))
	if err != nil {
		return fmt.Errorf("get fault %d: %w", id, err)
	}
	return answer(c, http.StatusOK, faultFor(actorOf(c))(fault))
}

type muteJSON struct {
	Until  *string `json:"until"` // null: ends the muting
	Reason string  `json:"reason"`
}

func (s *Server) apiFaultMute(c echo.Context) error {
	return faultCommand(s, c, func(ctx context.Context, id int32, body muteJSON) error {
		var until *time.Time
		if body.Until != nil {
			t, err := parseTime("until", *body.Until)
			if err != nil {
				return err
			}
			until = &t
		}
		return s.Faults.Mute(ctx, actorBecause(c, body.Reason), []int32{id}, until)
	})
}

type ownerJSON struct {
	Owner  *string `json:"owner"` // null: nobody
	Reason string  `json:"reason"`
}

func (s *Server) apiFaultAssign(c echo.Context) error {
	return faultCommand(s, c, func(ctx context.Context, id int32, body ownerJSON) error {
		if err := s.checkOwnerName(ctx, deref(body.Owner)); err != nil {
			return err
		}
		return s.Faults.Assign(ctx, actorBecause(c, body.Reason), []int32{id}, deref(body.Owner))
	})
}

type noteJSON struct {
	Note string `json:"note"`
}

func (s *Server) apiFaultNote(c echo.Context) error {
	return faultCommand(s, c, func(ctx context.Context, id int32, body noteJSON) error {
		return s.Faults.Note(ctx, actorOf(c), id, strings.TrimSpace(body.Note))
	})
}

type commentJSON struct {
	Text string     `json:"text"`
	By   string     `json:"by"`
	At   *time.Time `json:"at"`
}

func commentOf(m dlq.Comment) commentJSON {
	return commentJSON{Text: m.Text, By: m.By, At: instant(&m.At)}
}

func (s *Server) apiFaultComments(c echo.Context) error {
	if err := noQuery(c); err != nil {
		return err
	}
	id, err := numberID(c, 32)
	if err != nil {
		return err
	}
	return s.answerComments(c, int32(id))
}

func (s *Server) answerComments(c echo.Context, id int32) error {
	ctx := c.Request().Context()
	if _, err := s.Faults.Get(ctx, id); err != nil {
		return fmt.Errorf("get fault %d: %w", id, err)
	}
	all, err := s.Faults.Comments(ctx, id)
	if err != nil {
		return fmt.Errorf("list comments on fault %d: %w", id, err)
	}
	return answer(c, http.StatusOK, listOf(all, "", commentOf))
}

type newCommentJSON struct {
	Text string `json:"text"`
}

func (s *Server) apiFaultComment(c echo.Context) error {
	if err := noQuery(c); err != nil {
		return err
	}
	id, err := numberID(c, 32)
	if err != nil {
		return err
	}
	var body newCommentJSON
	if err := decode(c, &body); err != nil {
		return err
	}
	if err := s.Faults.Comment(c.Request().Context(), actorOf(c), int32(id), body.Text); err != nil {
		return err
	}
	return s.answerComments(c, int32(id))
}

type faultGroupJSON struct {
	Value      *string    `json:"value"` // null: not known
	Cluster    *string    `json:"cluster"`
	ErrorClass *string    `json:"error_class"`
	Faults     int64      `json:"faults"`
	Letters    int64      `json:"letters"`
	LastSeen   *time.Time `json:"last_seen"`
	LetterID   *uuid.UUID `json:"letter_id"`
}

type groupingJSON struct {
	Items   []faultGroupJSON `json:"items"`
	More    bool             `json:"more"`
	Sampled *int             `json:"sampled"` // letters that were looked at; null: the counts are exact
	Of      *int64           `json:"of"`
}

func (s *Server) apiFaultGroups(c echo.Context) error {
	q := parseQuery(c)
	by, filter := dlq.GroupKey(q.take("by")), faultFilter(q)
	if err := q.done(); err != nil {
		return err
	}
	g, err := s.Faults.GroupBy(c.Request().Context(), filter, by, s.firstOwnFrame)
	if err != nil {
		return fmt.Errorf("group faults: %w", err)
	}
	j := groupingJSON{Items: []faultGroupJSON{}, More: g.More}
	if g.Sampled > 0 {
		j.Sampled, j.Of = &g.Sampled, &g.Of
	}
	for _, one := range g.Groups {
		value := one.Value
		if by == dlq.ByMessage {
			value = *messageFor(actorOf(c), &value)
		}
		j.Items = append(j.Items, faultGroupJSON{Value: known(value), Cluster: known(one.Cluster), ErrorClass: known(one.Class),
			Faults: one.Faults, Letters: one.Open, LastSeen: instant(&one.LastSeen), LetterID: one.Letter})
	}
	return answer(c, http.StatusOK, j)
}

// firstOwnFrame is the place in the reader's own code where a letter's failure began.
func (s *Server) firstOwnFrame(l dlq.LetterDetail, body dlq.Body) string {
	for line := range strings.Lines(s.stackText(l, body)) {
		if frame := frameOf(strings.TrimRight(line, "\r\n")); frame != "" && !foreign(frame) {
			return frame
		}
	}
	return ""
}
