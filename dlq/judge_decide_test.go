package dlq

import (
	"slices"
	"testing"
	"time"
)

// judgeNow is the present of the tables below.
var judgeNow = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// plain are the facts of a letter that is safe: an hour old, evidence kept for ever, no record.
func plain() facts {
	return facts{
		subject: Subject{EventID: ptr("e-1"), Group: "points", OriginTopic: "order.paid", EventTime: ptr(judgeNow.Add(-time.Hour))},
		group:   "points",
		known:   &Group{Name: "points", OrderSet: true, Evidence: &Evidence{Connection: "shop", Table: "mq_consume_record"}},
		now:     judgeNow,
	}
}

func TestDecide(t *testing.T) {
	t.Parallel()
	found := &record{found: "e-1", at: ptr(judgeNow.Add(-50 * time.Minute)), exact: true}
	for name, c := range map[string]struct {
		change  func(*facts)
		verdict Verdict
		key     string
	}{
		"nothing in the way":                 {func(f *facts) {}, Safe, "reason.safe.no_record"},
		"order not declared":                 {func(f *facts) { f.known.OrderSet = false }, Safe, "reason.safe.no_record_late"},
		"no id":                              {func(f *facts) { f.subject.EventID = nil }, NoEventID, "reason.no_event_id.none"},
		"id made of the position":            {func(f *facts) { f.subject.Flags = FlagPositionID }, NoEventID, "reason.no_event_id.position"},
		"position id with a record":          {func(f *facts) { f.subject.Flags, f.record = FlagPositionID, found }, NoEventID, "reason.no_event_id.position"},
		"broker silent":                      {func(f *facts) { f.blocked = ptr(reason("reason.unknown.broker")) }, Unknown, "reason.unknown.broker"},
		"evidence silent":                    {func(f *facts) { f.failed = ptr(reason("reason.unknown.evidence")) }, Unknown, "reason.unknown.evidence"},
		"record":                             {func(f *facts) { f.record = found }, AlreadyApplied, "reason.already_applied.record"},
		"record without a time":              {func(f *facts) { f.record = &record{found: "e-1", exact: true} }, AlreadyApplied, "reason.already_applied.record"},
		"record by collation":                {func(f *facts) { f.record = &record{found: "E-1"} }, Collides, "reason.collides.record"},
		"claimed by a replay":                {func(f *facts) { f.claim = &claim{kind: 1, holder: 412} }, InFlight, "reason.in_flight.replay"},
		"claimed by a compensation":          {func(f *facts) { f.claim = &claim{kind: 2, holder: 57} }, InFlight, "reason.in_flight.compensation"},
		"claimed and recorded":               {func(f *facts) { f.claim, f.record = &claim{kind: 1}, found }, InFlight, "reason.in_flight.replay"},
		"edited, the original has a record":  {func(f *facts) { f.subject.Revision, f.record = 1, found }, Altered, "reason.altered.record"},
		"edited, no record":                  {func(f *facts) { f.subject.Revision = 1 }, Safe, "reason.safe.no_record"},
		"edited, another group":              {func(f *facts) { f.subject.Revision, f.subject.Group = 1, "ledger" }, Altered, "reason.altered.elsewhere"},
		"edited, the original is under way":  {func(f *facts) { f.subject.Revision, f.unsettled = 1, &send{replay: 7} }, Altered, "reason.altered.unsettled_original"},
		"a revision is under way":            {func(f *facts) { f.unsettled = &send{7, 2} }, Altered, "reason.altered.unsettled_revision"},
		"a revision is under way, record":    {func(f *facts) { f.unsettled, f.record = &send{7, 2}, found }, AlreadyApplied, "reason.already_applied.record"},
		"a revision is under way, claimed":   {func(f *facts) { f.unsettled, f.claim = &send{7, 2}, &claim{kind: 1} }, Altered, "reason.altered.unsettled_revision"},
		"compensated":                        {func(f *facts) { f.compensated = &compensation{57, judgeNow} }, Compensated, "reason.compensated.mark"},
		"compensated, with a record":         {func(f *facts) { f.compensated, f.record = &compensation{57, judgeNow}, found }, Compensated, "reason.compensated.mark"},
		"compensated, no evidence":           {func(f *facts) { f.compensated, f.known = &compensation{57, judgeNow}, nil }, Compensated, "reason.compensated.mark"},
		"group not in the book":              {func(f *facts) { f.known = nil }, Unprotected, "reason.unprotected.no_evidence"},
		"group without evidence":             {func(f *facts) { f.known.Evidence = nil }, Unprotected, "reason.unprotected.no_evidence"},
		"external, evidence missing, window": {func(f *facts) { f.known.Effect, f.known.Window, f.known.Evidence = EffectExternal, time.Hour*24, nil }, Unprotected, "reason.unprotected.no_evidence"},
		"nobody reads the topic":             {func(f *facts) { f.group, f.known = "", nil }, Unprotected, "reason.unprotected.no_readers"},
		"external without window":            {func(f *facts) { f.known.Effect = EffectExternal }, Unprotected, "reason.unprotected.external"},
		"external without window, record":    {func(f *facts) { f.known.Effect, f.record = EffectExternal, found }, AlreadyApplied, "reason.already_applied.record"},
		"external within window":             {func(f *facts) { f.known.Effect, f.known.Window = EffectExternal, 24*time.Hour }, Safe, "reason.safe.no_record"},
		"external at the window's edge":      {func(f *facts) { f.known.Effect, f.known.Window = EffectExternal, time.Hour+14*time.Minute }, Expired, "reason.expired.window"},
		"external, time unknown": {func(f *facts) {
			f.known.Effect, f.known.Window, f.subject.EventTime = EffectExternal, 24*time.Hour, nil
		}, Expired, "reason.expired.window_time_unknown"},
		"before records are complete":       {func(f *facts) { f.known.Evidence.CompleteSince = judgeNow.Add(-30 * time.Minute) }, Expired, "reason.expired.complete_since"},
		"within the margin of completeness": {func(f *facts) { f.known.Evidence.CompleteSince = judgeNow.Add(-70 * time.Minute) }, Expired, "reason.expired.complete_since"},
		"after records are complete":        {func(f *facts) { f.known.Evidence.CompleteSince = judgeNow.Add(-76 * time.Minute) }, Safe, "reason.safe.no_record"},
		"older than retention":              {func(f *facts) { f.known.Evidence.Retention = 50 * time.Minute }, Expired, "reason.expired.retention"},
		"within the margin of retention":    {func(f *facts) { f.known.Evidence.Retention = 70 * time.Minute }, Expired, "reason.expired.retention"},
		"within retention":                  {func(f *facts) { f.known.Evidence.Retention = 76 * time.Minute }, Safe, "reason.safe.no_record"},
		"older than retention, record":      {func(f *facts) { f.known.Evidence.Retention, f.record = time.Minute, found }, AlreadyApplied, "reason.already_applied.record"},
		"time unknown, records for ever":    {func(f *facts) { f.subject.EventTime = nil }, Safe, "reason.safe.no_record"},
		"time unknown, retention":           {func(f *facts) { f.subject.EventTime, f.known.Evidence.Retention = nil, 24*time.Hour }, Expired, "reason.expired.event_time_unknown"},
		"time unknown, complete since":      {func(f *facts) { f.subject.EventTime, f.known.Evidence.CompleteSince = nil, judgeNow.AddDate(-1, 0, 0) }, Expired, "reason.expired.event_time_unknown"},
		"time in the future": {func(f *facts) {
			f.subject.EventTime, f.known.Evidence.Retention = ptr(judgeNow.Add(time.Hour)), 24*time.Hour
		}, Expired, "reason.expired.event_time_unknown"},
		"time flagged as future":  {func(f *facts) { f.subject.Flags, f.known.Evidence.Retention = FlagEventTimeFuture, 24*time.Hour }, Expired, "reason.expired.event_time_unknown"},
		"expired and unprotected": {func(f *facts) { f.known.Effect, f.known.Evidence.Retention = EffectExternal, time.Minute }, Expired, "reason.expired.retention"},
	} {
		f := plain()
		c.change(&f)
		verdict, why := f.decide()
		if verdict != c.verdict || why.Key != c.key {
			t.Errorf("%s: %s because of %s, want %s because of %s", name, verdict, why.Key, c.verdict, c.key)
		}
		if why.Text == "" || slices.ContainsFunc([]rune(why.Text), func(r rune) bool { return r == '{' }) && c.key[:14] != "reason.unknown" {
			t.Errorf("%s: sentence %q", name, why.Text)
		}
	}
}

// TestTheWorstFactWins puts two facts together, for every pair that can meet:
// the verdict is that of the worse one.
func TestTheWorstFactWins(t *testing.T) {
	t.Parallel()
	bad := []struct {
		verdict Verdict
		change  func(*facts)
	}{
		{NoEventID, func(f *facts) { f.subject.EventID = nil }},
		{Unknown, func(f *facts) { f.failed = ptr(reason("reason.unknown.evidence")) }},
		{Collides, func(f *facts) { f.record = &record{found: "E-1"} }},
		{Altered, func(f *facts) { f.unsettled = &send{7, 2} }},
		{InFlight, func(f *facts) { f.claim = &claim{kind: 1} }},
		{Compensated, func(f *facts) { f.compensated = &compensation{57, judgeNow} }},
		{Expired, func(f *facts) { f.known.Evidence.Retention = time.Minute }},
		{Unprotected, func(f *facts) { f.known.Effect = EffectExternal }},
		{Safe, func(f *facts) {}},
	}
	for i, worse := range bad {
		for _, milder := range bad[i:] {
			f := plain()
			milder.change(&f)
			worse.change(&f)
			if v, _ := f.decide(); v != worse.verdict {
				t.Errorf("%s with %s: %s", worse.verdict, milder.verdict, v)
			}
		}
	}
}

func TestHeadlineIsTheWorstOfWhatIsReached(t *testing.T) {
	t.Parallel()
	q := inquiry{subject: Subject{Group: "points"}, route: &Route{Topic: "x"}, groups: []asked{
		{facts: facts{group: "points"}, reached: true, verdict: Safe},
		{facts: facts{group: "ledger"}, reached: true, verdict: Expired},
		{facts: facts{group: "legacy"}, reached: false, verdict: NoEventID},
	}}
	j := q.judged()
	if j.Headline != Expired || j.Own().Verdict != Safe {
		t.Errorf("headline %s, own %s", j.Headline, j.Own().Verdict)
	}
	q.subject.Group = ""
	if j := q.judged(); j.Own().Verdict != Expired {
		t.Errorf("without a group of its own: %s", j.Own().Verdict)
	}
	q.route = nil
	if j := q.judged(); j.Headline != Unknown {
		t.Errorf("without a route: %s", j.Headline)
	}
}
