package reconcile

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// standing is how the one job stands.
func (o *office) standing() Standing {
	o.Helper()
	all, err := o.jobs.Standings(o.Context())
	if err != nil || len(all) != 1 {
		o.Fatalf("standings %v, %v", all, err)
	}
	return all[0]
}

func TestStandingTellsMoneyAtRisk(t *testing.T) {
	t.Parallel()
	o := openOffice(t, "")
	if s := o.standing(); s.Open() != 0 || s.Oldest != nil || s.LastRun != 0 || s.DueAt != nil {
		t.Errorf("before anything: %+v", s)
	}
	o.consume("a", "1.50", time.Minute)
	o.consume("b", "2.25", time.Minute)
	run := o.run(0, 1)
	s := o.standing()
	if s.Open() != 2 || s.AtRisk["CNY"].Amount.String() != "3.75" || s.Oldest == nil || s.LastRun != run.ID || s.State != Complete {
		t.Errorf("with two breaks: %+v", s)
	}
	counts, err := o.runs.Counts(t.Context())
	if err != nil || len(counts) != 1 || counts[0] != (RunCount{"points", Complete, 1}) {
		t.Errorf("counts %+v, %v", counts, err)
	}
}

// A window counts as run when its run has ended, however it ended; a pause owes nothing.
func TestStandingTellsWhatIsOverdue(t *testing.T) {
	t.Parallel()
	o := openOffice(t, `schedule: "30 * * * *"`+"\n")
	set := func(sql string) {
		t.Helper()
		if _, err := o.console.Exec(t.Context(), sql, pgx.NamedArgs{"at": noon.Add(time.Minute)}); err != nil {
			t.Fatal(err)
		}
	}
	set("UPDATE reconcile_job_version SET loaded_at = @at")
	half := noon.Add(30 * time.Minute)
	if s := o.standing(); s.DueAt == nil || !s.DueAt.Equal(half) || s.Overdue(half) != 0 || s.Overdue(half.Add(time.Hour)) != time.Hour {
		t.Errorf("the first run: %+v", s)
	}
	set(`INSERT INTO reconcile_run (job, version, kind, window_from, window_to, plan, plan_reason, asked_by, state, finished_at)
		VALUES ('points', 1, 1, @at::timestamptz - interval '61 minutes', @at::timestamptz - interval '1 minute', 'merge', '', 'system', 5, now())`)
	if s := o.standing(); !s.DueAt.Equal(half.Add(time.Hour)) || s.State != Failed {
		t.Errorf("after the window until noon: %+v", s)
	}
	set("UPDATE reconcile_job SET paused_by = 'ada'")
	if s := o.standing(); s.DueAt != nil || s.Overdue(half.Add(100*time.Hour)) != 0 || !s.Paused {
		t.Errorf("paused: %+v", s)
	}
	set("UPDATE reconcile_job SET gone_at = now()")
	if all, err := o.jobs.Standings(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("its file is gone: %+v, %v", all, err)
	}
}
