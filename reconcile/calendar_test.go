package reconcile

import (
	"testing"
	"time"

	"oncemore/internal/schedule"
)

func calendarJob(t *testing.T, zone, cron, size string) *Job {
	t.Helper()
	j := parseJob(t, jobText("pg", "my", matchOne))
	var err error
	if j.Zone, err = time.LoadLocation(zone); err != nil {
		t.Fatal(err)
	}
	j.Schedule = cron
	if j.Window.Size, err = time.ParseDuration(size); err != nil {
		t.Fatal(err)
	}
	return j
}

// Berlin goes back from 3:00 to 2:00 on 25 October 2026 and forward on 28 March
// 2027: an hourly job misses and doubles nothing, a daily one runs once.
func TestScheduleOnDaylightSavingDays(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cron  string
		from  time.Time
		hours int
		want  int
	}{
		"daily, hour told twice":  {"30 2 * * *", time.Date(2026, 10, 24, 22, 0, 0, 0, time.UTC), 25, 1},
		"daily, hour left out":    {"30 2 * * *", time.Date(2027, 3, 27, 23, 0, 0, 0, time.UTC), 23, 1},
		"hourly, 23 hours":        {"15 * * * *", time.Date(2027, 3, 27, 23, 0, 0, 0, time.UTC), 23, 23},
		"every quarter of a noon": {"*/15 12 * * *", time.Date(2026, 10, 24, 22, 0, 0, 0, time.UTC), 25, 4},
	} {
		j := calendarJob(t, "Europe/Berlin", c.cron, "1h")
		end, n := c.from.Add(time.Duration(c.hours)*time.Hour), 0
		for at := c.from; ; n++ {
			next, err := j.nextDue(at)
			if err != nil {
				t.Fatal(err)
			}
			if !next.After(at) {
				t.Fatalf("%s: %s after %s", name, next, at)
			}
			if at = next; !at.Before(end) {
				break
			}
		}
		if n != c.want {
			t.Errorf("%s: %d times, want %d", name, n, c.want)
		}
	}
}

// A day is a day of the job's zone: 25 hours when an hour is told twice.
func TestDaysMeetAtLocalMidnight(t *testing.T) {
	t.Parallel()
	j := calendarJob(t, "Europe/Berlin", "5 0 * * *", "24h")
	end := j.windowEnd(time.Date(2026, 10, 26, 12, 0, 0, 0, time.UTC))
	same(t, "end", end, time.Date(2026, 10, 25, 23, 0, 0, 0, time.UTC))
	same(t, "hours", end.Sub(j.windowStart(end)), 25*time.Hour)
	previous := j.windowStart(end)
	same(t, "previous end", j.windowEnd(previous), previous)
}

// Windows that nobody ran while the console was down are made good, each once,
// and one that failed is tried again.
func TestMissedWindowsAreMadeGood(t *testing.T) {
	t.Parallel()
	o := openOffice(t, "\nschedule: \"15 * * * *\"\n")
	o.consume("a", "1.00", 100*time.Hour-90*time.Minute)
	s := schedule.New(o.console, quiet(), func() time.Time { return o.now })
	o.runs.Schedule(s)
	def, err := o.jobs.Current(t.Context(), "points")
	if err != nil {
		t.Fatal(err)
	}
	job, err := def.Parse()
	if err != nil {
		t.Fatal(err)
	}
	if err := o.runs.Plan(t.Context(), []*Job{job}); err != nil {
		t.Fatal(err)
	}
	pass := func(d time.Duration, want int) {
		t.Helper()
		o.now = o.now.Add(d)
		if _, err := s.Tick(t.Context()); err != nil {
			t.Fatal(err)
		}
		o.doAll()
		var n int
		if err := o.console.QueryRow(t.Context(), "SELECT count(*) FROM reconcile_run").Scan(&n); err != nil {
			t.Fatal(err)
		}
		same(t, "runs", n, want)
	}
	pass(time.Hour, 1)
	pass(5*time.Hour, 6)
	if _, err := o.console.Exec(t.Context(), "UPDATE reconcile_run SET state = 5, seal = NULL, sign = 0 WHERE id = (SELECT max(id) FROM reconcile_run)"); err != nil {
		t.Fatal(err)
	}
	pass(time.Hour, 8)
	pass(time.Minute, 8)
}
