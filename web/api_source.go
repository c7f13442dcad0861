package web

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/labstack/echo/v4"

	"oncemore/dlq"
)

// sourceJSON is one dead-letter topic or queue: what is stored of it, how far the drain
// is, and whether anybody drains it. Null: not known in this process.
type sourceJSON struct {
	Cluster       string     `json:"cluster"`
	Source        string     `json:"source"`
	Drained       bool       `json:"drained"`  // by this process
	Attended      bool       `json:"attended"` // false: holds records and nobody drains it
	Open          *openAges  `json:"open"`     // null: no open letters are known
	Waiting       *int64     `json:"waiting"`  // records in the topic that are not stored yet, or messages ready in the queue
	Unacked       *int64     `json:"unacked"`  // of a queue: handed to a consumer and not acknowledged
	Copied        bool       `json:"copied"`   // of a queue: its messages are copied and stay
	LastArrivalAt *time.Time `json:"last_arrival_at"`
	LastError     *string    `json:"last_error"`
	LastErrorAt   *time.Time `json:"last_error_at"`
}

// openAges counts open letters by age; beyond ten thousand it says 10001.
type openAges struct {
	Hour  int64 `json:"under_1h"`
	Day   int64 `json:"under_24h"`
	Older int64 `json:"older"`
}

func (s *Server) apiSources(c echo.Context) error {
	if err := noQuery(c); err != nil {
		return err
	}
	overview, err := s.Overview.Overview(c.Request().Context())
	if err != nil {
		return fmt.Errorf("list sources: %w", err)
	}
	all := sources{}
	for _, row := range overview.Ages {
		all.at(row.Cluster, row.Source).Open = &openAges{Hour: row.Hour, Day: row.Day, Older: row.Older}
	}
	for _, status := range s.drained() {
		all.at(status.Cluster, status.Source).drained(status)
	}
	for _, u := range overview.Unattended {
		source := all.at(u.Cluster, u.Topic)
		source.Attended, source.Waiting = false, &u.Records
	}
	return answer(c, http.StatusOK, list[sourceJSON]{Items: all.sorted()})
}

// drained is how far the drains of this process are.
func (s *Server) drained() []dlq.SourceStatus {
	if s.Drained == nil {
		return nil
	}
	return s.Drained()
}

func (j *sourceJSON) drained(status dlq.SourceStatus) {
	j.Drained, j.Waiting, j.Unacked, j.Copied = true, &status.Waiting, status.Unacked, status.Copies
	j.LastArrivalAt, j.LastError, j.LastErrorAt = instant(&status.LastArrival), known(status.LastError), instant(&status.LastErrorAt)
}

type sources map[[2]string]*sourceJSON

func (m sources) at(cluster, name string) *sourceJSON {
	key := [2]string{cluster, name}
	if m[key] == nil {
		m[key] = &sourceJSON{Cluster: cluster, Source: name, Attended: true}
	}
	return m[key]
}

func (m sources) sorted() []sourceJSON {
	all := make([]sourceJSON, 0, len(m))
	for _, source := range m {
		all = append(all, *source)
	}
	slices.SortFunc(all, func(a, b sourceJSON) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Source, b.Source))
	})
	return all
}
