package web

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"oncemore/dlq"
	"oncemore/internal/access"
	"oncemore/views"
	"oncemore/views/locale"
)

func (s *Server) registerSetup(g *echo.Group) {
	configure := s.allow(access.Configure)
	g.GET("/setup", s.setupPage, configure)
	g.GET("/setup/first", s.setupFirst, configure)
	g.POST("/setup/broker", s.setupBroker, configure)
	g.POST("/setup/sources", s.setupSources, configure)
	g.POST("/setup/database", s.setupDatabase, configure)
	g.POST("/setup/evidence", s.setupEvidence, configure)
	g.POST("/setup/save", s.setupSave, configure)
	g.POST("/setup/later", s.setupLater, configure)
}

// setupSteps are the steps in their order; the last one comes after the restart.
var setupSteps = []string{"broker", "sources", "evidence", "file", "first"}

func (s *Server) setupPage(c echo.Context) error {
	q := parseQuery(c)
	step := q.take("step")
	if step == "" {
		step = setupSteps[0]
	}
	if !slices.Contains(setupSteps[:4], step) {
		q.fail("step", "is one of "+strings.Join(setupSteps[:4], ", "))
	}
	if err := q.done(); err != nil {
		return err
	}
	if d := s.Setup.Draft(); step != "broker" && !d.Connected || step == "file" && len(d.Sources.Names) == 0 {
		return c.Redirect(http.StatusSeeOther, "/setup")
	}
	return s.showSetup(c, step, s.Setup.Draft(), nil)
}

// showSetup shows a step; trouble is why the last command did not work.
func (s *Server) showSetup(c echo.Context, step string, d SetupDraft, trouble error) error {
	here := localeOf(c)
	v := views.Setup{Frame: s.setupFrame(c), Step: step, Steps: setupTrail(here, step),
		Broker: views.SetupBroker(d.Broker), Header: d.Sources.Header, JSON: d.Sources.JSON, Copy: d.Sources.Copy,
		Database: views.SetupDatabase(d.Database), Looked: d.Looked, Rabbit: d.Broker.Kind == "rabbitmq"}
	status := http.StatusOK
	if trouble != nil {
		bad, ok := errors.AsType[*SetupTrouble](trouble)
		if !ok {
			return trouble
		}
		status, v.Words, v.Hint = http.StatusUnprocessableEntity, bad.Words, here.Text(bad.Hint)
	}
	for _, p := range d.Places {
		v.Places = append(v.Places, views.SetupPlace{Name: p.Name, Messages: p.Messages, Likely: p.Likely, Chosen: chosenPlace(d, p)})
	}
	for _, t := range d.Tables {
		v.Tables = append(v.Tables, setupTable(here, t, s.Clock()))
	}
	if step == "file" {
		f, err := s.Setup.File()
		bad, isTrouble := errors.AsType[*SetupTrouble](err)
		switch {
		case isTrouble && trouble == nil:
			status, v.Words, v.Hint = http.StatusUnprocessableEntity, bad.Words, here.Text(bad.Hint)
		case err != nil && !isTrouble:
			return err
		}
		v.Path, v.Text, v.Secrets, v.Groups = f.Path, f.Text, f.Secrets, len(d.Evidence)
	}
	return render(c, status, views.SetupPage(v))
}

func (s *Server) setupFrame(c echo.Context) views.Frame {
	title := localeOf(c).Text("setup.title")
	return s.pageFrame(c, "setup", title, views.Crumb{Label: title})
}

func setupTrail(here locale.Locale, step string) (all []views.SetupStep) {
	at := slices.Index(setupSteps, step)
	for i, name := range setupSteps {
		one := views.SetupStep{Label: here.Text("setup.step." + name), Current: i == at, Done: i < at}
		if one.Done {
			one.Href = address("/setup", "step", name)
		}
		all = append(all, one)
	}
	return all
}

// chosenPlace: until somebody has chosen, what looks like dead letters is.
func chosenPlace(d SetupDraft, p dlq.DeadPlace) bool {
	if len(d.Sources.Names) == 0 {
		return p.Likely
	}
	return slices.Contains(d.Sources.Names, p.Name)
}

func setupTable(here locale.Locale, p dlq.EvidenceProposal, now time.Time) views.SetupTable {
	since := now
	if p.Oldest != nil {
		since = *p.Oldest
	}
	since = since.UTC().Truncate(time.Second).Add(time.Second)
	v := views.SetupTable{Table: p.Table, EventID: p.EventID, GroupColumn: p.ConsumerGroup, ConsumedAt: p.ConsumedAt,
		Since: since.Format(time.RFC3339), Groups: strings.Join(p.Groups, " "), Unique: p.Unique}
	v.Facts = proposalView(here, p, now).Facts
	return v
}

func (s *Server) setupBroker(c echo.Context) error {
	b := SetupBroker{Kind: c.FormValue("kind"), Name: strings.TrimSpace(c.FormValue("name")), Brokers: strings.TrimSpace(c.FormValue("brokers")), TLS: c.FormValue("tls") != "",
		Mechanism: c.FormValue("mechanism"), User: c.FormValue("sasl_user"), Password: c.FormValue("sasl_password"),
		URL: strings.TrimSpace(c.FormValue("url")), ManagementURL: strings.TrimSpace(c.FormValue("management_url"))}
	for name, value := range map[string]string{"name": b.Name, "brokers": b.Brokers, "sasl_user": b.User, "sasl_password": b.Password, "url": b.URL, "management_url": b.ManagementURL} {
		if why := badText(value); why != "" {
			return invalid(name, why)
		}
	}
	if b.Kind != "kafka" && b.Kind != "rabbitmq" {
		return invalid("kind", "is kafka or rabbitmq")
	}
	if err := s.Setup.Connect(c.Request().Context(), b); err != nil {
		d := s.Setup.Draft()
		d.Broker, d.Places = b, nil // what was typed goes back to who typed it
		return s.showSetup(c, "broker", d, err)
	}
	return c.Redirect(http.StatusSeeOther, "/setup?step=sources")
}

func (s *Server) setupSources(c echo.Context) error {
	form, err := c.FormParams()
	if err != nil {
		return fmt.Errorf("read form: %w", err)
	}
	chosen := SetupSources{Names: form["source"], Copy: form.Get("copy") != "", Header: strings.TrimSpace(form.Get("header")), JSON: strings.TrimSpace(form.Get("json"))}
	for _, value := range []string{chosen.Header, chosen.JSON} {
		if why := badText(value); why != "" {
			return invalid("event_id", why)
		}
	}
	s.Setup.Choose(chosen)
	if d := s.Setup.Draft(); len(d.Sources.Names) == 0 {
		return s.showSetup(c, "sources", d, &SetupTrouble{Hint: "setup.hint.none_chosen"})
	}
	return c.Redirect(http.StatusSeeOther, "/setup?step=evidence")
}

func (s *Server) setupDatabase(c echo.Context) error {
	d := SetupDatabase{Name: strings.TrimSpace(c.FormValue("name")), Kind: c.FormValue("kind"), URL: strings.TrimSpace(c.FormValue("url"))}
	for name, value := range map[string]string{"name": d.Name, "url": d.URL} {
		if why := badText(value); why != "" {
			return invalid(name, why)
		}
	}
	if d.Kind != "postgres" && d.Kind != "mysql" {
		return invalid("kind", "is postgres or mysql")
	}
	if err := s.Setup.Look(c.Request().Context(), d); err != nil {
		draft := s.Setup.Draft()
		draft.Database = d
		return s.showSetup(c, "evidence", draft, err)
	}
	return c.Redirect(http.StatusSeeOther, "/setup?step=evidence")
}

// setupEvidence tries each table that was chosen before it is kept; without one the
// step is skipped.
func (s *Server) setupEvidence(c echo.Context) error {
	form, err := c.FormParams()
	if err != nil {
		return fmt.Errorf("read form: %w", err)
	}
	if form.Get("do") == "skip" {
		s.Setup.Judge(nil)
		return c.Redirect(http.StatusSeeOther, "/setup?step=file")
	}
	var all []SetupEvidence
	for _, no := range form["table"] {
		e := SetupEvidence{Table: form.Get("name" + no), EventID: form.Get("event_id" + no), GroupColumn: form.Get("group_column" + no),
			ConsumedAt: form.Get("consumed_at" + no), Since: form.Get("since" + no)}
		for _, group := range strings.FieldsFunc(form.Get("groups"+no), func(r rune) bool { return strings.ContainsRune(" ,\r\n", r) }) {
			if why := badText(group); why != "" {
				return invalid("groups"+no, why)
			}
			e.Group = group
			all = append(all, e)
		}
	}
	if len(all) == 0 {
		return s.showSetup(c, "evidence", s.Setup.Draft(), &SetupTrouble{Hint: "setup.hint.no_group"})
	}
	for _, e := range all {
		if _, err := s.Setup.Try(c.Request().Context(), e); err != nil {
			return s.showSetup(c, "evidence", s.Setup.Draft(), err)
		}
	}
	s.Setup.Judge(all)
	return c.Redirect(http.StatusSeeOther, "/setup?step=file")
}

func (s *Server) setupSave(c echo.Context) error {
	if d := s.Setup.Draft(); !d.Connected || len(d.Sources.Names) == 0 {
		return c.Redirect(http.StatusSeeOther, "/setup")
	}
	if err := s.Setup.Save(c.Request().Context(), actorOf(c)); err != nil {
		return s.showSetup(c, "file", s.Setup.Draft(), err)
	}
	here := localeOf(c)
	v := views.Setup{Frame: s.setupFrame(c), Step: "starting", Steps: setupTrail(here, "first")}
	c.Response().Header().Set("Refresh", "3; url=/setup/first")
	return render(c, http.StatusOK, views.SetupPage(v))
}

func (s *Server) setupLater(c echo.Context) error {
	s.Setup.Later()
	return c.Redirect(http.StatusSeeOther, "/")
}

// setupFirst shows how the drains begin, and leads to the first letters.
func (s *Server) setupFirst(c echo.Context) error {
	if err := noQuery(c); err != nil {
		return err
	}
	if s.Setup.Needed() {
		return c.Redirect(http.StatusSeeOther, "/setup")
	}
	ctx, here := c.Request().Context(), localeOf(c)
	v := views.Setup{Frame: s.setupFrame(c), Step: "first", Steps: setupTrail(here, "first")}
	for i := range v.Steps {
		v.Steps[i].Href = ""
	}
	waiting := false
	for _, d := range s.drained() {
		n, _, err := s.Letters.Count(ctx, dlq.LetterFilter{Cluster: d.Cluster, Source: d.Source})
		if err != nil {
			return fmt.Errorf("count letters of %s: %w", d.Source, err)
		}
		waiting = waiting || n == 0 || d.Waiting > 0 && !d.Copies
		v.Letters += n
		v.Drains = append(v.Drains, views.SetupDrain{Source: d.Source, Cluster: d.Cluster, Stored: n, Waiting: d.Waiting, Error: d.LastError,
			Href: address("/letters", "state", "open", "source", d.Source, "cluster", d.Cluster)})
	}
	if waiting || len(v.Drains) == 0 {
		c.Response().Header().Set("Refresh", strconv.Itoa(2))
	}
	return render(c, http.StatusOK, views.SetupPage(v))
}
