package dlq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// pendingClaim is a sent item in one group whose outcome is not known.
type pendingClaim struct {
	No        int
	GroupID   int32
	Group     string
	Before    Verdict
	Key       string // item key
	Letter    uuid.UUID
	TargetID  int32
	Partition int32
	Offset    int64
	Passed    bool // was seen beyond the offset before
	Covered   bool // and before the dead-letter ends were marked
	Overdue   bool
}

// watchBatch is how many claims are looked at together.
const watchBatch = 1000

// watch looks for outcomes of what was sent, and reports whether any came.
func (s *step) watch(ctx context.Context) (bool, error) {
	began := time.Now()
	defer func() { s.watched, s.watchTook = time.Now(), time.Since(began) }()
	drained, err := s.drainedToMark(ctx)
	if err != nil {
		return false, err
	}
	targets, err := s.targets(ctx)
	if err != nil {
		return false, err
	}
	w := &watch{step: s, targets: targets, drained: drained, commits: map[groupOn]kadm.OffsetResponses{}, retries: map[Route]bool{}, ready: map[int32]int64{}, readQueues: s.mayReadQueues()}
	came := false
	for after := (pendingClaim{}); ; {
		claims, err := w.pending(ctx, after)
		if err != nil || len(claims) == 0 {
			if err == nil {
				err = w.mark(ctx)
			}
			return came, err
		}
		some, err := w.settle(ctx, claims)
		if err != nil {
			return came, err
		}
		came, after = came || some, claims[len(claims)-1]
	}
}

// watch is one look at everything that is pending.
type watch struct {
	*step
	targets map[int32]sendTarget
	drained bool // to the mark
	commits map[groupOn]kadm.OffsetResponses
	retries map[Route]bool
	ready   map[int32]int64 // messages of a target's queue that nobody has taken; -1: not known

	readQueues bool // records of what was sent to queues are read

	marking []string // clusters whose dead-letter ends have to be marked
}

type groupOn struct{ cluster, group string }

const sqlPending = `
SELECT c.item_no, c.group_id, coalesce(g.name, ''), c.verdict, i.item_key, i.letter_id, i.target_id,
  coalesce(i.sent_partition, -1), coalesce(i.sent_offset, -1), c.passed_at IS NOT NULL,
  coalesce(c.passed_at <= r.drain_mark_at, false), i.sent_at < now() - @settle::interval
FROM event_claim c
JOIN replay r ON r.id = c.holder_id
JOIN replay_item i ON i.replay_id = c.holder_id AND i.no = c.item_no AND i.state = 2
LEFT JOIN letter_name g ON g.id = c.group_id AND c.group_id <> 0
WHERE c.kind = 1 AND c.holder_id = @id AND (c.item_no, c.group_id) > (@no, @group)
ORDER BY c.item_no, c.group_id LIMIT @limit`

// sqlInOrder makes the next statement of a batch read as far as its LIMIT: event_claim
// fills faster than its statistics are made, and sorting few rows looks cheap.
const sqlInOrder = sqlByIndex + `, set_config('enable_sort', 'off', true)`

func (w *watch) pending(ctx context.Context, after pendingClaim) ([]pendingClaim, error) {
	var claims []pendingClaim
	b := &pgx.Batch{}
	b.Queue(sqlInOrder)
	b.Queue(sqlPending, pgx.NamedArgs{
		"id": w.id, "no": after.No, "group": after.GroupID, "settle": w.r.opts.SettleAfter, "limit": watchBatch,
	}).Query(func(rows pgx.Rows) (err error) {
		claims, err = pgx.CollectRows(rows, pgx.RowToStructByPos[pendingClaim])
		return err
	})
	if err := w.r.pool.SendBatch(ctx, b).Close(); err != nil {
		return nil, fmt.Errorf("read pending outcomes: %w", err)
	}
	return claims, nil
}

// settle decides what can be decided of some claims, and writes it. The order of
// looking matters: first how far dead letters were read, then which came back,
// then where the groups are, then the records.
func (w *watch) settle(ctx context.Context, claims []pendingClaim) (bool, error) {
	failed, err := w.cameBack(ctx, claims)
	if err != nil {
		return false, err
	}
	seen := make([]sighting, len(claims))
	for i, c := range claims {
		seen[i] = w.look(ctx, c)
		seen[i].failed = failed[itemGroup{c.No, c.GroupID}]
	}
	if err := w.readRecords(ctx, claims, seen); err != nil {
		return false, err
	}
	var outs []claimOutcome
	var passed []pendingClaim
	for i, c := range claims {
		outcome, why, ok := seen[i].decide()
		switch {
		case ok:
			outs = append(outs, claimOutcome{no: c.No, group: c.GroupID, outcome: outcome, why: why})
		case seen[i].passed && seen[i].queue:
			passed = append(passed, c)
		case seen[i].passed:
			passed = append(passed, c)
			w.wantMark(c)
		}
	}
	return len(outs) > 0, w.store(ctx, outs, passed)
}

// look asks the broker where the claim's group is.
func (w *watch) look(ctx context.Context, c pendingClaim) sighting {
	target := w.targets[c.TargetID]
	if on := w.r.clusters[target.Cluster]; on != nil && on.rabbit != nil {
		return w.lookQueue(ctx, on.rabbit, c, target)
	}
	commits, ok := w.committed(ctx, target.Cluster, c.Group)
	if _, own := commits.Lookup(target.Topic, c.Partition); ok && !own && target.kind() == ToGroup {
		commits, ok = w.committed(ctx, target.Cluster, retryReader(c.Group, target.Topic))
	}
	s := sighting{
		before: c.Before, offset: c.Offset, topic: target.Topic, cluster: target.Cluster,
		overdue: c.Overdue, waited: w.r.opts.SettleAfter, drained: c.Covered && w.drained,
		retries: w.retries[Route{Cluster: target.Cluster, Topic: target.Topic}],
	}
	s.asked = ok
	if at, there := commits.Lookup(target.Topic, c.Partition); ok && there && at.At >= 0 {
		s.commits = true
		s.passed = at.At > c.Offset
	}
	return s
}

const brokerAnswers = 5 * time.Second

// committed reads a group's offsets once per look. Without a group there is
// nothing to read.
func (w *watch) committed(ctx context.Context, cluster, group string) (kadm.OffsetResponses, bool) {
	key := groupOn{cluster, group}
	if known, ok := w.commits[key]; ok {
		return known, known != nil
	}
	w.commits[key] = nil
	on := w.r.clusters[cluster]
	switch {
	case group == "":
		w.commits[key] = kadm.OffsetResponses{}
	case on != nil:
		ctx, cancel := context.WithTimeout(ctx, brokerAnswers)
		defer cancel()
		offsets, err := on.Admin.FetchOffsets(ctx, group)
		if errors.Is(err, kerr.GroupIDNotFound) {
			offsets, err = kadm.OffsetResponses{}, nil
		}
		if err != nil {
			w.log.Warn("offsets of a group could not be read", slog.String("group", group), slog.Any("error", err))
			break
		}
		w.commits[key] = offsets
		w.noteRetryTopics(ctx, on)
	}
	return w.commits[key], w.commits[key] != nil
}

// noteRetryTopics finds targets whose groups hand failures to retry topics: they
// pass the offset long before the event has failed for good.
func (w *watch) noteRetryTopics(ctx context.Context, on *Cluster) {
	topics, err := on.Admin.ListTopics(ctx)
	if err != nil {
		return // asked again at the next look
	}
	for _, t := range w.targets {
		for name := range topics {
			if t.Cluster == on.Name && name != t.Topic && strings.HasPrefix(name, originOfRetry(t.Topic)+retryInfix) {
				w.retries[Route{Cluster: t.Cluster, Topic: t.Topic}] = true
			}
		}
	}
}

// originOfRetry is the topic whose failures a retry topic takes, or the topic itself.
func originOfRetry(topic string) string {
	if at := strings.LastIndex(topic, retryInfix); at > 0 {
		return topic[:at]
	}
	return topic
}

// readRecords judges the items of which a group has passed, and those that are
// overdue. A record shows at the latest when the group passes.
func (w *watch) readRecords(ctx context.Context, claims []pendingClaim, seen []sighting) error {
	var ids []uuid.UUID
	for i, c := range claims {
		if c.Before != AlreadyApplied && seen[i].failed == nil && (seen[i].passed || seen[i].queue && w.readQueues || c.Overdue) {
			ids = append(ids, c.Letter)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	subjects, err := w.r.judge.Subjects(ctx, sortedIDs(ids))
	if err != nil {
		return fmt.Errorf("read letters: %w", err)
	}
	for i := range subjects {
		subjects[i].Holder = w.id
	}
	for _, kind := range []Target{ToGroup, ToOrigin} {
		if err := w.readVerdicts(ctx, kind, subjects, claims, seen); err != nil {
			return err
		}
	}
	return nil
}

func (w *watch) readVerdicts(ctx context.Context, kind Target, subjects []Subject, claims []pendingClaim, seen []sighting) error {
	ofKind := func(c pendingClaim) bool { return w.targets[c.TargetID].kind() == kind }
	if !slices.ContainsFunc(claims, ofKind) {
		return nil
	}
	judged, err := w.r.judge.Judge(ctx, subjects, kind)
	if err != nil {
		return fmt.Errorf("judge: %w", err)
	}
	by := make(map[uuid.UUID]Judged, len(judged))
	for _, j := range judged {
		by[j.LetterID] = j
	}
	for i, c := range claims {
		if !ofKind(c) {
			continue
		}
		for _, g := range by[c.Letter].Groups {
			if g.Group == c.Group {
				seen[i].judged = &g
			}
		}
	}
	return nil
}

func (w *watch) wantMark(c pendingClaim) {
	cluster := w.targets[c.TargetID].Cluster
	if !c.Covered && !slices.Contains(w.marking, cluster) {
		w.marking = append(w.marking, cluster)
	}
}
