package web

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"oncemore/dlq"
	"oncemore/internal/access"
)

type faultJSON struct {
	ID            int32            `json:"id"`
	Cluster       string           `json:"cluster"`
	Broker        string           `json:"broker"`
	Source        string           `json:"source"`
	Dialect       string           `json:"dialect"`
	OriginTopic   *string          `json:"origin_topic"`
	ConsumerGroup *string          `json:"consumer_group"`
	Error         errorJSON        `json:"error"` // message: with its changing parts taken out
	FirstSeen     *time.Time       `json:"first_seen"`
	LastSeen      *time.Time       `json:"last_seen"`
	Counts        faultCounts      `json:"counts"`
	Verdicts      map[string]int64 `json:"verdicts"` // of the open letters
	Hours         [24]int64        `json:"hours"`    // arrivals, the present hour last
	Owner         *string          `json:"owner"`
	MuteUntil     *time.Time       `json:"mute_until"`
	Note          *string          `json:"note"`
	CameBackAt    *time.Time       `json:"came_back_at"` // letters arrived after all had been resolved or discarded

	Reasons *faultReasonsJSON `json:"reasons,omitempty"` // of one fault alone
}

// faultReasonsJSON say why letters of a fault stay where a safe replay takes others.
type faultReasonsJSON struct {
	LookedAt int64             `json:"looked_at"` // the newest open letters
	Items    []faultReasonJSON `json:"items"`
}

type faultReasonJSON struct {
	Verdict string `json:"verdict"`
	Letters int64  `json:"letters"` // of those looked at
	Reason  string `json:"reason"`
	Varies  bool   `json:"varies"` // other letters have it with other values
}

type faultCounts struct {
	Open      int64 `json:"open"`
	Replaying int64 `json:"replaying"`
	Resolved  int64 `json:"resolved"`
	Discarded int64 `json:"discarded"`
}

func faultFor(reader access.Actor) func(dlq.Fault) faultJSON {
	return func(f dlq.Fault) faultJSON {
		f.Message = *messageFor(reader, &f.Message)
		return faultOf(f)
	}
}

func faultOf(f dlq.Fault) faultJSON {
	return faultJSON{
		ID: f.ID, Cluster: f.Cluster, Broker: f.Broker, Source: f.Source, Dialect: f.Dialect,
		OriginTopic: f.OriginTopic, ConsumerGroup: f.Group, Error: errorJSON{Class: f.ErrorClass, Message: known(f.Message)},
		FirstSeen: instant(&f.FirstSeen), LastSeen: instant(&f.LastSeen),
		Counts:   faultCounts{Open: f.Open, Replaying: f.Replaying, Resolved: f.Resolved, Discarded: f.Discarded},
		Verdicts: verdictCounts(f.Verdicts), Hours: f.Hours, Owner: f.Owner, MuteUntil: instant(f.MuteUntil), Note: f.Note,
		CameBackAt: instant(f.CameBackAt),
	}
}

// verdictCounts names the verdicts and leaves the zeros out.
func verdictCounts[N int | int64](counts map[dlq.Verdict]N) map[string]N {
	named := map[string]N{}
	for v, n := range counts {
		switch {
		case n == 0:
		case v == 0:
			named["not_judged"] = n
		default:
			named[v.String()] = n
		}
	}
	return named
}

var faultStates = map[string]dlq.FaultTab{
	"": dlq.TabOpen, "open": dlq.TabOpen, "replaying": dlq.TabReplaying, "muted": dlq.TabMuted,
	"resolved": dlq.TabResolved, "discarded": dlq.TabDiscarded, "all": dlq.TabAll,
}

// faultFilter reads the filters that lists of faults have in common.
func faultFilter(q *query) dlq.FaultFilter {
	tab, err := choice("state", q.take("state"), faultStates)
	q.keep(err)
	f := dlq.FaultFilter{
		Tab: tab, Cluster: q.take("cluster"), Source: q.take("source"), Dialect: q.take("dialect"),
		Group: q.take("consumer_group"), ErrorClass: q.take("error_class"), OriginTopic: q.take("origin_topic"),
		Verdict: q.verdict(), Owner: q.owner(), Search: strings.TrimSpace(q.take("q")), Sort: q.take("sort"),
	}
	if age := q.age("older_than"); age > 0 {
		f.Before = q.now.Add(-age).Truncate(time.Second)
	}
	return f
}

func (s *Server) apiFaults(c echo.Context) error {
	q := parseQuery(c)
	filter, page := faultFilter(q), q.page()
	if err := q.done(); err != nil {
		return err
	}
	found, err := s.Faults.List(c.Request().Context(), filter, page)
	if err != nil {
		return fmt.Errorf("list faults: %w", err)
	}
	return answer(c, http.StatusOK, listOf(found.Items, found.Next, faultFor(actorOf(c))))
}

func (s *Server) apiFault(c echo.Context) error {
	if err := noQuery(c); err != nil {
		return err
	}
	id, err := numberID(c, 32)
	if err != nil {
		return err
	}
	fault, err := s.Faults.Get(c.Request().Context(), int32(id))
	if err != nil {
		return fmt.Errorf("get fault %d: %w", id, err)
	}
	out := faultFor(actorOf(c))(fault)
	if out.Reasons, err = s.apiFaultReasons(c, int32(id)); err != nil {
		return err
	}
	return answer(c, http.StatusOK, out)
}

func (s *Server) apiFaultReasons(c echo.Context, fault int32) (*faultReasonsJSON, error) {
	found, err := s.Faults.Reasons(c.Request().Context(), fault)
	if err != nil {
		return nil, fmt.Errorf("reasons of fault %d: %w", fault, err)
	}
	out := &faultReasonsJSON{LookedAt: found.Sample, Items: []faultReasonJSON{}}
	for _, r := range found.Items {
		out.Items = append(out.Items, faultReasonJSON{Verdict: r.Verdict.String(), Letters: r.N, Reason: reasonText(localeOf(c), r.Reason), Varies: r.Varies})
	}
	return out, nil
}
