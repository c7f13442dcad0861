package web

import (
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"oncemore/dlq"
	"oncemore/internal/access"
	"oncemore/views"
	"oncemore/views/locale"
)

func (s *Server) letterView(c echo.Context, at letterAddress, f letterFacts, was refused) views.Letter {
	here, l, mayRead := localeOf(c), f.letter, actorOf(c).May(access.ReadPayload)
	title := here.Text("letter.no_event_id")
	preset := here.Text("letter.reason_no_id")
	if l.EventID != nil {
		title, preset = *l.EventID, here.Text("letter.reason")
	}
	masked := ""
	if !mayRead {
		masked = here.Text("may.payload", "role", here.Text("role."+string(actorOf(c).Role)), "roles", rolesOf(here, access.ReadPayload))
	}
	v := views.Letter{
		Frame: s.pageFrame(c, "letters", title, letterCrumbs(here, l, title)...),
		ID:    l.ID.String(), EventID: deref(l.EventID), State: letterStateNames[l.State], Group: deref(l.Group), GaveUp: l.FailedAt,
		Attempts: small(l.Attempts), FaultID: l.FaultID, FaultOpen: int(l.FaultOpen),
		Newer: neighbour(at, f.newer), Older: neighbour(at, f.older), Back: "/letters",
		Judgement: judgementOf(here, at, f), Payload: payloadOf(here, at, f, masked), Headers: s.headersView(here, at, l, f.body, masked), Layers: s.layersView(here, l, f.body, mayRead),
		Original: originalOf(here, f, mayRead), Class: deref(l.ErrorClass), Message: deref(messageFor(actorOf(c), l.ErrorMessage)), Timeline: timelineView(here, l),
		Facts: factsOf(here, l, f.body, mayRead), Flags: flagsOf(here, l.Flags), Replay: s.replayForm(c, preset, was),
	}
	if at.list != "" {
		v.Back = "/letters?" + at.list
	}
	v.Triage, v.Links, v.Comments, v.Discard = f.triage, s.letterLinks(l.Letter, readableHeaders(f.body, mayRead)), commentRows(f.said), nil
	if f.discard != nil {
		v.Discard = ptr(commandRow(here, *f.discard))
	}
	v.Stake, v.Repairs = stakeOf(here, f.breaks), letterRepairs(here, f.repairs)
	if l.State == dlq.Open && s.Compensations != nil && s.Compensations.Letters != nil && actorOf(c).May(access.ProposeCompensation) {
		v.Propose = address("/compensations/new", "letter", v.ID)
	}
	v.Owner, v.KeptUntil = deref(l.Owner), s.keptUntil(l.Letter)
	v.Stack = s.stackOf(here, l, f.body, mayRead)
	v.Where = v.Stack.Where
	return v
}

func letterCrumbs(here locale.Locale, l dlq.LetterDetail, title string) []views.Crumb {
	fault := strconv.Itoa(int(l.FaultID))
	return []views.Crumb{
		{Label: here.Text("nav.dead_letters"), Href: "/faults"},
		{Label: "F-" + fault + " " + deref(l.ErrorClass), Href: "/faults/" + fault},
		{Label: title},
	}
}

func neighbour(at letterAddress, id uuid.UUID) string {
	if id == uuid.Nil {
		return ""
	}
	at.id = id
	return at.with(at.target, at.view)
}

// judgementOf shows the target that the address names, else the narrowest that
// exists.
func judgementOf(here locale.Locale, at letterAddress, f letterFacts) views.Judgement {
	target := at.target
	if target == "" {
		target = "group"
		if f.judged["group"].Route == nil {
			target = "origin"
		}
	}
	j := f.judged[target]
	v := views.Judgement{
		Target: target, Verdict: j.Headline.String(), Again: at.with(at.target, at.view),
		Targets: []views.TargetChoice{
			targetChoice(here, at, f, "group", target), targetChoice(here, at, f, "origin", target),
		},
	}
	for _, g := range j.Groups {
		v.Groups = append(v.Groups, views.GroupRow{Name: g.Group, Verdict: g.Verdict.String(), Evidence: reasonText(here, g.Reason), Reached: g.Reached})
		if g.Reached && (v.AskedAt == nil || g.AskedAt.Before(*v.AskedAt)) && !g.AskedAt.IsZero() {
			v.AskedAt = ptr(g.AskedAt)
		}
	}
	if j.Route == nil {
		v.Error = reasonText(here, j.NoRoute)
		return v
	}
	v.Headline, v.Reason = bandOf(here, j)
	return v
}

// bandOf is the verdict's sentence, and the reason of the group that makes it the worst.
func bandOf(here locale.Locale, j dlq.Judged) (headline, reason string) {
	key := "band." + j.Headline.String()
	if !locale.Has(key) {
		return here.Text("band.none"), ""
	}
	for _, g := range j.Groups {
		if !g.Reached || g.Verdict != j.Headline {
			continue
		}
		switch {
		case g.Verdict == dlq.AlreadyApplied && g.ConsumedAt != nil:
			return here.Text("band.already_applied_at", "time", here.Clock(*g.ConsumedAt)), reasonText(here, g.Reason)
		case g.Verdict == dlq.Altered && g.Reason.MayOverride(g.Verdict):
			return here.Text("band.altered_unsettled"), reasonText(here, g.Reason)
		case g.Reason.Key == "reason.safe.no_record_late":
			return here.Text(key), here.Text("reason.safe.no_record_late", "group", g.Group)
		}
		return here.Text(key), reasonText(here, g.Reason)
	}
	return here.Text(key), ""
}

func targetChoice(here locale.Locale, at letterAddress, f letterFacts, name, current string) views.TargetChoice {
	j := f.judged[name]
	t := views.TargetChoice{Href: at.with(name, at.view), Current: name == current}
	switch group := deref(f.letter.Group); {
	case name == "origin" && f.letter.Broker == "rabbitmq":
		t.Label = here.Text("letter.target_exchange")
	case name == "origin":
		t.Label = here.Text("letter.target_origin")
	case group == "":
		t.Label = here.Text("letter.target_group_none")
	default:
		t.Label = here.Text("letter.target_group", "group", group)
	}
	if j.Route == nil {
		t.Reaches = here.Text("letter.no_target")
		return t
	}
	if t.Topic = j.Route.Topic; j.Route.Exchange != "" {
		t.Topic = j.Route.Exchange + " → " + t.Topic
	}
	reached := 0
	for _, g := range j.Groups {
		if g.Reached {
			reached++
		}
	}
	if t.Reaches = here.Text("letter.reaches", "n", reached); reached == 0 {
		t.Reaches = here.Text("letter.reaches_none")
	}
	return t
}

func originalOf(here locale.Locale, f letterFacts, mayRead bool) views.Original {
	o := f.original
	why := reasonText(here, o.Reason)
	switch o.State {
	case dlq.OriginalEqual:
		return views.Original{State: "equal", Text: here.Text("original.equal_text")}
	case dlq.OriginalDiffers:
		v := views.Original{State: "differs", Text: here.Text("original.differs_text")}
		if mayRead {
			v.Left, v.Right = shortLines(o.Body), shortLines(o.Letter)
		}
		return v
	case dlq.OriginalGone:
		return views.Original{State: "gone", Text: here.Text("original.gone_text", "why", why)}
	case dlq.OriginalUnread:
		return views.Original{State: "unread", Text: here.Text("original.unread_text", "why", why)}
	}
	return views.Original{State: "not_named", Text: here.Text("original.gone_text", "why", why)}
}

// timelineLooks are icon and hue of what happened, by kind.
var timelineLooks = map[string][2]string{
	"revised":  {"git-compare", ""},
	"produced": {"send", "mute"}, "applied": {"checks", "noop"}, "applied_elsewhere": {"checks", "noop"}, "failed": {"x", "bad"},
	"dead_lettered": {"inbox", "ask"}, "drained": {"archive", "mute"}, "occurrence": {"copy", "mute"}, "reopened": {"alert-triangle", "bad"},
	"replay_planned": {"list-details", "mute"}, "replay_sent": {"send", "noop"}, "replay_not_sent": {"send-off", "bad"},
	"replay_unconfirmed": {"help", "hold"}, "outcome": {"circle-check", "go"}, "resolved": {"circle-check", "go"},
	"discarded": {"archive", "hold"}, "not_replayed": {"circle-dashed", "hold"},
}

func timelineView(here locale.Locale, l dlq.LetterDetail) []views.TimelineRow {
	var rows []views.TimelineRow
	for _, e := range l.Timeline() {
		look := timelineLooks[e.Kind]
		if e.Kind == "outcome" {
			look = outcomeLook(fmt.Sprint(e.Args["outcome"]))
		}
		row := views.TimelineRow{Icon: look[0], Hue: look[1], Text: sentence(here, e.Key, e.Args, e.Text), At: e.At}
		if replay, ok := e.Args["replay"]; ok {
			row.Href = fmt.Sprintf("/replays/%v", replay)
		}
		rows = append(rows, row)
	}
	return rows
}

// outcomeLook keeps green for what took effect.
func outcomeLook(outcome string) [2]string {
	switch outcome {
	case "applied":
		return [2]string{"circle-check", "go"}
	case "duplicate", "duplicate_expected":
		return [2]string{"copy-check", "noop"}
	case "failed_again", "swallowed", "not_sent":
		return [2]string{"alert-triangle", "bad"}
	}
	return [2]string{"help", "hold"}
}

func factsOf(here locale.Locale, l dlq.LetterDetail, body dlq.Body, mayRead bool) []views.Fact {
	facts := []views.Fact{
		{Label: here.Text("word.origin"), Value: placeText(here, l.Origin.Topic, l.Origin.Partition, l.Origin.Offset)},
		{Label: here.Text("letter.fact.key"), Value: keyText(here, body.Key, mayRead), Code: readable(body.Key) != nil && len(body.Key) > 0},
		{Label: here.Text("letter.fact.drained"), Value: placeText(here, &l.Source, l.DrainPartition, l.DrainOffset), Detail: brokerNames[l.Broker] + " · " + l.Cluster},
		{Label: here.Text("word.dialect"), Value: l.Dialect},
		{Label: here.Text("letter.fact.event_time"), Value: timeText(here, l.EventTime)},
		{Label: here.Text("letter.fact.arrived"), Value: here.Exact(l.DrainedAt)},
		{Label: here.Text("letter.fact.occurrences"), Value: locale.Number(int64(l.Letter.Occurrences))},
		{Label: here.Text("letter.fact.replays"), Value: locale.Number(int64(l.ReplayCount))},
		{Label: here.Text("letter.fact.id"), Value: l.ID.String(), Code: true},
	}
	if l.Group != nil {
		group := views.Fact{Label: here.Text("word.group"), Value: *l.Group, Href: "/consumers/" + pathSegment(*l.Group)}
		facts = append([]views.Fact{group}, facts...)
	}
	return facts
}

func timeText(here locale.Locale, t *time.Time) string {
	if t == nil {
		return here.Text("word.unknown")
	}
	return here.Exact(*t)
}

func placeText(here locale.Locale, topic *string, partition *int32, offset *int64) string {
	switch {
	case topic == nil:
		return here.Text("word.unknown")
	case partition == nil || offset == nil:
		return *topic
	}
	return here.Text("letter.place", "topic", *topic, "partition", strconv.Itoa(int(*partition)), "offset", *offset)
}

func keyText(here locale.Locale, key []byte, mayRead bool) string {
	switch {
	case key == nil:
		return here.Text("letter.fact.key_null")
	case len(key) == 0:
		return here.Text("letter.fact.key_empty")
	case readable(key) == nil:
		return here.Text("letter.fact.key_bytes", "size", here.Bytes(len(key)))
	}
	if !mayRead {
		key, _ = MaskBytes(key)
	}
	return cutText(here, string(key), 300)
}

// cutText shows the start of a long text, and how long it is.
func cutText(here locale.Locale, s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	cut := limit
	for cut > 0 && s[cut]&0xC0 == 0x80 { // inside a character
		cut--
	}
	return here.Text("headers.long", "start", s[:cut], "size", here.Bytes(len(s)))
}

// shownFlags are those that change what a reader may conclude.
var shownFlags = []string{"possible_copy", "origin_guessed", "position_id", "value_not_carried", "two_layers", "event_time_future"}

func flagsOf(here locale.Locale, f dlq.Flag) []views.Badge {
	set := map[string]bool{}
	for _, name := range flagNames(f) {
		set[name] = true
	}
	var badges []views.Badge
	for _, name := range shownFlags {
		if set[name] {
			badges = append(badges, views.Badge{Icon: "info-circle", Text: here.Text("letter.flag." + name)})
		}
	}
	return badges
}
