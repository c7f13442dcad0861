package reconcile

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// The proof of three sides says, too, why what was published exceeds what was
// consumed; and does not foot where it cannot.
func TestProofOfWhatWasPublished(t *testing.T) {
	t.Parallel()
	g := openGenerated(t, Outbox, Consumed, Effect)
	match := strings.Replace(matchOne, "consumed_time", "outbox_time: at, consumed_time", 1)
	g.add("three", "pg", jobText("pg", "pg", match)+"outbox:"+sideText("my", "outbox")+"\n")
	at := 30 * time.Minute
	g.fill("outbox", []fact{{"whole", "1.00", "CNY", at}, {"lost", "10.00", "CNY", at}, {"less", "7.00", "CNY", at}, {"edge", "100.00", "CNY", -time.Minute}, {"late", "1000.00", "CNY", at}})
	rest := []fact{{"whole", "1.00", "CNY", at}, {"less", "5.00", "CNY", at}, {"edge", "100.00", "CNY", time.Minute}, {"late", "1000.00", "CNY", 3 * time.Hour}, {"alien", "0.50", "CNY", at}}
	g.fill("consumed", rest)
	g.fill("effect", rest)
	for name, c := range g.comparisons {
		o, err := c.evaluate(t.Context(), hour(noon), noon.Add(1000*time.Hour), 100)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got, err := json.Marshal(o.tally.Upstream)
		if err != nil {
			t.Fatal(err)
		}
		same(t, name, string(got), `{"amount_mismatch":{"CNY":{"Keys":1,"Amount":"2"}},"edge":{"CNY":{"Keys":1,"Amount":"-100"}},"not_published":{"CNY":{"Keys":1,"Amount":"-0.5"}},`+
			`"published_not_consumed":{"CNY":{"Keys":1,"Amount":"10"}},"timing":{"CNY":{"Keys":1,"Amount":"1000"}}}`)
		same(t, "difference", o.tally.UpstreamDifference("CNY"), "911.5")
		same(t, "foots", o.tally.Foots(), true)
		delete(o.tally.Upstream, string(PublishedNotConsumed))
		same(t, "foots without a line", o.tally.Foots(), false)
		same(t, "is left", o.tally.UpstreamUnexplained("CNY"), "10")
	}
}
