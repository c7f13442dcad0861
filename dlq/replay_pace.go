package dlq

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
	_ "time/tzdata" // a window's zone is found on hosts without a zone database
)

// DefaultLadder is how a careful replay begins: after these come all the others.
var DefaultLadder = []int{1, 5, 25, 100}

// Limits of a pace.
const (
	MaxRungs = 20
	MaxRate  = 100_000 // items per second
)

// Pace is how fast a replay goes, when it may, and when it stops by itself. The
// zero value sends everything at once and never stops.
type Pace struct {
	Ladder    []int      `json:"ladder,omitempty"`     // items per rung, the rest after the last; nil: no ladder
	Automatic bool       `json:"automatic,omitempty"`  // go on by itself while a rung's outcomes are good; else each rung waits for a person
	Rate      int        `json:"rate,omitempty"`       // items per second; 0: as fast as it goes
	StopShare int        `json:"stop_share,omitempty"` // percent of the items tried that failed at which it stops; 0: never
	Window    *Window    `json:"window,omitempty"`     // when it may send; nil: always
	StartAt   *time.Time `json:"start_at,omitempty"`   // not before this; nil: when started
}

// Window is a span of hours of every day, in a time zone. From after To goes over
// midnight.
type Window struct {
	From int    `json:"from"` // minutes after midnight, included
	To   int    `json:"to"`   // minutes after midnight, not included
	Zone string `json:"zone"` // IANA name, such as Asia/Shanghai
}

// Check returns *ErrBadFilter that names what is wrong.
func (p Pace) Check() error {
	switch {
	case len(p.Ladder) > MaxRungs:
		return &ErrBadFilter{Field: "ladder", Reason: fmt.Sprintf("has at most %d rungs", MaxRungs)}
	case slices.ContainsFunc(p.Ladder, func(n int) bool { return n < 1 || n > 1_000_000 }):
		return &ErrBadFilter{Field: "ladder", Reason: "has rungs of 1 to 1000000 items"}
	case p.Automatic && len(p.Ladder) == 0:
		return &ErrBadFilter{Field: "automatic", Reason: "needs a ladder"}
	case p.Rate < 0 || p.Rate > MaxRate:
		return &ErrBadFilter{Field: "rate", Reason: fmt.Sprintf("is 0 to %d items per second; 0 is no limit", MaxRate)}
	case p.StopShare < 0 || p.StopShare > 100:
		return &ErrBadFilter{Field: "stop_share", Reason: "is 0 to 100 percent; 0 never stops"}
	}
	return p.Window.check()
}

func (w *Window) check() error {
	if w == nil {
		return nil
	}
	const day = 24 * 60
	switch {
	case w.From < 0 || w.From >= day || w.To < 0 || w.To >= day:
		return &ErrBadFilter{Field: "window", Reason: "has hours from 00:00 to 23:59"}
	case w.From == w.To:
		return &ErrBadFilter{Field: "window", Reason: "begins and ends at different times; leave it out to send at any hour"}
	case w.Zone == "" || w.Zone == "Local":
		return &ErrBadFilter{Field: "window", Reason: "names its time zone, such as Asia/Shanghai or UTC"}
	}
	if _, err := time.LoadLocation(w.Zone); err != nil {
		return &ErrBadFilter{Field: "window", Reason: fmt.Sprintf("has a time zone that is not known: %q", w.Zone)}
	}
	return nil
}

// ParseWindow reads "22:00" and "06:00" in a zone. Errors: *ErrBadFilter.
func ParseWindow(from, to, zone string) (*Window, error) {
	a, errA := time.Parse("15:04", from)
	b, errB := time.Parse("15:04", to)
	if errA != nil || errB != nil {
		return nil, &ErrBadFilter{Field: "window", Reason: "is two times such as 22:00 and 06:00"}
	}
	w := &Window{From: a.Hour()*60 + a.Minute(), To: b.Hour()*60 + b.Minute(), Zone: zone}
	return w, w.check()
}

// Hours are the window's two times as 22:00 and 06:00.
func (w Window) Hours() (from, to string) { return clockText(w.From), clockText(w.To) }

func clockText(minutes int) string { return fmt.Sprintf("%02d:%02d", minutes/60, minutes%60) }

// String is the window in words: 22:00–06:00 Asia/Shanghai.
func (w Window) String() string {
	from, to := w.Hours()
	return from + "–" + to + " " + w.Zone
}

// location is the window's zone; it was checked when the pace was stored. One
// that is not known any more is UTC.
func (w Window) location() *time.Location {
	if loc, err := time.LoadLocation(w.Zone); err == nil {
		return loc
	}
	return time.UTC
}

// Open reports whether the window is open at t.
func (w *Window) Open(t time.Time) bool {
	if w == nil {
		return true
	}
	at := t.In(w.location())
	m := at.Hour()*60 + at.Minute()
	if w.From < w.To {
		return m >= w.From && m < w.To
	}
	return m >= w.From || m < w.To
}

// Opens is when a closed window opens next after t. Where a day has no such time,
// because clocks go forward, it is the first moment after the gap.
func (w Window) Opens(t time.Time) time.Time {
	at := t.In(w.location())
	for day := 0; ; day++ {
		opens := time.Date(at.Year(), at.Month(), at.Day()+day, w.From/60, w.From%60, 0, 0, at.Location())
		if opens.After(t) {
			return opens
		}
	}
}

// sameAs reports whether two paces mean the same.
func (p Pace) sameAs(other Pace) bool {
	return string(p.bytes()) == string(other.bytes())
}

// bytes are the pace as it is approved: its JSON, times in UTC.
func (p Pace) bytes() []byte {
	if p.StartAt != nil {
		p.StartAt = ptr(p.StartAt.UTC())
	}
	b, err := json.Marshal(p)
	if err != nil {
		panic(fmt.Sprintf("dlq: marshal pace: %v", err)) // numbers, texts and a time
	}
	return b
}

// rungEnd is the number of the last item of a rung, counted from 0; total for the
// one after the last rung, and where there is no ladder.
func (p Pace) rungEnd(rung, total int) int {
	if rung >= len(p.Ladder) {
		return total
	}
	end := 0
	for _, n := range p.Ladder[:rung+1] {
		end += n
	}
	return min(end, total)
}

// Rung is one step of a ladder, with what became of its items.
type Rung struct {
	From, To int    // item numbers, both included
	State    string // waiting | running | passed | stopped
	Sent     int    // items sent
	Bad      int    // items that failed, or of which nobody knows
	Pending  int    // items whose outcome is not known yet
}

// rungs are the ladder's steps over total items, the rest included.
func (p Pace) rungs(total int) []Rung {
	var out []Rung
	for i, from := 0, 1; from <= total && len(p.Ladder) > 0; i++ {
		to := p.rungEnd(i, total)
		out = append(out, Rung{From: from, To: to, State: "waiting"})
		from = to + 1
	}
	return out
}
