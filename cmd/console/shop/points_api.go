package shop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/jackc/pgx/v5"
)

// pointsCall is a request to the points service. The amount is a decimal, as
// text or as a JSON number.
type pointsCall struct {
	EventID string      `json:"eventId"`
	Amount  json.Number `json:"amount"`
}

// pointsAnswer is what it says: what the event is credited with now, by how many
// entries. Done is false where there was nothing to do.
type pointsAnswer struct {
	EventID  string `json:"eventId,omitempty"`
	Amount   string `json:"amount,omitempty"`
	Currency string `json:"currency,omitempty"`
	Entries  int    `json:"entries,omitempty"`
	Done     bool   `json:"done"`
	Error    string `json:"error,omitempty"`
}

// pointsAPI adds the points service, which repairs call, to the gateway:
//
//	POST /credit, /reverse {eventId, amount}   book points, or take them back
//	POST /announce {eventId}                   tell the customer
//	GET  /credits/{event}                      the balance; 404: nothing is credited
//	GET  /requests/{key}                       what a request answered; 404: it never came
//
// Each POST carries an Idempotency-Key. The same request again changes nothing
// and gets the same answer; another one under that key is refused.
func (s *Shop) pointsAPI(mux *http.ServeMux) {
	mux.HandleFunc("POST /credit", s.keyed(credit))
	mux.HandleFunc("POST /reverse", s.keyed(reverse))
	mux.HandleFunc("POST /announce", s.keyed(announce))
	mux.HandleFunc("GET /credits/{event}", s.credits)
	mux.HandleFunc("GET /requests/{key}", s.request)
}

// pointsAct does one request in the transaction that keeps its answer. A status
// of 500 or more keeps nothing: the request may come again.
type pointsAct func(ctx context.Context, tx pgx.Tx, call pointsCall) (int, pointsAnswer, error)

func (s *Shop) keyed(act pointsAct) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		status, answer, err := s.actOnce(r, act)
		if err != nil {
			s.log.WarnContext(r.Context(), "points service", "path", r.URL.Path, "error", err)
			status, answer = http.StatusInternalServerError, `{"done":false,"error":"the request could not be kept"}`
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		io.WriteString(w, answer) //nolint:errcheck // the caller is gone
	}
}

func refused(status int, why string) (int, pointsAnswer, error) {
	return status, pointsAnswer{Error: why}, nil
}

func (s *Shop) actOnce(r *http.Request, act pointsAct) (status int, answer string, err error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<16))
	if err != nil {
		return 0, "", err
	}
	key, call, wrong := r.Header.Get("Idempotency-Key"), pointsCall{}, ""
	switch err := json.Unmarshal(body, &call); {
	case key == "":
		wrong = "Idempotency-Key is missing"
	case err != nil || call.EventID == "":
		wrong = "the body has to be JSON with eventId"
	}
	if wrong != "" {
		_, a, _ := refused(http.StatusBadRequest, wrong)
		return http.StatusBadRequest, a.text(), nil
	}
	fingerprint := r.URL.Path + " " + call.EventID + " " + call.Amount.String()
	err = pgx.BeginFunc(r.Context(), s.pool, func(tx pgx.Tx) error {
		status, answer, err = keepAnswer(r.Context(), tx, key, fingerprint, func() (int, pointsAnswer, error) { return act(r.Context(), tx, call) })
		return err
	})
	return status, answer, err
}

func (a pointsAnswer) text() string {
	b, _ := json.Marshal(a) //nolint:errchkjson // texts and numbers always marshal
	return string(b)
}

const (
	sqlLockKey   = `select pg_advisory_xact_lock(hashtextextended($1, 7))`
	sqlAnswerGet = `select request, status, answer from points_request where key = $1`
	sqlAnswerPut = `insert into points_request (key, request, status, answer) values ($1, $2, $3, $4)`
)

func keepAnswer(ctx context.Context, tx pgx.Tx, key, request string, act func() (int, pointsAnswer, error)) (status int, answer string, err error) {
	if _, err := tx.Exec(ctx, sqlLockKey, key); err != nil {
		return 0, "", fmt.Errorf("lock request %s: %w", key, err)
	}
	rows, err := tx.Query(ctx, sqlAnswerGet, key)
	if err != nil {
		return 0, "", fmt.Errorf("look for request %s: %w", key, err)
	}
	var before string
	tag, err := pgx.ForEachRow(rows, []any{&before, &status, &answer}, func() error { return nil })
	switch {
	case err != nil:
		return 0, "", fmt.Errorf("read request %s: %w", key, err)
	case tag.RowsAffected() > 0 && before != request:
		_, a, _ := refused(http.StatusUnprocessableEntity, "the Idempotency-Key was used for another request")
		return http.StatusUnprocessableEntity, a.text(), nil
	case tag.RowsAffected() > 0:
		return status, answer, nil
	}
	status, a, err := act()
	if err != nil || status >= http.StatusInternalServerError {
		return status, a.text(), err
	}
	if _, err := tx.Exec(ctx, sqlAnswerPut, key, request, status, a.text()); err != nil {
		return 0, "", fmt.Errorf("keep request %s: %w", key, err)
	}
	return status, a.text(), nil
}

func (s *Shop) credits(w http.ResponseWriter, r *http.Request) {
	a, err := balance(r.Context(), s.pool, r.PathValue("event"))
	switch {
	case err != nil:
		s.log.WarnContext(r.Context(), "points service", "path", r.URL.Path, "error", err)
		http.Error(w, "the ledger does not answer", http.StatusServiceUnavailable)
	case a.Entries == 0 || a.Amount == "0.00":
		http.Error(w, "nothing is credited", http.StatusNotFound)
	default:
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, a.text()) //nolint:errcheck // the caller is gone
	}
}

func (s *Shop) request(w http.ResponseWriter, r *http.Request) {
	var request, answer string
	var status int
	switch err := s.pool.QueryRow(r.Context(), sqlAnswerGet, r.PathValue("key")).Scan(&request, &status, &answer); {
	case errors.Is(err, pgx.ErrNoRows):
		http.Error(w, "there was no such request", http.StatusNotFound)
		return
	case err != nil:
		http.Error(w, "the ledger does not answer", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	io.WriteString(w, answer) //nolint:errcheck // the caller is gone
}
