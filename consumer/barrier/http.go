package barrier

import (
	"errors"
	"net/http"
)

// Headers of a saga's calls. A call also has an Idempotency-Key, which is the same
// for every repetition of one operation.
const (
	SagaHeader = "Oncemore-Saga"
	StepHeader = "Oncemore-Step"
	OpHeader   = "Oncemore-Op"
	// DecisionHeader is the participant's: what its barrier said.
	DecisionHeader = "Oncemore-Barrier"
)

// FromHeader reads the mark of a call. Error: ErrMark.
func FromHeader(h http.Header) (Mark, error) {
	m := Mark{Saga: h.Get(SagaHeader), Step: h.Get(StepHeader), Op: Op(h.Get(OpHeader))}
	return m, m.Check()
}

// Status is the HTTP status for a decision and an error of Enter: 200 for what is
// settled, 409 for a try that was cancelled before, 422 for what will never be
// right, 425 for a confirmation whose try is not there yet, 400 for a call without
// a mark, and 503 for an error of the database.
func Status(d Decision, err error) int {
	switch {
	case errors.Is(err, ErrMark):
		return http.StatusBadRequest
	case errors.Is(err, ErrNotTried):
		return http.StatusTooEarly
	case errors.Is(err, ErrCancelled), errors.Is(err, ErrConfirmed):
		return http.StatusUnprocessableEntity
	case err != nil:
		return http.StatusServiceUnavailable
	case d == Suspended:
		return http.StatusConflict
	}
	return http.StatusOK
}

// Answer writes the status of a decision and an error, and the decision as a
// header, after the transaction has ended.
func Answer(w http.ResponseWriter, d Decision, err error) {
	if err == nil {
		w.Header().Set(DecisionHeader, string(d))
	}
	w.WriteHeader(Status(d, err))
}
