package web

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"oncemore/dlq"
	"oncemore/internal/access"
	"oncemore/internal/check"
	"oncemore/views"
	"oncemore/views/locale"
)

// pageFrame is what surrounds a page of somebody signed in.
func (s *Server) pageFrame(c echo.Context, section, title string, crumbs ...views.Crumb) views.Frame {
	actor := actorOf(c)
	f := s.bareFrame(c, title)
	f.Section, f.Crumbs = section, crumbs
	f.User = &views.User{Name: actor.User, Role: string(actor.Role)}
	f.Nav = s.nav.counts(c.Request().Context(), s)
	return f
}

// crumbs are the steps to a page below one of the navigation's.
func crumbs(here locale.Locale, section, last string) []views.Crumb {
	up := []views.Crumb{{Label: here.Text("nav.dead_letters"), Href: "/faults"}}
	if section == "consumers" {
		up = nil
	}
	list := views.Crumb{Label: here.Text("nav." + section), Href: "/" + section}
	if last == "" {
		list.Href = ""
		return append(up, list)
	}
	return append(up, list, views.Crumb{Label: last})
}

// navCounts keeps what stands beside the navigation for a moment, so that a page
// costs no count of its own.
type navCounts struct {
	mu   sync.Mutex
	at   time.Time
	last views.NavCounts
}

const navCountsAge = 2 * time.Second

// counts never fails a page: what cannot be counted now is left out.
func (n *navCounts) counts(ctx context.Context, s *Server) views.NavCounts {
	n.mu.Lock()
	defer n.mu.Unlock()
	if time.Since(n.at) < navCountsAge {
		return n.last
	}
	counts, err := s.countNav(ctx)
	if err != nil {
		s.Logger.Warn("count for the navigation", "error", err)
	}
	n.last, n.at = counts, time.Now()
	return counts
}

func (s *Server) countNav(ctx context.Context) (views.NavCounts, error) {
	var counts views.NavCounts
	if s.Faults == nil { // a server without pages: its errors are told all the same
		return counts, nil
	}
	faults, err := s.Faults.Counts(ctx, dlq.FaultFilter{})
	if err != nil {
		return counts, fmt.Errorf("count faults: %w", err)
	}
	counts.Faults = ptr(int(faults[dlq.TabOpen]))
	letters, _, err := s.Letters.Count(ctx, dlq.LetterFilter{State: dlq.Open})
	if err != nil {
		return counts, fmt.Errorf("count letters: %w", err)
	}
	counts.Letters = ptr(int(letters))
	counts.Outbox = s.deadOutboxRows(ctx)
	breaks, err := s.Reconcile.Breaks.Outstanding(ctx, 100_000)
	if err != nil {
		return counts, fmt.Errorf("count breaks: %w", err)
	}
	counts.Breaks = ptr(breaks)
	counts.Alerts = s.openAlerts(ctx)
	findings, err := check.NewStore(s.Pool).Findings(ctx)
	if err != nil {
		return counts, fmt.Errorf("count findings: %w", err)
	}
	if len(findings) > 0 {
		counts.Checks = ptr(openChecks(findings, s.Clock()))
	}
	for state, count := range map[dlq.ReplayState]**int{dlq.Running: &counts.Replays, dlq.AwaitingApproval: &counts.Approvals} {
		page, err := s.Replays.List(ctx, dlq.ReplayFilter{State: state}, dlq.Page{Limit: 200})
		if err != nil {
			return counts, fmt.Errorf("count replays: %w", err)
		}
		*count = ptr(len(page.Items))
	}
	attention, waiting := s.waitingCompensations(ctx)
	counts.Compensations = attention
	if waiting != nil {
		*counts.Approvals += *waiting
	}
	return counts, nil
}

func ptr[T any](v T) *T { return &v }

func deref[T any](p *T) T {
	var zero T
	if p == nil {
		return zero
	}
	return *p
}

// small turns a count that is not known, or is, into a view's.
func small[I int | int32 | int64](n *I) *int {
	if n == nil {
		return nil
	}
	return ptr(int(*n))
}

// rolesOf names the roles that may do something, for the sentence in a button's place.
func rolesOf(here locale.Locale, act access.Act) string {
	var words []string
	for _, r := range access.RolesFor(act) {
		words = append(words, here.Text("role."+string(r)))
	}
	return here.List(words)
}

// address is path with the parameters that have a value, in the order given.
func address(path string, pairs ...string) string {
	var b strings.Builder
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] == "" {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('&')
		}
		b.WriteString(url.QueryEscape(pairs[i]) + "=" + url.QueryEscape(pairs[i+1]))
	}
	if b.Len() == 0 {
		return path
	}
	return path + "?" + b.String()
}
