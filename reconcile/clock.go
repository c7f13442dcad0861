package reconcile

import (
	"errors"
	"time"
)

// errNoTime is a row whose time is NULL or no instant: it belongs to no window.
var errNoTime = errors.New("reconcile: row without a time")

// wallClock turns microseconds of a column's clock into such of UTC.
func wallClock(c column, zone *time.Location) func(int64) int64 {
	if c.class == classInstant || zone == time.UTC {
		return func(at int64) int64 { return at }
	}
	return func(at int64) int64 {
		wall := time.UnixMicro(at).UTC()
		return time.Date(wall.Year(), wall.Month(), wall.Day(), wall.Hour(), wall.Minute(), wall.Second(), wall.Nanosecond(), zone).UnixMicro()
	}
}

// names keeps one string for each of few values.
type names map[string]string

func (n names) of(b []byte) string {
	if s, ok := n[string(b)]; ok {
		return s
	}
	s := string(b)
	n[s] = s
	return s
}
