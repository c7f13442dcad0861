package web

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/labstack/echo/v4"

	"oncemore/dlq"
	"oncemore/views"
	"oncemore/views/locale"
)

func (s *Server) sourceListPage(c echo.Context) error {
	if err := noQuery(c); err != nil {
		return err
	}
	ctx, here := c.Request().Context(), localeOf(c)
	overview, err := s.Overview.Overview(ctx)
	if err != nil {
		return fmt.Errorf("list sources: %w", err)
	}
	gaps, err := dlq.Gaps(ctx, s.Pool, time.Time{})
	if err != nil {
		return fmt.Errorf("list sources: %w", err)
	}
	rows, err := s.sourceRows(ctx, overview, gaps)
	if err != nil {
		return err
	}
	v := views.SourceList{
		Frame: s.pageFrame(c, "sources", here.Text("sources.title"), crumbsTo(here)...), Rows: rows,
	}
	if overview.UnattendedErr != "" {
		v.Error = here.Text("sources.partial", "why", overview.UnattendedErr)
	}
	for _, u := range overview.Unattended {
		v.Unattended = append(v.Unattended, views.UnattendedRow{Name: u.Topic, Cluster: u.Cluster, Records: int(u.Records)})
	}
	for _, g := range gaps {
		v.Gaps = append(v.Gaps, views.GapRow{Topic: g.Source, Partition: g.Partition, From: g.From, To: g.To, At: g.FoundAt})
	}
	return render(c, http.StatusOK, views.SourceListPage(v))
}

func crumbsTo(here locale.Locale) []views.Crumb {
	return []views.Crumb{{Label: here.Text("nav.dead_letters"), Href: "/faults"}, {Label: here.Text("sources.title")}}
}

// sourceKey names a source; the same topic name on two clusters is two.
type sourceKey struct{ cluster, name string }

// sourceRows joins what the drains of this process say with what is stored. A
// source that another process drains is known by its letters only.
func (s *Server) sourceRows(ctx context.Context, overview dlq.Overview, gaps []dlq.Gap) ([]views.SourceRow, error) {
	found := map[sourceKey]*views.SourceRow{}
	at := func(cluster, name string) *views.SourceRow {
		key := sourceKey{cluster, name}
		if found[key] == nil {
			found[key] = &views.SourceRow{Name: name, Cluster: cluster, State: "unknown", Href: address("/letters", "state", "open", "source", name, "cluster", cluster)}
		}
		return found[key]
	}
	faults, err := s.Faults.List(ctx, dlq.FaultFilter{Tab: dlq.TabAll}, dlq.Page{Limit: 200})
	if err != nil {
		return nil, fmt.Errorf("list sources of faults: %w", err)
	}
	for _, f := range faults.Items {
		if row := at(f.Cluster, f.Source); row.DrainedAt == nil || f.LastSeen.After(*row.DrainedAt) {
			row.DrainedAt = ptr(f.LastSeen)
		}
	}
	for _, a := range overview.Ages {
		at(a.Cluster, a.Source)
	}
	for _, status := range s.drained() {
		drainedRow(at(status.Cluster, status.Source), status)
	}
	for _, g := range gaps {
		row := at(g.Cluster, g.Source)
		row.State, row.Gaps = "gap", row.Gaps+int(g.To-g.From)
	}
	return s.counted(ctx, found)
}

func drainedRow(row *views.SourceRow, status dlq.SourceStatus) {
	row.State, row.Waiting, row.Copied = "drained", ptr(int(status.Waiting)), status.Copies
	if status.Unacked != nil {
		row.Unacked = ptr(int(*status.Unacked))
	}
	if status.Waiting > 0 && !status.Copies {
		row.State = "behind"
	}
	if status.LastError != "" {
		row.State, row.LastError = "unknown", status.LastError
	}
	if !status.LastArrival.IsZero() {
		row.DrainedAt = ptr(status.LastArrival)
	}
}

// counted adds how many letters each source has.
func (s *Server) counted(ctx context.Context, found map[sourceKey]*views.SourceRow) ([]views.SourceRow, error) {
	rows := make([]views.SourceRow, 0, len(found))
	for key, row := range found {
		filter := dlq.LetterFilter{Cluster: key.cluster, Source: key.name}
		stored, _, err := s.Letters.Count(ctx, filter)
		if err != nil {
			return nil, fmt.Errorf("count letters of %s: %w", key.name, err)
		}
		filter.State = dlq.Open
		open, _, err := s.Letters.Count(ctx, filter)
		if err != nil {
			return nil, fmt.Errorf("count letters of %s: %w", key.name, err)
		}
		row.Stored, row.Open = int(stored), int(open)
		rows = append(rows, *row)
	}
	slices.SortFunc(rows, func(a, b views.SourceRow) int {
		return cmp.Or(cmp.Compare(b.Gaps, a.Gaps), cmp.Compare(b.Open, a.Open), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Cluster, b.Cluster))
	})
	return rows, nil
}
