package dlq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// sendItem is an item on its way: waiting, judged, claimed, sent.
type sendItem struct {
	no         int
	targetID   int32
	key        string
	letter     uuid.UUID // whose bytes are sent
	revision   int       // of letter; 0: as it arrived
	newest     int       // revision of any of its letters, at plan
	tries      int
	letters    []uuid.UUID // all, by id
	fromStates []State     // of letters, at plan

	subjects []Subject   // of letters
	groups   []planGroup // reached, as judged just now
	astray   Reason      // set: as judged just now, it has no route or another one
	leftOut  Reason      // set: it is not sent
	message  *message    // what will be sent
	result   *sendResult // what came of it
}

func (it *sendItem) leave(why Reason) {
	if it.leftOut.Key == "" {
		it.leftOut = why
	}
}

func (it *sendItem) goes() bool { return it.leftOut.Key == "" }

// sendTarget is a row of replay_target.
type sendTarget struct {
	ID      int32
	Cluster string
	Topic   string // or routing key
	Group   string // "": origin topic
	// Exchange is RabbitMQ's; "" is the default one, whose routing keys are queues.
	Exchange string
}

// place names the target for people.
func (t sendTarget) place() string { return placeName(t.Exchange, t.Topic) }

func (t sendTarget) kind() Target {
	if t.Group == "" {
		return ToOrigin
	}
	return ToGroup
}

// chunk is at most ReplayOptions.ChunkSize items that are judged, claimed, sent
// and recorded together.
type chunk struct {
	items     []*sendItem
	targets   map[int32]sendTarget
	groups    map[string]int32
	overrides map[overrideKey]Verdict
	judged    time.Time // when its verdicts were asked for
	ends      endOffsets
	until     time.Time // when the last message may leave
}

// endOffsets are where each target's partitions ended before the chunk was sent:
// {"<target id>": {"<partition>": offset}}.
type endOffsets map[int32]map[int32]int64

// errNotYet puts a chunk off: what has to be asked does not answer now.
var errNotYet = errors.New("dlq: evidence or broker cannot be asked now")

// sendChunk sends the next items, and reports whether it did. The intent is
// committed before the first message leaves, and what came of it after the last.
func (s *step) sendChunk(ctx context.Context) (bool, error) {
	within, done := s.whileFlying(ctx)
	defer done()
	c, err := s.claimNext(ctx, within)
	if err == nil && c != nil {
		s.r.reached(momentClaimed)
		return true, s.fly(context.WithoutCancel(ctx), c) // a stopped process still says what it sent
	}
	s.dropAhead()
	switch {
	case errors.Is(err, errNotYet), errors.Is(err, errNotRunning):
		err = nil
	case within.Err() != nil && ctx.Err() == nil:
		s.log.Warn("the next chunk of a replay was not claimed in time", slog.Any("error", err))
		err = nil
	}
	return false, errors.Join(err, s.land(ctx))
}

// claimNext takes the next items and commits their intent; nil: there are none.
// within ends when one should wait no longer for what has to be asked.
func (s *step) claimNext(ctx, within context.Context) (*chunk, error) {
	c, err := s.take(within)
	if err != nil || len(c.items) == 0 {
		return nil, err
	}
	s.taken = len(c.items)
	s.prepareAhead(ctx, c)
	for _, do := range []func(context.Context, *chunk) error{s.readEnds, s.connect, s.judgeChunk, s.claimChunk} {
		if err := do(within, c); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// preparing is a chunk that is read while the one before is on its way.
type preparing struct {
	done chan struct{}
	stop context.CancelFunc
	c    *chunk
	err  error
}

// reach is which items a chunk may take: those after one number up to another, at
// most size of them.
type reach struct{ after, last, size int }

func (s *step) reach(after int) reach {
	return reach{after: after, last: s.lastItem(), size: s.chunkSize()}
}

// prepare reads the next items within reach, their letters, bodies and originals,
// and judges them.
func (s *step) prepare(ctx context.Context, within reach) (*chunk, error) {
	c, err := s.nextChunk(ctx, within)
	if err != nil {
		return nil, err
	}
	if err := s.loadSubjects(ctx, c); err != nil {
		return nil, err
	}
	if err := s.composeChunk(ctx, c); err != nil {
		return nil, err
	}
	return c, s.askVerdicts(ctx, c)
}

// prepareAhead begins to read the chunk after c.
func (s *step) prepareAhead(ctx context.Context, c *chunk) {
	ctx, stop := context.WithCancel(ctx)
	p := &preparing{done: make(chan struct{}), stop: stop}
	within := s.reach(c.items[len(c.items)-1].no)
	go func() {
		defer close(p.done)
		p.c, p.err = s.prepare(ctx, within)
	}()
	s.ahead = p
}

// take gives the next chunk: the one that was read ahead, or else a fresh one.
func (s *step) take(ctx context.Context) (*chunk, error) {
	p := s.ahead
	s.ahead = nil
	if p == nil {
		return s.prepare(ctx, s.reach(0))
	}
	select {
	case <-p.done:
	case <-ctx.Done():
	}
	p.stop()
	<-p.done
	if p.err == nil && len(p.c.items) == 0 {
		return s.prepare(ctx, s.reach(0))
	}
	return p.c, p.err
}

// dropAhead forgets what was read ahead, when it is not what comes next.
func (s *step) dropAhead() {
	if s.ahead != nil {
		s.ahead.stop()
		<-s.ahead.done
		s.ahead = nil
	}
}

const sqlNextItems = `
SELECT i.no, i.target_id, i.item_key, i.letter_id, i.tries, i.revision, i.revision_newest, l.ids, l.states
FROM (SELECT i.* FROM replay_item i JOIN replay r ON r.id = i.replay_id
      WHERE i.replay_id = @id AND i.no >= r.next_no AND i.no > @after AND i.no <= @last AND i.state = 0 ORDER BY i.no LIMIT @limit) i
CROSS JOIN LATERAL (
  SELECT array_agg(l.letter_id ORDER BY l.letter_id) AS ids, array_agg(l.from_state ORDER BY l.letter_id) AS states
  FROM replay_item_letter l WHERE l.replay_id = @id AND l.no = i.no) l
WHERE l.ids IS NOT NULL
ORDER BY i.no`

const sqlTargets = `
SELECT t.id, t.cluster, t.topic, coalesce(g.name, ''), t.exchange
FROM replay_target t LEFT JOIN letter_name g ON g.id = t.group_id AND t.group_id <> 0
WHERE t.replay_id = @id`

func (s *step) nextChunk(ctx context.Context, within reach) (*chunk, error) {
	rows, err := s.r.pool.Query(ctx, sqlNextItems, pgx.NamedArgs{"id": s.id, "after": within.after, "last": within.last, "limit": within.size})
	if err != nil {
		return nil, fmt.Errorf("query next items: %w", err)
	}
	items, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (*sendItem, error) {
		var it sendItem
		return &it, row.Scan(&it.no, &it.targetID, &it.key, &it.letter, &it.tries, &it.revision, &it.newest, &it.letters, &it.fromStates)
	})
	if err != nil {
		return nil, fmt.Errorf("read next items: %w", err)
	}
	targets, err := s.targets(ctx)
	return &chunk{items: items, targets: targets}, err
}

func (s *step) targets(ctx context.Context) (map[int32]sendTarget, error) {
	rows, err := s.r.pool.Query(ctx, sqlTargets, pgx.NamedArgs{"id": s.id})
	if err != nil {
		return nil, fmt.Errorf("query targets: %w", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[sendTarget])
	if err != nil {
		return nil, fmt.Errorf("read targets: %w", err)
	}
	targets := make(map[int32]sendTarget, len(list))
	for _, t := range list {
		targets[t.ID] = t
	}
	return targets, nil
}

// loadSubjects reads the letters of each item.
func (s *step) loadSubjects(ctx context.Context, c *chunk) error {
	list, err := s.r.judge.Subjects(ctx, c.letterIDs())
	if err != nil {
		return fmt.Errorf("read letters: %w", err)
	}
	subjects := make(map[uuid.UUID]Subject, len(list))
	for _, sub := range list {
		sub.Holder = s.id
		subjects[sub.LetterID] = sub
	}
	for _, it := range c.items {
		for _, id := range it.letters {
			sub, there := subjects[id]
			if !there {
				it.leave(replayReason("reason.letter.gone"))
				continue
			}
			sub.Revision = it.revision
			it.subjects = append(it.subjects, sub)
		}
	}
	return nil
}

func (c *chunk) letterIDs() []uuid.UUID {
	var ids []uuid.UUID
	for _, it := range c.items {
		ids = append(ids, it.letters...)
	}
	return ids
}

// judgedAhead is how old a judgement may be when the claims are taken. That the
// letters, and nobody else's claims, are as they were is checked with them.
const judgedAhead = 500 * time.Millisecond

// judgeChunk leaves out the items whose verdicts, asked for just now, changed for
// the worse, or for another than was overridden.
func (s *step) judgeChunk(ctx context.Context, c *chunk) error {
	limit := judgedAhead
	if s.flying != nil {
		limit /= 2 // the rest is for the chunk before it to land
	}
	if time.Since(c.judged) > limit {
		if err := s.askVerdicts(ctx, c); err != nil {
			return err
		}
	}
	if s.silent(c) {
		return errNotYet
	}
	for _, it := range c.items {
		s.weigh(it, c.overrides)
	}
	return nil
}

// askVerdicts judges every letter again.
func (s *step) askVerdicts(ctx context.Context, c *chunk) (err error) {
	c.judged = time.Now()
	for _, it := range c.items {
		it.groups, it.astray = nil, Reason{}
	}
	if c.overrides, err = s.overrides(ctx, c); err != nil {
		return err
	}
	for _, target := range []Target{ToGroup, ToOrigin} {
		if err := s.judgeItems(ctx, c, target); err != nil {
			return err
		}
	}
	names := []string{}
	for _, it := range c.items {
		for _, g := range it.groups {
			names = append(names, g.name)
		}
	}
	c.groups, err = groupIDs(ctx, s.r.pool, names)
	return err
}

// passing are the reasons of an unknown verdict that may be gone in a moment.
var passing = []string{"reason.unknown.broker", "reason.unknown.evidence", "reason.unknown.evidence_timeout"}

// passing is such a reason, of the item's route or of the verdict in a group.
func (it *sendItem) passing() (why Reason, passes bool) {
	if slices.Contains(passing, it.astray.Key) {
		return it.astray, true
	}
	for _, g := range it.groups {
		if g.verdict == Unknown && slices.Contains(passing, g.reason.Key) {
			why, passes = g.reason, true
		}
	}
	return why, passes
}

// silent reports whether a broker or an evidence database does not answer, for as
// long as one waits for it. Beyond that the items are left out as unknown.
func (s *step) silent(c *chunk) bool {
	waits := false
	for _, it := range c.items {
		if why, passes := it.passing(); it.goes() && passes {
			waits, s.unheard = true, why
		}
	}
	if !waits {
		s.silence = time.Time{}
		return false
	}
	if s.silence.IsZero() {
		s.silence = time.Now()
	}
	return time.Since(s.silence) < s.r.opts.Patience
}

// judgeItems asks for the verdicts of the items that go to one kind of target.
func (s *step) judgeItems(ctx context.Context, c *chunk, target Target) error {
	var asked []Subject
	var of []*sendItem
	for _, it := range c.items {
		if c.targets[it.targetID].kind() != target {
			continue
		}
		for _, sub := range it.subjects {
			asked, of = append(asked, sub), append(of, it)
		}
	}
	if len(asked) == 0 {
		return nil
	}
	judged, err := s.r.judge.Judge(ctx, asked, target)
	if err != nil {
		return fmt.Errorf("judge: %w", err)
	}
	for i, j := range judged {
		of[i].judgedAs(j, c.targets[of[i].targetID])
	}
	return nil
}

// judgedAs takes the verdict of one of the item's letters.
func (it *sendItem) judgedAs(j Judged, target sendTarget) {
	folded := it.groupsFolded(j, target)
	switch {
	case j.Route == nil && !folded:
		it.astray = j.NoRoute
	case j.Route != nil && !folded && (j.Route.Cluster != target.Cluster || j.Route.Topic != target.Topic || j.Route.Exchange != target.Exchange):
		it.astray = replayReason("reason.route.changed", "topic", target.Topic)
	default:
		p := planItem{groups: it.groups}
		p.merge(j.Groups)
		it.groups = p.groups
	}
}

// groupsFolded reports whether the letter came into an item of the origin from a
// target of its own group: it need not name that origin.
func (it *sendItem) groupsFolded(j Judged, target sendTarget) bool {
	return target.Group == "" && j.LetterID != it.letter && (j.Route == nil || j.Route.Topic != target.Topic)
}

// weigh leaves the item out unless every reached group allows it. A second try
// takes no overrides: what may have been sent once is not sent again unprotected.
func (s *step) weigh(it *sendItem, overrides map[overrideKey]Verdict) {
	if it.astray.Key != "" {
		it.leave(it.astray)
	}
	if len(it.groups) == 0 {
		it.leave(replayReason("reason.letter.gone"))
	}
	for _, g := range it.groups {
		if g.verdict.MaySend() || it.tries == 0 && it.overridden(g, overrides) {
			continue
		}
		it.leave(replayReason("reason.verdict.changed", "group", g.name, "verdict", g.verdict.String(), "text", g.reason.Text))
	}
}

func (it *sendItem) overridden(g planGroup, overrides map[overrideKey]Verdict) bool {
	for _, id := range it.letters {
		if v, ok := overrides[overrideKey{id, g.name}]; ok && v == g.verdict && g.reason.MayOverride(v) {
			return true
		}
	}
	return false
}

const sqlOverrides = `
SELECT o.letter_id, coalesce(g.name, ''), o.verdict
FROM replay_override o LEFT JOIN letter_name g ON g.id = o.group_id AND o.group_id <> 0
WHERE o.replay_id = @id AND o.letter_id = ANY(@letters)`

func (s *step) overrides(ctx context.Context, c *chunk) (map[overrideKey]Verdict, error) {
	rows, err := s.r.pool.Query(ctx, sqlOverrides, pgx.NamedArgs{"id": s.id, "letters": c.letterIDs()})
	if err != nil {
		return nil, fmt.Errorf("query overrides: %w", err)
	}
	overrides := map[overrideKey]Verdict{}
	var k overrideKey
	var v Verdict
	if _, err := pgx.ForEachRow(rows, []any{&k.letter, &k.group, &v}, func() error { overrides[k] = v; return nil }); err != nil {
		return nil, fmt.Errorf("read overrides: %w", err)
	}
	return overrides, nil
}
