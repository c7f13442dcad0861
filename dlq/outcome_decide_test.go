package dlq

import (
	"testing"
	"time"

	"github.com/google/uuid"
)

func TestOutcomeIsDecidedByRecordsAndOffsets(t *testing.T) {
	t.Parallel()
	letter := uuid.New()
	now := time.Now()
	has := &GroupVerdict{Verdict: AlreadyApplied, Recorded: true, ConsumedAt: &now}
	noTime := &GroupVerdict{Verdict: AlreadyApplied, Recorded: true}
	none := &GroupVerdict{Verdict: Safe}
	silent := &GroupVerdict{Verdict: Unknown}
	bare := &GroupVerdict{Verdict: Unprotected, Reason: Reason{Key: "reason.unprotected.no_evidence"}}
	external := &GroupVerdict{Verdict: Unprotected, Reason: Reason{Key: "reason.unprotected.external"}}
	at := sighting{before: Safe, asked: true, commits: true}
	with := func(change func(*sighting)) sighting { s := at; change(&s); return s }
	passed := func(judged *GroupVerdict, drained, overdue bool) sighting {
		return with(func(s *sighting) { s.passed, s.drained, s.overdue, s.judged = true, drained, overdue, judged })
	}
	for name, c := range map[string]struct {
		sighting
		want Outcome
	}{
		"nothing yet":                        {at, 0},
		"a letter came back":                 {with(func(s *sighting) { s.failed = &letter }), FailedAgain},
		"a letter came back beside a record": {with(func(s *sighting) { s.failed, s.judged = &letter, has }), FailedAgain},
		"record, not passed":                 {with(func(s *sighting) { s.judged = has }), Applied},
		"record without a time":              {passed(noTime, false, false), Applied},
		"record before, passed":              {with(func(s *sighting) { s.before, s.passed = AlreadyApplied, true }), Duplicate},
		"record before, not passed":          {with(func(s *sighting) { s.before, s.judged = AlreadyApplied, has }), 0},
		"record before, never passed":        {with(func(s *sighting) { s.before, s.overdue = AlreadyApplied, true }), NotSeen},
		"passed, drain behind":               {passed(none, false, false), 0},
		"passed, drained, no record":         {passed(none, true, false), Swallowed},
		"passed, drained, retry topics":      {with(func(s *sighting) { *s = passed(none, true, false); s.retries = true }), 0},
		"passed, retry topics, overdue":      {with(func(s *sighting) { *s = passed(none, true, true); s.retries = true }), Swallowed},
		"passed, drain behind, overdue":      {passed(none, false, true), Unverified},
		"no evidence, passed":                {passed(bare, true, false), Unverified},
		"no evidence, drain behind":          {passed(bare, false, false), 0},
		"no evidence, not passed, overdue":   {with(func(s *sighting) { s.judged, s.overdue = bare, true }), NotSeen},
		"external without a window":          {passed(external, true, false), Swallowed},
		"evidence silent":                    {passed(silent, true, false), 0},
		"evidence silent, overdue":           {passed(silent, true, true), Unverified},
		"not passed, overdue":                {with(func(s *sighting) { s.overdue, s.judged = true, none }), NotSeen},
		"no commits, overdue":                {with(func(s *sighting) { s.commits, s.overdue, s.judged = false, true, none }), NotSeen},
		"broker silent, overdue":             {with(func(s *sighting) { s.asked, s.commits, s.overdue, s.judged = false, false, true, none }), Unverified},
		"broker silent, but a record":        {with(func(s *sighting) { s.asked, s.commits, s.overdue, s.judged = false, false, true, has }), Applied},
	} {
		got, why, ok := c.decide()
		if got != c.want || ok != (c.want != 0) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if ok && (why.Key == "" || why.Text == "") {
			t.Errorf("%s: no reason is given", name)
		}
	}
}
