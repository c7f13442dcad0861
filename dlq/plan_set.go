package dlq

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/google/uuid"
)

// planSet is a selection on its way to a plan: letters of one event and one
// target are one item.
type planSet struct {
	target     Target
	cap        int // replays after which a letter is parked; 0: none
	overrides  map[overrideKey]Override
	unused     map[overrideKey]bool // overrides whose letter and group were not met yet
	letters    int
	byKey      map[planKey]*planItem
	order      []*planItem // in the order met
	items      []*planItem // what will be sent, in that order
	refused    []Refusal
	verdicts   map[Verdict]int
	overridden []Override
	sensitive  bool                // a revision that is sent changed a sensitive header
	elders     map[int][]uuid.UUID // by index into items: open letters of the same key that came before and stay
	bounded    bool                // not every letter was looked at for elders
}

type overrideKey struct {
	letter uuid.UUID
	group  string
}

// planKey makes letters one item.
type planKey struct {
	event string // item key
	route Route
}

// planItem is one event for one target.
type planItem struct {
	planKey
	letters []planLetter // by id
	groups  []planGroup  // those that the target reaches
	noRoute Reason       // set where the target does not exist
	verdict Verdict      // headline
	revised *planLetter  // whose edited form is sent; nil: none
	two     bool         // letters with different edited forms: it cannot go
}

type planLetter struct {
	id        uuid.UUID
	eventID   *string
	group     string
	state     State // Open or Resolved
	partition int32 // -1: not known
	offset    int64
	key       int64 // hash of the message key; 0: none
	revision  int   // that is sent; 0: as it arrived
	newest    int   // revision that there is
}

// planGroup is the worst verdict that the item's letters have in a group.
type planGroup struct {
	name    string
	verdict Verdict
	reason  Reason // kept only for verdicts that keep an item back
}

func newPlanSet(req PlanRequest) *planSet {
	s := &planSet{
		target: req.Target, byKey: map[planKey]*planItem{}, verdicts: map[Verdict]int{},
		overrides: map[overrideKey]Override{}, unused: map[overrideKey]bool{},
	}
	for _, o := range req.Overrides {
		k := overrideKey{o.LetterID, o.Group}
		s.overrides[k], s.unused[k] = o, true
	}
	return s
}

// claimKey is what event_claim and replay_item know an event by.
func claimKey(s Subject) string {
	if s.EventID != nil {
		return *s.EventID
	}
	return "\x01" + s.LetterID.String()
}

// add takes one judged letter in its present state.
func (s *planSet) add(sub Subject, j Judged, state State) {
	s.letters++
	if why, ok := s.stays(sub, state); ok {
		s.keepBack(sub, j, state, why)
		return
	}
	key := planKey{event: claimKey(sub)}
	if j.Route != nil {
		key.route = *j.Route
	}
	it := s.byKey[key]
	if it == nil {
		it = &planItem{planKey: key, noRoute: j.NoRoute}
		s.byKey[key] = it
		s.order = append(s.order, it)
	}
	it.take(letterOf(sub, state))
	if j.Route != nil {
		it.merge(j.Groups)
	}
	it.verdict = worst(it.verdict, j.Headline)
}

// stays says why a letter in this state, or one that was replayed too often, is
// not sent at all.
func (s *planSet) stays(sub Subject, state State) (Reason, bool) {
	switch {
	case state == Replaying:
		return replayReason("reason.letter.replaying"), true
	case state == Discarded:
		return replayReason("reason.letter.discarded"), true
	case s.cap > 0 && sub.Replays >= s.cap:
		return replayReason("reason.letter.parked", "n", sub.Replays, "cap", s.cap), true
	}
	return Reason{}, false
}

func (s *planSet) keepBack(sub Subject, j Judged, state State, why Reason) {
	verdict := j.Headline
	if state == Replaying {
		verdict = InFlight
	}
	s.verdicts[verdict]++
	s.refused = append(s.refused, Refusal{LetterID: sub.LetterID, EventID: sub.EventID, Group: sub.Group, Verdict: verdict, Reason: why})
	for k := range s.unused {
		if k.letter == sub.LetterID {
			delete(s.unused, k)
		}
	}
}

func letterOf(sub Subject, state State) planLetter {
	l := planLetter{id: sub.LetterID, eventID: sub.EventID, group: sub.Group, state: state, partition: -1, offset: -1,
		key: sub.KeyHash, revision: sub.Revision, newest: sub.Revisions}
	if sub.OriginPartition != nil {
		l.partition = *sub.OriginPartition
	}
	if sub.OriginOffset != nil {
		l.offset = *sub.OriginOffset
	}
	return l
}

// take adds a letter. The edited form of one is sent for all; two edited forms of
// one event are one too many.
func (it *planItem) take(l planLetter) {
	it.letters = append(it.letters, l)
	if l.revision == 0 {
		return
	}
	it.two = it.two || it.revised != nil
	it.revised = &l
}

// chief is the letter whose bytes are sent.
func (it *planItem) chief() planLetter {
	if it.revised != nil {
		return *it.revised
	}
	return it.letters[0]
}

// newest is the latest revision of any of the item's letters.
func (it *planItem) newest() (no int) {
	for _, l := range it.letters {
		no = max(no, l.newest)
	}
	return no
}

// worst of two verdicts; zero is none.
func worst(a, b Verdict) Verdict {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// merge keeps the worst verdict of each reached group.
func (it *planItem) merge(groups []GroupVerdict) {
	for _, g := range groups {
		if !g.Reached {
			continue
		}
		i := slices.IndexFunc(it.groups, func(p planGroup) bool { return p.name == g.Group })
		if i < 0 {
			i = len(it.groups)
			it.groups = append(it.groups, planGroup{name: g.Group})
		}
		if p := &it.groups[i]; worst(p.verdict, g.Verdict) != p.verdict {
			p.verdict, p.reason = g.Verdict, Reason{}
			if !g.Verdict.MaySend() {
				p.reason = g.Reason
			}
		}
	}
}

// finish decides which items go and numbers them. Errors: *ErrBadOverride.
func (s *planSet) finish() error {
	s.foldIntoOrigin()
	for _, it := range s.order {
		if it.two {
			it.verdict = worst(it.verdict, Altered)
		}
		s.verdicts[it.verdict]++
		slices.SortFunc(it.letters, func(a, b planLetter) int { return bytes.Compare(a.id[:], b.id[:]) })
		if used, ok := s.mayGo(it); ok {
			s.items = append(s.items, it)
			s.overridden = append(s.overridden, used...)
		} else {
			s.refuse(it)
		}
	}
	for k := range s.unused {
		return &ErrBadOverride{Override: s.overrides[k], Why: "the selection does not reach that group with that letter"}
	}
	slices.SortStableFunc(s.items, sendingOrder)
	return nil
}

// sendingOrder is that of the origin: a key's events keep their order.
func sendingOrder(a, b *planItem) int {
	x, y := a.letters[0], b.letters[0]
	return cmp.Or(
		cmp.Compare(a.route.Cluster, b.route.Cluster), cmp.Compare(a.route.Topic, b.route.Topic),
		cmp.Compare(x.partition, y.partition), cmp.Compare(x.offset, y.offset), bytes.Compare(x.id[:], y.id[:]),
	)
}

// mayGo reports whether every reached group allows the item, and which
// overrides that took.
func (s *planSet) mayGo(it *planItem) (used []Override, ok bool) {
	ok = len(it.groups) > 0 && !it.two
	for _, g := range it.groups {
		o, overridden := s.override(it, g)
		switch {
		case g.verdict.MaySend():
		case overridden:
			used = append(used, o)
		default:
			ok = false
		}
	}
	return used, ok
}

// override finds one for the verdict that the group has: the person who gave it
// must have seen this verdict.
func (s *planSet) override(it *planItem, g planGroup) (found Override, ok bool) {
	for _, l := range it.letters {
		k := overrideKey{l.id, g.name}
		delete(s.unused, k)
		if o, there := s.overrides[k]; there && o.Verdict == g.verdict && g.reason.MayOverride(g.verdict) {
			found, ok = o, true
		}
	}
	return found, ok
}

func (s *planSet) refuse(it *planItem) {
	for _, l := range it.letters {
		if it.two {
			s.refused = append(s.refused, Refusal{LetterID: l.id, EventID: l.eventID, Group: l.group, Verdict: Altered, Reason: replayReason("reason.revision.two")})
			continue
		}
		if len(it.groups) == 0 {
			s.refused = append(s.refused, Refusal{LetterID: l.id, EventID: l.eventID, Group: l.group, Verdict: it.verdict, Reason: it.noRoute})
			delete(s.unused, overrideKey{l.id, l.group})
		}
		for _, g := range it.groups {
			if !g.verdict.MaySend() {
				s.refused = append(s.refused, Refusal{LetterID: l.id, EventID: l.eventID, Group: g.name, Verdict: g.verdict, Reason: g.reason})
			}
		}
	}
}

// foldIntoOrigin: where the narrowest target of one letter is the origin, which
// may go, the event reaches every group through it, and must not be sent once
// more to a group alone.
func (s *planSet) foldIntoOrigin() {
	if s.target != ToSafe {
		return
	}
	origins := map[string]*planItem{}
	for _, it := range s.order {
		if _, ok := s.mayGo(it); ok && it.route.Group == "" {
			origins[it.event] = it
		}
	}
	s.order = slices.DeleteFunc(s.order, func(it *planItem) bool {
		into := origins[it.event]
		if into == nil || !into.covers(it) {
			return false
		}
		for _, l := range it.letters {
			into.take(l)
		}
		return true
	})
}

func (it *planItem) covers(other *planItem) bool {
	return it.revised == nil && other.revised == nil && other.route.Group != "" && it.route.Cluster == other.route.Cluster &&
		slices.ContainsFunc(it.groups, func(g planGroup) bool { return g.name == other.route.Group })
}

// digest names the frozen set: SHA-256 of its items and their letters in order.
func (s *planSet) digest() []byte {
	h := sha256.New()
	write := func(b []byte) {
		h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(b))))
		h.Write(b)
	}
	for _, it := range s.items {
		for _, part := range []string{it.event, it.route.Cluster, it.route.Topic, it.route.Group} {
			write([]byte(part))
		}
		if it.route.Exchange != "" {
			write([]byte(it.route.Exchange))
		}
		h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(it.letters))))
		for _, l := range it.letters {
			h.Write(l.id[:])
		}
		h.Write(binary.BigEndian.AppendUint32(nil, uint32(it.chief().revision)))
	}
	return h.Sum(nil)
}

func (s *planSet) summary() Plan {
	return Plan{
		Letters: s.letters, Total: len(s.items), Verdicts: s.verdicts,
		Refused: s.refused[:min(len(s.refused), RefusalsShown)], RefusedN: len(s.refused),
	}
}

// refusedLetters counts letters, not letters times groups.
func (s *planSet) refusedLetters() int {
	seen := map[uuid.UUID]bool{}
	for _, r := range s.refused {
		seen[r.LetterID] = true
	}
	return len(seen)
}
