package web

import (
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"oncemore/dlq"
	"oncemore/internal/access"
	"oncemore/views/locale"
)

// registerAPI registers /api/v1, behind a token or a session. Each route is in
// openapi.yaml; a test compares both.
func (s *Server) registerAPI(g *echo.Group) {
	read := s.allow(access.Read)
	g.GET("/letters", s.apiLetters, read)
	g.GET("/letters/:id", s.apiLetter, read)
	g.GET("/letters/:id/body", s.apiLetterBody, s.allow(access.ReadPayload))
	g.GET("/letters/:id/verdicts", s.apiLetterVerdicts, read)
	g.GET("/letters/:id/revisions", s.apiRevisions, read)
	g.POST("/letters/:id/revisions", s.apiRevise, s.allow(access.EditLetter))
	g.GET("/letters/:id/revisions/:no/body", s.apiRevisionBody, s.allow(access.ReadPayload))
	g.POST("/letters/:id/unpark", s.apiUnpark, s.allow(access.PlanReplay))
	g.GET("/letters/export", s.exportLetters, read)
	g.POST("/letters/discard", s.apiBulk(s.Bulks.Discard), s.allow(access.DiscardLetters))
	g.POST("/letters/restore", s.apiBulk(s.Bulks.Restore), s.allow(access.DiscardLetters))
	g.POST("/letters/assign", s.apiBulkAssign, s.allow(access.TriageFaults))
	g.GET("/commands/:id", s.apiCommand, read)
	g.POST("/commands/:id/undo", s.apiCommandUndo, s.allow(access.DiscardLetters))
	g.GET("/faults", s.apiFaults, read)
	g.GET("/faults/export", s.exportFaults, read)
	g.GET("/faults/groups", s.apiFaultGroups, read)
	g.POST("/faults/:id/mute", s.apiFaultMute, s.allow(access.TriageFaults))
	g.POST("/faults/:id/assign", s.apiFaultAssign, s.allow(access.TriageFaults))
	g.POST("/faults/:id/note", s.apiFaultNote, s.allow(access.TriageFaults))
	g.GET("/faults/:id/comments", s.apiFaultComments, read)
	g.POST("/faults/:id/comments", s.apiFaultComment, s.allow(access.Comment))
	g.GET("/saved-searches", s.apiSearches, read)
	g.POST("/saved-searches", s.apiSearchSave, s.allow(access.SaveSearch))
	g.DELETE("/saved-searches/:id", s.apiSearchDelete, s.allow(access.SaveSearch))
	g.GET("/retention", s.apiRetention, read)
	g.GET("/faults/:id", s.apiFault, read)
	g.GET("/replays", s.apiReplays, read)
	g.POST("/replays", s.apiReplayPlan, s.allow(access.PlanReplay))
	g.GET("/replays/:id", s.apiReplay, read)
	g.GET("/replays/:id/items", s.apiReplayItems, read)
	g.GET("/replays/:id/refused", s.apiReplayRefused, read)
	g.GET("/replays/:id/elders", s.apiReplayElders, read)
	g.POST("/replays/:id/start", s.apiReplayAct(s.Replays.Start), s.allow(access.StartReplay))
	g.POST("/replays/:id/pace", s.apiReplayPace, s.allow(access.StartReplay))
	g.POST("/replays/:id/approve", s.apiReplayApprove, s.allow(access.ApproveReplay))
	g.POST("/replays/:id/reject", s.apiReplayAct(s.Replays.Reject), s.allow(access.ApproveReplay))
	g.POST("/replays/:id/pause", s.apiReplayAct(s.Replays.Pause), s.allow(access.StartReplay))
	g.POST("/replays/:id/resume", s.apiReplayAct(s.Replays.Resume), s.allow(access.StartReplay))
	g.POST("/replays/:id/cancel", s.apiReplayAct(s.Replays.Cancel), s.allow(access.StartReplay))
	g.GET("/sources", s.apiSources, read)
	g.GET("/consumers", s.apiConsumers, read)
	g.GET("/consumers/:group", s.apiConsumer, read)
	g.POST("/consumers/:group/pause", s.apiConsumerAct(s.Fleet.Pause), s.allow(access.PauseConsumer))
	g.POST("/consumers/:group/resume", s.apiConsumerAct(s.Fleet.Resume), s.allow(access.PauseConsumer))
	g.GET("/outbox", s.apiOutboxes, read)
	g.GET("/outbox/:connection/:table/rows", s.apiOutboxRows, read)
	g.POST("/outbox/:connection/:table/rows/:id/retry", s.apiOutboxAct(s.retryOutbox), s.allow(access.RetryOutbox))
	g.POST("/outbox/:connection/:table/rows/:id/skip", s.apiOutboxAct(s.skipOutbox), s.allow(access.SkipOutbox))
	g.GET("/outbox/:connection/:table/commands", s.apiOutboxCommands, read)
	g.POST("/outbox/commands/:id/approve", s.apiOutboxDecide(true), s.allow(access.ApproveOutbox))
	g.POST("/outbox/commands/:id/reject", s.apiOutboxDecide(false), s.allow(access.ApproveOutbox))
	g.GET("/reconciliations", s.apiJobs, read)
	g.GET("/reconciliations/:job", s.apiJob, read)
	g.POST("/reconciliations/:job/pause", s.apiJobPause(true), s.allow(access.RunJob))
	g.POST("/reconciliations/:job/resume", s.apiJobPause(false), s.allow(access.RunJob))
	g.GET("/reconciliations/:job/runs", s.apiRuns, read)
	g.POST("/reconciliations/:job/runs", s.apiRunAsk, s.allow(access.RunJob))
	g.GET("/runs/:id", s.apiRun, read)
	g.GET("/runs/:id/breaks", s.apiRunBreaks, read)
	g.GET("/runs/:id/segments", s.apiSegments, read)
	g.GET("/runs/:id/log", s.apiRunLog, read)
	g.GET("/runs/:id/signatures", s.apiSignatures, read)
	g.POST("/runs/:id/sign-off", s.apiSignOff, s.allow(access.SignOff))
	g.GET("/breaks", s.apiBreaks, read)
	g.GET("/breaks/:id", s.apiBreak, read)
	g.POST("/breaks/assign", s.apiBreakCommand(s.assignBreaks), s.allow(access.RunJob))
	g.POST("/breaks/explain", s.apiBreakCommand(s.explainBreaks), s.allow(access.ExplainBreak))
	g.POST("/breaks/:id/comments", s.apiBreakComment, s.allow(access.RunJob))
	g.POST("/breaks/:id/unexplain", s.apiBreakUnexplain, s.allow(access.ExplainBreak))
	g.POST("/breaks/:id/recheck", s.apiBreakRecheck, s.allow(access.RunJob))
	g.GET("/breaks/:id/rows", s.apiBreakRows, read)
	g.POST("/breaks/:id/files", s.apiBreakAttach, s.allow(access.RunJob))
	g.GET("/breaks/:id/files/:file", s.breakFile, read)
	g.GET("/breaks/export", s.exportBreaks, read)
	g.GET("/runs/:id/export", s.exportRun, read)
	g.GET("/reconciliations/:job/export", s.exportRuns, read)
	g.GET("/reconciliations/:job/versions", s.apiJobVersions, read)
	g.GET("/reconciliations/:job/preview", s.apiJobPreview, read)
	s.registerProposalAPI(g)
	s.registerCompensationAPI(g)
	g.GET("/audit", s.apiAudit, read)
	g.GET("/alerts", s.apiAlerts, read)
	g.POST("/alerts/acknowledge", s.apiAlertsAcknowledge, s.allow(access.AckAlert))
	g.POST("/alerts/:id/acknowledge", s.apiAlertAcknowledge, s.allow(access.AckAlert))
	g.GET("/alerts/channels", s.apiAlertChannels, read)
	g.POST("/alerts/channels/:channel/test", s.apiAlertTest, s.allow(access.TestAlert))
	g.GET("/checks", s.apiChecks, read)
	g.POST("/checks/run", s.apiChecksRun, s.allow(access.RunChecks))
	g.POST("/checks/mute", s.apiCheckMute, s.allow(access.MuteCheck))
	g.POST("/checks/unmute", s.apiCheckUnmute, s.allow(access.MuteCheck))
	g.GET("/openapi.json", s.apiDocument, read)
}

// allow guards a route by the one policy, before its body is read. Commands are
// checked again by the domain.
func (s *Server) allow(act access.Act) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if err := actorOf(c).Check(act); err != nil {
				return err
			}
			return next(c)
		}
	}
}

// list is the shape of every list. Next is null at the end.
type list[T any] struct {
	Items []T     `json:"items"`
	Next  *string `json:"next"`
}

// listOf maps a page of the domain into a list.
func listOf[D, J any](items []D, next string, toJSON func(D) J) list[J] {
	return list[J]{Items: eachOf(items, toJSON), Next: known(next)}
}

// eachOf maps items; none are an empty list, never null.
func eachOf[D, J any](items []D, toJSON func(D) J) []J {
	out := make([]J, 0, len(items))
	for _, item := range items {
		out = append(out, toJSON(item))
	}
	return out
}

// known is null for "": what is not known is null, never an empty text.
func known(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// instant is a time as the API writes it: RFC 3339 in UTC; nil stays null.
func instant(t *time.Time) *time.Time {
	if t == nil || t.IsZero() {
		return nil
	}
	utc := t.UTC()
	return &utc
}

// verdictName is null for a letter that was not judged yet.
func verdictName(v dlq.Verdict) *string { return known(v.String()) }

// localisedReason is the sentence in the reader's language.
func localisedReason(here locale.Locale, r dlq.Reason) *string {
	return localised(here, r.Key, r.Args, r.Text)
}

func localised(here locale.Locale, key string, args map[string]any, english string) *string {
	if here.Tag == locale.English || !locale.Has(key) {
		return known(english)
	}
	pairs := make([]any, 0, 2*len(args))
	for name, value := range args {
		pairs = append(pairs, name, value)
	}
	return known(here.Text(key, pairs...))
}

func localeOf(c echo.Context) locale.Locale { return locale.From(c.Request().Context()) }

// letterID reads a letter's id from the path.
func letterID(c echo.Context) (uuid.UUID, error) { return parseUUID("id", c.Param("id")) }

// numberID reads the id of a fault or replay from the path.
func numberID(c echo.Context, bits int) (int64, error) { return parseID("id", c.Param("id"), bits) }
