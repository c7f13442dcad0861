package web

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"oncemore/internal/access"
	"oncemore/reconcile"
	"oncemore/reconcile/draft"
	"oncemore/views"
	"oncemore/views/locale"
	"oncemore/views/ui"
)

// proposals are changes of jobs.
func (s *Server) proposals() *reconcile.Proposals {
	return reconcile.NewProposals(s.Pool, s.Reconcile.Runs)
}

// mostDefinition bounds a definition, in bytes.
const mostDefinition = 64 << 10

// jobDraft is a definition in the making: what stands in the form, and what was
// found about it.
type jobDraft struct {
	job      string // that is changed; "" a new one
	base     string // what it is now; "" a new one
	template string // that a new one began with
	text     string
	asText   bool
	reason   string
	file     *int // the version that the job's file said
	version  int

	status   int
	checked  *reconcile.Job // nil: not checked, or wrong
	problems []string
	trouble  string // that is no line's
}

func (s *Server) jobNewPage(c echo.Context) error {
	q := parseQuery(c)
	d := jobDraft{template: q.take("template")}
	if d.template != "" && !slices.Contains(draft.Templates, d.template) {
		q.fail("template", "is one of "+strings.Join(draft.Templates, ", "))
	}
	if err := q.done(); err != nil {
		return err
	}
	if d.template != "" {
		var err error
		if d.text, err = draft.Template(d.template); err != nil {
			return err
		}
	}
	return s.showDraft(c, d)
}

func (s *Server) jobChangePage(c echo.Context) error {
	if err := noQuery(c); err != nil {
		return err
	}
	d, err := s.draftOf(c)
	if err != nil {
		return err
	}
	d.text = d.base
	return s.showDraft(c, d)
}

// draftOf is the job in the address as it is now.
func (s *Server) draftOf(c echo.Context) (jobDraft, error) {
	name, err := jobName(c)
	if err != nil || name == "" {
		return jobDraft{}, err
	}
	all, err := s.Reconcile.Jobs.List(c.Request().Context(), s.Reconcile.Runs)
	if err != nil {
		return jobDraft{}, err
	}
	at := slices.IndexFunc(all, func(j reconcile.JobSummary) bool { return j.Name == name })
	if at < 0 {
		return jobDraft{}, fmt.Errorf("%w: %s", reconcile.ErrNoJob, name)
	}
	def, err := s.Reconcile.Jobs.Current(c.Request().Context(), name)
	return jobDraft{job: name, base: def.Text, file: all[at].File, version: all[at].Version}, err
}

// jobDraftPost checks a draft, shows it the other way, or asks for it to become
// the job.
func (s *Server) jobDraftPost(c echo.Context) error {
	d, err := s.draftOf(c)
	if err != nil {
		return err
	}
	form, err := c.FormParams()
	if err != nil {
		return fmt.Errorf("read form: %w", err)
	}
	if err := d.take(form); err != nil {
		return err
	}
	switch do := form.Get("do"); do {
	case "text", "fields":
		d.asText = do == "text"
	case "check":
		d.checked, err = s.proposals().Check(c.Request().Context(), d.job, d.text)
		d.found(localeOf(c), err)
	case "propose":
		return s.proposeDraft(c, d)
	default:
		return invalid("do", "is one of text, fields, check, propose")
	}
	return s.showDraft(c, d)
}

// take reads the form. Fields change the text that it carries; what is no YAML
// stays as it was typed.
func (d *jobDraft) take(form url.Values) error {
	d.text, d.asText, d.reason = strings.ReplaceAll(form.Get("text"), "\r\n", "\n"), form.Get("as") == "text", form.Get("reason")
	for field, value := range map[string]string{"text": d.text, "reason": d.reason} {
		if len(value) > mostDefinition || !utf8.ValidString(value) || strings.ContainsRune(value, 0) {
			return invalid(field, "has to be text of up to 64 KiB")
		}
	}
	if d.asText {
		return nil
	}
	values := map[string]string{}
	for _, f := range draft.Fields {
		if given, there := form["f."+f.Path]; there {
			values[f.Path] = given[0]
		}
	}
	text, err := draft.Apply(d.text, values)
	if err != nil {
		d.asText = true // it shows where it is no YAML
		return nil
	}
	d.text = text
	return nil
}

func (s *Server) proposeDraft(c echo.Context, d jobDraft) error {
	id, err := s.proposals().Make(c.Request().Context(), actorBecause(c, d.reason), d.job, d.text)
	if err == nil {
		return c.Redirect(http.StatusSeeOther, proposalHref(id))
	}
	if d.found(localeOf(c), err); d.status == 0 {
		return err
	}
	return s.showDraft(c, d)
}

// found keeps what is wrong with a draft. An error that nobody can mend in the
// form leaves the status 0.
func (d *jobDraft) found(here locale.Locale, err error) {
	switch {
	case err == nil:
	case errors.Is(err, reconcile.ErrDefinition):
		d.status, d.problems = http.StatusUnprocessableEntity, reconcile.Problems(err)
	default:
		if was, ok := financeRefusal(here, err, ""); ok {
			d.status, d.trouble = was.Status, was.Text
		}
	}
}

// placed is a problem with its place: file:line: key: sentence.
var placed = regexp.MustCompile(`^\S+?:(\d+):(?: ([A-Za-z_][\w.\[\]]*):)? (.*)$`)

func (s *Server) showDraft(c echo.Context, d jobDraft) error {
	here, actor := localeOf(c), actorOf(c)
	title := here.Text("jobform.change", "job", d.job)
	crumb := []string{d.job, jobHref(d.job), here.Text("jobs.change"), ""}
	if d.job == "" {
		title, crumb = here.Text("jobform.new"), []string{here.Text("jobs.new"), ""}
	}
	v := views.JobForm{
		Frame: s.pageFrame(c, "reconciliations", title, financeCrumbs(here, crumb...)...), Title: title, Path: draftPath(d), AsText: d.asText, Text: d.text,
		Error: d.trouble, Reason: d.reason, May: actor.May(access.ProposeJob), WhoMay: here.Text("may.propose_job", "roles", rolesOf(here, access.ProposeJob)),
		WhoApproves: here.Text("jobform.approvers", "roles", rolesOf(here, access.ApproveJob)), Started: d.text != "", IsNew: d.job == "",
	}
	for _, name := range draft.Templates {
		v.Templates = append(v.Templates, views.TemplateChoice{Name: here.Text("jobform.template." + name), Says: here.Text("jobform.template_says." + name),
			Href: address("/reconciliations/new", "template", name), Current: name == d.template})
	}
	if d.file != nil {
		v.FileNote = here.Text("jobform.file")
	}
	if err := s.waitingProposal(c, &v, d.job); err != nil {
		return err
	}
	s.fillDraft(c, &v, d)
	return render(c, max(d.status, http.StatusOK), views.JobFormPage(v))
}

func draftPath(d jobDraft) string {
	if d.job == "" {
		return "/reconciliations/new"
	}
	return jobHref(d.job) + "/change"
}

func (s *Server) waitingProposal(c echo.Context, v *views.JobForm, job string) error {
	if job == "" {
		return nil
	}
	waiting, _, err := s.proposals().List(c.Request().Context(), reconcile.ProposalFilter{Job: job, State: reconcile.ProposalWaiting, Limit: 1})
	if err == nil && len(waiting) > 0 {
		v.Waiting = views.OutLink{Label: localeOf(c).Text("jobform.waits", "name", waiting[0].MadeBy), Href: proposalHref(waiting[0].ID)}
	}
	return err
}

// fillDraft shows the values, each problem beside its field, and what a draft
// that is right would read.
func (s *Server) fillDraft(c echo.Context, v *views.JobForm, d jobDraft) {
	here := localeOf(c)
	values, err := draft.Read(d.text)
	if d.text != "" && err != nil {
		v.AsText = true
		if len(d.problems) == 0 {
			d.problems = []string{err.Error()}
		}
	}
	beside := map[string]string{}
	for _, line := range d.problems {
		at := placed.FindStringSubmatch(line)
		if at == nil {
			v.Problems = append(v.Problems, views.FormProblem{Text: line})
			continue
		}
		v.Problems = append(v.Problems, views.FormProblem{Line: at[1], Key: at[2], Text: at[3]})
		if path := strings.SplitN(at[2], "[", 2)[0]; path != "" {
			beside[path] = joined(here, slices.DeleteFunc([]string{beside[path], here.Text("jobform.line", "line", at[1]) + at[3]}, func(s string) bool { return s == "" }))
		}
	}
	v.Groups = formGroups(here, values, beside, s.Connections)
	if d.checked != nil {
		v.Checked = true
		v.Preview = s.previewView(c, d.checked)
		if d.base != "" {
			v.Diff = diffLinesOf([]byte(d.base), []byte(d.text))
		}
	}
}

// groups of the form, by the path before the dot.
var draftGroups = []string{"general", "window", "outbox", "consumed", "effect", "match", "tolerance", "limits", "sign_off"}

func groupOf(path string) string {
	group, _, nested := strings.Cut(path, ".")
	switch {
	case nested:
		return group
	case path == "key":
		return "match"
	case path == "recheck":
		return "sign_off"
	}
	return "general"
}

func formGroups(here locale.Locale, values, problems map[string]string, connections []string) []views.FormGroup {
	byName := map[string]*views.FormGroup{}
	groups := make([]views.FormGroup, len(draftGroups))
	for i, name := range draftGroups {
		groups[i] = views.FormGroup{Legend: here.Text("jobform.group." + name), Problem: problems[name]}
		if name == "outbox" {
			groups[i].Says = here.Text("jobform.outbox_says")
		}
		byName[name] = &groups[i]
	}
	for _, f := range draft.Fields {
		g := byName[groupOf(f.Path)]
		g.Fields = append(g.Fields, formField(here, f, values[f.Path], problems[f.Path], connections))
	}
	return groups
}

// fieldLabel is the same for all three sides.
func fieldLabel(here locale.Locale, path string) string {
	group, key, nested := strings.Cut(path, ".")
	if nested && slices.Contains([]string{"outbox", "consumed", "effect"}, group) {
		return here.Text("jobform.side." + key)
	}
	return here.Text("jobform.field." + path)
}

func formField(here locale.Locale, f draft.Field, value, problem string, connections []string) views.FormField {
	field := views.FormField{Path: f.Path, Name: "f." + f.Path, Label: fieldLabel(here, f.Path), Value: value, Problem: problem}
	switch {
	case f.Kind == draft.Query:
		field.Rows = max(3, strings.Count(value, "\n")+1)
	case strings.HasSuffix(f.Path, ".connection") && len(connections) > 0:
		field.Options = withChosen(append([]ui.Option{{Label: "–"}}, namedOptions(connections)...), value)
	case f.Path == "match.mode":
		field.Options = withChosen([]ui.Option{{Value: string(reconcile.OneToMany), Label: here.Text("jobform.one_to_many")}, {Value: string(reconcile.OneToOne), Label: here.Text("jobform.one_to_one")}}, value)
	case f.Path == "sign_off.required":
		field.Options = withChosen([]ui.Option{{Label: here.Text("jobform.required_default")}, {Value: "true", Label: "true"}, {Value: "false", Label: "false"}}, value)
	}
	return field
}

func namedOptions(names []string) (all []ui.Option) {
	for _, name := range names {
		all = append(all, ui.Option{Value: name, Label: name})
	}
	return all
}
