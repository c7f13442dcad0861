package web

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"oncemore/dlq"
	"oncemore/views"
	"oncemore/views/locale"
	"oncemore/views/ui"
)

// instants are the values of reasons that hold a time.
var instants = []string{"at", "since", "event_time"}

// reasonText is a reason in the reader's language and zone.
func reasonText(here locale.Locale, r dlq.Reason) string {
	return sentence(here, r.Key, r.Args, r.Text)
}

// sentence is a text of a domain package in the reader's language; english stands
// where the catalog does not know the key.
func sentence(here locale.Locale, key string, args map[string]any, english string) string {
	if !locale.Has(key) {
		return english
	}
	pairs := make([]any, 0, 2*len(args))
	for name, value := range args {
		pairs = append(pairs, name, readableValue(here, name, value))
	}
	return here.Text(key, pairs...)
}

// readableValue writes times in the reader's zone, verdicts and outcomes in
// words, and ids and offsets without separators.
func readableValue(here locale.Locale, name string, value any) any {
	text, ok := value.(string)
	if !ok {
		return plainNumber(name, value)
	}
	if slices.Contains(instants, name) {
		if t, err := time.Parse(time.RFC3339, text); err == nil {
			return here.Clock(t)
		}
	}
	switch name {
	case "verdict", "outcome":
		if key := name + "." + text; locale.Has(key) {
			return here.Text(key)
		}
	case "was", "is":
		if key := "state.letter." + text; locale.Has(key) {
			return here.Text(key)
		}
	case "kept", "window", "waited":
		if d, err := time.ParseDuration(text); err == nil {
			return here.Duration(d)
		}
	}
	return text
}

// plainNumber: numbers that come from JSON are floats; ids are not counts.
func plainNumber(name string, value any) any {
	if f, ok := value.(float64); ok {
		value = int64(f)
	}
	switch name {
	case "replay", "compensation", "item", "partition":
		return fmt.Sprint(value)
	}
	return value
}

// brokerNames are how the brokers spell themselves.
var brokerNames = map[string]string{"kafka": "Kafka", "rabbitmq": "RabbitMQ"}

func place(broker, source string) string {
	name, ok := brokerNames[broker]
	if !ok {
		name = broker
	}
	return name + " · " + source
}

// verdictSplit lists the verdicts in the order of bars. What is not judged yet
// has its own part.
func verdictSplit[I int | int64](counts map[dlq.Verdict]I) []ui.Count {
	var split []ui.Count
	for _, name := range ui.VerdictOrder {
		if n := counts[verdictsByName[name]]; n > 0 {
			split = append(split, ui.Count{Name: name, N: int(n)})
		}
	}
	return split
}

// outcomeSplit lists the outcomes in the order of bars; waiting is what was not sent yet.
func outcomeSplit(counts map[dlq.Outcome]int) []ui.Count {
	named := outcomeCounts(counts)
	var split []ui.Count
	for _, name := range ui.OutcomeOrder {
		if n := named[name]; n > 0 {
			split = append(split, ui.Count{Name: name, N: n})
		}
	}
	return split
}

// options lists names as the choices of a filter.
func options(names map[string]bool) []ui.Option {
	var all []ui.Option
	for name := range names {
		if name != "" {
			all = append(all, ui.Option{Value: name, Label: name})
		}
	}
	slices.SortFunc(all, func(a, b ui.Option) int { return strings.Compare(a.Value, b.Value) })
	return all
}

// withChosen keeps the present value among the choices, even if nothing has it now.
func withChosen(choices []ui.Option, value string) []ui.Option {
	if value == "" || slices.ContainsFunc(choices, func(o ui.Option) bool { return o.Value == value }) {
		return choices
	}
	return append(choices, ui.Option{Value: value, Label: value})
}

func params(pairs ...string) []views.Param {
	var all []views.Param
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			all = append(all, views.Param{Name: pairs[i], Value: pairs[i+1]})
		}
	}
	return all
}
