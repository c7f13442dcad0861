package compensate

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"oncemore/dlq"
	"oncemore/internal/access"
)

// SafeReplays is Replaying by the console's own safe replay of dead letters.
type SafeReplays struct {
	Letters *dlq.Letters
	Replays *dlq.Replays
}

// Start plans and starts the safe replay of the event's letter. Asked again with
// the same key it gives the replay that it made.
func (s SafeReplays) Start(ctx context.Context, r ReplayRequest) (int64, error) {
	letter, err := s.letter(ctx, r)
	if err != nil {
		return 0, err
	}
	actor := access.System()
	actor.Reason = r.Reason
	plan, err := s.Replays.Plan(ctx, actor, dlq.PlanRequest{Selection: dlq.Selection{LetterIDs: []uuid.UUID{letter}}, Target: dlq.ToSafe, RequestKey: r.Key})
	switch {
	case err != nil:
		return 0, err
	case plan.Total == 0 && len(plan.Refused) > 0 && (plan.Refused[0].Verdict == dlq.InFlight || plan.Refused[0].Verdict == dlq.Unknown):
		return 0, fmt.Errorf("not now: %s", plan.Refused[0].Reason.Text)
	case plan.Total == 0 && len(plan.Refused) > 0:
		return 0, fmt.Errorf("%w: %s", ErrNotReplayed, plan.Refused[0].Reason.Text)
	case plan.Total == 0:
		return 0, fmt.Errorf("%w: letter %s is not replayed safely now", ErrNotReplayed, letter)
	}
	return plan.ID, nil
}

// letter finds what a replay of the event sends: a letter of the group, the open
// one first.
func (s SafeReplays) letter(ctx context.Context, r ReplayRequest) (uuid.UUID, error) {
	if r.LetterID != nil {
		return *r.LetterID, nil
	}
	for _, state := range []dlq.State{dlq.Open, 0} {
		page, err := s.Letters.List(ctx, dlq.LetterFilter{State: state, EventID: r.EventID, Group: r.Group}, dlq.Page{Limit: 1})
		if err != nil {
			return uuid.Nil, err
		}
		if len(page.Items) > 0 {
			return page.Items[0].ID, nil
		}
	}
	return uuid.Nil, fmt.Errorf("%w: no dead letter holds event %s of %s, so there is nothing to send again", ErrNotReplayed, r.EventID, r.Group)
}

// Outcome says what the replay did in the group.
func (s SafeReplays) Outcome(ctx context.Context, replay int64, group string) (outcome string, settled bool, err error) {
	page, err := s.Replays.Items(ctx, replay, dlq.ItemFilter{}, dlq.Page{Limit: 1})
	if err != nil {
		return "", false, err
	}
	if len(page.Items) == 0 {
		return "nothing was sent", true, nil
	}
	item := page.Items[0]
	for _, g := range item.Groups {
		if g.Group == group && g.Outcome > dlq.Pending {
			return g.Outcome.String(), true, nil
		}
	}
	switch item.State {
	case "left_out", "not_sent":
		return item.State + ": " + item.Reason.Text, true, nil
	}
	r, err := s.Replays.Get(ctx, replay)
	if err != nil {
		return "", false, err
	}
	return "not seen in " + group, r.State == dlq.Done || r.State == dlq.Canceled, nil
}
