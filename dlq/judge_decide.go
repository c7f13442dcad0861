package dlq

import "time"

// evidenceMargin is how far clocks and delays may move an event's time; a record
// that close to the edge of what is kept proves nothing by its absence.
const evidenceMargin = 15 * time.Minute

// claim is an active intent to act on an event in a group.
type claim struct {
	kind   int16 // 1 replay, 2 compensation
	holder int64
	at     time.Time
}

// facts are all that a verdict in one group depends on.
type facts struct {
	subject Subject
	group   string  // "" nobody is known to read the target
	known   *Group  // what the group book says; nil: nothing
	blocked *Reason // why the target cannot be judged; only for reached groups
	failed  *Reason // why the evidence could not be asked
	record  *record
	marks
	now time.Time
}

// decide gives the worst verdict that holds. A record that was found outweighs
// all that only matters while there is none.
func (f facts) decide() (Verdict, Reason) {
	switch {
	case f.subject.Flags&FlagPositionID != 0:
		return NoEventID, reason("reason.no_event_id.position")
	case f.subject.EventID == nil:
		return NoEventID, reason("reason.no_event_id.none")
	case f.blocked != nil:
		return Unknown, *f.blocked
	case f.failed != nil:
		return Unknown, *f.failed
	case f.record != nil && !f.record.exact:
		return Collides, reason("reason.collides.record", "found", f.record.found, "at", instantOf(f.record.at))
	case f.record != nil && f.subject.Revision != 0:
		return Altered, reason("reason.altered.record", "at", instantOf(f.record.at), "table", f.table())
	case f.unsettled != nil && f.record == nil:
		return Altered, f.unsettled.reason()
	case f.subject.Revision != 0 && f.group != f.subject.Group && f.group != "":
		return Altered, reason(alteredElsewhere, "group", f.group)
	case f.claim != nil:
		return InFlight, f.claim.reason()
	case f.compensated != nil:
		return Compensated, reason("reason.compensated.mark", "compensation", f.compensated.id, "at", instant(f.compensated.at))
	case f.record != nil:
		return AlreadyApplied, reason("reason.already_applied.record", "at", instantOf(f.record.at), "table", f.table())
	case f.group == "":
		return Unprotected, reason("reason.unprotected.no_readers", "topic", f.subject.OriginTopic)
	case f.known == nil || f.known.Evidence == nil:
		return Unprotected, reason("reason.unprotected.no_evidence", "group", f.group)
	}
	return f.withoutRecord()
}

// withoutRecord judges what the absence of a record proves.
func (f facts) withoutRecord() (Verdict, Reason) {
	if r := f.expired(); r != nil {
		return Expired, *r
	}
	if f.external() && f.known.Window == 0 {
		return Unprotected, reason("reason.unprotected.external", "group", f.group)
	}
	if !f.known.OrderSet && !f.known.OrderKey {
		return Safe, reason("reason.safe.no_record_late", "group", f.group)
	}
	return Safe, reason("reason.safe.no_record", "group", f.group)
}

func (f facts) external() bool { return f.known.Effect == EffectExternal }

// expired says why a record, or the receiver's memory of the event, may be gone.
func (f facts) expired() *Reason {
	e := f.known.Evidence
	at := f.eventTime()
	window := f.external() && f.known.Window > 0
	if at == nil {
		switch {
		case !e.CompleteSince.IsZero() || e.Retention > 0:
			return ptr(reason("reason.expired.event_time_unknown"))
		case window:
			return ptr(reason("reason.expired.window_time_unknown", "window", f.known.Window.String()))
		}
		return nil
	}
	switch {
	case !e.CompleteSince.IsZero() && at.Before(e.CompleteSince.Add(evidenceMargin)):
		return ptr(reason("reason.expired.complete_since", "since", instant(e.CompleteSince), "event_time", instant(*at)))
	case e.Retention > 0 && at.Before(f.now.Add(evidenceMargin-e.Retention)):
		return ptr(reason("reason.expired.retention", "kept", e.Retention.String(), "event_time", instant(*at)))
	case window && at.Before(f.now.Add(evidenceMargin-f.known.Window)):
		return ptr(reason("reason.expired.window", "window", f.known.Window.String(), "event_time", instant(*at)))
	}
	return nil
}

// eventTime is the event's time, nil where it is not known. A time in the future
// is no time.
func (f facts) eventTime() *time.Time {
	t := f.subject.EventTime
	if t == nil || f.subject.Flags&FlagEventTimeFuture != 0 || t.After(f.now.Add(evidenceMargin)) {
		return nil
	}
	return t
}

func (f facts) table() string {
	if f.known == nil || f.known.Evidence == nil {
		return ""
	}
	return f.known.Evidence.Connection + "." + f.known.Evidence.Table
}

func (c claim) reason() Reason {
	if c.kind == 2 {
		return reason("reason.in_flight.compensation", "compensation", c.holder, "at", instant(c.at))
	}
	return reason("reason.in_flight.replay", "replay", c.holder, "at", instant(c.at))
}

func (s send) reason() Reason {
	if s.revision == 0 {
		return reason(alteredUnsettledOriginal, "replay", s.replay)
	}
	return reason(alteredUnsettledRevision, "replay", s.replay, "revision", s.revision)
}

// instantOf is instant, or "an unknown time" as a dash.
func instantOf(t *time.Time) string {
	if t == nil {
		return "–"
	}
	return instant(*t)
}

func ptr[T any](v T) *T { return &v }
