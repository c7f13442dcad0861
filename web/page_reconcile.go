package web

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"oncemore/reconcile"
	"oncemore/views"
	"oncemore/views/locale"
)

// financeCrumbs are the steps to a page of reconciliation. Labels and addresses
// alternate; the last one is the page itself.
func financeCrumbs(here locale.Locale, steps ...string) []views.Crumb {
	all := []views.Crumb{{Label: here.Text("nav.finance")}, {Label: here.Text("nav.reconciliations"), Href: "/reconciliations"}}
	for i := 0; i+1 < len(steps); i += 2 {
		all = append(all, views.Crumb{Label: steps[i], Href: steps[i+1]})
	}
	all[len(all)-1].Href = ""
	return all
}

// inZone shows the rest of the request in a job's zone, which finance counts by.
func inZone(c echo.Context, zone *time.Location) locale.Locale {
	here := localeOf(c)
	here.Zone = zone
	c.SetRequest(c.Request().WithContext(locale.With(c.Request().Context(), here)))
	return here
}

// jobAt is a version of a job's definition; 0: the present one.
func (s *Server) jobAt(ctx context.Context, name string, version int) (*reconcile.Job, reconcile.Definition, error) {
	def, err := s.Reconcile.Jobs.Current(ctx, name)
	if version > 0 {
		def, err = s.Reconcile.Jobs.Version(ctx, name, version)
	}
	if err != nil {
		return nil, def, err
	}
	job, err := def.Parse()
	if err != nil {
		return nil, def, fmt.Errorf("job %s, version %d: %w", name, def.Version, err)
	}
	return job, def, nil
}

func jobHref(name string) string { return "/reconciliations/" + pathSegment(name) }

func runHref(id int64) string { return "/runs/" + strconv.FormatInt(id, 10) }

// windowText is a window by its zone's clock, the end exclusive.
func windowText(here locale.Locale, from, to time.Time) string {
	from, to = from.In(here.Zone), to.In(here.Zone)
	day := here.Text("time.layout.day_year")
	last := to.Add(-time.Nanosecond)
	switch {
	case from.Format(time.DateOnly) == to.Format(time.DateOnly):
		return from.Format(day) + " " + clockText(from) + "–" + clockText(to)
	case midnight(from) && midnight(to) && from.Format(time.DateOnly) == last.Format(time.DateOnly):
		return from.Format(day) + " 00:00–24:00"
	case from.Format(time.DateOnly) == last.Format(time.DateOnly):
		return from.Format(day) + " " + clockText(from) + "–24:00"
	}
	return from.Format(day) + " " + clockText(from) + " – " + to.Format(day) + " " + clockText(to)
}

func midnight(t time.Time) bool { return t.Hour()+t.Minute()+t.Second() == 0 }

// clockText leaves seconds out where there are none.
func clockText(t time.Time) string {
	if t.Second() == 0 {
		return t.Format("15:04")
	}
	return t.Format("15:04:05")
}

// ageText is an age in its largest unit.
func ageText(here locale.Locale, age time.Duration) string {
	for _, unit := range []time.Duration{24 * time.Hour, time.Hour, time.Minute} {
		if age >= unit {
			return here.Duration(age.Truncate(unit))
		}
	}
	return here.Duration(age.Truncate(time.Second))
}

// tookText is how long a run took; a short one is not "0.0 s".
func tookText(here locale.Locale, d time.Duration) string {
	if d < 100*time.Millisecond {
		return here.Text("duration.below", "d", here.Duration(100*time.Millisecond))
	}
	return here.Duration(d)
}

// planReasons are why a plan was chosen, in the domain's words; names stand in
// the groups.
var planReasons = []struct {
	says *regexp.Regexp
	key  string
	args []string
}{
	{regexp.MustCompile(`^asked for$`), "plan.why.asked", nil},
	{regexp.MustCompile(`^there are three sides$`), "plan.why.three", nil},
	{regexp.MustCompile(`^a key may have several effects$`), "plan.why.several", nil},
	{regexp.MustCompile(`^all sides are on (\S+)$`), "plan.why.one", []string{"name"}},
	{regexp.MustCompile(`^(\S+) is MySQL, which has no full join$`), "plan.why.mysql", []string{"name"}},
	{regexp.MustCompile(`^(\S+) is on (\S+) and (\S+) on (\S+)$`), "plan.why.apart", []string{"", "name", "", "other"}},
}

// planWhy is the reason of a plan in the reader's language, else as it was said.
func planWhy(here locale.Locale, reason string) string {
	for _, r := range planReasons {
		m := r.says.FindStringSubmatch(reason)
		if m == nil {
			continue
		}
		var pairs []any
		for i, name := range r.args {
			if name != "" {
				pairs = append(pairs, name, m[i+1])
			}
		}
		return here.Text(r.key, pairs...)
	}
	return reason
}

func money(a reconcile.Amount, currency string) string { return locale.Money(a.String(), currency) }

func amountText(a reconcile.Amount, currency string) string {
	return locale.Amount(a.String(), currency)
}

// moneyList writes the amounts of several currencies, which are never added up.
func moneyList(here locale.Locale, lines map[string]reconcile.Line) string {
	var all []string
	for _, currency := range currencies(lines) {
		all = append(all, money(lines[currency].Amount, currency))
	}
	return strings.Join(all, here.Text("list.comma"))
}

// shortHash is the beginning and the end of a hash, which stands whole elsewhere.
func shortHash(hex string) string {
	if len(hex) < 12 {
		return hex
	}
	return hex[:4] + "…" + hex[len(hex)-4:]
}

// runStateWord is where a run stands, signing included.
func runStateWord(r reconcile.Run) string {
	if r.State != reconcile.Complete {
		return r.State.String()
	}
	switch r.Sign {
	case reconcile.SignWaiting:
		return "waiting"
	case reconcile.SignNone:
		return "complete"
	}
	return r.Sign.String()
}

// againFinance shows a page of finance whose form was refused. False: there is
// none at this address.
func (s *Server) againFinance(c echo.Context, section, id string, was refused) (bool, error) {
	switch {
	case section == "runs" && id != "":
		return true, s.showRun(c, was)
	case section == "breaks" && id != "":
		return true, s.showBreak(c, was)
	case section == "breaks":
		return true, s.showBreakList(c, was)
	case section == "reconciliations" && id != "":
		c.SetParamNames("job")
		return true, s.showJob(c, was)
	}
	return false, nil
}
