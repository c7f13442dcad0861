package web

import (
	"fmt"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"oncemore/consumer/outbox"
	"oncemore/internal/outboxes"
)

// outboxJSON is one outbox. The figures are null where its database does not answer.
type outboxJSON struct {
	Name          string   `json:"name"` // connection/table
	Cluster       string   `json:"cluster"`
	Pending       *int64   `json:"pending"`
	OldestSeconds *float64 `json:"oldest_seconds"` // null: nothing is pending, or not known
	SentPerMinute *int64   `json:"sent_per_minute"`
	Dead          *int64   `json:"dead"`
}

type outboxRowJSON struct {
	ID        int64      `json:"id"`
	EventID   string     `json:"event_id"`
	Key       string     `json:"key"`
	Exchange  *string    `json:"exchange"`
	Target    string     `json:"target"`
	State     string     `json:"state"`
	Attempts  int        `json:"attempts"`
	CreatedAt *time.Time `json:"created_at"`
	NextAt    *time.Time `json:"next_at"`
	HeldBy    *int64     `json:"held_by"`
	LastError *string    `json:"last_error"`
}

type outboxCommandJSON struct {
	ID        int64      `json:"id"`
	Outbox    string     `json:"outbox"`
	RowID     int64      `json:"row_id"`
	EventID   string     `json:"event_id"`
	Act       string     `json:"act"`
	State     string     `json:"state"`
	Releases  int64      `json:"releases"`
	AskedBy   string     `json:"asked_by"`
	Reason    string     `json:"reason"`
	AskedAt   *time.Time `json:"asked_at"`
	DecidedBy *string    `json:"decided_by"`
	DecidedAt *time.Time `json:"decided_at"`
}

func (s *Server) apiOutboxes(c echo.Context) error {
	if err := noQuery(c); err != nil {
		return err
	}
	var all []outboxes.Outbox
	if s.Outboxes != nil {
		all = s.Outboxes.All()
	}
	return answer(c, http.StatusOK, listOf(all, "", func(o outboxes.Outbox) outboxJSON {
		j := outboxJSON{Name: o.Name(), Cluster: o.Cluster}
		stats, err := o.Read.Stats(c.Request().Context())
		if err != nil {
			s.Logger.Warn("read outbox", "outbox", o.Name(), "error", err)
			return j
		}
		j.Pending, j.SentPerMinute, j.Dead = &stats.Pending, &stats.SentPerMinute, &stats.Dead
		if stats.Pending > 0 {
			j.OldestSeconds = ptr(stats.Oldest.Seconds())
		}
		return j
	}))
}

func (s *Server) apiOutboxRows(c echo.Context) error {
	box, err := s.outboxOf(c)
	if err != nil {
		return err
	}
	q := parseQuery(c)
	limit := q.id("limit", 32)
	filter, err := outboxFilter(q)
	if err != nil {
		return err
	}
	if limit > 200 {
		return &fieldError{Field: "limit", Text: "is a whole number from 1 to 200"}
	}
	if limit > 0 {
		filter.Limit = int(limit)
	}
	rows, err := box.Read.List(c.Request().Context(), filter)
	if err != nil {
		return err
	}
	return answer(c, http.StatusOK, listOf(rows, nextRow(rows, filter), outboxRowOf))
}

func outboxRowOf(r outbox.Row) outboxRowJSON {
	return outboxRowJSON{
		ID: r.ID, EventID: r.EventID, Key: readableKey(r.OrderKey), Exchange: known(r.Exchange), Target: r.Target, State: r.State.String(),
		Attempts: r.Attempts, CreatedAt: instant(&r.CreatedAt), NextAt: instant(r.NextAt), HeldBy: r.HeldBy, LastError: known(r.LastError),
	}
}

func outboxCommandOf(c outboxes.Command) outboxCommandJSON {
	return outboxCommandJSON{
		ID: c.ID, Outbox: c.Outbox, RowID: c.RowID, EventID: c.EventID, Act: c.Act.String(), State: c.State.String(), Releases: c.Releases,
		AskedBy: c.AskedBy, Reason: c.Reason, AskedAt: instant(&c.AskedAt), DecidedBy: known(c.By), DecidedAt: instant(c.At),
	}
}

func (s *Server) apiOutboxCommands(c echo.Context) error {
	if err := noQuery(c); err != nil {
		return err
	}
	box, err := s.outboxOf(c)
	if err != nil {
		return err
	}
	open, err := s.Outboxes.Open(c.Request().Context(), box.Name())
	if err != nil {
		return err
	}
	return answer(c, http.StatusOK, listOf(open, "", outboxCommandOf))
}

// apiOutboxAct runs one command on one row and answers with it as it stands now.
func (s *Server) apiOutboxAct(act outboxCommand) echo.HandlerFunc {
	return func(c echo.Context) error {
		box, err := s.outboxOf(c)
		if err != nil {
			return err
		}
		id, err := numberID(c, 64)
		if err != nil {
			return err
		}
		by, err := commander(c)
		if err != nil {
			return err
		}
		command, err := act(c.Request().Context(), by, box.Name(), id)
		if err != nil {
			return fmt.Errorf("outbox row %d: %w", id, err)
		}
		return s.answerOutboxCommand(c, command.ID)
	}
}

func (s *Server) apiOutboxDecide(approve bool) echo.HandlerFunc {
	return func(c echo.Context) error {
		by, err := commander(c)
		if err != nil {
			return err
		}
		command, err := s.decideOutbox(c, by.Reason, approve)
		if err != nil {
			return err
		}
		return s.answerOutboxCommand(c, command.ID)
	}
}

func (s *Server) answerOutboxCommand(c echo.Context, id int64) error {
	command, err := s.Outboxes.Get(c.Request().Context(), id)
	if err != nil {
		return err
	}
	return answer(c, http.StatusOK, outboxCommandOf(command))
}
