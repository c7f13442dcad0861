package web

import (
	"strconv"
	"strings"
	"time"

	"oncemore/dlq"
	"oncemore/internal/access"
)

// verdictChoices are the values of the filter by verdict.
var verdictChoices = func() map[string]dlq.Verdict {
	all := map[string]dlq.Verdict{"not_judged": dlq.NotJudged}
	for name, v := range verdictsByName {
		all[name] = v
	}
	return all
}()

var verdictChoiceNames = inverse(verdictChoices)

func (q *query) verdict() dlq.Verdict {
	name := q.take("verdict")
	if name == "" {
		return 0
	}
	v, err := choice("verdict", name, verdictChoices)
	q.keep(err)
	return v
}

// ownerMe stands for who asks.
const ownerMe = "me"

func (q *query) owner() string {
	if name := q.take("owner"); name != ownerMe {
		return name
	}
	return q.actor.User
}

// age reads a duration such as 7d or 36h; 0 where it is absent.
func (q *query) age(name string) time.Duration {
	text := q.take(name)
	if text == "" {
		return 0
	}
	d, err := parseAge(text)
	if err != nil {
		q.fail(name, "is an age such as 36h or 7d")
	}
	return d
}

// parseAge reads whole days, or what Go calls a duration.
func parseAge(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 12)
		if err != nil || n == 0 {
			return 0, strconv.ErrRange
		}
		return time.Duration(n) * 24 * time.Hour, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, strconv.ErrRange
	}
	return d, nil
}

// mayLookFor keeps those who may not read payloads from asking for their content
// piece by piece; event ids stand open to everybody.
func mayLookFor(actor access.Actor, f dlq.LetterFilter) error {
	terms, err := dlq.ParseTerms(f.Search)
	if err != nil {
		return err
	}
	content := f.Text != ""
	for _, t := range terms {
		content = content || t.Field != "event_id"
	}
	if content {
		return actor.Check(access.ReadPayload)
	}
	return nil
}

// letterPairs are a filter as an address carries it.
func letterPairs(f dlq.LetterFilter) []string {
	return []string{"state", letterStateNames[f.State], "q", f.Search, "text", f.Text, "text_case", caseName(f),
		"cluster", f.Cluster, "source", f.Source, "dialect", f.Dialect, "event_id", f.EventID,
		"consumer_group", f.Group, "fault_id", plainID(f.FaultID), "error_class", f.ErrorClass, "origin_topic", f.OriginTopic,
		"verdict", verdictChoiceNames[f.Verdict], "attempts_min", plainID(f.AttemptsMin), "attempts_max", plainID(f.AttemptsMax),
		"owner", f.Owner, "sort", f.Sort, "since", rfc(f.Since), "until", rfc(f.Until)}
}

// caseName is how a text is looked for, "" as it is written.
func caseName(f dlq.LetterFilter) string {
	if f.AnyCase {
		return "any"
	}
	return ""
}

// plainID is a number of an address, "" for 0.
func plainID(n int32) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(int(n))
}
