package consumer

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/trace"
)

// Config is what a consumer needs apart from its broker.
type Config[T any] struct {
	Group    string
	Strategy Strategy // "" is ByRecord
	Store    Store[T]
	Handler  Handler[T]
	// BatchHandler takes the place of Handler: exactly one of the two is set.
	BatchHandler BatchHandler[T]
	EventID      EventIDSource
	Retry        RetryPolicy
	Filter       Filter // nil: the store is asked about every event

	// Keys names what an event's transaction locks, such as "user/7"; required by
	// the strategy ByLock and open to the others. The keys of a batch are locked
	// together, sorted, before any handler runs, so that batches which write the
	// same rows wait for each other instead of deadlocking: with rows that several
	// partitions share this is many times faster. An error is the event's.
	Keys func(Event) ([]string, error)

	// BatchSize is the most deliveries in one transaction; 0 is 100. Handlers
	// with effects outside the database (http) use 1.
	BatchSize int
	// BatchWait is how long a batch waits to fill up; 0 is 5 ms, negative not at all.
	BatchWait time.Duration
	// Outage is how long to wait before asking an unavailable store or broker
	// again: it doubles from 1/32 of this up to this. 0 is 15 s.
	Outage time.Duration

	Logger *slog.Logger         // nil: slog.Default()
	Traces trace.TracerProvider // nil: otel.GetTracerProvider()

	Now   func() time.Time                     // nil: time.Now
	After func(time.Duration) <-chan time.Time // pauses of the worker; nil: time.After. For tests (consumertest.Clock)
}

// maxGroup is the widest group name that brokers and our table agree on.
const maxGroup = 249

// Complete checks the config and fills in the defaults. Broker adapters call it.
func (c Config[T]) Complete() (Config[T], error) {
	if err := c.validate(); err != nil {
		return c, err
	}
	c, err := c.useStrategy()
	if err != nil {
		return c, err
	}
	c.Retry = c.Retry.withDefaults()
	if c.BatchSize == 0 {
		c.BatchSize = 100
	}
	if c.BatchWait == 0 {
		c.BatchWait = 5 * time.Millisecond
	}
	if c.Outage == 0 {
		c.Outage = 15 * time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.After == nil {
		c.After = time.After
	}
	return c, nil
}

func (c Config[T]) validate() error {
	switch {
	case c.Group == "":
		return errors.New("consumer: a group is required")
	case len(c.Group) > maxGroup:
		return fmt.Errorf("consumer: group name is longer than %d bytes", maxGroup)
	case c.Store == nil:
		return fmt.Errorf("consumer %s: a store is required", c.Group)
	case (c.Handler == nil) == (c.BatchHandler == nil):
		return fmt.Errorf("consumer %s: a handler is required, Handler or BatchHandler", c.Group)
	case c.BatchSize < 0:
		return fmt.Errorf("consumer %s: batch size must not be negative", c.Group)
	case c.Outage < 0:
		return fmt.Errorf("consumer %s: outage wait must not be negative", c.Group)
	}
	return errors.Join(ValidateEventIDSource(c.EventID), c.Retry.Validate())
}
