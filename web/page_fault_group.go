package web

import (
	"fmt"

	"github.com/labstack/echo/v4"

	"oncemore/dlq"
	"oncemore/views"
)

func (s *Server) faultGroups(c echo.Context, q faultQuery) (*views.FaultGroups, error) {
	here := localeOf(c)
	g, err := s.Faults.GroupBy(c.Request().Context(), q.filter, q.by, s.firstOwnFrame)
	if err != nil {
		return nil, fmt.Errorf("group faults: %w", err)
	}
	v := &views.FaultGroups{By: string(q.by), More: g.More}
	if g.Sampled > 0 {
		key := "group.sample_all"
		if g.Bounded || int64(g.Sampled) < g.Of {
			key = "group.sample"
		}
		v.Note = here.Text(key, "n", g.Sampled, "count", countWords(here, g.Of, g.Bounded))
	}
	for _, one := range g.Groups {
		v.Rows = append(v.Rows, s.groupRow(c, q, one))
	}
	return v, nil
}

// groupRow leads to the faults of a group, or to the letters where only they
// are known to have something in common.
func (s *Server) groupRow(c echo.Context, q faultQuery, g dlq.FaultGroup) views.FaultGroupRow {
	row := views.FaultGroupRow{Name: g.Value, Faults: int(g.Faults), Letters: int(g.Open), LastSeen: g.LastSeen}
	inner := q
	inner.by = ""
	switch q.by {
	case dlq.BySource:
		row.Under, inner.filter.Source, inner.filter.Cluster = g.Cluster, g.Value, g.Cluster
	case dlq.ByGroup:
		inner.filter.Group = g.Value
	case dlq.ByClass:
		inner.filter.ErrorClass = g.Value
	case dlq.ByDialect:
		inner.filter.Dialect = g.Value
	case dlq.ByMessage:
		row.Name = *messageFor(actorOf(c), &g.Value)
		inner.filter.Search = cutBytesText(g.Value, 200)
	default:
		row.Code, row.Under = g.Value != "", g.Class
		if g.Value == "" && q.by == dlq.ByFrame {
			row.Name = localeOf(c).Text("group.no_frame")
		}
		row.Href = "/letters/" + g.Letter.String()
		return row
	}
	if g.Value != "" { // what is not known cannot be asked for
		row.Href = inner.address(q.filter.Tab, "")
	}
	return row
}

// cutBytesText is the start of a text, whole characters only.
func cutBytesText(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && s[limit]&0xC0 == 0x80 {
		limit--
	}
	return s[:limit]
}
