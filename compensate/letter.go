package compensate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/tidwall/gjson"

	"oncemore/dlq"
	"oncemore/reconcile"
)

// Letters stands in applies_to for dead letters.
const Letters reconcile.Type = "letter"

// The most that is read of a letter's value for inputs.
const (
	mostPayload = 256 << 10
	mostDepth   = 6
)

// letter makes a letter the subject of an action.
func (c *Compensations) letter(ctx context.Context, def Definition, a *Action, id uuid.UUID) (s subject, err error) {
	if c.Letters == nil {
		return s, fmt.Errorf("%w: letters are not repaired here", ErrNotFor)
	}
	d, err := c.Letters.Get(ctx, id)
	if err != nil {
		return s, err
	}
	s, err = ofLetter(a, d.Letter)
	if err != nil {
		return s, err
	}
	if strings.Contains(def.Text, "payload.") {
		body, err := c.Letters.Body(ctx, id)
		if err != nil {
			return s, err
		}
		addPayload(s.inputs, def.Text, body.Value)
	}
	if err := s.price(a); err != nil {
		return s, err
	}
	return s, a.affords(s.amount)
}

func ofLetter(a *Action, l dlq.Letter) (s subject, err error) {
	s = subject{letterID: &l.ID, eventID: l.EventID, turn: 1, key: []string{}, group: a.Group}
	if l.Group != nil && s.group == "" {
		s.group = *l.Group
	}
	switch {
	case len(a.AppliesTo) > 0 && !slices.Contains(a.AppliesTo, Letters):
		return s, fmt.Errorf("%w: %s is not for letters", ErrNotFor, a.Name)
	case l.State != dlq.Open:
		return s, fmt.Errorf("%w: letter %s is %s", ErrNotFor, l.ID, l.State)
	case l.Group != nil && s.group != *l.Group:
		return s, fmt.Errorf("%w: %s repairs the effect of %s, and letter %s is of %s", ErrNotFor, a.Name, a.Group, l.ID, *l.Group)
	case a.Kind == ReplayEvent && l.EventID == nil:
		return s, fmt.Errorf("%w: letter %s names no event", ErrNotFor, l.ID)
	}
	s.inputs = Inputs{"letter": l.ID.String(), "cluster": l.Cluster, "source": l.Source}
	if l.Origin.Topic != nil {
		s.inputs["topic"] = *l.Origin.Topic
	}
	if s.eventID != nil {
		s.inputs["event_id"], s.inputs["key.event_id"] = *s.eventID, *s.eventID
	}
	if s.group != "" {
		s.inputs["consumer_group"] = s.group
	}
	s.state = []any{l.ID, l.State.String(), s.group}
	return s, nil
}

// addPayload adds the fields of a JSON value that the action's text names:
// payload.orderId. Numbers keep the digits that they were written with.
func addPayload(in Inputs, text string, value []byte) {
	if len(value) > mostPayload || !gjson.ValidBytes(value) {
		return
	}
	eachScalar("payload", gjson.ParseBytes(value), mostDepth, func(name, v string) {
		if strings.Contains(text, name) {
			in[name] = v
		}
	})
}

func eachScalar(path string, v gjson.Result, depth int, add func(path, value string)) {
	switch {
	case v.IsObject() && depth > 0:
		v.ForEach(func(key, child gjson.Result) bool {
			eachScalar(path+"."+key.String(), child, depth-1, add)
			return true
		})
	case v.Type == gjson.Number:
		add(path, v.Raw)
	case v.Type == gjson.String, v.IsBool():
		add(path, v.String())
	}
}

// price is what a letter is worth, by the action's amount and currency.
func (s *subject) price(a *Action) (err error) {
	if a.Amount == "" {
		return nil
	}
	text, err := render(a.Amount, s.inputs, plain)
	if err != nil {
		return fmt.Errorf("amount of %s on %s: %w", a.Name, *s, err)
	}
	if s.amount, err = reconcile.ParseAmount(text); err != nil {
		return fmt.Errorf("%w: amount of %s on %s: %w", ErrInput, a.Name, *s, err)
	}
	if s.currency, err = render(a.Currency, s.inputs, plain); err != nil {
		return fmt.Errorf("currency of %s on %s: %w", a.Name, *s, err)
	}
	return nil
}

// standing is what the evidence says of an event in a group.
type standing int

const (
	notApplied standing = iota
	applied             // by its consumer, or by another repair
	notKnown            // the evidence or the broker does not answer
)

// applied asks the evidence whether a letter's effect is there by now.
func (c *Compensations) applied(ctx context.Context, comp *Compensation) (standing, string, error) {
	if c.Judge == nil || comp.LetterID == nil || comp.Group == nil {
		return notApplied, "", nil
	}
	subjects, err := c.Judge.Subjects(ctx, []uuid.UUID{*comp.LetterID})
	if err != nil || len(subjects) == 0 {
		return notApplied, "", err
	}
	judged, err := c.Judge.Judge(ctx, subjects, dlq.ToOrigin)
	if err != nil {
		return notKnown, "", err
	}
	at := slices.IndexFunc(judged[0].Groups, func(g dlq.GroupVerdict) bool { return g.Group == *comp.Group })
	if at < 0 {
		return notApplied, "", nil
	}
	switch g := judged[0].Groups[at]; {
	case g.Recorded || g.Verdict == dlq.AlreadyApplied || g.Verdict == dlq.Compensated:
		return applied, g.Reason.Text, nil
	case g.Verdict == dlq.Unknown:
		return notKnown, g.Reason.Text, nil
	}
	return notApplied, "", nil
}

// errGone is returned for a subject that cannot be repaired any more.
var errGone = errors.New("compensate: what was to be repaired is no longer so")
