package web

import (
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"oncemore/dlq"
)

// paceJSON is a replay's pace: when it sends, how fast, and when it stops.
type paceJSON struct {
	Ladder    []int       `json:"ladder"`
	Automatic bool        `json:"automatic"`
	Rate      int         `json:"rate"`       // items per second; 0: no limit
	StopShare int         `json:"stop_share"` // percent; 0: never
	Window    *windowJSON `json:"window"`
	StartAt   *string     `json:"start_at"` // RFC 3339
}

type windowJSON struct {
	From string `json:"from"` // 22:00
	To   string `json:"to"`
	Zone string `json:"zone"`
}

func (p *paceJSON) pace() (dlq.Pace, error) {
	if p == nil {
		return dlq.Pace{}, nil
	}
	pace := dlq.Pace{Ladder: p.Ladder, Automatic: p.Automatic, Rate: p.Rate, StopShare: p.StopShare}
	if len(pace.Ladder) == 0 {
		pace.Ladder = nil
	}
	var err error
	if p.Window != nil {
		if pace.Window, err = dlq.ParseWindow(p.Window.From, p.Window.To, p.Window.Zone); err != nil {
			return pace, paceField(err)
		}
	}
	if p.StartAt != nil {
		at, err := parseTime("pace/start_at", *p.StartAt)
		if err != nil {
			return pace, err
		}
		if !at.IsZero() {
			pace.StartAt = &at
		}
	}
	return pace, paceField(pace.Check())
}

// paceField names the field by its place in the body.
func paceField(err error) error {
	if bad, ok := err.(*dlq.ErrBadFilter); ok {
		return invalid("pace/"+bad.Field, bad.Reason)
	}
	return err
}

func paceOf(p dlq.Pace) paceJSON {
	j := paceJSON{Ladder: orEmpty(p.Ladder), Automatic: p.Automatic, Rate: p.Rate, StopShare: p.StopShare}
	if p.Window != nil {
		from, to := p.Window.Hours()
		j.Window = &windowJSON{From: from, To: to, Zone: p.Window.Zone}
	}
	if p.StartAt != nil {
		at := p.StartAt.UTC().Format(time.RFC3339)
		j.StartAt = &at
	}
	return j
}

// revisions reads which form of a letter is sent.
func (b planJSON) revisions() (map[uuid.UUID]int, error) {
	if len(b.Revisions) == 0 {
		return nil, nil
	}
	chosen := make(map[uuid.UUID]int, len(b.Revisions))
	for text, no := range b.Revisions {
		id, err := parseUUID("revisions/"+text, text)
		if err != nil {
			return nil, err
		}
		chosen[id] = no
	}
	return chosen, nil
}

// apiReplayPace changes the pace of a replay that has not begun, or is paused.
func (s *Server) apiReplayPace(c echo.Context) error {
	if err := noQuery(c); err != nil {
		return err
	}
	id, err := numberID(c, 64)
	if err != nil {
		return err
	}
	var body paceJSON
	if err := decode(c, &body); err != nil {
		return err
	}
	pace, err := body.pace()
	if err != nil {
		return err
	}
	if err := s.Replays.SetPace(c.Request().Context(), actorOf(c), id, pace); err != nil {
		return fmt.Errorf("replay %d: %w", id, err)
	}
	return s.answerReplay(c, id)
}

// approveJSON is the body of an approval: bound names the plan that was seen.
type approveJSON struct {
	Reason string `json:"reason"`
	Bound  string `json:"bound"`
}

func (s *Server) apiReplayApprove(c echo.Context) error {
	if err := noQuery(c); err != nil {
		return err
	}
	id, err := numberID(c, 64)
	if err != nil {
		return err
	}
	var body approveJSON
	if err := decodeOptional(c, &body); err != nil {
		return err
	}
	if err := s.Replays.ApproveSeen(c.Request().Context(), actorBecause(c, body.Reason), id, body.Bound); err != nil {
		return fmt.Errorf("replay %d: %w", id, err)
	}
	return s.answerReplay(c, id)
}

type elderJSON struct {
	ItemID   int       `json:"item_id"`
	EventID  *string   `json:"event_id"` // of the elder
	LetterID uuid.UUID `json:"letter_id"`
}

// eldersShown is how many elders one answer lists.
const eldersShown = 1000

func (s *Server) apiReplayElders(c echo.Context) error {
	if err := noQuery(c); err != nil {
		return err
	}
	id, err := numberID(c, 64)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	if _, err := s.Replays.Changed(ctx, id); err != nil {
		return fmt.Errorf("elders of replay %d: %w", id, err)
	}
	elders, err := s.Replays.Elders(ctx, id, eldersShown)
	if err != nil {
		return fmt.Errorf("list elders of replay %d: %w", id, err)
	}
	return answer(c, http.StatusOK, listOf(elders, "", func(e dlq.Elder) elderJSON {
		return elderJSON{ItemID: e.No, EventID: e.EventID, LetterID: e.LetterID}
	}))
}
