package dlq

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// flight is a chunk whose messages are on their way to the brokers. Meanwhile the
// next chunk is claimed; it leaves when every message of this one is confirmed.
type flight struct {
	c    *chunk
	done chan struct{} // closed when the brokers have answered, or the chunk's time is over
	took time.Duration // until then
}

// overlaps reports whether a chunk may be claimed while the one before it is on
// its way. A broker that is slow would let its judgement grow old.
func (s *step) overlaps() bool {
	return s.now.pace.Rate == 0 && s.flew < judgedAhead/2
}

// whileFlying ends when the chunk that is on its way has its answers at the latest:
// what came of it is to be recorded then, whatever else does not answer.
func (s *step) whileFlying(ctx context.Context) (context.Context, context.CancelFunc) {
	if s.flying == nil {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, s.flying.c.until)
}

// fly sends a chunk that is claimed, and records the one before it. Unless all of
// that one is confirmed, and soon enough, the chunk's intent is taken back:
// whatever happened may change what is sent next, and in which order.
func (s *step) fly(ctx context.Context, c *chunk) error {
	before := s.arrived()
	if before != nil && (!before.confirmed() || time.Since(c.judged) > judgedAhead) {
		s.dropAhead()
		return errors.Join(s.recordChunk(ctx, before), s.retract(ctx, c))
	}
	s.flying = &flight{c: c, done: make(chan struct{})}
	go s.flying.run(ctx, s)
	if before == nil {
		return nil
	}
	return s.recordChunk(ctx, before)
}

func (f *flight) run(ctx context.Context, s *step) {
	defer close(f.done)
	began := time.Now()
	s.publish(ctx, f.c)
	f.took = time.Since(began)
}

// land waits for the chunk that is on its way, if there is one, and records it.
func (s *step) land(ctx context.Context) error {
	if c := s.arrived(); c != nil {
		return s.recordChunk(context.WithoutCancel(ctx), c)
	}
	return nil
}

// arrived waits for the chunk that is on its way; nil: there is none.
func (s *step) arrived() *chunk {
	f := s.flying
	if f == nil {
		return nil
	}
	<-f.done
	s.flying, s.flew = nil, f.took
	s.r.reached(momentPublished)
	return f.c
}

// confirmed reports whether the brokers took every message.
func (c *chunk) confirmed() bool {
	for _, it := range c.going() {
		if it.result.err != nil {
			return false
		}
	}
	return true
}

// retract takes a chunk's intent back, none of which has left. What was left out
// stays so.
func (s *step) retract(ctx context.Context, c *chunk) error {
	going := c.going()
	if len(going) == 0 {
		return nil
	}
	err := s.fenced(ctx, func(tx pgx.Tx, _ ReplayState) error {
		if err := s.waitAgain(ctx, tx, going, 0); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, sqlChunkState, pgx.NamedArgs{"id": s.id, "from": c.items[0].no, "state": 1})
		return err
	})
	if err != nil {
		return fmt.Errorf("take an intent back: %w", err)
	}
	return nil
}
