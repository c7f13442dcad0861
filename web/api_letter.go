package web

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"oncemore/dlq"
	"oncemore/internal/access"
	"oncemore/views/locale"
)

type originJSON struct {
	Topic     *string `json:"topic"`
	Partition *int32  `json:"partition"`
	Offset    *int64  `json:"offset"`
}

type errorJSON struct {
	Class   *string `json:"class"`
	Message *string `json:"message"`
}

// letterJSON is one letter of a list.
type letterJSON struct {
	ID            uuid.UUID  `json:"id"`
	State         string     `json:"state"`
	StateAt       *time.Time `json:"state_at"`
	Cluster       string     `json:"cluster"`
	Broker        string     `json:"broker"`
	Source        string     `json:"source"`
	Dialect       string     `json:"dialect"`
	EventID       *string    `json:"event_id"`
	EventTime     *time.Time `json:"event_time"`
	ConsumerGroup *string    `json:"consumer_group"`
	Origin        originJSON `json:"origin"`
	Error         errorJSON  `json:"error"`
	Attempts      *int32     `json:"attempts"`
	Occurrences   int32      `json:"occurrences"`
	FailedAt      *time.Time `json:"failed_at"`
	DrainedAt     *time.Time `json:"drained_at"`
	FaultID       int32      `json:"fault_id"`
	ReplayCount   int32      `json:"replay_count"`
	Verdict       *string    `json:"verdict"` // as last judged: the worst of the groups that the narrowest target reaches
	VerdictAt     *time.Time `json:"verdict_at"`
	Flags         []string   `json:"flags"`
	Owner         *string    `json:"owner"`
}

// letterFor maps letters for a reader. Error messages quote what was in the
// message, so they are masked like it.
func letterFor(reader access.Actor) func(dlq.Letter) letterJSON {
	return func(l dlq.Letter) letterJSON {
		l.ErrorMessage = messageFor(reader, l.ErrorMessage)
		return letterOf(l)
	}
}

func messageFor(reader access.Actor, text *string) *string {
	if text == nil || reader.May(access.ReadPayload) {
		return text
	}
	hidden := maskText(*text)
	return &hidden
}

func letterOf(l dlq.Letter) letterJSON {
	return letterJSON{
		ID: l.ID, State: letterStateNames[l.State], StateAt: instant(&l.StateAt),
		Cluster: l.Cluster, Broker: l.Broker, Source: l.Source, Dialect: l.Dialect,
		EventID: l.EventID, EventTime: instant(l.EventTime), ConsumerGroup: l.Group,
		Origin:   originJSON{Topic: l.Origin.Topic, Partition: l.Origin.Partition, Offset: l.Origin.Offset},
		Error:    errorJSON{Class: l.ErrorClass, Message: l.ErrorMessage},
		Attempts: l.Attempts, Occurrences: l.Occurrences, FailedAt: instant(l.FailedAt), DrainedAt: instant(&l.DrainedAt),
		FaultID: l.FaultID, ReplayCount: l.ReplayCount,
		Verdict: verdictName(l.Verdict), VerdictAt: instant(l.VerdictAt), Flags: flagNames(l.Flags), Owner: l.Owner,
	}
}

var letterStates = map[string]dlq.State{
	"open": dlq.Open, "replaying": dlq.Replaying, "resolved": dlq.Resolved, "discarded": dlq.Discarded,
}

var letterStateNames = inverse(letterStates)

var flagWords = []struct {
	flag dlq.Flag
	name string
}{
	{dlq.FlagPossibleCopy, "possible_copy"},
	{dlq.FlagOriginGuessed, "origin_guessed"},
	{dlq.FlagPositionID, "position_id"},
	{dlq.FlagCopyDiffers, "copy_differs"},
	{dlq.FlagOriginRead, "origin_read"},
	{dlq.FlagValueNotCarried, "value_not_carried"},
	{dlq.FlagTwoLayers, "two_layers"},
	{dlq.FlagFramed, "framed"},
	{dlq.FlagEventTimeFuture, "event_time_future"},
}

func flagNames(f dlq.Flag) []string {
	names := []string{}
	for _, w := range flagWords {
		if f&w.flag != 0 {
			names = append(names, w.name)
		}
	}
	return names
}

// letterFilter reads the filters that letter lists have in common.
func letterFilter(q *query) dlq.LetterFilter {
	f := dlq.LetterFilter{
		Cluster: q.take("cluster"), Source: q.take("source"), Dialect: q.take("dialect"),
		EventID: q.take("event_id"), Group: q.take("consumer_group"), FaultID: int32(q.id("fault_id", 32)),
		ErrorClass: q.take("error_class"), OriginTopic: q.take("origin_topic"),
		Since: q.time("since"), Until: q.time("until"),
		Verdict: q.verdict(), AttemptsMin: int32(q.id("attempts_min", 32)), AttemptsMax: int32(q.id("attempts_max", 32)),
		Owner: q.owner(), Search: strings.TrimSpace(q.take("q")), Text: q.take("text"), Sort: q.take("sort"),
	}
	if name := q.take("text_case"); name != "" {
		_, err := choice("text_case", name, map[string]bool{"any": true})
		q.keep(err)
		f.AnyCase = true
	}
	if age := q.age("older_than"); age > 0 {
		if !f.Until.IsZero() {
			q.fail("older_than", "and until say the same: give one of them")
		}
		f.Until = q.now.Add(-age).Truncate(time.Second)
	}
	if f.Sort == dlq.SortNewest {
		f.Sort = "" // one list, one address of its pages
	}
	q.keep(mayLookFor(q.actor, f))
	if name := q.take("state"); name != "" {
		state, err := choice("state", name, letterStates)
		q.keep(err)
		f.State = state
	}
	return f
}

func (s *Server) apiLetters(c echo.Context) error {
	q := parseQuery(c)
	filter, page := letterFilter(q), q.page()
	if err := q.done(); err != nil {
		return err
	}
	found, err := s.Letters.List(c.Request().Context(), filter, page)
	if err != nil {
		return fmt.Errorf("list letters: %w", err)
	}
	return answer(c, http.StatusOK, letterListJSON{listOf(found.Items, found.Next, letterFor(actorOf(c))), instant(found.Stopped)})
}

// letterListJSON is a page of letters.
type letterListJSON struct {
	list[letterJSON]
	SearchedUntil *time.Time `json:"searched_until,omitempty"` // the page stopped early; next goes on from here
}

type verdictJSON struct {
	ConsumerGroup *string    `json:"consumer_group"`
	Verdict       *string    `json:"verdict"`
	Reason        *string    `json:"reason"`
	ConsumedAt    *time.Time `json:"consumed_at"`
	AskedAt       *time.Time `json:"asked_at"`
	Reached       bool       `json:"reached"` // by the target that was asked for
}

func verdictsOf(here locale.Locale, groups []dlq.GroupVerdict) []verdictJSON {
	all := make([]verdictJSON, 0, len(groups))
	for _, g := range groups {
		all = append(all, verdictJSON{
			ConsumerGroup: known(g.Group), Verdict: verdictName(g.Verdict), Reason: localisedReason(here, g.Reason),
			ConsumedAt: instant(g.ConsumedAt), AskedAt: instant(&g.AskedAt), Reached: g.Reached,
		})
	}
	return all
}

type timelineJSON struct {
	Kind string     `json:"kind"`
	At   *time.Time `json:"at"`
	Text *string    `json:"text"`
}

type headerJSON struct {
	Name     string  `json:"name"`
	ValueB64 *string `json:"value_b64"` // null: a null header
	Text     *string `json:"text"`      // null: not readable text
	Masked   bool    `json:"masked"`
	Type     *string `json:"type,omitempty"`  // of RabbitMQ
	Value    any     `json:"value,omitempty"` // of RabbitMQ, as its type says
}

type outcomeJSON struct {
	ReplayID      int64      `json:"replay_id"`
	ConsumerGroup *string    `json:"consumer_group"`
	Outcome       *string    `json:"outcome"`
	At            *time.Time `json:"at"`
	Reason        *string    `json:"reason"`
}

// letterDetailJSON is one letter with all but its body.
type letterDetailJSON struct {
	letterJSON
	Verdicts []verdictJSON  `json:"verdicts"`
	Timeline []timelineJSON `json:"timeline"`
	Headers  []headerJSON   `json:"headers"`
	Outcomes []outcomeJSON  `json:"outcomes"`
	AMQP     *amqpJSON      `json:"amqp,omitempty"` // of RabbitMQ
}

func (s *Server) apiLetter(c echo.Context) error {
	if err := noQuery(c); err != nil {
		return err
	}
	id, err := letterID(c)
	if err != nil {
		return err
	}
	ctx, here, reader := c.Request().Context(), localeOf(c), actorOf(c)
	letter, err := s.Letters.Get(ctx, id)
	if err != nil {
		return fmt.Errorf("get letter %s: %w", id, err)
	}
	body, err := s.Letters.Body(ctx, id)
	if err != nil {
		return fmt.Errorf("get headers of letter %s: %w", id, err)
	}
	timeline, err := s.Letters.Timeline(ctx, id)
	if err != nil {
		return fmt.Errorf("get timeline of letter %s: %w", id, err)
	}
	groups, err := s.judgeNow(c, id, dlq.ToSafe)
	if err != nil {
		return err
	}
	return answer(c, http.StatusOK, letterDetailJSON{
		letterJSON: letterFor(reader)(letter.Letter), Verdicts: verdictsOf(here, groups), Timeline: timelineOf(here, timeline, reader),
		Headers: headersOf(body.Headers, reader, letter.EventID), Outcomes: outcomesOf(here, letter.Replays), AMQP: amqpOf(body, reader, letter.EventID),
	})
}

// judgeNow asks the evidence anew: a stored verdict may be older than the record
// that the reader wants to know of.
func (s *Server) judgeNow(c echo.Context, id uuid.UUID, target dlq.Target) ([]dlq.GroupVerdict, error) {
	judged, err := s.Judge.JudgeLetters(c.Request().Context(), []uuid.UUID{id}, target)
	if err != nil {
		return nil, fmt.Errorf("judge letter %s: %w", id, err)
	}
	if len(judged) == 0 {
		return nil, dlq.ErrNotFound
	}
	return judged[0].Groups, nil
}

var judgeTargets = map[string]dlq.Target{"": dlq.ToSafe, "safe": dlq.ToSafe, "origin": dlq.ToOrigin, "group": dlq.ToGroup}

func (s *Server) apiLetterVerdicts(c echo.Context) error {
	id, err := letterID(c)
	if err != nil {
		return err
	}
	q := parseQuery(c)
	target, err := choice("target", q.take("target"), judgeTargets)
	q.keep(err)
	if err := q.done(); err != nil {
		return err
	}
	groups, err := s.judgeNow(c, id, target)
	if err != nil {
		return err
	}
	return answer(c, http.StatusOK, list[verdictJSON]{Items: verdictsOf(localeOf(c), groups)})
}

type bodyJSON struct {
	KeyB64    *string      `json:"key_b64"`    // null: a null key
	KeyText   *string      `json:"key_text"`   // null: not readable text
	ValueB64  *string      `json:"value_b64"`  // null: a null value
	ValueText *string      `json:"value_text"` // null: not readable text
	Headers   []headerJSON `json:"headers"`
	AMQP      *amqpJSON    `json:"amqp,omitempty"` // of RabbitMQ
	View      *viewJSON    `json:"view,omitempty"` // as asked for
}

func (s *Server) apiLetterBody(c echo.Context) error {
	asked, err := askedView(c)
	if err != nil {
		return err
	}
	id, err := letterID(c)
	if err != nil {
		return err
	}
	body, err := s.Letters.Body(c.Request().Context(), id)
	if err != nil {
		return fmt.Errorf("get body of letter %s: %w", id, err)
	}
	view, err := s.bodyViewJSON(c, id, body, asked)
	if err != nil {
		return err
	}
	return answer(c, http.StatusOK, bodyJSON{
		KeyB64: encoded(body.Key), KeyText: readable(body.Key),
		ValueB64: encoded(body.Value), ValueText: readable(body.Value),
		Headers: headersOf(body.Headers, actorOf(c), nil), AMQP: amqpOf(body, actorOf(c), nil), View: view,
	})
}

func timelineOf(here locale.Locale, events []dlq.TimelineEvent, reader access.Actor) []timelineJSON {
	all := make([]timelineJSON, 0, len(events))
	for _, e := range events {
		all = append(all, timelineJSON{Kind: e.Kind, At: instant(e.At), Text: messageFor(reader, localised(here, e.Key, e.Args, e.Text))})
	}
	return all
}

// headersOf masks the values for those who may not read payloads; the event id
// stands in the letter anyway.
func headersOf(headers []dlq.Header, reader access.Actor, eventID *string) []headerJSON {
	keep := []string{}
	if eventID != nil {
		keep = append(keep, *eventID)
	}
	all := make([]headerJSON, 0, len(headers))
	for _, h := range headers {
		value, masked := h.Value, false
		if !reader.May(access.ReadPayload) {
			value, masked = MaskBytes(h.Value, keep...)
		}
		j := headerJSON{Name: strings.ToValidUTF8(h.Name, "\uFFFD"), ValueB64: encoded(value), Text: readable(value), Masked: masked}
		j.typedValue(h, reader.May(access.ReadPayload))
		all = append(all, j)
	}
	return all
}

func outcomesOf(here locale.Locale, replays []dlq.LetterReplay) []outcomeJSON {
	all := []outcomeJSON{}
	for _, r := range replays {
		for _, o := range r.Outcomes {
			all = append(all, outcomeJSON{ReplayID: r.ReplayID, ConsumerGroup: known(o.Group), Outcome: known(o.Outcome.String()),
				At: instant(o.At), Reason: localisedReason(here, o.Reason)})
		}
	}
	return all
}

// encoded is base64; null stays null and empty stays empty.
func encoded(b []byte) *string {
	if b == nil {
		return nil
	}
	text := base64.StdEncoding.EncodeToString(b)
	return &text
}

// readable is b as text, null where it is none.
func readable(b []byte) *string {
	if b == nil || !utf8.Valid(b) || slices.ContainsFunc([]rune(string(b)), unprintable) {
		return nil
	}
	text := string(b)
	return &text
}

func unprintable(r rune) bool {
	return unicode.IsControl(r) && r != '\n' && r != '\r' && r != '\t'
}
