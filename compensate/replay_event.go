package compensate

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

const sqlSetReplay = `UPDATE compensation SET replay_id = @replay WHERE id = @id`

// replay starts the safe replay of the event for a try, unless that was done
// before, and asks what became of it. The replay's own claim keeps others out.
func (s *step) replay(ctx context.Context, try int) answer {
	if s.comp.ReplayID == nil {
		replay, err := s.c.Replays.Start(ctx, ReplayRequest{
			EventID: *s.comp.EventID, Group: *s.comp.Group, LetterID: s.comp.LetterID,
			Key: fmt.Sprintf("C-%d/%d", s.id, try), Reason: fmt.Sprintf("compensation C-%d: %s", s.id, s.comp.Reason),
		})
		if err != nil {
			return notStarted(err)
		}
		if err := s.keepReplay(ctx, replay); err != nil {
			return answer{Error: err.Error(), outcome: unknown}
		}
	}
	return s.replayOutcome(ctx)
}

func (s *step) keepReplay(ctx context.Context, replay int64) error {
	err := s.fenced(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, sqlSetReplay, pgx.NamedArgs{"id": s.id, "replay": replay}); err != nil {
			return fmt.Errorf("keep replay %d of compensation %d: %w", replay, s.id, err)
		}
		return tell(ctx, tx, s.id, "system", "replayed", "", map[string]any{"replay": replay})
	})
	if err == nil {
		s.comp.ReplayID = &replay
	}
	return err
}

// notStarted tells a replay that is refused from one that cannot be asked for now.
func notStarted(err error) answer {
	if errors.Is(err, ErrNotReplayed) {
		return answer{Error: err.Error(), outcome: refused}
	}
	return answer{Error: err.Error(), outcome: retry}
}

// replayOutcome asks what became of the replay.
func (s *step) replayOutcome(ctx context.Context) answer {
	what, settled, err := s.c.Replays.Outcome(ctx, *s.comp.ReplayID, *s.comp.Group)
	switch {
	case err != nil:
		return answer{Error: err.Error(), outcome: unknown}
	case !settled:
		return answer{Error: fmt.Sprintf("replay R-%d is under way", *s.comp.ReplayID), outcome: waiting}
	case what == "applied" || what == "duplicate" || what == "duplicate_expected":
		return answer{Body: what, outcome: done}
	}
	return answer{Error: "the replay came out as " + what, outcome: refused}
}
