package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"oncemore/dlq"
	"oncemore/internal/access"
	"oncemore/views"
	"oncemore/views/locale"
)

// careful is from how many items on the form of a plan proposes a ladder.
const careful = 31

const localTime = "2006-01-02T15:04"

// paceForm is a replay's pace, as typed where the form was refused.
func (s *Server) paceForm(c echo.Context, r dlq.Replay) views.PaceForm {
	here, p := localeOf(c), r.Pace
	may := actorOf(c).May(access.PlanReplay)
	f := views.PaceForm{ID: r.ID, Says: paceSays(here, p), Voids: r.ApprovedBy != nil}
	f.May = may && (r.State == dlq.Planned || r.State == dlq.AwaitingApproval || r.State == dlq.Paused && !r.ApprovalNeeded)
	if c.FormValue("pace") != "" {
		f.Ladder, f.Automatic, f.Rate, f.StopShare = c.FormValue("ladder"), c.FormValue("automatic") != "", c.FormValue("rate"), c.FormValue("stop_share")
		f.From, f.To, f.Zone, f.StartAt = c.FormValue("window_from"), c.FormValue("window_to"), c.FormValue("zone"), c.FormValue("start_at")
		return f
	}
	if r.State == dlq.Planned && isZero(p) && r.Total > careful {
		p = dlq.Pace{Ladder: dlq.DefaultLadder, Automatic: len(r.Overrides) == 0, StopShare: 5}
	}
	f.Ladder, f.Automatic, f.Rate, f.StopShare = ladderText(p.Ladder), p.Automatic, positive(p.Rate), positive(p.StopShare)
	f.Zone = zoneName(c)
	if p.Window != nil {
		f.From, f.To = p.Window.Hours()
		f.Zone = p.Window.Zone
	}
	if p.StartAt != nil {
		if zone, err := time.LoadLocation(f.Zone); err == nil {
			f.StartAt = p.StartAt.In(zone).Format(localTime)
		}
	}
	return f
}

func isZero(p dlq.Pace) bool {
	return len(p.Ladder) == 0 && p.Rate == 0 && p.StopShare == 0 && p.Window == nil && p.StartAt == nil
}

// zoneName is the reader's zone as a window names it.
func zoneName(c echo.Context) string {
	if name := zoneOf(c).String(); name != "Local" {
		return name
	}
	return "UTC"
}

func positive(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func ladderText(rungs []int) string {
	texts := make([]string, len(rungs))
	for i, n := range rungs {
		texts[i] = strconv.Itoa(n)
	}
	return strings.Join(texts, ", ")
}

// paceSays is a pace in sentences.
func paceSays(here locale.Locale, p dlq.Pace) []string {
	var says []string
	switch {
	case len(p.Ladder) > 0 && p.Automatic:
		says = append(says, here.Text("pace.says_automatic", "ladder", ladderText(p.Ladder)))
	case len(p.Ladder) > 0:
		says = append(says, here.Text("pace.says_ladder", "ladder", ladderText(p.Ladder)))
	default:
		says = append(says, here.Text("pace.says_all"))
	}
	if p.Rate > 0 {
		says = append(says, here.Text("pace.says_rate", "n", p.Rate))
	}
	if p.StopShare > 0 {
		says = append(says, here.Text("pace.says_stop", "share", p.StopShare))
	}
	if p.Window != nil {
		says = append(says, here.Text("pace.says_window", "window", p.Window.String()))
	}
	if p.StartAt != nil {
		says = append(says, here.Text("pace.says_at", "time", here.Exact(*p.StartAt)))
	}
	return says
}

// paceOfForm reads the fields of a pace.
func paceOfForm(c echo.Context) (dlq.Pace, error) {
	p := dlq.Pace{Automatic: c.FormValue("automatic") != ""}
	var err error
	if p.Ladder, err = wholes(c.FormValue("ladder")); err != nil {
		return p, &dlq.ErrBadFilter{Field: "ladder", Reason: "is whole numbers"}
	}
	p.Automatic = p.Automatic && len(p.Ladder) > 0
	for field, into := range map[string]*int{"rate": &p.Rate, "stop_share": &p.StopShare} {
		if text := strings.TrimSpace(c.FormValue(field)); text != "" {
			if *into, err = strconv.Atoi(text); err != nil {
				return p, &dlq.ErrBadFilter{Field: field, Reason: "is a whole number"}
			}
		}
	}
	zone := strings.TrimSpace(c.FormValue("zone"))
	from, to := c.FormValue("window_from"), c.FormValue("window_to")
	if from != "" || to != "" {
		if p.Window, err = dlq.ParseWindow(from, to, zone); err != nil {
			return p, err
		}
	}
	if p.StartAt, err = localMoment(c.FormValue("start_at"), zone); err != nil {
		return p, err
	}
	return p, p.Check()
}

func localMoment(text, zone string) (*time.Time, error) {
	if text == "" {
		return nil, nil
	}
	loc, err := time.LoadLocation(zone)
	if err != nil || zone == "" || zone == "Local" {
		return nil, &dlq.ErrBadFilter{Field: "window", Reason: "has a time zone that is not known"}
	}
	at, err := time.ParseInLocation(localTime, text, loc)
	if err != nil {
		return nil, &dlq.ErrBadFilter{Field: "start_at", Reason: "is a date and a time"}
	}
	return &at, nil
}

// wholes reads numbers between commas and spaces.
func wholes(text string) ([]int, error) {
	var all []int
	for _, part := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" ,;，、", r) }) {
		n, err := strconv.Atoi(part)
		if err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	return all, nil
}

// replaySetPace changes the pace of a plan.
func (s *Server) replaySetPace(c echo.Context) error {
	id, err := numberID(c, 64)
	if err != nil {
		return dlq.ErrNotFound
	}
	if err := s.takePace(c, id); err != nil {
		return s.refusePace(c, id, err)
	}
	r, err := s.Replays.Get(c.Request().Context(), id)
	if err != nil {
		return fmt.Errorf("get replay %d: %w", id, err)
	}
	at := fmt.Sprintf("/replays/%d", id)
	if r.State == dlq.Planned || r.State == dlq.AwaitingApproval {
		at += "/plan"
	}
	return c.Redirect(http.StatusSeeOther, at)
}

func (s *Server) takePace(c echo.Context, id int64) error {
	pace, err := paceOfForm(c)
	if err != nil {
		return err
	}
	if err := s.Replays.SetPace(c.Request().Context(), actorOf(c), id, pace); err != nil {
		return fmt.Errorf("pace of replay %d: %w", id, err)
	}
	return nil
}

// refusePace shows the plan again with what was wrong with its pace.
func (s *Server) refusePace(c echo.Context, id int64, err error) error {
	if bad, ok := errors.AsType[*dlq.ErrBadFilter](err); ok {
		was := refused{Status: http.StatusUnprocessableEntity, Text: localeOf(c).Text("pace.bad_" + bad.Field), Reason: c.FormValue("reason")}
		if _, err := s.again(c, fmt.Sprintf("/replays/%d/plan", id), was); err != nil {
			return err
		}
		return nil
	}
	return s.refuse(c, fmt.Sprintf("/replays/%d/plan", id), c.FormValue("reason"), err)
}

// replayStart starts a plan, with the pace of its form.
func (s *Server) replayStart(c echo.Context) error {
	id, err := numberID(c, 64)
	if err != nil {
		return dlq.ErrNotFound
	}
	if c.FormValue("pace") != "" {
		if err := s.takePace(c, id); err != nil {
			return s.refusePace(c, id, err)
		}
	}
	return s.replayAct(s.Replays.Start, "/replays/%d")(c)
}

// replayApprove approves the plan that the approver saw.
func (s *Server) replayApprove(c echo.Context) error {
	seen := c.FormValue("bound")
	return s.replayAct(func(ctx context.Context, actor access.Actor, id int64) error {
		return s.Replays.ApproveSeen(ctx, actor, id, seen)
	}, "/replays/%d/plan")(c)
}
