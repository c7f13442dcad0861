package web

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"oncemore/dlq"
	"oncemore/internal/access"
	"oncemore/reconcile"
	"oncemore/views"
	"oncemore/views/locale"
)

func (s *Server) breakPage(c echo.Context) error { return s.showBreak(c, refused{}) }

func (s *Server) showBreak(c echo.Context, was refused) error {
	id, err := numberID(c, 64)
	if err != nil {
		return reconcile.ErrNoBreak
	}
	if err := noQuery(c); err != nil {
		return err
	}
	b, err := s.Reconcile.Breaks.Get(c.Request().Context(), id)
	if err != nil {
		return err
	}
	job, _, err := s.jobAt(c.Request().Context(), b.Job, 0)
	if err != nil {
		return err
	}
	here := inZone(c, job.Zone)
	v := s.breakView(c, here, b, job)
	v.Error = was.Text
	for _, fill := range []func(echo.Context, *views.Break, reconcile.Break, *reconcile.Job) error{s.fillBreak, s.fillLetters, s.fillRows} {
		if err := fill(c, &v, b, job); err != nil {
			return err
		}
	}
	return render(c, was.status(), views.BreakPage(v))
}

func (s *Server) breakView(c echo.Context, here locale.Locale, b reconcile.Break, job *reconcile.Job) views.Break {
	actor, name := actorOf(c), "B-"+strconv.FormatInt(b.ID, 10)
	v := views.Break{
		Frame: s.pageFrame(c, "reconciliations", name, financeCrumbs(here, b.Job, jobHref(b.Job), name, "")...),
		Row:   breakRow(here, b, job, nil), RunHref: runHref(b.SeenRun), RunName: here.Text("run.title", "id", strconv.FormatInt(b.SeenRun, 10)), SeenAt: here.Exact(b.SeenAt),
		Says: breakSays(here, b), Job: b.Job, JobHref: jobHref(b.Job), Back: address("/breaks", "job", b.Job), Path: breakPath(here, b, job),
		Comments: actor.May(access.RunJob), Pickable: !b.State.Done() && b.State != reconcile.Explained, Unexplain: b.State == reconcile.Explained && actor.May(access.ExplainBreak),
	}
	for _, p := range parties(job) {
		v.Parties = append(v.Parties, sideWord(here, p)+" · "+job.Side(p).Connection)
	}
	v.Compared = comparedRows(here, b, job)
	if v.Pickable && b.State != reconcile.Compensating && b.Type != reconcile.Timing && actor.May(access.ProposeCompensation) {
		v.ProposeHref = proposeAddress([]int64{b.ID})
	}
	if b.State.Done() && b.ClosedRun != nil {
		v.Closed, v.ClosedHref = closedText(here, b), runHref(*b.ClosedRun)
		v.ClosedLink = here.Text("run.open", "id", strconv.FormatInt(*b.ClosedRun, 10))
	}
	if b.State == reconcile.Explained {
		v.Explained = here.Text("break.is_explained", "by", deref(b.ExplainedBy), "code", here.Text("reason_code."+deref(b.ReasonCode)), "text", deref(b.Explanation))
	}
	return v
}

// breakSays is the difference in words, its age and its owner.
func breakSays(here locale.Locale, b reconcile.Break) string {
	amount := money(b.Amount.Abs(), b.Currency)
	text := here.Text("break.says_equal")
	switch {
	case b.Type == reconcile.PublishedNotConsumed:
		text = here.Text("break.says_published", "amount", amount)
	case b.Amount.Sign() > 0:
		text = here.Text("break.says_missing", "amount", amount)
	case b.Amount.Sign() < 0:
		text = here.Text("break.says_too_much", "amount", amount)
	}
	gap := here.Text("sentence.gap")
	text += gap + here.Text("break.says_since", "time", here.Short(b.OpenedAt), "zone", here.Zone.String(), "age", ageText(here, here.Now.Sub(b.OpenedAt)))
	if b.Returns > 0 {
		text += gap + here.Text("break.says_returns", "n", b.Returns)
	}
	if b.Owner != nil {
		text += gap + here.Text("break.says_owner", "name", *b.Owner)
	}
	return text
}

func closedText(here locale.Locale, b reconcile.Break) string {
	id := strconv.FormatInt(*b.ClosedRun, 10)
	switch how := deref(b.ClosedHow); {
	case how == "compensated":
		return here.Text("break.closed_compensated", "id", id)
	case breakTypes[how] != "":
		return here.Text("break.closed_type", "id", id, "type", here.Inside(here.Text("break.type."+how)))
	}
	return here.Text("break.closed_whole", "id", id)
}

// comparedRows are the properties of the sides; those that differ stand first.
func comparedRows(here locale.Locale, b reconcile.Break, job *reconcile.Job) []views.ComparedRow {
	amounts := job.Match.Amount != ""
	rows := []views.ComparedRow{comparedRow(here, "break.prop_rows", b, job, func(s reconcile.FindingSide) views.BreakCell {
		return views.BreakCell{Amount: locale.Number(int64(s.Rows))}
	})}
	if amounts {
		rows = append(rows, comparedRow(here, "break.prop_amount", b, job, func(s reconcile.FindingSide) views.BreakCell {
			cell := breakCell(here, s, s.Currency, true)
			if cell.Rows != "" && s.Nulls == 0 {
				cell.Rows = ""
			}
			return cell
		}))
	}
	if job.Match.Currency != "" {
		rows = append(rows, comparedRow(here, "break.prop_currency", b, job, func(s reconcile.FindingSide) views.BreakCell {
			return views.BreakCell{Amount: s.Currency}
		}))
	}
	times := []views.ComparedRow{
		comparedRow(here, "break.prop_first", b, job, func(s reconcile.FindingSide) views.BreakCell { return views.BreakCell{Amount: here.Exact(s.First)} }),
		comparedRow(here, "break.prop_last", b, job, func(s reconcile.FindingSide) views.BreakCell { return views.BreakCell{Amount: here.Exact(s.Last)} }),
	}
	for i := range times {
		times[i].Differs = false // an effect is always later than its record
	}
	if onlySingles(b) {
		times = times[:1]
		times[0].Label = here.Text("break.prop_time")
	}
	if job.Match.Mode == reconcile.OneToMany && bothThere(b) {
		rows[0].Differs = false // several effects of one key are allowed
	}
	return append(rows, times...)
}

// onlySingles reports whether no side has several rows: first and last are one.
func onlySingles(b reconcile.Break) bool {
	for _, s := range b.Sides {
		if s.Rows > 1 {
			return false
		}
	}
	return true
}

func bothThere(b reconcile.Break) bool {
	return b.Sides[reconcile.Consumed].Rows > 0 && b.Sides[reconcile.Effect].Rows > 0
}

func comparedRow(here locale.Locale, key string, b reconcile.Break, job *reconcile.Job, cell func(reconcile.FindingSide) views.BreakCell) views.ComparedRow {
	row := views.ComparedRow{Label: here.Text(key)}
	for _, p := range parties(job) {
		one := views.BreakCell{Amount: here.Text("break.none"), None: true}
		if b.Sides[p].Rows > 0 {
			one = cell(b.Sides[p])
		}
		row.Cells = append(row.Cells, one)
		row.Differs = row.Differs || one != row.Cells[0]
	}
	return row
}

// breakPath is the event's way from outbox to effect, with what is missing on it.
func breakPath(here locale.Locale, b reconcile.Break, job *reconcile.Job) []views.TimelineRow {
	var rows []views.TimelineRow
	for _, p := range parties(job) {
		side := b.Sides[p]
		row := views.TimelineRow{Icon: "circle-check", Hue: "go", Text: here.Text("break.path_" + p.String()), At: &side.First}
		switch {
		case side.Rows == 0:
			row = views.TimelineRow{Icon: "circle-dashed", Hue: "ask", Text: here.Text("break.path_no_" + p.String())}
		case side.Rows > 1:
			row.Detail = here.Text("break.rows", "n", side.Rows)
		}
		rows = append(rows, row)
	}
	if b.State.Done() && b.ClosedAt != nil {
		rows = append(rows, views.TimelineRow{Icon: "checks", Hue: "go", Text: here.Text("break.path_whole"), At: b.ClosedAt})
	}
	return rows
}

// fillBreak adds what people and runs said of the break.
func (s *Server) fillBreak(c echo.Context, v *views.Break, b reconcile.Break, _ *reconcile.Job) error {
	ctx, here := c.Request().Context(), localeOf(c)
	notes, err := s.Reconcile.Breaks.Notes(ctx, b.ID)
	if err != nil {
		return err
	}
	for _, n := range notes {
		v.Timeline = append(v.Timeline, noteRow(here, n))
	}
	said, err := s.Reconcile.Breaks.Said(ctx, b.ID)
	if err != nil {
		return err
	}
	for _, r := range said {
		v.Runs = append(v.Runs, saidRow(here, r, b.Currency))
	}
	files, err := s.Reconcile.Breaks.Files(ctx, b.ID)
	if err != nil {
		return err
	}
	for _, f := range files {
		v.Files = append(v.Files, views.BreakFile{Name: f.Name, Href: breakHref(b.ID) + "/files/" + strconv.FormatInt(f.ID, 10), Hash: hex.EncodeToString(f.SHA256),
			Says: here.Text("break.file_by", "by", f.By, "time", here.Short(f.At), "size", here.Bytes(int(f.Bytes)))})
	}
	newer, older, err := s.Reconcile.Breaks.Neighbours(ctx, b.Job, b.ID)
	if err != nil {
		return err
	}
	if newer > 0 {
		v.Newer = breakHref(newer)
	}
	if older > 0 {
		v.Older = breakHref(older)
	}
	v.Actions, err = s.breakActions(c)
	return err
}

// noteIcons are icon and hue of what happened to a break.
var noteIcons = map[string][2]string{
	"opened": {"circle-dashed", "ask"}, "reopened": {"rotate-2", "ask"}, "changed": {"equal-not", "ask"}, "closed": {"circle-check", "go"},
	"assigned": {"user-check", "mute"}, "comment": {"info-circle", "mute"}, "explained": {"info-circle", "noop"}, "unexplained": {"rotate-2", "ask"},
	"file": {"archive", "mute"}, "compensating": {"arrow-back-up", "noop"}, "not_compensated": {"arrow-back-up", "ask"}, "unverified": {"arrow-back-up", "hold"}, "verified": {"checks", "go"},
}

func noteRow(here locale.Locale, n reconcile.Note) views.TimelineRow {
	look, ok := noteIcons[n.Kind]
	if !ok {
		look = [2]string{"circle-dashed", "mute"}
	}
	row := views.TimelineRow{Icon: look[0], Hue: look[1], At: &n.At, Detail: n.Text}
	run, compensation := plainDetail(n.Detail, "run"), plainDetail(n.Detail, "compensation")
	row.Text = here.Text("break.note."+n.Kind, "by", n.By, "id", run, "owner", n.Text, "compensation", compensation)
	switch {
	case run != "":
		row.Href = "/runs/" + run
	case compensation != "":
		row.Href = "/compensations/" + compensation
	case n.Kind == "assigned":
		row.Detail = ""
	case n.Kind == "explained":
		if code, ok := n.Detail["code"].(string); ok {
			row.Detail = here.Text("reason_code."+code) + here.Text("list.comma") + n.Text
		}
	}
	return row
}

// plainDetail is a number of a note's details as an id; "" it has none.
func plainDetail(detail map[string]any, name string) string {
	if n, ok := detail[name].(float64); ok {
		return strconv.FormatInt(int64(n), 10)
	}
	return ""
}

func saidRow(here locale.Locale, r reconcile.Said, currency string) views.TimelineRow {
	looks := [...][2]string{{}, {"circle-dashed", "ask"}, {"circle-dashed", "mute"}, {"circle-check", "go"}, {"rotate-2", "ask"}, {"info-circle", "noop"}}
	return views.TimelineRow{Icon: looks[r.What][0], Hue: looks[r.What][1], At: &r.At, Href: runHref(r.Run),
		Text: here.Text("break.said."+saidNames[r.What], "id", strconv.FormatInt(r.Run, 10), "amount", money(r.Amount, currency))}
}

// mostLetters is how many letters of an event a break's page tells in full.
const mostLetters = 5

// fillLetters adds the letters of the break's event.
func (s *Server) fillLetters(c echo.Context, v *views.Break, b reconcile.Break, _ *reconcile.Job) error {
	here := localeOf(c)
	v.NoLetters = here.Text("break.no_event")
	if b.EventID == nil {
		return nil
	}
	v.NoLetters, v.Events = here.Text("break.no_letters"), address("/letters", "event_id", *b.EventID)
	found, err := s.Letters.OfEvents(c.Request().Context(), []string{*b.EventID})
	if err != nil {
		return err
	}
	for _, l := range found[:min(len(found), mostLetters)] {
		d, err := s.Letters.Get(c.Request().Context(), l.ID)
		if err != nil {
			return fmt.Errorf("get letter %s: %w", l.ID, err)
		}
		judged, err := s.judgeOpen(c.Request().Context(), d.Letter)
		if err != nil {
			return err
		}
		v.Letters = append(v.Letters, breakLetter(here, d, judged))
	}
	v.Replay = s.replayForm(c, here.Text("break.replay_reason", "id", strconv.FormatInt(b.ID, 10)), refused{})
	return nil
}

// judgeOpen asks what a replay of an open letter would do now, to the narrowest
// target that it has; nil: it is not open.
func (s *Server) judgeOpen(ctx context.Context, l dlq.Letter) (*dlq.Judged, error) {
	if l.State != dlq.Open {
		return nil, nil
	}
	var last *dlq.Judged
	for _, target := range []dlq.Target{dlq.ToGroup, dlq.ToOrigin} {
		judged, err := s.Judge.JudgeLetters(ctx, []uuid.UUID{l.ID}, target)
		if err != nil {
			return nil, fmt.Errorf("judge letter %s: %w", l.ID, err)
		}
		if len(judged) == 1 {
			if last = &judged[0]; last.Route != nil {
				return last, nil
			}
		}
	}
	return last, nil
}

func breakLetter(here locale.Locale, d dlq.LetterDetail, judged *dlq.Judged) views.BreakLetter {
	l := views.BreakLetter{ID: d.ID.String(), Href: "/letters/" + d.ID.String(), State: letterStateNames[d.State], Verdict: d.Verdict.String(),
		Group: deref(d.Group), Place: place(d.Broker, d.Source), FailedAt: d.FailedAt}
	if l.Group == "" {
		l.Group = here.Text("word.unknown")
	}
	switch {
	case judged != nil && len(judged.Groups) > 0:
		l.Verdict, l.Safe, l.Record = judged.Headline.String(), judged.Headline.MaySend(), reasonText(here, judged.Own().Reason)
	case len(d.Verdicts) > 0:
		l.Record = reasonText(here, d.Verdicts[0].Reason)
	}
	for _, r := range d.Replays {
		id := strconv.FormatInt(r.ReplayID, 10)
		l.Replays = append(l.Replays, views.BreakReplay{Name: "R-" + id, Href: "/replays/" + id, Says: replayOutcomes(here, r)})
	}
	return l
}

// replayOutcomes is what a replay did with a letter, or where it stands.
func replayOutcomes(here locale.Locale, r dlq.LetterReplay) string {
	var words []string
	for _, o := range r.Outcomes {
		if o.Outcome != 0 {
			words = append(words, here.Text("outcome."+o.Outcome.String()))
		}
	}
	if len(words) == 0 {
		return here.Text("state.replay." + r.State.String())
	}
	return here.List(words)
}

// rowsPatience bounds what a page waits for the business databases.
const rowsPatience = 4 * time.Second

// fillRows reads the source rows as they are now. What cannot be read is said,
// and the rest of the page stands.
func (s *Server) fillRows(c echo.Context, v *views.Break, b reconcile.Break, job *reconcile.Job) error {
	here, actor := localeOf(c), actorOf(c)
	ctx, cancel := context.WithTimeout(c.Request().Context(), rowsPatience)
	defer cancel()
	v.LiveAt = here.Text("break.rows_at", "time", here.Exact(here.Now))
	sides, err := s.Reconcile.Runs.Rows(ctx, b)
	if err != nil {
		v.LiveError = s.rowsTrouble(c, err)
		return nil
	}
	values := columnValues(sides, job)
	masked := !actor.May(access.ReadPayload)
	for _, side := range sides {
		v.Live = append(v.Live, s.liveSide(c, side, job, values, masked))
		if masked && hidesSome(side) {
			v.Masked = here.Text("break.masked_says", "role", here.Text("role."+string(actor.Role)), "roles", rolesOf(here, access.ReadPayload))
		}
	}
	return nil
}

func hidesSome(side reconcile.SideRows) bool {
	for _, compared := range side.Compared {
		if !compared && len(side.Rows) > 0 {
			return true
		}
	}
	return false
}

// rowsTrouble is what may be said of a business database's error: its own words
// to those who run jobs, the rest is in the log.
func (s *Server) rowsTrouble(c echo.Context, err error) string {
	here := localeOf(c)
	s.Logger.Warn("read rows of a break", "request_id", requestID(c), "error", err)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return here.Text("break.rows_slow", "duration", here.Duration(rowsPatience))
	case actorOf(c).May(access.RunJob):
		return here.Text("break.rows_failed_why", "why", err.Error())
	}
	return here.Text("break.rows_failed")
}
