package main

import (
	"context"
	"log/slog"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"
)

// quiet drops what is below warn: River reports every count and schedule.
type quiet struct{ slog.Handler }

// Enabled is true from warn on.
func (q quiet) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && q.Handler.Enabled(ctx, level)
}

// WithAttrs keeps the handler quiet.
func (q quiet) WithAttrs(attrs []slog.Attr) slog.Handler { return quiet{q.Handler.WithAttrs(attrs)} }

// WithGroup keeps the handler quiet.
func (q quiet) WithGroup(name string) slog.Handler { return quiet{q.Handler.WithGroup(name)} }

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
