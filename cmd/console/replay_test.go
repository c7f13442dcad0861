package main

import (
	"slices"
	"testing"
	"time"
)

func TestThePaceOfAPlan(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 12, 1, 2, 0, 0, 0, time.UTC)
	p, err := paceFlags{Ladder: []int{1, 5}, Automatic: true, Rate: 10, StopShare: 5, Window: "22:00-06:00", Zone: "Asia/Shanghai", At: at}.pace()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(p.Ladder, []int{1, 5}) || !p.Automatic || p.Rate != 10 || p.StopShare != 5 || p.Window.String() != "22:00–06:00 Asia/Shanghai" || !p.StartAt.Equal(at) {
		t.Errorf("%+v", p)
	}
	if p, err := (paceFlags{Zone: "UTC"}).pace(); err != nil || p.Window != nil || p.StartAt != nil {
		t.Errorf("nothing asked: %+v, %v", p, err)
	}
	for _, window := range []string{"22:00", "22-06", "25:00-06:00", "06:00-06:00"} {
		if _, err := (paceFlags{Window: window, Zone: "UTC"}).pace(); err == nil {
			t.Errorf("window %q was taken", window)
		}
	}
	if _, err := (paceFlags{Window: "22:00-06:00", Zone: "Mars"}).pace(); err == nil {
		t.Error("a zone that is not there was taken")
	}
}

func TestASelectionIsNamedInOneWay(t *testing.T) {
	t.Parallel()
	if sel, err := (replayPlanCmd{Redo: 12}).selection(); err != nil || sel.RedoOf != 12 {
		t.Errorf("%+v, %v", sel, err)
	}
	for _, c := range []replayPlanCmd{{}, {Redo: 12, Fault: 3}, {Fault: 3, Group: "points"}} {
		if _, err := c.selection(); err == nil {
			t.Errorf("%+v was taken", c)
		}
	}
}
