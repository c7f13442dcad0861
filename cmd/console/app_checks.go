package main

import (
	"context"
	"sync"
	"time"

	"oncemore/internal/check"
)

// When the checks run. First a moment after the start, when what the other roles
// make, such as replay topics, is there; then sooner while something is wrong, so
// that what was mended is seen.
const (
	checkFirst = 15 * time.Second
	checkAgain = 5 * time.Minute
	checkEvery = time.Hour
)

// runChecks looks at all that the config names and keeps what it found for the
// API. Replicas do so side by side; the newest answers stay.
func (a *app) runChecks(ctx context.Context) error {
	store := check.NewStore(a.pool)
	for next := checkFirst; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(next):
		}
		findings := checkConfig(ctx, a.conf)
		if ctx.Err() != nil {
			return nil // cut off: what was not reached is not down
		}
		if err := store.Save(ctx, findings); err != nil && ctx.Err() == nil {
			a.log.ErrorContext(ctx, "checks not kept", "error", err)
		}
		if next = checkEvery; !check.AllPassed(findings) {
			next = checkAgain
		}
	}
}

// checking lets one run at a time look, whoever pressed the button.
var checking sync.Mutex

// checkNow looks at all that the config names while somebody waits for it.
func (a *app) checkNow(ctx context.Context) error {
	checking.Lock()
	defer checking.Unlock()
	findings := checkConfig(ctx, a.conf)
	if err := ctx.Err(); err != nil {
		return err // cut off: what was not reached is not down
	}
	return check.NewStore(a.pool).Save(ctx, findings)
}
