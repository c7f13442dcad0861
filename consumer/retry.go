package consumer

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// RetryPolicy says how often and how far apart a failed delivery is tried again.
// The partition waits meanwhile, so its order is kept. The count starts anew when
// the partition moves to another member. The zero value is the default: 3 retries after 1 s, 2 s, 4 s, with a fifth of jitter.
type RetryPolicy struct {
	Attempts   int           // retries after the first delivery; 0 is 3, negative is none
	Initial    time.Duration // pause before the first retry; 0 is 1 s
	Multiplier float64       // growth of the pause; 0 is 2
	Max        time.Duration // longest pause; 0 is 10 s
	Jitter     float64       // share of the pause that is random, 0 to 1; 0 is 0.2, negative is none

	// Only and Exclude choose by ErrorClass what is retried at all: the rest is a
	// dead letter at once, as if Permanent. An empty Only is all; Exclude wins.
	Only, Exclude []string
	// Retryable chooses by the error itself, besides; nil is all.
	Retryable func(error) bool
}

// retries reports whether another attempt may help against err.
func (p RetryPolicy) retries(err error) bool {
	class := ErrorClass(err)
	return (len(p.Only) == 0 || slices.Contains(p.Only, class)) && !slices.Contains(p.Exclude, class) &&
		(p.Retryable == nil || p.Retryable(err))
}

// maxAttempts is far beyond what helps; whoever means "for ever" wants Unavailable.
const maxAttempts = 10_000

// Validate says what makes the policy senseless, if anything.
func (p RetryPolicy) Validate() error {
	switch {
	case p.Initial < 0 || p.Max < 0:
		return errors.New("retry: initial and max must not be negative")
	case p.Multiplier != 0 && (p.Multiplier < 1 || math.IsNaN(p.Multiplier) || math.IsInf(p.Multiplier, 0)):
		return errors.New("retry: multiplier must be at least 1")
	case p.Jitter > 1 || math.IsNaN(p.Jitter):
		return errors.New("retry: jitter must be at most 1")
	case p.Attempts > maxAttempts:
		return fmt.Errorf("retry: at most %d attempts", maxAttempts)
	}
	return nil
}

func (p RetryPolicy) withDefaults() RetryPolicy {
	if p.Attempts == 0 {
		p.Attempts = 3
	}
	p.Attempts = max(p.Attempts, 0)
	if p.Initial == 0 {
		p.Initial = time.Second
	}
	if p.Multiplier == 0 {
		p.Multiplier = 2
	}
	if p.Max == 0 {
		p.Max = 10 * time.Second
	}
	if p.Jitter == 0 {
		p.Jitter = 0.2
	}
	p.Jitter = max(p.Jitter, 0)
	return p
}

// Pauses are the waits before each retry without their jitter, shortest first.
func (p RetryPolicy) Pauses() []time.Duration {
	p = p.withDefaults()
	p.Jitter = 0
	pauses := make([]time.Duration, p.Attempts)
	for i := range pauses {
		pauses[i] = p.pause(i + 1)
	}
	return pauses
}

// pause is the wait before retry n, counted from 1. The jitter only shortens,
// so that Max holds.
func (p RetryPolicy) pause(n int) time.Duration {
	d := float64(p.Initial) * math.Pow(p.Multiplier, float64(n-1))
	d = min(d, float64(p.Max))
	return time.Duration(d * (1 - p.Jitter*rand.Float64()))
}
