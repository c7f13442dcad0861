package shop

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tidwall/gjson"
	"io"
)

// The gateway is flaky on purpose: of so many calls one fails before it did
// anything, and one after, as when an answer is lost.
const (
	failsBefore = 11
	failsAfter  = 17
)

// serveGateway answers notification calls until ctx ends.
func (s *Shop) serveGateway(ctx context.Context) error {
	var calls atomic.Int64
	mux := http.NewServeMux()
	mux.HandleFunc("POST /notifications/{channel}", func(w http.ResponseWriter, r *http.Request) {
		status, text := s.notify(r, calls.Add(1))
		http.Error(w, text, status)
	})
	s.pointsAPI(mux)
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	stop := context.AfterFunc(ctx, func() {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
		defer cancel()
		if srv.Shutdown(stopping) != nil {
			srv.Close()
		}
	})
	defer stop()
	if err := srv.Serve(s.gateway); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("notification gateway: %w", err)
	}
	return nil
}

// sqlNotify is what makes the gateway idempotent: a repeated key sends nothing.
const sqlNotify = `
insert into notification_log (event_id, channel) values ($1, $2)
on conflict (event_id, channel) do nothing`

func (s *Shop) notify(r *http.Request, call int64) (int, string) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		return http.StatusBadRequest, "the body ended early"
	}
	key := r.Header.Get("Idempotency-Key")
	switch {
	case key == "":
		return http.StatusBadRequest, "Idempotency-Key is missing"
	case call%failsBefore == 0:
		return http.StatusServiceUnavailable, "the carrier does not answer"
	case !strings.HasPrefix(gjson.GetBytes(body, "phone").String(), "+"):
		return http.StatusUnprocessableEntity, "the phone number has no country code"
	}
	if _, err := s.pool.Exec(r.Context(), sqlNotify, key, r.PathValue("channel")); err != nil {
		return http.StatusInternalServerError, "the notification could not be stored"
	}
	if call%failsAfter == 0 {
		return http.StatusServiceUnavailable, "the answer of the carrier was lost"
	}
	return http.StatusOK, "sent"
}
