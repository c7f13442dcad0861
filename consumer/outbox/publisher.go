package outbox

import "context"

// Publisher sends to a broker. NewKafka and NewRabbit make one; it is safe for
// several relays.
type Publisher interface {
	// Publish sends one row and calls done exactly once: with nil when the broker
	// has confirmed it, with an error marked consumer.Unavailable when that is not
	// known or nothing can be sent now, and with any other error when the broker
	// refuses this row, which counts as an attempt. It may call done before it
	// returns. When ctx ends, what was not sent yet need not be.
	Publish(ctx context.Context, r Row, done func(error))
	// Close waits for nothing.
	Close()
}
