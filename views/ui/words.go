// Package ui holds the small pieces that the pages are made of: icons, states
// with their hues, bars, times, tabs, pagers.
package ui

import (
	"context"

	"oncemore/views/locale"
)

// T is the text of key in the reader's language.
func T(ctx context.Context, key string, args ...any) string { return locale.T(ctx, key, args...) }

// N writes a whole number.
func N[I int | int32 | int64](n I) string { return locale.Number(int64(n)) }

// look is how a state shows itself: never by its hue alone.
type look struct {
	hue, icon string
}

var verdicts = map[string]look{
	"safe":            {"go", "shield-check"},
	"already_applied": {"noop", "checks"},
	"unprotected":     {"ask", "shield-off"},
	"expired":         {"ask", "hourglass-off"},
	"no_event_id":     {"ask", "id-off"},
	"out_of_order":    {"ask", "arrows-sort"},
	"in_flight":       {"hold", "send"},
	"altered":         {"hold", "git-compare"},
	"compensated":     {"hold", "rotate-2"},
	"collides":        {"hold", "letter-case"},
	"unknown":         {"hold", "help"},
	"":                {"hold", "circle-dashed"}, // not judged yet
}

var outcomes = map[string]look{
	"applied":            {"go", "circle-check"},
	"duplicate":          {"noop", "copy-check"},
	"failed_again":       {"bad", "alert-triangle"},
	"swallowed":          {"bad", "ghost"},
	"not_sent":           {"bad", "send-off"},
	"duplicate_expected": {"noop", "copy-check"},
	"not_seen":           {"hold", "eye-off"},
	"unverified":         {"hold", "shield-question"},
	"unconfirmed":        {"hold", "help"},
	"pending":            {"hold", "clock"},
	"refused":            {"hold", "ban"},
	"left_out":           {"hold", "ban"},
	"waiting":            {"mute", "circle-dashed"},
}

var states = map[string]look{
	"letter.open":                    {"ask", "inbox"},
	"letter.replaying":               {"noop", "player-play"},
	"letter.resolved":                {"go", "circle-check"},
	"letter.discarded":               {"hold", "archive"},
	"replay.planned":                 {"hold", "list-details"},
	"replay.awaiting_approval":       {"ask", "user-check"},
	"replay.scheduled":               {"hold", "clock"},
	"replay.running":                 {"noop", "player-play"},
	"replay.paused":                  {"ask", "player-pause"},
	"replay.stopped":                 {"bad", "hand-stop"},
	"replay.rung":                    {"ask", "player-pause"},
	"replay.planning":                {"noop", "list-details"},
	"replay.done":                    {"go", "circle-check"},
	"replay.done_unseen":             {"hold", "eye-off"},
	"replay.canceled":                {"hold", "ban"},
	"consumer.failed":                {"bad", "circle-x"},
	"consumer.unavailable":           {"ask", "plug-off"},
	"consumer.stale":                 {"hold", "help"},
	"consumer.retrying":              {"ask", "refresh"},
	"consumer.paused":                {"ask", "player-pause"},
	"consumer.starting":              {"noop", "clock"},
	"consumer.running":               {"go", "circle-check"},
	"consumer.stopped":               {"hold", "ban"},
	"consumer.unknown":               {"hold", "help"},
	"outbox.pending":                 {"hold", "clock"},
	"outbox.failing":                 {"ask", "refresh"},
	"outbox.dead":                    {"bad", "circle-x"},
	"outbox.sent":                    {"go", "circle-check"},
	"outbox.skipped":                 {"hold", "ban"},
	"outbox.held":                    {"hold", "lock"},
	"check.critical":                 {"bad", "circle-x"},
	"check.warning":                  {"ask", "alert-triangle"},
	"check.not_checked":              {"hold", "help"},
	"check.note":                     {"noop", "info-circle"},
	"check.passed":                   {"go", "circle-check"},
	"delivery.sending":               {"hold", "clock"},
	"delivery.sent":                  {"go", "circle-check"},
	"delivery.failed":                {"bad", "circle-x"},
	"run.queued":                     {"hold", "clock"},
	"run.running":                    {"noop", "player-play"},
	"run.complete":                   {"go", "circle-check"},
	"run.waiting":                    {"ask", "signature"},
	"run.partial":                    {"hold", "alert-triangle"},
	"run.failed":                     {"bad", "circle-x"},
	"run.signed":                     {"go", "signature"},
	"run.superseded":                 {"hold", "history"},
	"run.reopened":                   {"ask", "rotate-2"},
	"proposal.waiting":               {"ask", "user-check"},
	"proposal.approved":              {"go", "circle-check"},
	"proposal.rejected":              {"hold", "x"},
	"proposal.withdrawn":             {"hold", "ban"},
	"compensation.awaiting_approval": {"ask", "user-check"},
	"compensation.approved":          {"noop", "user-check"},
	"compensation.running":           {"noop", "player-play"},
	"compensation.retrying":          {"ask", "refresh"},
	"compensation.paused":            {"ask", "player-pause"},
	"compensation.outcome_unknown":   {"hold", "help"},
	"compensation.verifying":         {"noop", "clock"},
	"compensation.verified":          {"go", "checks"},
	"compensation.not_needed":        {"hold", "circle-check"},
	"compensation.needs_attention":   {"bad", "alert-triangle"},
	"compensation.rejected":          {"hold", "x"},
	"compensation.cancelled":         {"hold", "ban"},
	"compensation.voided":            {"hold", "git-compare"},
	"compensation.expired":           {"hold", "hourglass-off"},
	"step.waiting":                   {"mute", "circle-dashed"},
	"step.running":                   {"noop", "player-play"},
	"step.done":                      {"go", "circle-check"},
	"step.failed":                    {"bad", "alert-triangle"},
	"step.unknown":                   {"hold", "help"},
	"step.compensating":              {"noop", "arrow-back-up"},
	"step.compensated":               {"go", "arrow-back-up"},
	"step.skipped":                   {"hold", "ban"},
	"break.open":                     {"mute", "circle-dashed"},
	"break.assigned":                 {"mute", "user-check"},
	"break.explained":                {"noop", "info-circle"},
	"break.compensating":             {"noop", "arrow-back-up"},
	"break.verified":                 {"go", "checks"},
	"break.closed":                   {"go", "circle-check"},
	"break.reopened":                 {"ask", "rotate-2"},
	"source.drained":                 {"go", "circle-check"},
	"source.behind":                  {"ask", "clock"},
	"source.gap":                     {"bad", "alert-triangle"},
	"source.unattended":              {"ask", "eye-off"},
	"source.unknown":                 {"hold", "help"},
}

// breakTypes are what a break is about; their words are break.type.….
var breakTypes = map[string]look{
	"missing_effect":         {"mute", "circle-dashed"},
	"effect_without_record":  {"mute", "unlink"},
	"amount_mismatch":        {"mute", "equal-not"},
	"duplicate_effect":       {"mute", "copy"},
	"published_not_consumed": {"mute", "inbox"},
	"timing":                 {"mute", "clock"},
}

// BreakTypes lists the types of breaks in the order of tabs and proofs.
var BreakTypes = []string{"published_not_consumed", "missing_effect", "effect_without_record", "amount_mismatch", "duplicate_effect", "timing"}

// VerdictHue is the hue of a verdict: go, noop, ask or hold.
func VerdictHue(verdict string) string { return verdicts[verdict].hue }

// VerdictIcon is the icon of a verdict.
func VerdictIcon(verdict string) string { return verdicts[verdict].icon }

// VerdictKey is the catalog key of a verdict's word.
func VerdictKey(verdict string) string {
	if verdict == "" {
		return "verdict.none"
	}
	return "verdict." + verdict
}

// VerdictOrder lists the verdicts in the order of bars and splits.
var VerdictOrder = []string{
	"safe", "already_applied", "unprotected", "expired", "no_event_id", "out_of_order",
	"in_flight", "altered", "compensated", "collides", "unknown", "",
}

// OutcomeOrder lists the outcomes in the order of bars and tiles.
var OutcomeOrder = []string{
	"applied", "duplicate", "duplicate_expected", "failed_again", "swallowed", "not_sent",
	"not_seen", "unverified", "unconfirmed", "pending", "waiting",
}

// Verdicts, Outcomes and States list what there is a look for, for tests.
func Verdicts() []string { return names(verdicts) }

// Outcomes lists the outcomes there is a look for.
func Outcomes() []string { return names(outcomes) }

// States lists the states there is a look for, with their kind.
func States() []string { return names(states) }

func names(looks map[string]look) []string {
	all := make([]string, 0, len(looks))
	for name := range looks {
		all = append(all, name)
	}
	return all
}
