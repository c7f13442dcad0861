package web

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"oncemore/internal/access"
	"oncemore/internal/alert"
	"oncemore/views"
	"oncemore/views/locale"
)

// recentDeliveries is how many messages the page lists.
const recentDeliveries = 50

func (s *Server) settingsAlertsPage(c echo.Context) error {
	q := parseQuery(c)
	tested := q.take("tested")
	if err := q.done(); err != nil {
		return err
	}
	ctx, here, actor := c.Request().Context(), localeOf(c), actorOf(c)
	v := views.SettingsAlerts{
		Frame: s.settingsFrame(c, here.Text("settings.alerts")), Tabs: settingsBar(here, "alerts"),
		May: actor.May(access.TestAlert), WhoMay: here.Text("may.test_alert", "roles", rolesOf(here, access.TestAlert)),
	}
	if tested != "" {
		v.Said = here.Text("settings.tested", "name", tested)
	}
	looks, err := s.Alerts.Looks(ctx)
	if err != nil {
		return err
	}
	deliveries, err := s.Alerts.Deliveries(ctx, recentDeliveries)
	if err != nil {
		return err
	}
	for _, d := range deliveries {
		v.Deliveries = append(v.Deliveries, deliveryRow(d))
	}
	for _, r := range s.Alerts.Rules() {
		v.Rules = append(v.Rules, ruleRow(here, r, looks))
	}
	for _, ch := range s.Alerts.Channels() {
		v.Channels = append(v.Channels, channelRow(here, ch, v.Deliveries))
	}
	return render(c, http.StatusOK, views.SettingsAlertsPage(v))
}

func ruleRow(here locale.Locale, r alert.Rule, looks map[string]alert.Look) views.RuleRow {
	row := views.RuleRow{Name: here.Text("alert." + r.Name + ".name"), Finds: ruleFinds(here, r), Severity: r.Severity.String()}
	if l, looked := looks[r.Name]; looked {
		row.LookedAt, row.Error, row.Since = &l.At, l.Error, l.ErrorSince
	}
	return row
}

// ruleFinds says what a rule looks for, with its limit.
func ruleFinds(here locale.Locale, r alert.Rule) string {
	if r.Name == "at_risk" && len(r.Amounts) == 0 {
		return here.Text("alert.at_risk.unset")
	}
	var amounts []string
	for _, currency := range slices.Sorted(maps.Keys(r.Amounts)) {
		amounts = append(amounts, strings.TrimSuffix(r.Amounts[currency]+" "+currency, " none"))
	}
	return here.Text("alert."+r.Name+".finds", "age", here.Duration(r.OlderThan), "n", r.Above, "amounts", here.List(amounts))
}

func channelRow(here locale.Locale, c alert.Channel, deliveries []views.DeliveryRow) views.ChannelRow {
	row := views.ChannelRow{Name: c.Name, Type: string(c.Type), Language: cmp.Or(c.Language, "en"), Least: c.Least.String()}
	var rules []string
	for _, name := range c.Rules {
		rules = append(rules, here.Text("alert."+name+".name"))
	}
	row.Rules = strings.Join(rules, here.Text("list.comma"))
	if i := slices.IndexFunc(deliveries, func(d views.DeliveryRow) bool { return d.Channel == c.Name }); i >= 0 {
		row.Last = &deliveries[i]
	}
	return row
}

func deliveryRow(d alert.Delivery) views.DeliveryRow {
	return views.DeliveryRow{Channel: d.Channel, Kind: d.Kind.String(), Alerts: d.Alerts, State: d.State.String(), Tries: d.Tries, Error: d.Error, At: d.CreatedAt}
}

func (s *Server) alertTest(c echo.Context) error {
	name := c.Param("channel")
	if err := s.Alerts.Test(c.Request().Context(), actorOf(c), name); err != nil {
		return fmt.Errorf("test channel %s: %w", name, err)
	}
	return c.Redirect(http.StatusSeeOther, address("/settings/alerts", "tested", name))
}
