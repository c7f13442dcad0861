package dlq

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// longestDelay is how far off a step asks for its successor at most, so that a
// clock that is set right does not leave a replay asleep.
const longestDelay = 5 * time.Minute

// sendPaced sends the next chunk if nothing holds it: hours, rate, ladder and
// stop rule.
func (s *step) sendPaced(ctx context.Context, st standing) (progress, error) {
	if s.flying != nil && (!s.overlaps() || st.nextNo > st.pace.rungEnd(st.rung, st.total)) {
		return progress{moved: true}, s.land(ctx) // what came of it may change what comes next
	}
	if held, p, err := s.held(ctx, st); held || err != nil {
		s.dropAhead()
		return p, errors.Join(err, s.land(ctx))
	}
	began := s.r.opts.Clock()
	sent, err := s.sendChunk(ctx)
	switch {
	case err != nil:
		return progress{}, err
	case sent:
		s.paced(began, s.taken)
		return progress{moved: true}, s.noteWait(ctx, Reason{})
	case !s.silence.IsZero():
		return progress{}, s.noteWait(ctx, s.unheard)
	}
	return progress{}, nil
}

// held reports whether sending has to wait, or has stopped, and until when.
func (s *step) held(ctx context.Context, st standing) (bool, progress, error) {
	now := s.r.opts.Clock()
	if w := st.pace.Window; !w.Open(now) {
		opens := w.Opens(now)
		why := replayReason("reason.wait.window", "window", w.String(), "at", instant(opens))
		return true, progress{due: opens}, s.noteWait(ctx, why)
	}
	if held, p, err := s.onLadder(ctx, st); held || err != nil {
		return held, p, err
	}
	return now.Before(s.sendAt), progress{due: s.sendAt}, nil
}

// paced says when the next chunk may leave after n items at a rate.
func (s *step) paced(began time.Time, n int) {
	if rate := s.now.pace.Rate; rate > 0 {
		if s.sendAt.Before(began) {
			s.sendAt = began
		}
		s.sendAt = s.sendAt.Add(time.Duration(n) * time.Second / time.Duration(rate))
	}
}

// chunkSize is how many items one chunk may hold: no more than leave in a second.
func (s *step) chunkSize() int {
	if rate := s.now.pace.Rate; rate > 0 {
		return min(s.r.opts.ChunkSize, rate)
	}
	return s.r.opts.ChunkSize
}

// lastItem is the number up to which may be sent now.
func (s *step) lastItem() int { return s.now.pace.rungEnd(s.now.rung, s.now.total) }

// until is the time to a moment by the engine's clock, at most longest; longest
// for none.
func (s *step) until(due time.Time, longest time.Duration) time.Duration {
	if due.IsZero() {
		return longest
	}
	return max(0, min(due.Sub(s.r.opts.Clock()), longest))
}

func zeroNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// settleOpen searches for what an earlier chunk left open, and says so while it
// has to wait for that.
func (s *step) settleOpen(ctx context.Context) (bool, error) {
	moved, err := s.recover(ctx)
	if err != nil || moved {
		return moved, err
	}
	why := replayReason("reason.wait.unanswered", "seconds", int64(s.r.opts.recoverWindow().Seconds()))
	return false, s.noteWait(ctx, why)
}

const sqlNoteWait = `
UPDATE replay SET wait_key = @key, wait_text = @text, wait_args = @args, wait_since = CASE WHEN @key::text IS NOT NULL THEN now() END
WHERE id = @id`

// noteWait keeps why nothing is sent now, for the page; a zero reason clears it.
func (s *step) noteWait(ctx context.Context, why Reason) error {
	if why.Key == s.now.waitKey && why.Text == s.now.waitText {
		return nil
	}
	err := s.fenced(ctx, func(tx pgx.Tx, _ ReplayState) error {
		_, err := tx.Exec(ctx, sqlNoteWait, waitArgs(s.id, why))
		return err
	})
	if err != nil {
		return fmt.Errorf("note why replay %d waits: %w", s.id, err)
	}
	s.now.waitKey, s.now.waitText = why.Key, why.Text
	return nil
}

func waitArgs(id int64, why Reason) pgx.NamedArgs {
	args := pgx.NamedArgs{"id": id, "key": nil, "text": nil, "args": nil}
	if why.Key != "" {
		stored := storeReason(why)
		args["key"], args["text"], args["args"] = stored.Key, stored.Text, stored.Args
	}
	return args
}
