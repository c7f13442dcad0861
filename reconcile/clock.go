package reconcile

import (
	"errors"
	"math"
	"strings"
	"time"
)

// errNoTime is a row whose time is NULL or no instant: it belongs to no window.
var errNoTime = errors.New("reconcile: row without a time")

// wallClock turns microseconds of a column's clock into such of UTC.
func wallClock(c column, zone *time.Location) func(int64) int64 {
	if c.class == classInstant || zone == time.UTC {
		return func(at int64) int64 { return at }
	}
	return (&localClock{zone: zone}).instant
}

// edge is what a column's clock shows at a window's edge.
func edge(at time.Time, c column, zone *time.Location) time.Time {
	if c.class != classLocal {
		return at.UTC()
	}
	return time.UnixMicro((&localClock{zone: zone}).reading(at.UnixMicro())).UTC()
}

// localClock reads a clock without a zone mark. It never runs backwards: an hour
// that a zone shows twice is taken for its first time, and one that it skips for
// the moment before the jump. So a window of instants is one stretch of the
// clock, and windows side by side share no row and leave none out.
type localClock struct {
	zone       *time.Location
	from, to   int64 // readings that need no second look
	difference int64 // clock minus UTC, between them
}

// instant is when the clock shows wall; both in microseconds.
func (l *localClock) instant(wall int64) int64 {
	if l.from <= wall && wall < l.to {
		return wall - l.difference
	}
	at := readAs(wall, l.zone)
	start, end := at.ZoneBounds()
	if shown := wallOf(at); shown != wall { // skipped
		if shown > wall {
			return start.UnixMicro() - 1
		}
		return end.UnixMicro() - 1
	}
	if earlier := wall - before(start); !start.IsZero() && earlier < start.UnixMicro() {
		return earlier // shown twice
	}
	l.remember(at, start, end)
	return at.UnixMicro()
}

// remember keeps the stretch of clock around at in which nothing is shown twice.
func (l *localClock) remember(at, start, end time.Time) {
	l.difference = wallOf(at) - at.UnixMicro()
	l.from, l.to = math.MinInt64, math.MaxInt64
	if !start.IsZero() {
		l.from = start.UnixMicro() + max(l.difference, before(start))
	}
	if !end.IsZero() {
		l.to = end.UnixMicro() + l.difference
	}
}

// reading is the least that the clock shows at an instant or later.
func (l *localClock) reading(at int64) int64 {
	t := time.UnixMicro(at).In(l.zone)
	wall := wallOf(t)
	if l.instant(wall) >= at {
		return wall
	}
	start, _ := t.ZoneBounds() // its second time: the clock is on when that is over
	return start.UnixMicro() + before(start)
}

// before is the zone's difference up to a change, in microseconds.
func before(change time.Time) int64 {
	_, offset := change.Add(-time.Microsecond).Zone()
	return int64(offset) * 1e6
}

func wallOf(t time.Time) int64 {
	_, offset := t.Zone()
	return t.UnixMicro() + int64(offset)*1e6
}

func readAs(wall int64, zone *time.Location) time.Time {
	w := time.UnixMicro(wall).UTC()
	return time.Date(w.Year(), w.Month(), w.Day(), w.Hour(), w.Minute(), w.Second(), w.Nanosecond(), zone)
}

// names keeps one string for each of few values. The padding of a CHAR, which
// PostgreSQL sends, is none of it.
type names struct {
	of         map[string]string
	raw, named string // the last one
	padded     bool
}

func namesOf(c column) *names {
	return &names{of: map[string]string{}, padded: c.declared == "bpchar"}
}

func (n *names) name(b []byte) string {
	if string(b) == n.raw {
		return n.named
	}
	raw := string(b)
	named, ok := n.of[raw]
	if !ok {
		named = raw
		if n.padded {
			named = strings.TrimRight(raw, " ")
		}
		n.of[raw] = named
	}
	n.raw, n.named = raw, named
	return named
}
