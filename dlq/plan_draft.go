package dlq

import (
	"encoding/json"
	"slices"

	"github.com/google/uuid"
)

// draftLetter is a judged letter of a plan in the making, as replay_draft keeps
// it: what planSet.add needs, and no more.
type draftLetter struct {
	EventID   *string      `json:"e,omitempty"`
	Group     string       `json:"g,omitempty"`
	Partition *int32       `json:"p,omitempty"`
	Offset    *int64       `json:"o,omitempty"`
	State     State        `json:"s"`
	Key       int64        `json:"k,omitempty"`
	Revision  int          `json:"r,omitempty"`
	Revisions int          `json:"n,omitempty"`
	Replays   int          `json:"c,omitempty"`
	Route     *Route       `json:"t,omitempty"`
	NoRoute   *draftReason `json:"w,omitempty"`
	Headline  Verdict      `json:"v"`
	Groups    []draftGroup `json:"u,omitempty"`
}

type draftGroup struct {
	Group   string       `json:"g,omitempty"`
	Verdict Verdict      `json:"v"`
	Reason  *draftReason `json:"w,omitempty"`
}

// draftReason is a reason whose values keep their types.
type draftReason struct {
	Text string          `json:"t"`
	Key  string          `json:"k"`
	Args json.RawMessage `json:"a"`
}

func draftOf(l judgedLetter) draftLetter {
	s := l.subject
	d := draftLetter{
		EventID: s.EventID, Group: s.Group, Partition: s.OriginPartition, Offset: s.OriginOffset, State: l.state, Key: s.KeyHash,
		Revision: s.Revision, Revisions: s.Revisions, Replays: s.Replays, Route: l.judged.Route, NoRoute: draftReasonOf(l.judged.NoRoute),
		Headline: l.judged.Headline,
	}
	for _, g := range l.judged.Groups {
		if !g.Reached {
			continue
		}
		kept := draftGroup{Group: g.Group, Verdict: g.Verdict}
		if !g.Verdict.MaySend() {
			kept.Reason = draftReasonOf(g.Reason)
		}
		d.Groups = append(d.Groups, kept)
	}
	return d
}

func draftReasonOf(r Reason) *draftReason {
	if r.Key == "" {
		return nil
	}
	stored := storeReason(r)
	return &draftReason{Text: stored.Text, Key: stored.Key, Args: stored.Args}
}

func (r *draftReason) reason() Reason {
	if r == nil {
		return Reason{}
	}
	return loadReason(&r.Text, &r.Key, r.Args)
}

// letter is the reverse of draftOf, as far as planSet.add looks.
func (d draftLetter) letter(id uuid.UUID) judgedLetter {
	l := judgedLetter{state: d.State, subject: Subject{
		LetterID: id, EventID: d.EventID, Group: d.Group, OriginPartition: d.Partition, OriginOffset: d.Offset, KeyHash: d.Key,
		Revision: d.Revision, Revisions: d.Revisions, Replays: d.Replays,
	}}
	l.judged = Judged{LetterID: id, Route: d.Route, NoRoute: d.NoRoute.reason(), Headline: d.Headline, own: d.Group}
	for _, g := range d.Groups {
		l.judged.Groups = append(l.judged.Groups, GroupVerdict{Group: g.Group, Verdict: g.Verdict, Reason: g.Reason.reason(), Reached: true})
	}
	return l
}

// namedAfter are the named letters beyond one, in order and each once.
func namedAfter(ids []uuid.UUID, after uuid.UUID) []uuid.UUID {
	ids = sortedIDs(slices.Clone(ids))
	i, _ := slices.BinarySearchFunc(ids, after, func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) })
	for i < len(ids) && ids[i] == after {
		i++
	}
	return ids[i:]
}
