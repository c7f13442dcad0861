package config

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Link leads from a letter or fault to where traces or logs are read. Its URL
// holds names in braces that are filled in.
type Link struct {
	Pos  Pos
	Name string
	URL  string
}

// LinkNames are what a link's URL may hold in braces, besides {header.NAME}.
var LinkNames = []string{"event_id", "consumer_group", "cluster", "source", "origin_topic", "error_class",
	"failed_at", "failed_at_ms", "from_ms", "to_ms", "fault_id", "letter_id"}

var placeholder = regexp.MustCompile(`\{([^{}]*)\}`)

func readLink(n node) Link {
	l := Link{Pos: n.Pos()}
	n.Object(fields{
		"name": func(n node) { n.Text(&l.Name) },
		"url":  func(n node) { n.Text(&l.URL); checkLink(n, l.URL) },
	}, "name", "url")
	return l
}

func checkLink(n node, text string) {
	for _, m := range placeholder.FindAllStringSubmatch(text, -1) {
		header, ok := strings.CutPrefix(m[1], "header.")
		if ok && header != "" || slices.Contains(LinkNames, m[1]) {
			continue
		}
		n.Fail("{%s} is not one of {%s}, {header.NAME}", m[1], strings.Join(LinkNames, "}, {"))
	}
	u, err := url.Parse(placeholder.ReplaceAllString(text, "x"))
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		n.Fail("has to be a http or https address")
	}
	if before, _, _ := strings.Cut(text, "{"); strings.Count(before, "/") < 3 && strings.Contains(text, "{") {
		n.Fail("may hold names in braces only behind the host")
	}
}
