package config_test

import (
	"strings"
	"testing"

	"oncemore/internal/config"
)

func TestLinks(t *testing.T) {
	t.Parallel()
	const base = "environment: shop\ndatabase: {url_env: DB}\nlinks:\n  - {name: Trace, url: "
	c, err := config.Parse("console.yaml", []byte(base+`"https://traces.internal/t/{header.trace-id}?e={event_id}&from={from_ms}"}`+"\n"))
	if err != nil || len(c.Links) != 1 || c.Links[0].Name != "Trace" {
		t.Fatalf("%+v, %v", c, err)
	}
	for url, want := range map[string]string{
		"https://x.internal/{payload}":       "{payload} is not one of {event_id}",
		"https://{header.host}/x":            "only behind the host",
		"javascript:alert({event_id})":       "http or https",
		"//x.internal/{event_id}":            "http or https",
		"https://x.internal/{header.}":       "is not one of",
		"https://x.internal:port/{event_id}": "http or https",
	} {
		_, err := config.Parse("console.yaml", []byte(base+`"`+url+`"}`+"\n"))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "links[0].url") {
			t.Errorf("%s: %v, want %q", url, err, want)
		}
	}
	if _, err := config.Parse("console.yaml", []byte("environment: shop\ndatabase: {url_env: DB}\nlinks:\n  - {name: Trace}\n")); err == nil {
		t.Error("a link without an address is taken")
	}
}
