package web

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/labstack/echo/v4"

	"oncemore/internal/alert"
	"oncemore/views/locale"
)

// alertJSON is one thing that a rule found.
type alertJSON struct {
	ID           int64      `json:"id"`
	Rule         string     `json:"rule"`
	Key          string     `json:"key"` // what it is about, such as fault/28
	Severity     string     `json:"severity"`
	Text         string     `json:"text"`
	Href         *string    `json:"href"` // page of the console
	FirstAt      *time.Time `json:"first_at"`
	LastAt       *time.Time `json:"last_at"`
	ResolvedAt   *time.Time `json:"resolved_at"` // null: it lasts
	Acknowledged *ackJSON   `json:"acknowledged"`
}

// ackJSON is who is on an alert.
type ackJSON struct {
	By     string     `json:"by"`
	At     *time.Time `json:"at"`
	Reason *string    `json:"reason"`
}

// alertsJSON is a list of alerts with whether every rule could look: without that
// an empty list says nothing.
type alertsJSON struct {
	list[alertJSON]
	Rules []ruleJSON `json:"rules"`
}

// ruleJSON is a rule that looks, and how that went.
type ruleJSON struct {
	Name       string     `json:"name"`
	Severity   string     `json:"severity"`
	LookedAt   *time.Time `json:"looked_at"` // null: not yet
	Error      *string    `json:"error"`     // why it could not look the last time
	ErrorSince *time.Time `json:"error_since"`
}

var alertStates = map[string]bool{"": true, "lasting": true, "over": false}

// apiAlerts lists what lasts, or what is over, and how looking went.
func (s *Server) apiAlerts(c echo.Context) error {
	q := parseQuery(c)
	lasting, err := choice("state", q.take("state"), alertStates)
	q.keep(err)
	if err := q.done(); err != nil {
		return err
	}
	if s.Alerts == nil {
		return answer(c, http.StatusOK, alertsJSON{list[alertJSON]{Items: []alertJSON{}}, []ruleJSON{}})
	}
	ctx := c.Request().Context()
	read, most := s.Alerts.Lasting, lastingAlerts
	if !lasting {
		read, most = s.Alerts.Over, endedAlerts
	}
	alerts, err := read(ctx, most)
	if err != nil {
		return err
	}
	looks, err := s.Alerts.Looks(ctx)
	if err != nil {
		return err
	}
	out := alertsJSON{list: listOf(alerts, "", s.alertJSON(localeOf(c))), Rules: []ruleJSON{}}
	for _, r := range s.Alerts.Rules() {
		rule := ruleJSON{Name: r.Name, Severity: r.Severity.String()}
		if l, looked := looks[r.Name]; looked {
			rule.LookedAt, rule.Error, rule.ErrorSince = instant(&l.At), known(l.Error), instant(l.ErrorSince)
		}
		out.Rules = append(out.Rules, rule)
	}
	return answer(c, http.StatusOK, out)
}

func (s *Server) alertJSON(here locale.Locale) func(alert.Alert) alertJSON {
	return func(a alert.Alert) alertJSON {
		j := alertJSON{ID: a.ID, Rule: a.Rule, Key: a.Key, Severity: a.Severity.String(), Text: s.Alerts.Text(string(here.Tag), a), Href: known(a.Href),
			FirstAt: instant(&a.FirstAt), LastAt: instant(&a.LastAt), ResolvedAt: instant(a.ResolvedAt)}
		if a.AckedBy != "" {
			j.Acknowledged = &ackJSON{By: a.AckedBy, At: instant(a.AckedAt), Reason: known(a.AckReason)}
		}
		return j
	}
}

// apiAlertAcknowledge says that the caller is on it.
func (s *Server) apiAlertAcknowledge(c echo.Context) error {
	id, err := numberID(c, 64)
	if err != nil {
		return err
	}
	by, err := commander(c)
	if err != nil {
		return err
	}
	if s.Alerts == nil {
		return alert.ErrNoAlert
	}
	if err := s.Alerts.Acknowledge(c.Request().Context(), by, id); err != nil {
		return fmt.Errorf("acknowledge alert %d: %w", id, err)
	}
	return c.NoContent(http.StatusNoContent)
}

type acknowledgeJSON struct {
	IDs    []int64 `json:"ids"`
	Reason string  `json:"reason"`
}

// apiAlertsAcknowledge says that the caller is on several.
func (s *Server) apiAlertsAcknowledge(c echo.Context) error {
	if err := noQuery(c); err != nil {
		return err
	}
	var body acknowledgeJSON
	if err := decode(c, &body); err != nil {
		return err
	}
	if len(body.IDs) == 0 || len(body.IDs) > lastingAlerts {
		return invalid("ids", fmt.Sprintf("names 1 to %d alerts", lastingAlerts))
	}
	if s.Alerts == nil {
		return alert.ErrNoAlert
	}
	if err := s.Alerts.Acknowledge(c.Request().Context(), actorBecause(c, body.Reason), body.IDs...); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}

// channelJSON is who is told. Its addresses and secrets are not for the API.
type channelJSON struct {
	Name     string        `json:"name"`
	Type     string        `json:"type"`
	Language string        `json:"language"`
	Least    *string       `json:"least"` // the mildest severity that it is told of; null: all
	Rules    []string      `json:"rules"` // none: all
	Last     *deliveryJSON `json:"last"`  // its latest message; null: none lately
}

// deliveryJSON is one message and how its sending went.
type deliveryJSON struct {
	ID        int64      `json:"id"`
	Kind      string     `json:"kind"`
	Alerts    int        `json:"alerts"`
	State     string     `json:"state"`
	Tries     int        `json:"tries"`
	Error     *string    `json:"error"`
	CreatedAt *time.Time `json:"created_at"`
	DoneAt    *time.Time `json:"done_at"`
}

func deliveryOf(d alert.Delivery) *deliveryJSON {
	return &deliveryJSON{ID: d.ID, Kind: d.Kind.String(), Alerts: d.Alerts, State: d.State.String(), Tries: d.Tries, Error: known(d.Error),
		CreatedAt: instant(&d.CreatedAt), DoneAt: instant(d.DoneAt)}
}

// apiAlertChannels lists who is told, each with its latest message.
func (s *Server) apiAlertChannels(c echo.Context) error {
	if err := noQuery(c); err != nil {
		return err
	}
	out := list[channelJSON]{Items: []channelJSON{}}
	if s.Alerts == nil {
		return answer(c, http.StatusOK, out)
	}
	deliveries, err := s.Alerts.Deliveries(c.Request().Context(), recentDeliveries)
	if err != nil {
		return err
	}
	for _, ch := range s.Alerts.Channels() {
		j := channelJSON{Name: ch.Name, Type: string(ch.Type), Language: cmp.Or(ch.Language, string(locale.English)), Least: known(ch.Least.String()), Rules: orEmpty(ch.Rules)}
		if i := slices.IndexFunc(deliveries, func(d alert.Delivery) bool { return d.Channel == ch.Name }); i >= 0 {
			j.Last = deliveryOf(deliveries[i])
		}
		out.Items = append(out.Items, j)
	}
	return answer(c, http.StatusOK, out)
}

// apiAlertTest sends a message that says it is a test. How it went stands in the
// list of channels.
func (s *Server) apiAlertTest(c echo.Context) error {
	if err := noQuery(c); err != nil {
		return err
	}
	name := c.Param("channel")
	if s.Alerts == nil {
		return alert.ErrNoChannel
	}
	if err := s.Alerts.Test(c.Request().Context(), actorOf(c), name); err != nil {
		return fmt.Errorf("test channel %s: %w", name, err)
	}
	return c.NoContent(http.StatusAccepted)
}
