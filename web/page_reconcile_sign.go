package web

import (
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"oncemore/internal/access"
	"oncemore/reconcile"
	"oncemore/views"
	"oncemore/views/locale"
	"oncemore/views/ui"
)

// signOffView is who vouches for the run; nil while it is at work, and for runs
// that ask for nobody.
func (s *Server) signOffView(here locale.Locale, actor access.Actor, f runFacts, was refused) *views.SignOff {
	r := f.run
	if !r.State.Finished() || r.State == reconcile.Complete && r.Sign == reconcile.SignNone {
		return nil
	}
	seal := hex.EncodeToString(r.Seal)
	v := &views.SignOff{
		Action: runHref(r.ID) + "/sign-off", Seal: seal, Facts: signFacts(here, f), Why: signWhyNot(here, actor, f),
		Reopen: r.Sign == reconcile.Signed && actor.May(access.SignOff), Needed: len(r.AtRisk) > 0 || r.Tally != nil && !r.Tally.Whole(), Reason: was.Reason, Checked: map[string]bool{},
	}
	v.May = v.Why == ""
	for _, point := range was.Checked {
		v.Checked[point] = true
	}
	for _, g := range f.signed {
		v.History = append(v.History, signRow(here, g))
	}
	open := openKeys(r)
	for _, point := range reconcile.Checklist {
		v.Points = append(v.Points, ui.Option{Value: point, Label: here.Text("sign.point_"+point, "n", open)})
	}
	v.Button = here.Text("sign.button_none")
	switch {
	case len(r.AtRisk) > 0:
		v.Button = here.Text("sign.button", "amounts", moneyList(here, r.AtRisk))
	case v.Needed:
		v.Button = here.Text("sign.button_uncounted")
	}
	v.Confirm = []string{
		here.Text("sign.confirm_run", "id", strconv.FormatInt(r.ID, 10), "job", r.Job, "window", windowText(here, r.From, r.To), "zone", here.Zone.String()),
		here.Text("sign.confirm_open", "n", open, "amounts", riskText(here, r)), here.Text("sign.confirm_seal", "hash", shortHash(seal)), here.Text("sign.confirm_own"),
	}
	return v
}

func openKeys(r *reconcile.Run) int { return int(keysOf(r.AtRisk)) }

func riskText(here locale.Locale, r *reconcile.Run) string {
	if len(r.AtRisk) == 0 {
		return here.Text("sign.nothing")
	}
	return moneyList(here, r.AtRisk)
}

// signWhyNot is why there is no button; "" there is one.
func signWhyNot(here locale.Locale, actor access.Actor, f runFacts) string {
	r := f.run
	missing, _ := missingSegments(f.segments)
	switch {
	case r.State == reconcile.Failed:
		return here.Text("sign.not_failed")
	case r.State == reconcile.Partial && missing > 0:
		return here.Text("sign.not_partial", "n", missing)
	case r.State == reconcile.Partial:
		return here.Text("sign.not_partial_other")
	case r.Sign == reconcile.Superseded:
		return here.Text("sign.not_superseded")
	case r.Sign == reconcile.Signed:
		return here.Text("sign.is_signed")
	case !actor.May(access.SignOff):
		return here.Text("may.sign", "roles", rolesOf(here, access.SignOff))
	case r.AskedBy == actor.User:
		return here.Text("sign.own")
	}
	return ""
}

// signFacts are what a reviewer goes by.
func signFacts(here locale.Locale, f runFacts) []views.Fact {
	r := f.run
	rule := here.Text("sign.rule", "roles", rolesOf(here, access.SignOff))
	if r.AskedBy != access.System().User {
		rule = here.Text("sign.rule_except", "roles", rolesOf(here, access.SignOff), "name", r.AskedBy)
	}
	facts := []views.Fact{
		{Label: here.Text("sign.prepared"), Value: byWord(here, r.AskedBy) + here.Text("list.comma") + here.Short(r.AskedAt)},
		{Label: here.Text("sign.reviewer"), Value: rule},
		{Label: here.Text("sign.unexplained"), Value: riskText(here, r), Detail: thresholdText(here, f.job)},
	}
	if at := readAt(f.segments); at != nil {
		facts = append(facts, views.Fact{Label: here.Text("sign.data_as_of"), Value: here.Exact(*at), Detail: here.Text("sign.data_sides", "sides", sideList(here, f.job))})
	}
	if r.Seal != nil {
		facts = append(facts, views.Fact{Label: here.Text("sign.seal"), Value: hex.EncodeToString(r.Seal), Code: true})
	}
	return facts
}

func sideList(here locale.Locale, job *reconcile.Job) string {
	var all []string
	for _, p := range parties(job) {
		all = append(all, sideWord(here, p)+" ("+job.Side(p).Connection+")")
	}
	return here.List(all)
}

// readAt is when the last part of the window was read; nil: none was.
func readAt(segments []reconcile.Segment) *time.Time {
	var last *time.Time
	for _, s := range segments {
		if s.DoneAt != nil && (last == nil || s.DoneAt.After(*last)) {
			last = s.DoneAt
		}
	}
	return last
}

func thresholdText(here locale.Locale, job *reconcile.Job) string {
	if job.SignOff.AutoBelow == nil || job.SignOff.AutoBelow.IsZero() {
		return here.Text("sign.no_threshold")
	}
	return here.Text("sign.threshold", "amount", locale.Amount(job.SignOff.AutoBelow.String(), ""))
}

// signLooks are icon and hue of a reviewer's acts.
var signLooks = map[string][2]string{
	"signed": {"signature", "go"}, "auto_signed": {"signature", "go"}, "sent_back": {"arrow-back-up", "ask"}, "reopened": {"rotate-2", "ask"},
}

func signRow(here locale.Locale, g reconcile.Signature) views.SignRow {
	look := signLooks[g.Act]
	return views.SignRow{Icon: look[0], Hue: look[1], At: g.At, Reason: g.Reason, Text: here.Text("run.sign."+g.Act, "by", byWord(here, g.By), "hash", shortHash(hex.EncodeToString(g.Seal)))}
}

// runSignOff signs the run as the page showed it, sends it back, or reopens it.
func (s *Server) runSignOff(c echo.Context) error {
	id, err := numberID(c, 64)
	if err != nil {
		return reconcile.ErrNoRun
	}
	form, err := c.FormParams()
	if err != nil {
		return err
	}
	reason := strings.TrimSpace(form.Get("reason"))
	if why := badText(reason); why != "" {
		return invalid("reason", why)
	}
	body := signOffJSON{Act: form.Get("act"), Seal: form.Get("seal"), Checklist: form["checklist"], Reason: reason}
	if err := s.signOff(c, id, body); err != nil {
		was, ok := financeRefusal(localeOf(c), err, "")
		if !ok {
			return err
		}
		was.Reason, was.Checked = reason, body.Checklist
		return s.showRun(c, was)
	}
	return c.Redirect(http.StatusSeeOther, runHref(id)+"#sign-off")
}
