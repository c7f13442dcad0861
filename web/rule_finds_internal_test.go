package web

import (
	"testing"
	"time"

	"oncemore/internal/alert"
	"oncemore/views/locale"
)

func TestARuleSaysItsLimit(t *testing.T) {
	t.Parallel()
	for want, r := range map[string]alert.Rule{
		"Sources whose oldest open letter is older than 1 d.":                                {Name: "age", OlderThan: 24 * time.Hour},
		"Drains that are more than 1,000 messages behind.":                                   {Name: "drain_lag", Above: 1000},
		"Jobs with more open than 1000.00 CNY, 200 USD and 5.":                               {Name: "at_risk", Amounts: map[string]string{"CNY": "1000.00", "none": "5", "USD": "200"}},
		"Jobs with much open money. It watches nothing until the config file names amounts.": {Name: "at_risk"},
		"Dead-letter topics and queues that hold messages and that nobody drains.":           {Name: "unattended"},
	} {
		if got := ruleFinds(locale.Locale{Tag: locale.English}, r); got != want {
			t.Errorf("%s: %q, want %q", r.Name, got, want)
		}
	}
}
