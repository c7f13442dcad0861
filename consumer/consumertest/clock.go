package consumertest

import (
	"sync"
	"time"
)

// Clock stands still until somebody waits: then it jumps to the end of the wait,
// so that a policy's pauses keep their length and take no time.
//
//	clock := consumertest.NewClock(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC))
//	cfg.Now, cfg.After = clock.Now, clock.After
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock makes a clock that shows now.
func NewClock(now time.Time) *Clock { return &Clock{now: now} }

// Now is what it shows.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves it on.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// blink is what a wait really takes: whoever waits for ever must not spin.
const blink = time.Millisecond

// After is for consumer.Config.After: it moves the clock on by d, at once.
func (c *Clock) After(d time.Duration) <-chan time.Time {
	c.Advance(d)
	return time.After(min(d, blink))
}
