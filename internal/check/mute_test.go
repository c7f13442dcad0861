package check_test

import (
	"errors"
	"testing"
	"time"

	"oncemore/internal/access"
	"oncemore/internal/check"
	"oncemore/migrations/pgtest"
)

func finding(code string, severity check.Severity, at time.Time) check.Finding {
	return check.Finding{Code: code, Area: "topic", Subject: "cluster/kafka", Severity: severity, Sentence: check.Text{Key: "k", En: severity.String()}, Evidence: []string{}, CheckedAt: at}
}

func TestMutesAndHistory(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	s := check.NewStore(pool)
	save := func(at time.Time, severities ...check.Severity) {
		t.Helper()
		var all []check.Finding
		for i, severity := range severities {
			all = append(all, finding([]string{"topic.acks", "source.match"}[i], severity, at))
		}
		if err := s.Save(t.Context(), all); err != nil {
			t.Fatal(err)
		}
	}
	save(noon, check.Warning, check.Passed)
	save(noon.Add(time.Hour), check.Warning, check.Passed)
	save(noon.Add(2*time.Hour), check.Critical, check.Passed)
	save(noon, check.Passed, check.Passed) // an older run that ends late
	changes, err := s.History(t.Context(), "topic.acks", "cluster/kafka", 10)
	if err != nil || len(changes) != 2 || changes[0].Severity != check.Critical || changes[1].Severity != check.Warning || !changes[1].At.Equal(noon) || changes[0].Sentence.En != "critical" {
		t.Errorf("history %+v, %v", changes, err)
	}

	operator := access.Actor{User: "chen", Role: access.Operator, Reason: "known"}
	now := noon.Add(3 * time.Hour)
	silent, viewer := operator, operator
	silent.Reason, viewer.Role = " ", access.Viewer
	for name, c := range map[string]struct {
		actor  access.Actor
		code   string
		until  time.Time
		wanted error
	}{
		"viewer": {viewer, "topic.acks", now.Add(time.Hour), access.ErrForbidden}, "no reason": {silent, "topic.acks", now.Add(time.Hour), access.ErrReasonRequired},
		"past": {operator, "topic.acks", now, check.ErrBadMute}, "for ever": {operator, "topic.acks", now.Add(400 * day), check.ErrBadMute},
		"passed": {operator, "source.match", now.Add(time.Hour), check.ErrNoFinding}, "unknown": {operator, "nothing", now.Add(time.Hour), check.ErrNoFinding},
		"good": {operator, "topic.acks", now.Add(time.Hour), nil}, "again": {operator, "topic.acks", now.Add(2 * time.Hour), nil},
	} {
		if err := s.Mute(t.Context(), c.actor, c.code, "cluster/kafka", c.until, now); !errors.Is(err, c.wanted) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := s.Mute(t.Context(), operator, "topic.acks", "cluster/kafka", now.Add(2*time.Hour), now); err != nil {
		t.Fatal(err)
	}
	findings, err := s.Findings(t.Context())
	if err != nil || findings[0].Mute == nil || findings[0].Mute.By != "chen" || !findings[0].Muted(now) || findings[0].Muted(now.Add(2*time.Hour)) {
		t.Errorf("%+v, %v", findings[0].Mute, err)
	}
	if err := s.Unmute(t.Context(), viewer, "topic.acks", "cluster/kafka"); !errors.Is(err, access.ErrForbidden) {
		t.Errorf("a viewer unmutes: %v", err)
	}
	if err := s.Unmute(t.Context(), operator, "topic.acks", "cluster/kafka"); err != nil {
		t.Error(err)
	}
	if err := s.Unmute(t.Context(), operator, "topic.acks", "cluster/kafka"); !errors.Is(err, check.ErrNoFinding) {
		t.Errorf("twice: %v", err)
	}
	if findings, err = s.Findings(t.Context()); err != nil || findings[0].Mute != nil {
		t.Errorf("%+v, %v", findings[0].Mute, err)
	}
	var audited int
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM audit_log WHERE action LIKE 'check.%'").Scan(&audited); err != nil || audited < 3 {
		t.Errorf("%d audit rows, %v", audited, err)
	}
}
