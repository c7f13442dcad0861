package web

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/labstack/echo/v4"

	"oncemore/internal/access"
	"oncemore/internal/fleet"
)

// consumerJSON is one consumer group. Null: not known, or not ours to know.
type consumerJSON struct {
	ConsumerGroup string        `json:"consumer_group"`
	Cluster       string        `json:"cluster"`
	Ours          bool          `json:"ours"`
	Topics        []string      `json:"topics"`
	Strategy      *string       `json:"strategy"`
	State         string        `json:"state"`
	StateReason   *string       `json:"state_reason"`
	Consumed      *int64        `json:"consumed"`
	Duplicates    *int64        `json:"duplicates"`
	Retried       *int64        `json:"retried"`
	DeadLettered  *int64        `json:"dead_lettered"`
	Filtered      *int64        `json:"filtered"`
	Discarded     *int64        `json:"discarded"`
	Transactions  *int64        `json:"transactions"`
	Fallbacks     *int64        `json:"fallbacks"`
	Contention    *int64        `json:"contention"`
	StaleAcks     *int64        `json:"stale_acks"`
	Reconnects    *int64        `json:"reconnects"`
	Lag           *int64        `json:"lag"`
	LagAt         *time.Time    `json:"lag_at"`
	LagError      *string       `json:"lag_error"`
	Members       *int          `json:"members"`
	Partitions    *int          `json:"partitions"`
	LastError     *string       `json:"last_error"`
	LastErrorAt   *time.Time    `json:"last_error_at"`
	EvidenceSince *time.Time    `json:"evidence_since"`
	Command       *commandJSON  `json:"command"` // the latest wish; null: there never was one
	Replicas      []replicaJSON `json:"replicas"`
}

type commandJSON struct {
	Paused bool       `json:"paused"`
	Actor  string     `json:"actor"`
	Reason *string    `json:"reason"`
	At     *time.Time `json:"at"`
}

type replicaJSON struct {
	ID         string     `json:"id"`
	Host       string     `json:"host"`
	State      string     `json:"state"`
	Partitions int        `json:"partitions"`
	StartedAt  *time.Time `json:"started_at"`
	ReportedAt *time.Time `json:"reported_at"`
	Stale      bool       `json:"stale"`
	LastError  *string    `json:"last_error"`
}

func consumerOf(g fleet.Group) consumerJSON {
	j := consumerJSON{
		ConsumerGroup: g.Name, Cluster: g.Cluster, Ours: g.Ours, Topics: orEmpty(g.Topics), Strategy: known(g.Strategy),
		State: g.State.String(), StateReason: known(g.StateReason),
		Consumed: g.Consumed, Duplicates: g.Duplicates, Retried: g.Retried, DeadLettered: g.DeadLettered,
		Filtered: g.Filtered, Discarded: g.Discarded, Transactions: g.Transactions, Fallbacks: g.Fallbacks,
		Contention: g.Contention, StaleAcks: g.StaleAcks, Reconnects: g.Reconnects,
		Lag: g.Lag, LagAt: instant(g.LagAt), LagError: known(g.LagError), Members: g.Members, Partitions: g.Partitions,
		LastError: known(g.LastError), LastErrorAt: instant(g.LastErrorAt), EvidenceSince: instant(g.EvidenceSince),
		Replicas: make([]replicaJSON, 0, len(g.Replicas)),
	}
	if g.Command != nil {
		j.Command = &commandJSON{Paused: g.Command.Paused, Actor: g.Command.Actor, Reason: known(g.Command.Reason), At: instant(&g.Command.At)}
	}
	for _, r := range g.Replicas {
		j.Replicas = append(j.Replicas, replicaJSON{ID: r.ID, Host: r.Host, State: r.State.String(), Partitions: r.Partitions,
			StartedAt: instant(&r.StartedAt), ReportedAt: instant(&r.ReportedAt), Stale: r.Stale, LastError: known(r.LastError)})
	}
	return j
}

func (s *Server) apiConsumers(c echo.Context) error {
	if err := noQuery(c); err != nil {
		return err
	}
	groups, err := s.Fleet.Groups(c.Request().Context())
	if err != nil {
		return fmt.Errorf("list consumer groups: %w", err)
	}
	return answer(c, http.StatusOK, listOf(groups, "", consumerOf))
}

func (s *Server) apiConsumer(c echo.Context) error {
	if err := noQuery(c); err != nil {
		return err
	}
	name, err := groupName(c)
	if err != nil {
		return err
	}
	return s.answerConsumer(c, name)
}

func (s *Server) answerConsumer(c echo.Context, name string) error {
	group, err := s.Fleet.Group(c.Request().Context(), name)
	if err != nil {
		return fmt.Errorf("get consumer group: %w", err)
	}
	return answer(c, http.StatusOK, consumerOf(group))
}

// apiConsumerAct runs one command on one group and answers with the group. The
// replicas obey a moment later.
func (s *Server) apiConsumerAct(act func(context.Context, access.Actor, string) error) echo.HandlerFunc {
	return func(c echo.Context) error {
		name, err := groupName(c)
		if err != nil {
			return err
		}
		by, err := commander(c)
		if err != nil {
			return err
		}
		if err := act(c.Request().Context(), by, name); err != nil {
			return fmt.Errorf("command consumer group: %w", err)
		}
		return s.answerConsumer(c, name)
	}
}

// groupName reads a group from the path. echo hands over what stands in RawPath,
// still escaped, where there is one, else what stands in Path.
func groupName(c echo.Context) (string, error) {
	name := c.Param("group")
	var err error
	if c.Request().URL.RawPath != "" {
		name, err = url.PathUnescape(name)
	}
	if err != nil || badText(name) != "" {
		return "", &fieldError{Field: "group", Text: "is not a name"}
	}
	return name, nil
}
