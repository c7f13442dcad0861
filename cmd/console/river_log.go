package main

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"
)

// riverLog passes warnings and errors on, each message at most every ten
// seconds: River reports every count, and while the database is away the same
// error several times a second.
func riverLog(log *slog.Logger, now func() time.Time) *slog.Logger {
	return slog.New(quiet{log.With("part", "river").Handler(), &saidAt{now: now, at: map[string]time.Time{}}})
}

const repeatAfter = 10 * time.Second

// saidAt remembers when a message was last passed on.
type saidAt struct {
	now func() time.Time
	mu  sync.Mutex
	at  map[string]time.Time
}

func (s *saidAt) again(message string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if now.Sub(s.at[message]) < repeatAfter {
		return false
	}
	s.at[message] = now // River has a few dozen messages in all
	return true
}

type quiet struct {
	slog.Handler
	said *saidAt
}

// Enabled is true from warn on.
func (q quiet) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && q.Handler.Enabled(ctx, level)
}

// Handle drops what was said a moment ago.
func (q quiet) Handle(ctx context.Context, r slog.Record) error {
	if !q.said.again(r.Message) {
		return nil
	}
	return q.Handler.Handle(ctx, r)
}

// WithAttrs keeps the handler quiet.
func (q quiet) WithAttrs(attrs []slog.Attr) slog.Handler {
	return quiet{q.Handler.WithAttrs(attrs), q.said}
}

// WithGroup keeps the handler quiet.
func (q quiet) WithGroup(name string) slog.Handler { return quiet{q.Handler.WithGroup(name), q.said} }

// jobErrors logs failed steps, once each. River repeats them.
type jobErrors struct{ log *slog.Logger }

// HandleError logs a step that returned an error.
func (j jobErrors) HandleError(ctx context.Context, job *rivertype.JobRow, err error) *river.ErrorHandlerResult {
	if ctx.Err() == nil { // a stopping process cancels its steps: they are taken up again
		j.log.WarnContext(ctx, "step failed and will be repeated", "job", job.Kind, "job_id", job.ID, "attempt", job.Attempt, "error", err)
	}
	return nil
}

// HandlePanic logs a step that panicked.
func (j jobErrors) HandlePanic(ctx context.Context, job *rivertype.JobRow, value any, trace string) *river.ErrorHandlerResult {
	j.log.ErrorContext(ctx, "step panicked and will be repeated", "job", job.Kind, "job_id", job.ID, "attempt", job.Attempt, "panic", value, "stack", trace)
	return nil
}
