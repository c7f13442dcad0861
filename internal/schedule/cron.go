package schedule

import (
	"fmt"
	"time"

	"github.com/adhocore/gronx"
)

// NextCron is when a cron expression of five fields is due next after t, by the
// zone's clock. On the day on which an hour is told twice it is due once, and an
// hour that is left out is made good at the next.
func NextCron(expression string, zone *time.Location, t time.Time) (time.Time, error) {
	local := t.In(zone)
	wall := time.Date(local.Year(), local.Month(), local.Day(), local.Hour(), local.Minute(), local.Second(), 0, time.UTC)
	for {
		next, err := gronx.NextTickAfter(expression, wall, false)
		if err != nil {
			return time.Time{}, fmt.Errorf("cron expression %s: %w", expression, err)
		}
		due := time.Date(next.Year(), next.Month(), next.Day(), next.Hour(), next.Minute(), 0, 0, zone)
		if due.After(t) {
			return due, nil
		}
		wall = next
	}
}
