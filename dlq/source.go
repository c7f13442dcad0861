package dlq

import (
	"fmt"
	"regexp"
	"strings"

	"oncemore/dlq/dialect"
)

// DrainSource is what is drained: the topics or queues that match Pattern, and
// what the config says of them.
type DrainSource struct {
	Pattern    string // * stands for any characters, ? for one
	Configured dialect.Configured
	Copy       bool // RabbitMQ: the messages are copied and stay in their queue
}

// exact reports a pattern that is one name.
func (s DrainSource) exact() bool { return !strings.ContainsAny(s.Pattern, "*?") }

// sourcePattern is a source ready to match.
type sourcePattern struct {
	DrainSource
	re *regexp.Regexp
}

// globPattern is the whole-name expression of a pattern.
func globPattern(glob string) string {
	quoted := regexp.QuoteMeta(glob)
	return "^" + strings.NewReplacer(`\*`, ".*", `\?`, ".").Replace(quoted) + "$"
}

// internalPrefix begins the names of Kafka's own topics, which are never drained,
// whatever a pattern says.
const internalPrefix = "__"

func compileSources(sources []DrainSource) ([]sourcePattern, error) {
	var out []sourcePattern
	for _, s := range sources {
		re, err := regexp.Compile(globPattern(s.Pattern))
		if err != nil || s.Pattern == "" {
			return nil, fmt.Errorf("source pattern %q: %w", s.Pattern, ErrBadPattern)
		}
		out = append(out, sourcePattern{s, re})
	}
	return out, nil
}

// match finds the first source that a topic belongs to.
func match(sources []sourcePattern, topic string) (DrainSource, bool) {
	if strings.HasPrefix(topic, internalPrefix) {
		return DrainSource{}, false
	}
	for _, s := range sources {
		if s.re.MatchString(topic) {
			return s.DrainSource, true
		}
	}
	return DrainSource{}, false
}
