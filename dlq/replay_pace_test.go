package dlq

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func at(zone, text string) time.Time {
	loc, err := time.LoadLocation(zone)
	if err != nil {
		panic(err)
	}
	t, err := time.ParseInLocation("2006-01-02 15:04", text, loc)
	if err != nil {
		panic(err)
	}
	return t
}

func TestWindowOfHours(t *testing.T) {
	t.Parallel()
	const sh = "Asia/Shanghai"
	for name, c := range map[string]struct {
		from, to, zone string
		now            time.Time
		open           bool
		opens          time.Time // when closed
	}{
		"by day, inside":         {"09:00", "17:00", sh, at(sh, "2026-11-30 09:00"), true, time.Time{}},
		"by day, end excluded":   {"09:00", "17:00", sh, at(sh, "2026-11-30 17:00"), false, at(sh, "2026-12-01 09:00")},
		"by day, before":         {"09:00", "17:00", sh, at(sh, "2026-11-30 08:59"), false, at(sh, "2026-11-30 09:00")},
		"over midnight, evening": {"22:00", "06:00", sh, at(sh, "2026-11-30 23:30"), true, time.Time{}},
		"over midnight, morning": {"22:00", "06:00", sh, at(sh, "2026-11-30 05:59"), true, time.Time{}},
		"over midnight, closed":  {"22:00", "06:00", sh, at(sh, "2026-11-30 06:00"), false, at(sh, "2026-11-30 22:00")},
		"another zone's evening": {"22:00", "06:00", sh, at("UTC", "2026-11-30 14:00"), true, time.Time{}},
		"another zone's noon":    {"22:00", "06:00", sh, at("UTC", "2026-11-30 04:00"), false, at(sh, "2026-11-30 22:00")},
		"end of a year":          {"01:00", "02:00", "UTC", at("UTC", "2026-12-31 03:00"), false, at("UTC", "2027-01-01 01:00")},
		"the hour that is skipped": {"02:30", "05:00", "Europe/Berlin", at("Europe/Berlin", "2026-03-29 01:00"), false,
			at("UTC", "2026-03-29 01:30")},
	} {
		w, err := ParseWindow(c.from, c.to, c.zone)
		if err != nil {
			t.Fatal(err)
		}
		if got := w.Open(c.now); got != c.open {
			t.Errorf("%s: open %v", name, got)
		}
		if !c.open {
			if got := w.Opens(c.now); !got.Equal(c.opens) {
				t.Errorf("%s: opens %s, want %s", name, got, c.opens)
			}
		}
	}
	var none *Window
	if !none.Open(time.Now()) {
		t.Error("no window is always open")
	}
}

func TestPacesThatMakeNoSense(t *testing.T) {
	t.Parallel()
	for field, p := range map[string]Pace{
		"ladder":     {Ladder: []int{1, 0}},
		"automatic":  {Automatic: true},
		"rate":       {Rate: -1},
		"stop_share": {StopShare: 101},
		"window":     {Window: &Window{From: 60, To: 60, Zone: "UTC"}},
	} {
		var bad *ErrBadFilter
		if err := p.Check(); !errors.As(err, &bad) || bad.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	for _, zone := range []string{"", "Local", "Mars/Olympus", "../../etc/passwd"} {
		if _, err := ParseWindow("01:00", "02:00", zone); err == nil || !strings.Contains(err.Error(), "zone") {
			t.Errorf("zone %q: %v", zone, err)
		}
	}
	if _, err := ParseWindow("25:00", "1", "UTC"); err == nil {
		t.Error("a window of no times was taken")
	}
}

func TestRungsCoverEveryItem(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		ladder []int
		total  int
		ends   []int
	}{
		{DefaultLadder, 608, []int{1, 6, 31, 131, 608}},
		{DefaultLadder, 31, []int{1, 6, 31}},
		{DefaultLadder, 30, []int{1, 6, 30}},
		{DefaultLadder, 1, []int{1}},
		{nil, 5, nil},
	} {
		rungs := Pace{Ladder: c.ladder}.rungs(c.total)
		if len(rungs) != len(c.ends) {
			t.Errorf("%v over %d: %v", c.ladder, c.total, rungs)
			continue
		}
		from := 1
		for i, r := range rungs {
			if r.From != from || r.To != c.ends[i] {
				t.Errorf("%v over %d: rung %d is %d to %d", c.ladder, c.total, i, r.From, r.To)
			}
			from = r.To + 1
		}
	}
}
