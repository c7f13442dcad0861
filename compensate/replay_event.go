package compensate

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

const sqlSetReplay = `UPDATE compensation SET replay_id = @replay WHERE id = @id`

// replayOnce starts the safe replay of the event; its own claim keeps others out.
func (s *step) replayOnce(ctx context.Context) answer {
	if s.comp.ReplayID == nil {
		reason := fmt.Sprintf("compensation C-%d: %s", s.id, s.comp.Reason)
		replay, err := s.c.Replays.Start(ctx, ReplayRequest{
			EventID: *s.comp.EventID, Group: *s.comp.Group, LetterID: s.comp.LetterID, Key: fmt.Sprintf("C-%d", s.id), Reason: reason,
		})
		if err != nil {
			return answer{Error: err.Error(), outcome: refused}
		}
		s.comp.ReplayID = &replay
		err = s.fenced(ctx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, sqlSetReplay, pgx.NamedArgs{"id": s.id, "replay": replay})
			return err
		})
		if err != nil {
			return answer{Error: err.Error(), outcome: unknown}
		}
	}
	return s.replayOutcome(ctx)
}

// replayOutcome asks what became of the replay.
func (s *step) replayOutcome(ctx context.Context) answer {
	if s.comp.ReplayID == nil {
		return answer{outcome: retry}
	}
	what, settled, err := s.c.Replays.Outcome(ctx, *s.comp.ReplayID, *s.comp.Group)
	switch {
	case err != nil:
		return answer{Error: err.Error(), outcome: unknown}
	case !settled:
		return answer{Error: "the replay is under way", outcome: retry}
	case what == "applied" || what == "duplicate" || what == "duplicate_expected":
		return answer{Body: what, outcome: done}
	}
	return answer{Error: "the replay came out as " + what, outcome: refused}
}
