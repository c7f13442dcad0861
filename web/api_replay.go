package web

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"oncemore/dlq"
	"oncemore/internal/access"
	"oncemore/views/locale"
)

type replayJSON struct {
	ID             int64          `json:"id"`
	State          string         `json:"state"`
	PausedBy       *string        `json:"paused_by"`
	Target         string         `json:"target"`
	Targets        []targetJSON   `json:"targets"`
	Total          int            `json:"total"`
	Sent           int            `json:"sent"`
	Waiting        int            `json:"waiting"`
	LeftOut        int            `json:"left_out"`
	Refused        int            `json:"refused"`
	Outcomes       map[string]int `json:"outcomes"`
	Verdicts       map[string]int `json:"verdicts"`
	FaultID        *int32         `json:"fault_id"`
	Reason         *string        `json:"reason"`
	CreatedBy      string         `json:"created_by"`
	CreatedAt      *time.Time     `json:"created_at"`
	ApprovalNeeded bool           `json:"approval_needed"`
	ApprovedBy     *string        `json:"approved_by"`
	ApprovedAt     *time.Time     `json:"approved_at"`
	RejectedBy     *string        `json:"rejected_by"`
	ApprovalReason *string        `json:"approval_reason"`
	StartedBy      *string        `json:"started_by"`
	StartedAt      *time.Time     `json:"started_at"`
	FinishedAt     *time.Time     `json:"finished_at"`
	Pace           paceJSON       `json:"pace"`
	Rung           int            `json:"rung"`
	Tried          int            `json:"tried"`
	Failed         int            `json:"failed"`
	Wait           *string        `json:"wait"`
	WaitSince      *time.Time     `json:"wait_since"`
	Bound          string         `json:"bound"` // digest of set and pace: what an approval is bound to
	ApprovedUntil  *time.Time     `json:"approved_until"`
	Judged         int            `json:"judged"`
	ToJudge        *int           `json:"to_judge"`
	Elders         int            `json:"elders"`
	EldersBounded  bool           `json:"elders_bounded"`
	RedoOf         *int64         `json:"redo_of"`
}

type targetJSON struct {
	Cluster        string                    `json:"cluster"`
	Topic          string                    `json:"topic"`
	ConsumerGroups []string                  `json:"consumer_groups"`
	Verdicts       map[string]map[string]int `json:"verdicts"` // by group: what the plan found for the items that go
}

// replayIn maps replays for a reader's language.
func replayIn(here locale.Locale) func(dlq.Replay) replayJSON {
	return func(r dlq.Replay) replayJSON {
		j := replayOf(r)
		j.Wait = localisedReason(here, r.Wait)
		return j
	}
}

func replayOf(r dlq.Replay) replayJSON {
	targets := make([]targetJSON, 0, len(r.Targets))
	for _, t := range r.Targets {
		targets = append(targets, targetJSON{Cluster: t.Cluster, Topic: t.Topic, ConsumerGroups: orEmpty(t.Groups), Verdicts: radiusOf(t)})
	}
	var toJudge *int
	if r.PlanTotal > 0 {
		toJudge = &r.PlanTotal
	}
	return replayJSON{
		ID: r.ID, State: r.State.String(), PausedBy: known(r.PausedBy), Target: targetNames[r.Target], Targets: targets,
		Total: r.Total, Sent: r.Sent, Waiting: r.Waiting, LeftOut: r.LeftOut, Refused: r.Refused,
		Outcomes: outcomeCounts(r.Outcomes), Verdicts: verdictCounts(r.Verdicts), FaultID: r.FaultID, Reason: known(r.Reason),
		CreatedBy: r.CreatedBy, CreatedAt: instant(&r.CreatedAt), ApprovalNeeded: r.ApprovalNeeded,
		ApprovedBy: r.ApprovedBy, ApprovedAt: instant(r.ApprovedAt), RejectedBy: r.RejectedBy, ApprovalReason: known(r.ApprovalReason),
		StartedBy: r.StartedBy, StartedAt: instant(r.StartedAt), FinishedAt: instant(r.FinishedAt),
		Pace: paceOf(r.Pace), Rung: r.Rung, Tried: r.Tried, Failed: r.Failed, WaitSince: instant(r.WaitSince), Bound: r.Bound(),
		ApprovedUntil: instant(r.ApprovedUntil), Judged: r.Letters, ToJudge: toJudge, Elders: r.Elders, EldersBounded: r.EldersBounded, RedoOf: r.RedoOf,
	}
}

func radiusOf(t dlq.ReplayTarget) map[string]map[string]int {
	by := make(map[string]map[string]int, len(t.Verdicts))
	for group, counts := range t.Verdicts {
		by[group] = verdictCounts(counts)
	}
	return by
}

// outcomeCounts names the outcomes; items that were not sent yet have none.
func outcomeCounts(counts map[dlq.Outcome]int) map[string]int {
	named := map[string]int{}
	for o, n := range counts {
		if o != 0 && n != 0 {
			named[o.String()] = n
		}
	}
	return named
}

var replayStates = map[string]dlq.ReplayState{
	"planned": dlq.Planned, "awaiting_approval": dlq.AwaitingApproval, "scheduled": dlq.Scheduled,
	"running": dlq.Running, "paused": dlq.Paused, "done": dlq.Done, "canceled": dlq.Canceled, "planning": dlq.Planning,
}

// replayFilter takes the filters of a list of replays.
func replayFilter(q *query) dlq.ReplayFilter {
	filter := dlq.ReplayFilter{FaultID: int32(q.id("fault_id", 32)), By: q.take("by")}
	if name := q.take("state"); name != "" {
		state, err := choice("state", name, replayStates)
		q.keep(err)
		filter.State = state
	}
	return filter
}

func (s *Server) apiReplays(c echo.Context) error {
	q := parseQuery(c)
	filter := replayFilter(q)
	page := q.page()
	if err := q.done(); err != nil {
		return err
	}
	found, err := s.Replays.List(c.Request().Context(), filter, page)
	if err != nil {
		return fmt.Errorf("list replays: %w", err)
	}
	return answer(c, http.StatusOK, listOf(found.Items, found.Next, replayIn(localeOf(c))))
}

func (s *Server) apiReplay(c echo.Context) error {
	if err := noQuery(c); err != nil {
		return err
	}
	id, err := numberID(c, 64)
	if err != nil {
		return err
	}
	return s.answerReplay(c, id)
}

func (s *Server) answerReplay(c echo.Context, id int64) error {
	replay, err := s.Replays.Get(c.Request().Context(), id)
	if err != nil {
		return fmt.Errorf("get replay %d: %w", id, err)
	}
	return answer(c, http.StatusOK, replayIn(localeOf(c))(replay))
}

type itemJSON struct {
	ItemID    int             `json:"item_id"`
	EventID   *string         `json:"event_id"`
	LetterIDs []uuid.UUID     `json:"letter_ids"`
	Verdict   *string         `json:"verdict"` // headline at plan
	State     string          `json:"state"`
	SentAt    *time.Time      `json:"sent_at"`
	Topic     *string         `json:"topic"`
	Partition *int32          `json:"partition"`
	Offset    *int64          `json:"offset"`
	BytesFrom *string         `json:"bytes_from"`
	Revision  int             `json:"revision"`
	Reason    *string         `json:"reason"`
	Groups    []itemGroupJSON `json:"groups"`
}

type itemGroupJSON struct {
	ConsumerGroup *string    `json:"consumer_group"`
	Verdict       *string    `json:"verdict"`
	Outcome       *string    `json:"outcome"` // null: not sent yet
	At            *time.Time `json:"at"`
	Reason        *string    `json:"reason"`
}

func itemOf(here locale.Locale) func(dlq.ReplayItem) itemJSON {
	return func(i dlq.ReplayItem) itemJSON {
		item := itemJSON{
			ItemID: i.No, EventID: i.EventID, LetterIDs: orEmpty(i.LetterIDs), Verdict: verdictName(i.Verdict), State: i.State,
			SentAt: instant(i.SentAt), Topic: known(i.Topic), Partition: i.Partition, Offset: i.Offset,
			BytesFrom: known(i.BytesFrom), Revision: i.Revision, Reason: localisedReason(here, i.Reason), Groups: make([]itemGroupJSON, 0, len(i.Groups)),
		}
		for _, g := range i.Groups {
			item.Groups = append(item.Groups, itemGroupJSON{ConsumerGroup: known(g.Group), Verdict: verdictName(g.Verdict),
				Outcome: known(g.Outcome.String()), At: instant(g.At), Reason: localisedReason(here, g.Reason)})
		}
		return item
	}
}

func (s *Server) apiReplayItems(c echo.Context) error {
	id, err := numberID(c, 64)
	if err != nil {
		return err
	}
	q := parseQuery(c)
	filter, page := dlq.ItemFilter{Tab: q.take("tab")}, q.page()
	if err := q.done(); err != nil {
		return err
	}
	found, err := s.Replays.Items(c.Request().Context(), id, filter, page)
	if err != nil {
		return fmt.Errorf("list items of replay %d: %w", id, err)
	}
	return answer(c, http.StatusOK, listOf(found.Items, found.Next, itemOf(localeOf(c))))
}

func (s *Server) apiReplayRefused(c echo.Context) error {
	id, err := numberID(c, 64)
	if err != nil {
		return err
	}
	q := parseQuery(c)
	page := q.page()
	if err := q.done(); err != nil {
		return err
	}
	found, err := s.Replays.Refused(c.Request().Context(), id, page)
	if err != nil {
		return fmt.Errorf("list refusals of replay %d: %w", id, err)
	}
	return answer(c, http.StatusOK, listOf(found.Items, found.Next, refusalOf(localeOf(c))))
}

// apiReplayAct runs one command on one replay and answers with the replay.
func (s *Server) apiReplayAct(act func(context.Context, access.Actor, int64) error) echo.HandlerFunc {
	return func(c echo.Context) error {
		id, err := numberID(c, 64)
		if err != nil {
			return err
		}
		by, err := commander(c)
		if err != nil {
			return err
		}
		if err := act(c.Request().Context(), by, id); err != nil {
			return fmt.Errorf("replay %d: %w", id, err)
		}
		return s.answerReplay(c, id)
	}
}
