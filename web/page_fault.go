package web

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"oncemore/dlq"
	"oncemore/views"
	"oncemore/views/locale"
	"oncemore/views/ui"
)

// faultLetters is how many of a fault's letters its page lists.
const faultLetters = 25

func (s *Server) faultPage(c echo.Context) error { return s.showFault(c, refused{}) }

func (s *Server) showFault(c echo.Context, was refused) error {
	if err := noQuery(c); err != nil {
		return err
	}
	number, err := numberID(c, 32)
	if err != nil {
		return dlq.ErrNotFound
	}
	ctx, here, id := c.Request().Context(), localeOf(c), int32(number)
	f, err := s.Faults.Get(ctx, id)
	if err != nil {
		return fmt.Errorf("get fault %d: %w", id, err)
	}
	filter := dlq.LetterFilter{FaultID: id}
	letters, err := s.Letters.List(ctx, filter, dlq.Page{Limit: faultLetters})
	if err != nil {
		return fmt.Errorf("list letters of fault %d: %w", id, err)
	}
	all, bounded, err := s.Letters.Count(ctx, filter)
	if err != nil {
		return fmt.Errorf("count letters of fault %d: %w", id, err)
	}
	running, err := s.runningReplay(c, id)
	if err != nil {
		return err
	}
	name := "F-" + strconv.Itoa(int(id))
	v := views.Fault{
		Frame: s.pageFrame(c, "faults", name, crumbs(here, "faults", name)...), Row: faultRow(here, f), FirstSeen: f.FirstSeen,
		Resolved: int(f.Resolved), Discarded: int(f.Discarded), Replaying: int(f.Replaying), Dialect: f.Dialect, Origin: deref(f.OriginTopic),
		Stays: staying(f), MoreHref: address("/letters", "fault_id", strconv.Itoa(int(id))), MoreCount: countWords(here, all, bounded),
		Replay: s.replayForm(c, faultReason(here, f), was), Running: running,
	}
	if err := s.addTriage(c, &v, f); err != nil {
		return err
	}
	if v.Replay.Target, err = s.narrowest(c, letters.Items); err != nil {
		return err
	}
	if len(v.Stays) > 0 {
		if v.Reasons, err = s.faultReasons(c, id); err != nil {
			return err
		}
	}
	for _, l := range letters.Items {
		v.Letters = append(v.Letters, s.letterRow(actorOf(c), l, address("", "fault_id", strconv.Itoa(int(id)))))
	}
	return render(c, was.status(), views.FaultPage(v))
}

// addTriage is what people do with a fault beyond replays, and have done.
func (s *Server) addTriage(c echo.Context, v *views.Fault, f dlq.Fault) (err error) {
	ctx, here := c.Request().Context(), localeOf(c)
	if v.Triage, err = s.triageForm(c); err != nil {
		return err
	}
	said, err := s.Faults.Comments(ctx, f.ID)
	if err != nil {
		return fmt.Errorf("list comments on fault %d: %w", f.ID, err)
	}
	v.Comments = commentRows(said)
	commands, err := s.Bulks.OfFault(ctx, f.ID)
	if err != nil {
		return fmt.Errorf("list commands on fault %d: %w", f.ID, err)
	}
	for _, b := range commands {
		v.Commands = append(v.Commands, commandRow(here, b))
	}
	v.Links = s.faultLinks(f)
	v.Exports = exportLinks(here, "/letters/export", []string{"fault_id", strconv.Itoa(int(f.ID))})
	return nil
}

func commentRows(said []dlq.Comment) []views.CommentRow {
	var rows []views.CommentRow
	for _, m := range said {
		rows = append(rows, views.CommentRow{By: m.By, Text: m.Text, At: m.At})
	}
	return rows
}

// narrowest is the target that exists for a fault's letters: they share group and
// origin, so that one speaks for all.
func (s *Server) narrowest(c echo.Context, letters []dlq.Letter) (string, error) {
	if len(letters) == 0 {
		return "group", nil
	}
	judged, err := s.Judge.JudgeLetters(c.Request().Context(), []uuid.UUID{letters[0].ID}, dlq.ToGroup)
	if err != nil {
		return "", fmt.Errorf("judge letter %s: %w", letters[0].ID, err)
	}
	if len(judged) == 1 && judged[0].Route == nil {
		return "origin", nil
	}
	return "group", nil
}

// faultReason is the reason that the form starts with.
func faultReason(here locale.Locale, f dlq.Fault) string {
	key := "fault.reason"
	if f.SafeCount() == 0 {
		key = "fault.reason_plan"
	}
	return here.Text(key, "id", strconv.Itoa(int(f.ID)))
}

// staying is what a safe replay of the fault leaves.
func staying(f dlq.Fault) []ui.Count {
	var stay []ui.Count
	for _, count := range verdictSplit(f.Verdicts) {
		if !verdictsByName[count.Name].MaySend() {
			stay = append(stay, count)
		}
	}
	return stay
}

// faultReasons say why the letters that stay do, and what to do about it.
func (s *Server) faultReasons(c echo.Context, fault int32) ([]views.FaultReason, error) {
	found, err := s.Faults.Reasons(c.Request().Context(), fault)
	if err != nil {
		return nil, fmt.Errorf("reasons of fault %d: %w", fault, err)
	}
	here := localeOf(c)
	var rows []views.FaultReason
	for _, r := range found.Items {
		row := views.FaultReason{Verdict: r.Verdict.String(), Why: here.Text(whyKey(found.Sample, r.Varies),
			"count", locale.Number(r.N), "of", locale.Number(found.Sample), "why", reasonText(here, r.Reason))}
		if help := "fault.help." + strings.TrimPrefix(r.Reason.Key, "reason."); locale.Has(help) {
			row.Help = here.Text(help)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// whyKey is the sentence for a reason: whether all letters were looked at, and
// whether it reads the same for each.
func whyKey(sample int64, varies bool) string {
	key := "fault.why_all"
	if sample == dlq.ReasonSample {
		key = "fault.why_newest"
	}
	if varies {
		key += "_varies"
	}
	return key
}

// runningReplay is the newest replay that works on the fault, nil none.
func (s *Server) runningReplay(c echo.Context, fault int32) (*views.RunningReplay, error) {
	page, err := s.Replays.List(c.Request().Context(), dlq.ReplayFilter{State: dlq.Running, FaultID: fault}, dlq.Page{Limit: 1})
	if err != nil {
		return nil, fmt.Errorf("find running replay of fault %d: %w", fault, err)
	}
	if len(page.Items) == 0 {
		return nil, nil
	}
	r := page.Items[0]
	return &views.RunningReplay{ID: r.ID, State: replayStateWord(r), Sent: r.Sent, Total: r.Total}, nil
}

// countWords is "184 letters", or "10,000+ letters" where there are more.
func countWords(here locale.Locale, n int64, bounded bool) string {
	if bounded {
		return here.Text("count.letters_bounded", "count", locale.Number(n)+"+")
	}
	return here.Text("count.letters", "n", n)
}
