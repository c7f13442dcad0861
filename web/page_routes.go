package web

import (
	"github.com/labstack/echo/v4"

	"oncemore/internal/access"
)

// registerPages registers the pages, all behind a log-in.
func (s *Server) registerPages(g *echo.Group) {
	g.GET("/", s.overviewPage)
	g.GET("/search", s.search)

	g.GET("/faults", s.faultListPage)
	g.GET("/faults/:id", s.faultPage)
	g.GET("/letters", s.letterListPage)
	g.GET("/letters/:id", s.letterPage)
	g.GET("/letters/:id/body", s.letterDownload)
	g.GET("/letters/:id/edit", s.editPage)
	g.POST("/letters/:id/edit", s.editLetter)
	g.GET("/letters/:id/revisions/:no", s.revisionPage)
	g.POST("/letters/:id/unpark", s.letterUnpark)

	g.POST("/triage", s.triage)
	g.GET("/faults/events", s.faultListEvents)
	g.GET("/letters/events", s.letterListEvents)
	g.GET("/faults/export", s.exportFaults)
	g.GET("/letters/export", s.exportLetters)
	g.GET("/commands", s.commandListPage)
	g.GET("/commands/:id", s.commandPage)
	g.GET("/commands/:id/events", s.commandEvents)
	g.POST("/commands/:id/undo", s.commandUndo)
	g.POST("/searches", s.searchSave)
	g.POST("/searches/:id/delete", s.searchDelete)
	g.GET("/settings/retention", s.retentionPage)

	g.GET("/replays", s.replayListPage)
	g.POST("/replays", s.replayCreate)
	g.GET("/replays/:id", s.replayPage)
	g.GET("/replays/:id/plan", s.replayPlanPage)
	g.GET("/replays/:id/events", s.replayEvents)
	g.POST("/replays/:id/start", s.replayStart)
	g.POST("/replays/:id/pace", s.replaySetPace)
	g.POST("/replays/:id/pause", s.replayAct(s.Replays.Pause, "/replays/%d"))
	g.POST("/replays/:id/resume", s.replayAct(s.Replays.Resume, "/replays/%d"))
	g.POST("/replays/:id/cancel", s.replayAct(s.Replays.Cancel, "/replays/%d"))
	g.POST("/replays/:id/approve", s.replayApprove)
	g.POST("/replays/:id/reject", s.replayAct(s.Replays.Reject, "/replays/%d/plan"))

	g.GET("/consumers", s.consumerListPage)
	g.GET("/consumers/:group", s.consumerPage)
	g.POST("/consumers/:group/pause", s.consumerCommand(true))
	g.POST("/consumers/:group/resume", s.consumerCommand(false))
	g.GET("/sources", s.sourceListPage)

	g.GET("/outbox", s.outboxPage)
	g.GET("/outbox/:connection/:table/:id", s.outboxRowPage)
	g.POST("/outbox/:connection/:table/:id/retry", s.outboxAct(s.retryOutbox), s.allow(access.RetryOutbox))
	g.POST("/outbox/:connection/:table/:id/skip", s.outboxAct(s.skipOutbox), s.allow(access.SkipOutbox))
	g.POST("/outbox/commands/:id/approve", s.outboxDecide(true), s.allow(access.ApproveOutbox))
	g.POST("/outbox/commands/:id/reject", s.outboxDecide(false), s.allow(access.ApproveOutbox))

	s.registerFinance(g)

	s.registerCompensationPages(g)
	g.GET("/checks", s.checkListPage)
	g.POST("/checks/run", s.checksRun, s.allow(access.RunChecks))
	g.POST("/checks/mute", s.checkMute, s.allow(access.MuteCheck))
	g.POST("/checks/unmute", s.checkUnmute, s.allow(access.MuteCheck))
	g.GET("/settings", s.settingsPage)
	g.GET("/settings/evidence", s.settingsEvidencePage)
	if s.Alerts != nil {
		g.GET("/alerts", s.alertListPage)
		g.POST("/alerts/acknowledge", s.alertsAcknowledge, s.allow(access.AckAlert))
		g.POST("/alerts/:id/acknowledge", s.alertAcknowledge, s.allow(access.AckAlert))
		g.GET("/settings/alerts", s.settingsAlertsPage)
		g.POST("/settings/alerts/:channel/test", s.alertTest, s.allow(access.TestAlert))
	}
	if s.Setup != nil {
		s.registerSetup(g)
	}
	g.GET("/audit", s.auditPage)
	g.GET("/profile", s.profilePage)
	g.POST("/profile/tokens", s.tokenCreate)
	g.POST("/profile/tokens/:id/revoke", s.tokenRevoke)
}

// registerFinance registers the pages of reconciliation.
func (s *Server) registerFinance(g *echo.Group) {
	run := s.allow(access.RunJob)
	g.GET("/reconciliations", s.jobListPage)
	g.GET("/reconciliations/new", s.jobNewPage)
	g.POST("/reconciliations/new", s.jobDraftPost, s.allow(access.ProposeJob))
	g.GET("/reconciliations/:job", s.jobPage)
	g.GET("/reconciliations/:job/change", s.jobChangePage)
	g.POST("/reconciliations/:job/change", s.jobDraftPost, s.allow(access.ProposeJob))
	g.GET("/job-proposals/:id", s.proposalPage)
	g.POST("/job-proposals/:id", s.proposalDecide)
	g.GET("/reconciliations/:job/export", s.exportRuns)
	g.POST("/reconciliations/:job/runs", s.runAsk, run)
	g.POST("/reconciliations/:job/pause", s.jobPause(true), run)
	g.POST("/reconciliations/:job/resume", s.jobPause(false), run)
	g.GET("/runs/:id", s.runPage)
	g.GET("/runs/:id/events", s.runEvents)
	g.GET("/runs/:id/export", s.exportRun)
	g.POST("/runs/:id/sign-off", s.runSignOff, s.allow(access.SignOff))
	g.GET("/breaks", s.breakListPage)
	g.GET("/breaks/export", s.exportBreaks)
	g.POST("/breaks/act", s.breakAct) // which asks for the act of each button
	g.GET("/breaks/:id", s.breakPage)
	g.POST("/breaks/:id/files", s.breakAttach, run)
	g.GET("/breaks/:id/files/:file", s.breakFile)
}
