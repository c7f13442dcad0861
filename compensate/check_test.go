package compensate

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
)

// Whether a call of unknown outcome was applied is asked, and the call is not
// repeated.
func TestCheckAsksAndDoesNotRepeat(t *testing.T) {
	t.Parallel()
	b := openBank(t)
	b.define(strings.Replace(httpCredit, "attempts:", `probe: {url: "{{points-api}}/credits/{{key.event_id}}"}
timeout: 100ms
attempts:`, 1))
	b.answers(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body) // only then the server sees that the caller has gone
		<-r.Context().Done()
	})
	c := b.approved("call", b.missing("e-1", 100))
	if c = b.do(c.ID); c.State != NeedsAttention {
		t.Fatalf("%s: %s", c.State, text(c.Why, ""))
	}
	def, err := b.Actions.Current(t.Context(), "call")
	if err != nil {
		t.Fatal(err)
	}
	a, err := def.Parse()
	if err != nil {
		t.Fatal(err)
	}
	if steps, err := b.Steps(t.Context(), c.ID); err != nil || !a.CanCheck(steps) {
		t.Errorf("it cannot be checked: %+v, %v", steps, err)
	}
	b.answers(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	b.exec("INSERT INTO effect VALUES ('e-1', 100, $1)", noon)
	before := len(b.called())
	if err := b.Check(t.Context(), maker, c.ID); err != nil {
		t.Fatal(err)
	}
	if c = b.do(c.ID); c.State != Verified {
		t.Errorf("%s: %s", c.State, text(c.Why, ""))
	}
	for _, call := range b.called()[before:] {
		if strings.HasPrefix(call, http.MethodPost) {
			t.Errorf("%s was repeated", call)
		}
	}
	if err := b.Check(t.Context(), maker, c.ID); !errors.Is(err, ErrState) {
		t.Errorf("checking what is verified: %v", err)
	}
}
