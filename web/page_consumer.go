package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/labstack/echo/v4"

	"oncemore/dlq"
	"oncemore/internal/access"
	"oncemore/internal/fleet"
	"oncemore/views"
	"oncemore/views/locale"
)

func pathSegment(s string) string { return url.PathEscape(s) }

func (s *Server) consumerListPage(c echo.Context) error {
	if err := noQuery(c); err != nil {
		return err
	}
	here := localeOf(c)
	groups, err := s.Fleet.Groups(c.Request().Context())
	if err != nil {
		return fmt.Errorf("list consumer groups: %w", err)
	}
	v := views.ConsumerList{Frame: s.pageFrame(c, "consumers", here.Text("consumers.title"),
		views.Crumb{Label: here.Text("nav.runtime")}, views.Crumb{Label: here.Text("consumers.title")})}
	for _, g := range groups {
		v.Rows = append(v.Rows, consumerRow(g))
	}
	return render(c, http.StatusOK, views.ConsumerListPage(v))
}

func consumerRow(g fleet.Group) views.ConsumerRow {
	return views.ConsumerRow{
		Name: g.Name, Cluster: g.Cluster, Topics: ownTopics(g), Ours: g.Ours, Strategy: g.Strategy, State: g.State.String(), StateReason: g.StateReason,
		Lag: small(g.Lag), LagAt: g.LagAt, LagError: g.LagError, Consumed: small(g.Consumed), Duplicates: small(g.Duplicates),
		Retried: small(g.Retried), DeadLettered: small(g.DeadLettered), LastError: g.LastError, LastErrorAt: g.LastErrorAt, Evidence: g.EvidenceSince,
	}
}

// ownTopics leaves out the topic that every group of ours has for replays.
func ownTopics(g fleet.Group) []string {
	var topics []string
	for _, t := range g.Topics {
		if t != g.Name+".replay" {
			topics = append(topics, t)
		}
	}
	return topics
}

func (s *Server) consumerPage(c echo.Context) error { return s.showConsumer(c, refused{}) }

func (s *Server) showConsumer(c echo.Context, was refused) error {
	name, err := groupName(c)
	if err != nil {
		return err
	}
	ctx, here := c.Request().Context(), localeOf(c)
	g, err := s.consumerGroup(ctx, here, name)
	if err != nil {
		return err
	}
	open, _, err := s.Letters.Count(ctx, dlq.LetterFilter{State: dlq.Open, Group: name})
	if err != nil {
		return fmt.Errorf("count letters of %s: %w", name, err)
	}
	v := views.Consumer{
		Frame: s.pageFrame(c, "consumers", name, views.Crumb{Label: here.Text("nav.consumers"), Href: "/consumers"}, views.Crumb{Label: name}),
		Row:   consumerRow(g), Members: g.Members, Partitions: g.Partitions, OpenN: int(open), Error: was.Text, Reason: was.Reason,
		OpenHref: address("/letters", "state", "open", "consumer_group", name), Evidence: evidenceText(here, g),
		Figures: figuresOf(g),
		May:     actorOf(c).May(access.PauseConsumer), WhoMay: here.Text("may.pause", "roles", rolesOf(here, access.PauseConsumer)),
	}
	if g.Command != nil {
		v.Paused = &views.Pausing{Paused: g.Command.Paused, By: g.Command.Actor, Reason: g.Command.Reason, At: g.Command.At}
	}
	for _, r := range g.Replicas {
		v.Replicas = append(v.Replicas, views.ReplicaRow{ID: r.ID, Host: r.Host, State: replicaState(r), Partitions: r.Partitions,
			StartedAt: r.StartedAt, ReportedAt: r.ReportedAt, LastError: r.LastError})
	}
	return render(c, was.status(), views.ConsumerPage(v))
}

// figuresOf tells how a group of ours runs.
func figuresOf(g fleet.Group) []views.ConsumerFigure {
	if g.Transactions == nil {
		return nil
	}
	perTransaction := "–"
	if *g.Transactions > 0 {
		perTransaction = strconv.FormatFloat(float64(*g.Consumed+*g.Duplicates-*g.Filtered)/float64(*g.Transactions), 'f', 1, 64)
	}
	count := func(n *int64) string { return locale.Number(*n) }
	return []views.ConsumerFigure{
		{Key: "consumer.batch", Value: perTransaction}, {Key: "consumer.fallbacks", Value: count(g.Fallbacks)},
		{Key: "consumer.contention", Value: count(g.Contention)}, {Key: "consumer.filtered", Value: count(g.Filtered)},
		{Key: "consumer.discarded", Value: count(g.Discarded)}, {Key: "consumer.reconnects", Value: count(g.Reconnects)},
		{Key: "consumer.stale_acks", Value: count(g.StaleAcks)},
	}
}

// consumerGroup is what is known of a group. A letter may name one that no config
// names and no broker knows any more; then its letters are all there is.
func (s *Server) consumerGroup(ctx context.Context, here locale.Locale, name string) (fleet.Group, error) {
	g, err := s.Fleet.Group(ctx, name)
	if err == nil {
		return g, nil
	}
	if errors.Is(err, fleet.ErrUnknownGroup) {
		n, _, countErr := s.Letters.Count(ctx, dlq.LetterFilter{Group: name})
		if countErr != nil {
			return g, fmt.Errorf("count letters of %s: %w", name, countErr)
		}
		if n > 0 {
			return fleet.Group{Name: name, State: fleet.Unknown, StateReason: here.Text("consumer.unknown_group"), LagError: here.Text("consumer.lag_not_known")}, nil
		}
	}
	return g, fmt.Errorf("get consumer group %s: %w", name, err)
}

// replicaState is a replica's last word, unless it is too old to be the present.
func replicaState(r fleet.Replica) string {
	if r.Stale {
		return fleet.Stale.String()
	}
	return r.State.String()
}

func evidenceText(here locale.Locale, g fleet.Group) string {
	if g.EvidenceSince == nil {
		return here.Text("consumer.evidence_none")
	}
	return here.Text("consumer.evidence_since", "time", here.Short(*g.EvidenceSince))
}

// consumerCommand pauses or resumes a group of ours, with a reason.
func (s *Server) consumerCommand(pause bool) echo.HandlerFunc {
	return func(c echo.Context) error {
		name, err := groupName(c)
		if err != nil {
			return err
		}
		reason := c.FormValue("reason")
		if why := badText(reason); why != "" {
			return invalid("reason", why)
		}
		actor := actorBecause(c, reason)
		if actor.Reason == "" {
			return s.showConsumer(c, refused{Status: http.StatusUnprocessableEntity, Text: localeOf(c).Text("form.reason")})
		}
		if err := s.commandConsumer(c.Request().Context(), actor, name, pause); err != nil {
			return err
		}
		if back := c.FormValue("back"); back != "" {
			return c.Redirect(http.StatusSeeOther, backTo(back))
		}
		return c.Redirect(http.StatusSeeOther, "/consumers/"+pathSegment(name))
	}
}

func (s *Server) commandConsumer(ctx context.Context, actor access.Actor, name string, pause bool) error {
	act, word := s.Fleet.Resume, "resume"
	if pause {
		act, word = s.Fleet.Pause, "pause"
	}
	err := act(ctx, actor, name)
	if errors.Is(err, fleet.ErrUnknownGroup) {
		return fmt.Errorf("%s %s: %w", word, name, dlq.ErrNotFound)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", word, name, err)
	}
	return nil
}
