package web

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"oncemore/dlq"
	"oncemore/dlq/export"
)

// isExport reports whether the route sends a list of any length, which takes as
// long as it takes.
func isExport(c echo.Context) bool { return strings.HasSuffix(c.Path(), "/export") }

// exportStall is how long the reader of an export may not take anything.
const exportStall = time.Minute

var letterColumns = []string{"id", "state", "state_at", "event_id", "consumer_group", "cluster", "broker", "source", "dialect",
	"origin_topic", "origin_partition", "origin_offset", "error_class", "error_message", "attempts", "occurrences",
	"event_time", "failed_at", "drained_at", "fault_id", "replay_count", "verdict", "verdict_at", "owner", "flags"}

var faultColumns = []string{"id", "cluster", "broker", "source", "dialect", "origin_topic", "consumer_group", "error_class", "message",
	"first_seen", "last_seen", "open", "replaying", "resolved", "discarded", "safe", "owner", "mute_until", "note"}

// exportLetters sends a list's letters as a file, for pages and API alike.
func (s *Server) exportLetters(c echo.Context) error {
	q := parseQuery(c)
	format := export.Format(q.take("format"))
	q.takeWithin()
	filter := letterFilter(q)
	names, places := exportColumns(q.columns())
	if err := q.done(); err != nil {
		return err
	}
	actor := actorOf(c)
	return s.export(c, "letters", format, names, func(put func(...any) error) error {
		return s.Letters.Export(c.Request().Context(), actor, filter, string(format), func(l dlq.Letter) error {
			return put(picked(letterCells(letterFor(actor)(l)), places)...)
		})
	})
}

func letterCells(l letterJSON) []any {
	return []any{l.ID.String(), l.State, l.StateAt, l.EventID, l.ConsumerGroup, l.Cluster, l.Broker, l.Source, l.Dialect,
		l.Origin.Topic, l.Origin.Partition, l.Origin.Offset, l.Error.Class, l.Error.Message, l.Attempts, l.Occurrences,
		l.EventTime, l.FailedAt, l.DrainedAt, l.FaultID, l.ReplayCount, l.Verdict, l.VerdictAt, l.Owner, strings.Join(l.Flags, " ")}
}

func (s *Server) exportFaults(c echo.Context) error {
	q := parseQuery(c)
	format := export.Format(q.take("format"))
	filter := faultFilter(q)
	if err := q.done(); err != nil {
		return err
	}
	actor := actorOf(c)
	return s.export(c, "faults", format, faultColumns, func(put func(...any) error) error {
		return s.Faults.Export(c.Request().Context(), actor, filter, string(format), func(f dlq.Fault) error {
			return put(faultCells(faultFor(actor)(f), f.SafeCount())...)
		})
	})
}

func faultCells(f faultJSON, safe int64) []any {
	n := f.Counts
	return []any{f.ID, f.Cluster, f.Broker, f.Source, f.Dialect, f.OriginTopic, f.ConsumerGroup, f.Error.Class, f.Error.Message,
		f.FirstSeen, f.LastSeen, n.Open, n.Replaying, n.Resolved, n.Discarded, safe, f.Owner, f.MuteUntil, f.Note}
}

// export streams a file. What fails before the first row is an error page; what
// fails later cuts the connection, so that half a file does not pass for a whole one.
func (s *Server) export(c echo.Context, name string, format export.Format, columns []string, each func(put func(...any) error) error) error {
	out := &fileAnswer{c: c, name: fmt.Sprintf("%s-%s.%s", name, localeOf(c).Now.UTC().Format("20060102-150405"), format), format: format,
		control: http.NewResponseController(c.Response())}
	w, err := export.New(format, out, columns)
	if err == nil {
		err = each(func(cells ...any) error { return w.Write(cellsOf(cells)) })
	}
	if err == nil {
		err = w.Close()
	}
	if err == nil && !c.Response().Committed {
		_, err = out.Write(nil) // an empty table
	}
	if err != nil && c.Response().Committed {
		s.Logger.WarnContext(c.Request().Context(), "export ended early", "request_id", requestID(c), "file", name, "error", err)
		panic(http.ErrAbortHandler)
	}
	if err != nil {
		return fmt.Errorf("export %s: %w", name, err)
	}
	return nil
}

// cellsOf turns what the API writes into cells: pointers are followed, integers
// are of one size.
func cellsOf(values []any) []any {
	cells := make([]any, len(values))
	for i, v := range values {
		switch v := v.(type) {
		case *string:
			cells[i] = follow(v)
		case *int32:
			if v != nil {
				cells[i] = int64(*v)
			}
		case *int64:
			cells[i] = follow(v)
		case *time.Time:
			cells[i] = follow(v)
		case int32:
			cells[i] = int64(v)
		default:
			cells[i] = v
		}
	}
	return cells
}

func follow[T any](p *T) any {
	if p == nil {
		return nil
	}
	return *p
}

// fileAnswer begins the answer with the first bytes.
type fileAnswer struct {
	c       echo.Context
	name    string
	format  export.Format
	control *http.ResponseController
}

func (f *fileAnswer) Write(b []byte) (int, error) {
	r := f.c.Response()
	if !r.Committed {
		h := r.Header()
		h.Set(echo.HeaderContentType, f.format.MediaType())
		h.Set(echo.HeaderContentDisposition, fmt.Sprintf(`attachment; filename="%s"`, f.name))
		h.Set(echo.HeaderCacheControl, "no-store")
		r.WriteHeader(http.StatusOK)
	}
	// A server without deadlines, as in tests, has none to move.
	_ = f.control.SetWriteDeadline(time.Now().Add(exportStall))
	return r.Write(b)
}
