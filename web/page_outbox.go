package web

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"oncemore/consumer/outbox"
	"oncemore/dlq"
	"oncemore/internal/access"
	"oncemore/internal/outboxes"
	"oncemore/views"
	"oncemore/views/locale"
	"oncemore/views/ui"
)

// outboxStates are the values of ?state=.
var outboxStates = map[string]outbox.State{"": 0, "pending": outbox.Pending, "failing": outbox.Failing, "dead": outbox.Dead}

// outboxPage is how many rows a page shows where nobody asks for another number.
const outboxPageSize = 50

func (s *Server) outboxPage(c echo.Context) error {
	q := parseQuery(c)
	name := q.take("outbox")
	filter, err := outboxFilter(q)
	if err != nil {
		return err
	}
	here := localeOf(c)
	v := views.OutboxList{
		Frame: s.pageFrame(c, "outbox", here.Text("outbox.title"), views.Crumb{Label: here.Text("nav.runtime")}, views.Crumb{Label: here.Text("outbox.title")}),
		Empty: views.Empty{Text: here.Text("outbox.none_configured")},
		May:   actorOf(c).May(access.ApproveOutbox), WhoMay: here.Text("may.outbox_approve", "roles", rolesOf(here, access.ApproveOutbox)),
	}
	box, err := s.outboxNamed(name)
	if errors.Is(err, errNoOutbox) {
		return render(c, http.StatusOK, views.OutboxListPage(v))
	}
	if err != nil {
		return err
	}
	for _, o := range s.Outboxes.All() {
		v.Tabs = append(v.Tabs, ui.Tab{Label: o.Name(), Href: address("/outbox", "outbox", o.Name()), Current: o.Name() == box.Name()})
	}
	if err := s.fillOutbox(c.Request().Context(), &v, here, actorOf(c), box, filter); err != nil {
		return err
	}
	return render(c, http.StatusOK, views.OutboxListPage(v))
}

// errNoOutbox: none is configured, and none was asked for.
var errNoOutbox = errors.New("web: no outbox is configured")

// outboxNamed is the outbox of that name, the first without one.
func (s *Server) outboxNamed(name string) (outboxes.Outbox, error) {
	switch {
	case s.Outboxes == nil || len(s.Outboxes.All()) == 0:
		if name != "" {
			return outboxes.Outbox{}, outboxes.ErrUnknown
		}
		return outboxes.Outbox{}, errNoOutbox
	case name == "":
		return s.Outboxes.All()[0], nil
	}
	return s.Outboxes.Find(name)
}

// outboxFilter reads the filter's parameters. The cursor is the id of the last
// row of the page before.
func outboxFilter(q *query) (outbox.Filter, error) {
	f := outbox.Filter{Target: q.take("target"), After: q.id("after", 64), Limit: outboxPageSize}
	state := q.take("state")
	var known bool
	if f.State, known = outboxStates[state]; !known {
		q.fail("state", "is one of pending, failing, dead")
	}
	if key := q.take("key"); key != "" {
		f.Key = []byte(key)
	}
	if text := q.take("older_than"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 || d > 10*365*24*time.Hour {
			q.fail("older_than", "is a duration such as 90s or 15m")
		}
		f.OlderThan = d
	}
	return f, q.done()
}

// fillOutbox asks the business database. Where it does not answer, the page says
// so, and what the console's own database knows is still shown.
func (s *Server) fillOutbox(ctx context.Context, v *views.OutboxList, here locale.Locale, actor access.Actor, box outboxes.Outbox, f outbox.Filter) error {
	v.Name, v.Cluster = box.Name(), box.Cluster
	v.Filter = outboxFilterBar(here, box, f)
	v.Empty = views.Empty{Text: here.Text("outbox.empty")}
	if v.Filter.Clear != "" {
		v.Empty = views.Empty{Text: here.Text("outbox.none_match"), Href: v.Filter.Clear, Link: here.Text("filter.clear")}
	}
	commands, err := s.Outboxes.Open(ctx, box.Name())
	if err != nil {
		return err
	}
	for _, command := range commands {
		v.Commands = append(v.Commands, outboxCommandView(command, actor))
	}
	asking, cancel := context.WithTimeout(ctx, outboxPatience)
	defer cancel()
	stats, err := box.Read.Stats(asking)
	var rows []outbox.Row
	if err == nil {
		rows, err = box.Read.List(asking, f)
	}
	if err != nil {
		s.Logger.Warn("read outbox", "outbox", box.Name(), "error", err)
		v.Error = here.Text("outbox.unreachable", "why", s.outboxTrouble(err))
		return nil
	}
	v.Stats = outboxStatsView(here, stats)
	for _, r := range rows {
		v.Rows = append(v.Rows, outboxRowView(box, r))
	}
	v.Pager = firstPager(here, outboxAddress(box, f, 0), cursorText(f.After), nextRow(rows, f), func(cursor string) string {
		after, _ := strconv.ParseInt(cursor, 10, 64) // it is ours
		return outboxAddress(box, f, after)
	})
	return nil
}

// outboxPatience bounds what a page waits for a business database.
const outboxPatience = 5 * time.Second

// outboxTrouble is what may be said of a business database's error: whether it
// was too slow. The rest is in the log.
func (s *Server) outboxTrouble(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "time-out"
	}
	return "SQL"
}

func cursorText(after int64) string {
	if after == 0 {
		return ""
	}
	return strconv.FormatInt(after, 10)
}

// nextRow is where the next page begins; "" this is the last one.
func nextRow(rows []outbox.Row, f outbox.Filter) string {
	if len(rows) < f.Limit {
		return ""
	}
	return strconv.FormatInt(rows[len(rows)-1].ID, 10)
}

func outboxAddress(box outboxes.Outbox, f outbox.Filter, after int64) string {
	state, older := "", ""
	if f.State != 0 {
		state = f.State.String()
	}
	if f.OlderThan != 0 {
		older = f.OlderThan.String()
	}
	return address("/outbox", "outbox", box.Name(), "state", state, "target", f.Target, "key", string(f.Key), "older_than", older, "after", cursorText(after))
}

func outboxFilterBar(here locale.Locale, box outboxes.Outbox, f outbox.Filter) views.FilterBar {
	states := ui.Choice{Name: "state", Label: here.Text("filter.state")}
	for _, state := range []outbox.State{outbox.Pending, outbox.Failing, outbox.Dead} {
		states.Options = append(states.Options, ui.Option{Value: state.String(), Label: here.Text("state.outbox." + state.String())})
	}
	if f.State != 0 {
		states.Value = f.State.String()
	}
	bar := views.FilterBar{
		Action: "/outbox", Hidden: params("outbox", box.Name()),
		Search: &views.Search{Name: "key", Value: string(f.Key), Label: here.Text("outbox.filter_key")},
		Fields: []views.Search{{Name: "target", Value: f.Target, Label: here.Text("outbox.filter_target")}}, Choices: []ui.Choice{states},
	}
	if f.State != 0 || f.Target != "" || f.Key != nil || f.OlderThan != 0 {
		bar.Clear = address("/outbox", "outbox", box.Name())
	}
	return bar
}

func outboxStatsView(here locale.Locale, s outbox.Stats) *views.OutboxStats {
	v := &views.OutboxStats{Oldest: "–", Pending: atMost(s.Pending), SentPerMinute: atMost(s.SentPerMinute), Dead: ui.N(s.Dead)}
	if s.Pending > 0 {
		v.Oldest = here.Duration(s.Oldest)
	}
	return v
}

// atMost writes a count that may be "or more".
func atMost(n int64) string {
	if n >= outbox.CountLimit {
		return ui.N(int64(outbox.CountLimit)) + "+"
	}
	return ui.N(n)
}

func outboxRowView(box outboxes.Outbox, r outbox.Row) views.OutboxRow {
	v := views.OutboxRow{
		ID: r.ID, Href: outboxRowAddress(box, r.ID), Event: r.EventID, Key: readableKey(r.OrderKey), Target: r.Target, State: r.State.String(),
		Attempts: r.Attempts, CreatedAt: r.CreatedAt, Error: r.LastError,
	}
	if r.HeldBy != nil {
		v.HeldBy, v.HeldRef = strconv.FormatInt(*r.HeldBy, 10), outboxRowAddress(box, *r.HeldBy)
		if r.State == outbox.Pending {
			v.State = "held"
		}
	}
	return v
}

func outboxRowAddress(box outboxes.Outbox, id int64) string {
	return "/outbox/" + pathSegment(box.Connection) + "/" + pathSegment(string(box.Read.Table())) + "/" + strconv.FormatInt(id, 10)
}

// readableKey is the key as text, or in hexadecimal where it is none.
func readableKey(key []byte) string {
	if utf8.Valid(key) && !hasControl(string(key)) {
		return string(key)
	}
	return hex.EncodeToString(key)
}

func hasControl(s string) bool {
	for _, r := range s {
		if unicode.IsControl(r) {
			return true
		}
	}
	return false
}

func outboxCommandView(c outboxes.Command, actor access.Actor) views.OutboxCommand {
	return views.OutboxCommand{
		ID: c.ID, Event: c.EventID, Href: "/outbox/" + c.Outbox + "/" + strconv.FormatInt(c.RowID, 10), By: c.AskedBy, Reason: c.Reason, At: c.AskedAt,
		Releases: int(c.Releases), Decided: c.State == outboxes.Decided, Own: c.AskedBy == actor.User,
	}
}

// deadOutboxRows counts for the navigation. What does not answer at once is left out.
func (s *Server) deadOutboxRows(ctx context.Context) *int {
	if s.Outboxes == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	total := 0
	for _, o := range s.Outboxes.All() {
		n, err := o.Read.Dead(ctx)
		if err != nil {
			return nil
		}
		total += int(n)
	}
	return &total
}

// outboxOf reads the outbox and the row's id from the path.
func (s *Server) outboxOf(c echo.Context) (outboxes.Outbox, error) {
	if s.Outboxes == nil {
		return outboxes.Outbox{}, outboxes.ErrUnknown
	}
	return s.Outboxes.Find(c.Param("connection") + "/" + c.Param("table"))
}

func (s *Server) outboxRowPage(c echo.Context) error { return s.showOutboxRow(c, refused{}) }

func (s *Server) showOutboxRow(c echo.Context, was refused) error {
	box, err := s.outboxOf(c)
	if err != nil {
		return err
	}
	id, err := numberID(c, 64)
	if err != nil {
		return dlq.ErrNotFound
	}
	ctx, here := c.Request().Context(), localeOf(c)
	row, err := box.Read.Get(ctx, id)
	if err != nil {
		return err
	}
	behind, err := box.Read.Behind(ctx, id)
	if err != nil {
		return err
	}
	v := views.OutboxMessage{
		Frame: s.pageFrame(c, "outbox", row.EventID, views.Crumb{Label: here.Text("nav.outbox"), Href: address("/outbox", "outbox", box.Name())}, views.Crumb{Label: row.EventID}),
		Row:   outboxRowView(box, row), Outbox: box.Name() + " · " + box.Cluster, Exchange: row.Exchange, Releases: atMost(behind), Behind: int(behind), Act: outboxRowAddress(box, id),
		Dead: row.State == outbox.Dead, May: actorOf(c).May(access.RetryOutbox), WhoMay: here.Text("may.outbox", "roles", rolesOf(here, access.RetryOutbox)),
		Error: was.Text, Reason: was.Reason,
	}
	open, err := s.Outboxes.Open(ctx, box.Name())
	if err != nil {
		return err
	}
	for _, command := range open {
		if command.RowID == id {
			v.Asked = ptr(outboxCommandView(command, actorOf(c)))
		}
	}
	return render(c, was.status(), views.OutboxMessagePage(v))
}

// outboxCommand is what a form or a call asks to be done with a row.
type outboxCommand func(ctx context.Context, actor access.Actor, outbox string, row int64) (outboxes.Command, error)

func (s *Server) retryOutbox(ctx context.Context, actor access.Actor, name string, row int64) (outboxes.Command, error) {
	return s.Outboxes.Retry(ctx, actor, name, row)
}

func (s *Server) skipOutbox(ctx context.Context, actor access.Actor, name string, row int64) (outboxes.Command, error) {
	return s.Outboxes.AskSkip(ctx, actor, name, row)
}

// outboxAct runs one command on one row and goes back to it.
func (s *Server) outboxAct(act outboxCommand) echo.HandlerFunc {
	return func(c echo.Context) error {
		box, err := s.outboxOf(c)
		if err != nil {
			return err
		}
		id, err := numberID(c, 64)
		if err != nil {
			return dlq.ErrNotFound
		}
		reason := c.FormValue("reason")
		if why := badText(reason); why != "" {
			return invalid("reason", why)
		}
		_, err = act(c.Request().Context(), actorBecause(c, reason), box.Name(), id)
		if errors.Is(err, access.ErrReasonRequired) {
			return s.showOutboxRow(c, refused{Status: http.StatusUnprocessableEntity, Text: localeOf(c).Text("form.reason")})
		}
		if err != nil {
			return fmt.Errorf("outbox row %d: %w", id, err)
		}
		return c.Redirect(http.StatusSeeOther, outboxRowAddress(box, id))
	}
}

// outboxDecide approves or rejects what somebody else asked for.
func (s *Server) outboxDecide(approve bool) echo.HandlerFunc {
	return func(c echo.Context) error {
		reason := c.FormValue("reason")
		if why := badText(reason); why != "" {
			return invalid("reason", why)
		}
		command, err := s.decideOutbox(c, reason, approve)
		if err != nil {
			return err
		}
		return c.Redirect(http.StatusSeeOther, address("/outbox", "outbox", command.Outbox))
	}
}

func (s *Server) decideOutbox(c echo.Context, reason string, approve bool) (outboxes.Command, error) {
	id, err := numberID(c, 64)
	if err != nil || s.Outboxes == nil {
		return outboxes.Command{}, outboxes.ErrUnknown
	}
	decide := s.Outboxes.Reject
	if approve {
		decide = s.Outboxes.Approve
	}
	return decide(c.Request().Context(), actorBecause(c, reason), id)
}
