package reconcile

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// An instant is on one side of a window's edge exactly if its reading is: what
// the database selects by the clock is what is counted by instants.
func TestLocalClockKeepsWindowsApart(t *testing.T) {
	t.Parallel()
	var zones []*time.Location
	for _, name := range []string{"America/New_York", "Europe/Berlin", "Asia/Shanghai", "Australia/Lord_Howe", "Africa/Casablanca", "Pacific/Apia"} {
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		zones = append(zones, zone)
	}
	year := rapid.Int64Range(0, 366*24*60)
	base := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
	rapid.Check(t, func(t *rapid.T) {
		zone := rapid.SampledFrom(zones).Draw(t, "zone")
		warm, clock := &localClock{zone: zone}, &localClock{zone: zone}
		wall := base + year.Draw(t, "wall")*60e6
		near := rapid.Int64Range(-3*60, 3*60).Draw(t, "near")
		edge := wall + (near-int64(rapid.IntRange(-11, 14).Draw(t, "hours"))*60)*60e6
		warm.instant(base + year.Draw(t, "asked before")*60e6)
		at, reading := clock.instant(wall), clock.reading(edge)
		if got := warm.instant(wall); got != at {
			t.Fatalf("%s: %d and %d for the same reading", zone, got, at)
		}
		if (at >= edge) != (wall >= reading) {
			t.Fatalf("%s: clock %s is %s, edge %s reads %s", zone, time.UnixMicro(wall).UTC(), time.UnixMicro(at).UTC(), time.UnixMicro(edge).UTC(), time.UnixMicro(reading).UTC())
		}
	})
}

func TestLocalClockOnDaylightSavingDays(t *testing.T) {
	t.Parallel()
	zone, err := time.LoadLocation("America/New_York")
	if err != nil {
		t.Fatal(err)
	}
	for wall, want := range map[string]string{
		"2026-03-08 01:59:00": "2026-03-08 06:59:00",
		"2026-03-08 02:30:00": "2026-03-08 06:59:59.999999", // never shown
		"2026-03-08 03:00:00": "2026-03-08 07:00:00",
		"2026-11-01 00:59:00": "2026-11-01 04:59:00",
		"2026-11-01 01:30:00": "2026-11-01 05:30:00", // shown twice
		"2026-11-01 02:00:00": "2026-11-01 07:00:00",
	} {
		w, _ := time.Parse(mysqlTime, wall)
		clock := localClock{zone: zone}
		if got := time.UnixMicro(clock.instant(w.UnixMicro())).UTC().Format(mysqlTime); got != want {
			t.Errorf("%s: %s, want %s", wall, got, want)
		}
	}
}
