package web

import (
	"encoding/hex"
	"fmt"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"oncemore/reconcile"
)

// Reconciliation is what reconcile/ offers to pages and API.
type Reconciliation struct {
	Jobs   *reconcile.Jobs
	Runs   *reconcile.Runs
	Breaks *reconcile.Breaks
}

type jobJSON struct {
	Name     string     `json:"name"`
	Version  int        `json:"version"`
	PausedBy *string    `json:"paused_by"`
	GoneAt   *time.Time `json:"gone_at"` // its file is no longer there
	NextAt   *time.Time `json:"next_at"`
	Open     int64      `json:"open_breaks"`
	Waiting  int64      `json:"waiting_for_signature"`
	LastRun  *runJSON   `json:"last_run"`
}

func jobOf(j reconcile.JobSummary) jobJSON {
	out := jobJSON{Name: j.Name, Version: j.Version, PausedBy: j.PausedBy, GoneAt: instant(j.GoneAt), NextAt: instant(j.NextAt), Open: j.Open, Waiting: j.Waiting}
	if j.Last != nil {
		out.LastRun = ptr(runOf(*j.Last))
	}
	return out
}

// runJSON is a run. Amounts are texts: a JSON number may be rounded by its reader.
type runJSON struct {
	ID           int64        `json:"id"`
	Job          string       `json:"job"`
	Version      int          `json:"version"`
	Kind         string       `json:"kind"`
	From         time.Time    `json:"from"`
	To           time.Time    `json:"to"`
	Keys         [][]string   `json:"keys"`
	State        string       `json:"state"`
	Sign         string       `json:"sign_off"`
	Plan         string       `json:"plan"`
	PlanReason   string       `json:"plan_reason"`
	AskedBy      string       `json:"asked_by"`
	AskedAt      *time.Time   `json:"asked_at"`
	StartedAt    *time.Time   `json:"started_at"`
	FinishedAt   *time.Time   `json:"finished_at"`
	Error        *string      `json:"error"`
	Matched      *int64       `json:"matched"` // keys; null: not finished
	Proof        []proofJSON  `json:"proof"`
	RollForward  []rollJSON   `json:"roll_forward"`
	AtRisk       []amountJSON `json:"at_risk"`
	Seal         *string      `json:"seal"` // SHA-256 in hex
	RecheckOf    *int64       `json:"recheck_of"`
	SupersededBy *int64       `json:"superseded_by"`
}

// proofJSON is one currency: the sides' totals, the lines, and what they leave
// unexplained, which is 0 if the proof foots.
type proofJSON struct {
	Currency    string              `json:"currency"` // "" where the job has none
	Totals      map[string]lineJSON `json:"totals"`   // by side
	Keyless     map[string]lineJSON `json:"keyless"`
	Lines       map[string]lineJSON `json:"lines"` // by break type, timing, tolerated, edge
	Unexplained string              `json:"unexplained"`
	Upstream    *upstreamJSON       `json:"upstream,omitempty"` // of three sides
}

// upstreamJSON is why what was published exceeds consumed.
type upstreamJSON struct {
	Lines       map[string]lineJSON `json:"lines"`
	Unexplained string              `json:"unexplained"`
}

type lineJSON struct {
	Rows   int64  `json:"rows"`
	Amount string `json:"amount"`
}

type amountJSON struct {
	Currency string `json:"currency"`
	Breaks   int64  `json:"breaks"`
	Amount   string `json:"amount"`
}

type rollJSON struct {
	Currency string              `json:"currency"`
	Opening  lineJSON            `json:"opening"`
	Moved    map[string]lineJSON `json:"moved"`
	Closing  lineJSON            `json:"closing"`
}

var runKinds = map[reconcile.RunKind]string{reconcile.ByClock: "scheduled", reconcile.ByHand: "by_hand", reconcile.OfKeys: "keys", reconcile.OfAge: "recheck"}

func runOf(r reconcile.Run) runJSON {
	out := runJSON{
		ID: r.ID, Job: r.Job, Version: r.Version, Kind: runKinds[r.Kind], From: r.From.UTC(), To: r.To.UTC(), Keys: r.Keys,
		State: r.State.String(), Sign: r.Sign.String(), Plan: r.Plan, PlanReason: r.PlanReason, AskedBy: r.AskedBy, AskedAt: instant(&r.AskedAt),
		StartedAt: instant(r.StartedAt), FinishedAt: instant(r.FinishedAt), Error: r.Error, RecheckOf: r.RecheckOf, SupersededBy: r.SupersededBy,
	}
	if out.Keys == nil {
		out.Keys = [][]string{}
	}
	out.Proof, out.RollForward, out.AtRisk = []proofJSON{}, []rollJSON{}, []amountJSON{}
	if r.Seal != nil {
		out.Seal = ptr(hex.EncodeToString(r.Seal))
	}
	if r.Tally != nil {
		out.Matched = ptr(r.Tally.Matched)
		for _, c := range r.Tally.Currencies() {
			out.Proof = append(out.Proof, proofOf(r.Tally, c))
		}
	}
	for _, c := range currencies(r.AtRisk) {
		out.AtRisk = append(out.AtRisk, amountJSON{c, r.AtRisk[c].Keys, r.AtRisk[c].Amount.String()})
	}
	if r.Roll != nil {
		for _, c := range currencies(r.Roll.Currencies) {
			out.RollForward = append(out.RollForward, rollOf(c, r.Roll.Currencies[c]))
		}
	}
	return out
}

func proofOf(t *reconcile.Tally, currency string) proofJSON {
	p := proofJSON{Currency: currency, Totals: map[string]lineJSON{}, Keyless: map[string]lineJSON{}, Unexplained: t.Unexplained(currency).String()}
	for party := range t.Control {
		name := reconcile.Party(party).String()
		if total, ok := t.Control[party][currency]; ok {
			p.Totals[name] = lineJSON{total.Rows, total.Amount.String()}
		}
		if total, ok := t.Keyless[party][currency]; ok {
			p.Keyless[name] = lineJSON{total.Rows, total.Amount.String()}
		}
	}
	p.Lines = linesOf(t.Lines, currency)
	if t.Upstream != nil {
		p.Upstream = &upstreamJSON{linesOf(t.Upstream, currency), t.UpstreamUnexplained(currency).String()}
	}
	return p
}

func linesOf(lines reconcile.Lines, currency string) map[string]lineJSON {
	out := map[string]lineJSON{}
	for line, amounts := range lines {
		if l, ok := amounts[currency]; ok {
			out[line] = lineJSON{l.Keys, l.Amount.String()}
		}
	}
	return out
}

func rollOf(currency string, c reconcile.RollCurrency) rollJSON {
	line := func(l reconcile.Line) lineJSON { return lineJSON{l.Keys, l.Amount.String()} }
	out := rollJSON{Currency: currency, Opening: line(c.Opening), Closing: line(c.Closing), Moved: map[string]lineJSON{}}
	for movement, l := range c.Moved {
		out.Moved[string(movement)] = line(l)
	}
	return out
}

func (s *Server) apiJobs(c echo.Context) error {
	if err := noQuery(c); err != nil {
		return err
	}
	jobs, err := s.Reconcile.Jobs.List(c.Request().Context(), s.Reconcile.Runs)
	if err != nil {
		return err
	}
	return answer(c, http.StatusOK, listOf(jobs, "", jobOf))
}

// jobName is the name in the path; there is one that long nowhere.
func jobName(c echo.Context) (string, error) {
	name := c.Param("job")
	if len(name) > 200 || badText(name) != "" {
		return "", fmt.Errorf("%w: %s", reconcile.ErrNoJob, printable(name))
	}
	return name, nil
}

type pointJSON struct {
	Run      int64        `json:"run"`
	To       time.Time    `json:"to"`
	State    string       `json:"state"`
	Matched  int64        `json:"matched"`
	Keys     int64        `json:"keys"`
	AtRisk   []amountJSON `json:"at_risk"`
	Duration float64      `json:"seconds"`
}

type jobDetailJSON struct {
	Name       string      `json:"name"`
	Version    int         `json:"version"`
	Hash       string      `json:"hash"`
	Definition string      `json:"definition"` // YAML
	LoadedAt   *time.Time  `json:"loaded_at"`
	LoadedBy   string      `json:"loaded_by"`
	Trend      []pointJSON `json:"trend"`
}

// trendLength is how many runs a job's trend has.
const trendLength = 60

func (s *Server) apiJob(c echo.Context) error {
	if err := noQuery(c); err != nil {
		return err
	}
	name, err := jobName(c)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	def, err := s.Reconcile.Jobs.Current(ctx, name)
	if err != nil {
		return err
	}
	points, err := s.Reconcile.Jobs.Trend(ctx, name, trendLength)
	if err != nil {
		return err
	}
	out := jobDetailJSON{Name: def.Job, Version: def.Version, Hash: hex.EncodeToString(def.Hash), Definition: def.Text, LoadedAt: instant(&def.LoadedAt), LoadedBy: def.LoadedBy, Trend: []pointJSON{}}
	for _, p := range points {
		j := pointJSON{Run: p.Run, To: p.To.UTC(), State: p.State.String(), Matched: p.Matched, Keys: p.Keys, AtRisk: []amountJSON{}, Duration: p.Duration.Seconds()}
		for _, currency := range currencies(p.AtRisk) {
			j.AtRisk = append(j.AtRisk, amountJSON{currency, p.AtRisk[currency].Keys, p.AtRisk[currency].Amount.String()})
		}
		out.Trend = append(out.Trend, j)
	}
	return answer(c, http.StatusOK, out)
}

// apiJobPause stops a job's schedule, or lets it go on.
func (s *Server) apiJobPause(paused bool) echo.HandlerFunc {
	return func(c echo.Context) error {
		name, err := jobName(c)
		if err != nil {
			return err
		}
		by, err := commander(c)
		if err != nil {
			return err
		}
		if err := s.Reconcile.Jobs.Pause(c.Request().Context(), by, name, paused); err != nil {
			return err
		}
		return c.NoContent(http.StatusNoContent)
	}
}

var (
	runStates = map[string]reconcile.RunState{"queued": reconcile.Queued, "running": reconcile.Running, "complete": reconcile.Complete, "partial": reconcile.Partial, "failed": reconcile.Failed}
	runSigns  = map[string]reconcile.SignState{"none": reconcile.SignNone, "waiting": reconcile.SignWaiting, "signed": reconcile.Signed, "reopened": reconcile.SignReopened, "superseded": reconcile.Superseded}
)

// runFilter reads the filters of a list of runs.
func runFilter(q *query) (f reconcile.RunFilter, err error) {
	f = reconcile.RunFilter{Before: q.id("cursor", 64), Limit: 50}
	if n := q.id("limit", 16); n > 0 {
		f.Limit = int(min(n, 200))
	}
	if name := q.take("state"); name != "" {
		state, err := choice("state", name, runStates)
		q.keep(err)
		f.States = []reconcile.RunState{state}
	}
	if name := q.take("sign_off"); name != "" {
		sign, err := choice("sign_off", name, runSigns)
		q.keep(err)
		f.Signs = []reconcile.SignState{sign}
	}
	return f, q.done()
}

func (s *Server) apiRuns(c echo.Context) error {
	name, err := jobName(c)
	if err != nil {
		return err
	}
	f, err := runFilter(parseQuery(c))
	if err != nil {
		return err
	}
	f.Job = name
	if _, err := s.Reconcile.Jobs.Current(c.Request().Context(), name); err != nil {
		return err
	}
	runs, more, err := s.Reconcile.Runs.List(c.Request().Context(), f)
	if err != nil {
		return err
	}
	return answer(c, http.StatusOK, listOf(runs, nextNumber(runs, more, func(r reconcile.Run) int64 { return r.ID }), runOf))
}

// nextNumber is the cursor of the next page of a list by number.
func nextNumber[T any](items []T, more bool, id func(T) int64) string {
	if !more || len(items) == 0 {
		return ""
	}
	return fmt.Sprint(id(items[len(items)-1]))
}

type runRequestJSON struct {
	From *time.Time `json:"from"`
	To   *time.Time `json:"to"`
	Keys [][]string `json:"keys"`
	Plan string     `json:"plan"`
}

// apiRunAsk asks for a run, which role jobs carries out.
func (s *Server) apiRunAsk(c echo.Context) error {
	if err := noQuery(c); err != nil {
		return err
	}
	name, err := jobName(c)
	if err != nil {
		return err
	}
	var body runRequestJSON
	if err := decode(c, &body); err != nil {
		return err
	}
	q := reconcile.Request{Job: name, Keys: body.Keys, Plan: body.Plan}
	if len(body.Keys) == 0 {
		if body.From == nil || body.To == nil {
			return &fieldError{Field: "from", Text: "and to, or keys, are needed", Status: http.StatusUnprocessableEntity}
		}
		q.From, q.To = *body.From, *body.To
	}
	id, err := s.Reconcile.Runs.Ask(c.Request().Context(), actorOf(c), q)
	if err != nil {
		return err
	}
	return s.answerRun(c, http.StatusAccepted, id)
}

func (s *Server) answerRun(c echo.Context, status int, id int64) error {
	run, err := s.Reconcile.Runs.Get(c.Request().Context(), id)
	if err != nil {
		return err
	}
	return answer(c, status, runOf(*run))
}

func (s *Server) apiRun(c echo.Context) error {
	if err := noQuery(c); err != nil {
		return err
	}
	id, err := numberID(c, 64)
	if err != nil {
		return err
	}
	return s.answerRun(c, http.StatusOK, id)
}

// runOf is the number of the run in the path, which has to exist.
func (s *Server) runOf(c echo.Context) (int64, error) {
	if err := noQuery(c); err != nil {
		return 0, err
	}
	id, err := numberID(c, 64)
	if err != nil {
		return 0, err
	}
	_, err = s.Reconcile.Runs.Get(c.Request().Context(), id)
	return id, err
}

type segmentJSON struct {
	No     int        `json:"no"`
	From   time.Time  `json:"from"`
	To     time.Time  `json:"to"`
	State  string     `json:"state"` // waiting, done, given_up
	Tries  int        `json:"tries"`
	Cut    bool       `json:"cut"`
	Error  *string    `json:"error"`
	DoneAt *time.Time `json:"done_at"`
	TookMs *int       `json:"took_ms"`
}

func (s *Server) apiSegments(c echo.Context) error {
	id, err := s.runOf(c)
	if err != nil {
		return err
	}
	segments, err := s.Reconcile.Runs.Segments(c.Request().Context(), id)
	if err != nil {
		return err
	}
	return answer(c, http.StatusOK, listOf(segments, "", func(g reconcile.Segment) segmentJSON {
		return segmentJSON{g.No, g.From.UTC(), g.To.UTC(), [...]string{"waiting", "done", "given_up"}[g.State], g.Tries, g.Cut, g.Error, instant(g.DoneAt), g.TookMs}
	}))
}

type logLineJSON struct {
	At   *time.Time `json:"at"`
	Text string     `json:"text"`
}

func (s *Server) apiRunLog(c echo.Context) error {
	id, err := s.runOf(c)
	if err != nil {
		return err
	}
	lines, err := s.Reconcile.Runs.Log(c.Request().Context(), id)
	if err != nil {
		return err
	}
	return answer(c, http.StatusOK, listOf(lines, "", func(l reconcile.LogLine) logLineJSON { return logLineJSON{instant(&l.At), l.Text} }))
}

type signatureJSON struct {
	At        *time.Time `json:"at"`
	By        string     `json:"by"`
	Act       string     `json:"act"`
	Reason    string     `json:"reason"`
	Seal      string     `json:"seal"`
	Checklist []string   `json:"checklist"`
}

func (s *Server) apiSignatures(c echo.Context) error {
	id, err := s.runOf(c)
	if err != nil {
		return err
	}
	all, err := s.Reconcile.Runs.Signatures(c.Request().Context(), id)
	if err != nil {
		return err
	}
	return answer(c, http.StatusOK, listOf(all, "", func(g reconcile.Signature) signatureJSON {
		return signatureJSON{instant(&g.At), g.By, g.Act, g.Reason, hex.EncodeToString(g.Seal), g.Checklist}
	}))
}

type signOffJSON struct {
	Act       string   `json:"act"`  // sign, send_back, reopen
	Seal      string   `json:"seal"` // of the run as it was read; for sign
	Checklist []string `json:"checklist"`
	Reason    string   `json:"reason"`
}

// apiSignOff signs a run as the caller has read it, sends it back or reopens it.
func (s *Server) apiSignOff(c echo.Context) error {
	if err := noQuery(c); err != nil {
		return err
	}
	id, err := numberID(c, 64)
	if err != nil {
		return err
	}
	var body signOffJSON
	if err := decode(c, &body); err != nil {
		return err
	}
	if err := s.signOff(c, id, body); err != nil {
		return err
	}
	return s.answerRun(c, http.StatusOK, id)
}

func (s *Server) signOff(c echo.Context, id int64, body signOffJSON) error {
	ctx, actor := c.Request().Context(), actorBecause(c, body.Reason)
	switch body.Act {
	case "sign":
		seal, err := hex.DecodeString(body.Seal)
		if err != nil {
			return &fieldError{Field: "seal", Text: "is a SHA-256 in hex"}
		}
		return s.Reconcile.Runs.Sign(ctx, actor, id, seal, body.Checklist)
	case "send_back":
		return s.Reconcile.Runs.SendBack(ctx, actor, id)
	case "reopen":
		return s.Reconcile.Runs.Reopen(ctx, actor, id)
	}
	return &fieldError{Field: "act", Text: "is one of reopen, send_back, sign", Status: http.StatusUnprocessableEntity}
}
