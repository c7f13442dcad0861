package shop

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/migrations/pgtest"
)

// points is the points service over a ledger with its history.
type points struct {
	*testing.T
	shop *Shop
	url  string
}

func openPoints(t *testing.T) *points {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), pgtest.Empty(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	s := &Shop{pool: pool, log: slog.New(slog.DiscardHandler), Since: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}
	if err := prepare(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second start finds it filled
		if err := s.makeHistory(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	mux := http.NewServeMux()
	s.pointsAPI(mux)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return &points{t, s, server.URL}
}

func (p *points) call(method, path, key, body string) (int, string) {
	p.Helper()
	req, err := http.NewRequestWithContext(p.Context(), method, p.url+path, strings.NewReader(body))
	if err != nil {
		p.Fatal(err)
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		p.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		p.Fatal(err)
	}
	return resp.StatusCode, string(answer)
}

func (p *points) entries(event string) (n int) {
	p.Helper()
	if err := p.shop.pool.QueryRow(p.Context(), "select count(*) from points_ledger where event_id = $1", event).Scan(&n); err != nil {
		p.Fatal(err)
	}
	return n
}

// One key credits once, however many calls come at once.
func TestPointsAreCreditedOncePerKey(t *testing.T) {
	t.Parallel()
	p := openPoints(t)
	const lost = "payment-success-9074"
	if status, _ := p.call(http.MethodGet, "/credits/"+lost, "", ""); status != http.StatusNotFound {
		t.Errorf("before: %d", status)
	}
	var wait sync.WaitGroup
	for range 10 {
		wait.Go(func() {
			if status, answer := p.call(http.MethodPost, "/credit", "c-1:credit", `{"eventId":"`+lost+`","amount":"390.06"}`); status != http.StatusCreated {
				t.Errorf("credit: %d %s", status, answer)
			}
		})
	}
	wait.Wait()
	if n := p.entries(lost); n != 1 {
		t.Errorf("%d entries", n)
	}
	for path, body := range map[string]string{"/credit": `{"eventId":"` + lost + `","amount":"1.00"}`, "/reverse": `{"eventId":"` + lost + `","amount":"390.06"}`} {
		if status, _ := p.call(http.MethodPost, path, "c-1:credit", body); status != http.StatusUnprocessableEntity {
			t.Errorf("another request under the key: %s %d", path, status)
		}
	}
	for path, want := range map[string]int{"/credits/" + lost: 200, "/requests/c-1:credit": 200, "/requests/c-2:credit": 404} {
		if status, answer := p.call(http.MethodGet, path, "", ""); status != want {
			t.Errorf("%s: %d %s", path, status, answer)
		}
	}
}

func TestPointsAPIRefusesWhatMakesNoSense(t *testing.T) {
	t.Parallel()
	p := openPoints(t)
	for i, c := range []struct {
		path, key, body string
		want            int
	}{
		{"/credit", "", `{"eventId":"payment-success-9074","amount":"1"}`, 400},
		{"/credit", "a", `{"amount":"1"}`, 400},
		{"/credit", "a", `nonsense`, 400},
		{"/credit", "b", `{"eventId":"payment-success-9074","amount":"0.00"}`, 422},
		{"/credit", "c", `{"eventId":"payment-success-9074","amount":"-1"}`, 422},
		{"/credit", "d", `{"eventId":"payment-success-9074","amount":"1.001"}`, 422},
		{"/credit", "e", `{"eventId":"nobody","amount":"1.00"}`, 422},
		{"/reverse", "f", `{"eventId":"payment-success-9030","amount":"99999.00"}`, 422},
		{"/reverse", "g", `{"eventId":"payment-success-9074","amount":"1.00"}`, 200}, // nothing to do
	} {
		if status, answer := p.call(http.MethodPost, c.path, c.key, c.body); status != c.want {
			t.Errorf("%d: %d %s", i, status, answer)
		}
	}
	if n := p.entries("payment-success-9074"); n != 0 {
		t.Errorf("%d entries", n)
	}
}

// The second credit is taken back, once, and an announcement fails as often as
// somebody asked for.
func TestPointsAreReversedAndAnnounced(t *testing.T) {
	t.Parallel()
	p := openPoints(t)
	const twice = "payment-success-9030"
	for range 2 {
		if status, answer := p.call(http.MethodPost, "/reverse", "c-2:reverse", `{"eventId":"`+twice+`","amount":505.70}`); status != 200 || !strings.Contains(answer, `"amount":"505.70"`) {
			t.Errorf("reverse: %d %s", status, answer)
		}
	}
	if n := p.entries(twice); n != 3 {
		t.Errorf("%d entries", n)
	}
	for _, c := range []struct {
		stumble string
		want    []int
	}{{StumbleAnnounce, []int{503, 200, 200}}, {RefuseAnnounce, []int{422, 422}}} {
		if _, err := p.shop.pool.Exec(t.Context(), "insert into broken_handler (name) values ($1)", c.stumble); err != nil {
			t.Fatal(err)
		}
		for i, want := range c.want {
			if status, answer := p.call(http.MethodPost, "/announce", c.stumble, `{"eventId":"`+twice+`"}`); status != want {
				t.Errorf("%s, call %d: %d %s", c.stumble, i, status, answer)
			}
		}
	}
}
