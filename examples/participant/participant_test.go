package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"oncemore/consumer/barrier"
	"oncemore/migrations/pgtest"
)

// The example does what its documentation says, call by call.
func TestParticipant(t *testing.T) {
	t.Parallel()
	pool := pgtest.Open(t, pgtest.Empty(t))
	if err := migrate(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), "INSERT INTO account VALUES ('ada', 8, 0)"); err != nil {
		t.Fatal(err)
	}
	server := handler(pool)
	for _, c := range []struct {
		saga, op, path string
		status         int
		decision       barrier.Decision
		points, held   int
	}{
		{"C-1", "try", "/reserve", 200, barrier.Applied, 3, 5},
		{"C-1", "try", "/reserve", 200, barrier.Duplicate, 3, 5},
		{"C-2", "try", "/reserve", 422, "", 3, 5}, // too few are left
		{"C-2", "cancel", "/release", 200, barrier.Empty, 3, 5},
		{"C-2", "try", "/reserve", 409, barrier.Suspended, 3, 5},
		{"C-3", "confirm", "/confirm", 425, "", 3, 5},
		{"C-1", "confirm", "/confirm", 200, barrier.Applied, 3, 0},
		{"C-1", "confirm", "/confirm", 200, barrier.Duplicate, 3, 0},
		{"C-1", "cancel", "/release", 422, "", 3, 0},
		{"", "try", "/reserve", 400, "", 3, 0},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, c.path, strings.NewReader(`{"account":"ada","points":5}`))
		r.Header = http.Header{barrier.SagaHeader: {c.saga}, barrier.StepHeader: {"reserve"}, barrier.OpHeader: {c.op}}
		w := httptest.NewRecorder()
		server.ServeHTTP(w, r)
		if w.Code != c.status || w.Header().Get(barrier.DecisionHeader) != string(c.decision) {
			t.Errorf("%s of %s: %d %q, want %d %q", c.op, c.saga, w.Code, w.Header().Get(barrier.DecisionHeader), c.status, c.decision)
		}
		var points, held int
		if err := pool.QueryRow(t.Context(), "SELECT points, reserved FROM account").Scan(&points, &held); err != nil || points != c.points || held != c.held {
			t.Errorf("after %s of %s: %d points, %d held, want %d and %d (%v)", c.op, c.saga, points, held, c.points, c.held, err)
		}
	}
}
