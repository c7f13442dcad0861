package web

import (
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"oncemore/dlq"
	"oncemore/views"
)

// Link leads to where traces or logs of a letter are read. Names in braces in its
// URL are filled in; {header.NAME} is a header of the letter.
type Link struct {
	Name string
	URL  string
}

var linkName = regexp.MustCompile(`\{([^{}]*)\}`)

// linkMargin is how far {from_ms} and {to_ms} lie around the failure.
const linkMargin = 15 * time.Minute

// linksFor fills in the links; one that asks for what is not known is left out.
func linksFor(links []Link, values map[string]string, headers []dlq.Header) []views.OutLink {
	var out []views.OutLink
	for _, l := range links {
		whole := true
		href := linkName.ReplaceAllStringFunc(l.URL, func(m string) string {
			value := linkValue(m[1:len(m)-1], values, headers)
			whole = whole && value != ""
			return strings.ReplaceAll(url.QueryEscape(value), "+", "%20")
		})
		if whole {
			out = append(out, views.OutLink{Label: l.Name, Href: href})
		}
	}
	return out
}

func linkValue(name string, values map[string]string, headers []dlq.Header) string {
	header, ok := strings.CutPrefix(name, "header.")
	if !ok {
		return values[name]
	}
	for _, h := range headers {
		if strings.EqualFold(h.Name, header) {
			return h.Text()
		}
	}
	return ""
}

func (s *Server) letterLinks(l dlq.Letter, headers []dlq.Header) []views.OutLink {
	at := l.DrainedAt
	if l.FailedAt != nil {
		at = *l.FailedAt
	}
	values := map[string]string{"event_id": deref(l.EventID), "consumer_group": deref(l.Group), "cluster": l.Cluster, "source": l.Source,
		"origin_topic": deref(l.Origin.Topic), "error_class": deref(l.ErrorClass), "fault_id": plainID(l.FaultID), "letter_id": l.ID.String()}
	addMoments(values, at, at)
	return linksFor(s.Links, values, headers)
}

func (s *Server) faultLinks(f dlq.Fault) []views.OutLink {
	values := map[string]string{"consumer_group": deref(f.Group), "cluster": f.Cluster, "source": f.Source,
		"origin_topic": deref(f.OriginTopic), "error_class": deref(f.ErrorClass), "fault_id": plainID(f.ID)}
	addMoments(values, f.FirstSeen, f.LastSeen)
	return linksFor(s.Links, values, nil)
}

func addMoments(values map[string]string, first, last time.Time) {
	values["failed_at"] = last.UTC().Format(time.RFC3339)
	values["failed_at_ms"] = strconv.FormatInt(last.UnixMilli(), 10)
	values["from_ms"] = strconv.FormatInt(first.Add(-linkMargin).UnixMilli(), 10)
	values["to_ms"] = strconv.FormatInt(last.Add(linkMargin).UnixMilli(), 10)
}
