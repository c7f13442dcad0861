package effect

import (
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// The breaker opens after so many refusals in a row and then lets one call
// through after a pause that doubles from first to longest.
const (
	breakerLimit   = 5
	breakerFirst   = 5 * time.Second
	breakerLongest = time.Minute
)

// breaker tells a service that does not let us in (wrong credential, wrong
// path) from one that dislikes an event. While it is open no call is made,
// except one probe at a time.
type breaker struct {
	log  *slog.Logger
	base string
	now  func() time.Time

	mu      sync.Mutex
	row     int           // refusals without an acceptance between
	pause   time.Duration // 0: closed
	probeAt time.Time
	probing bool
	cause   error
}

func newBreaker(log *slog.Logger, base string, now func() time.Time) *breaker {
	return &breaker{log: log, base: base, now: now}
}

// OpenError says that calls are not made for now. The consumer waits.
type OpenError struct {
	Base    string
	Row     int // refusals in a row
	ProbeAt time.Time
	Cause   error // the last refusal
}

// Error says what has to be mended.
func (e *OpenError) Error() string {
	return fmt.Sprintf("%s refused %d calls in a row (%v): check its address and credential; next try at %s",
		e.Base, e.Row, e.Cause, e.ProbeAt.UTC().Format(time.RFC3339))
}

// Unwrap returns the last refusal.
func (e *OpenError) Unwrap() error { return e.Cause }

// Class names the error where it is shown.
func (e *OpenError) Class() string { return "http.breaker" }

// allow returns an *OpenError while the breaker is open. Once the pause is over
// it lets one caller through, who then has to report.
func (b *breaker) allow() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pause == 0 {
		return nil
	}
	if b.probing || b.now().Before(b.probeAt) {
		return &OpenError{Base: b.base, Row: b.row, ProbeAt: b.probeAt, Cause: b.cause}
	}
	b.probing = true
	return nil
}

// refused reports a 401, 403 or 404 and says whether the breaker is open now.
func (b *breaker) refused(cause error) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.row++
	b.cause = cause
	if b.row < breakerLimit {
		return false
	}
	if b.pause == 0 {
		b.log.Error("http effect: service refuses every call, pausing", "base", b.base, "refusals", b.row, "error", cause)
	}
	b.wait()
	return true
}

// unknown reports a call that says nothing about our access: no answer, or an
// answer of an overloaded service. An open breaker stays open.
func (b *breaker) unknown() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pause > 0 {
		b.wait()
	}
}

// wait opens the breaker, or keeps it open longer.
func (b *breaker) wait() {
	b.pause = min(max(2*b.pause, breakerFirst), breakerLongest)
	b.probeAt = b.now().Add(b.pause)
	b.probing = false
}

// accepted reports a call that was let in.
func (b *breaker) accepted() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pause > 0 {
		b.log.Info("http effect: service answers again", "base", b.base)
	}
	b.row, b.pause, b.probing, b.cause = 0, 0, false, nil
}
