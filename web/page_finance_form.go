package web

import (
	"errors"
	"net/http"
	"strings"

	"oncemore/compensate"
	"oncemore/internal/access"
	"oncemore/reconcile"
	"oncemore/views/locale"
)

// spokenErrors are those of finance whose own words name what to do.
var spokenErrors = []error{
	reconcile.ErrWindow, reconcile.ErrPlan, reconcile.ErrKey, reconcile.ErrFile, reconcile.ErrBreakState, reconcile.ErrReasonCode,
	compensate.ErrVoid, compensate.ErrLimit, compensate.ErrNotFor, compensate.ErrInput, compensate.ErrTwice,
}

// financeRefusal turns what a command of reconciliation or compensation answered
// into a sentence for the form's page. False: it is no error that a form can mend.
func financeRefusal(here locale.Locale, err error, reason string) (refused, bool) {
	p := problemOf(err)
	mends := p.Status == http.StatusConflict || p.Status == http.StatusUnprocessableEntity || errors.Is(err, reconcile.ErrOwnRun) || errors.Is(err, compensate.ErrOwn)
	if !mends || !locale.Has(p.Key+".title") {
		return refused{}, false
	}
	was := refused{Status: p.Status, Reason: reason, Text: here.Text("form.reason")}
	if !errors.Is(err, access.ErrReasonRequired) {
		was.Text = here.Text(p.Key+".title") + here.Text("sentence.stop") + here.Text(p.Key+".detail", "field", fieldOf(err)) + spoken(here, err)
	}
	return was, true
}

// spoken is what an error of finance says beyond its kind, in brackets.
func spoken(here locale.Locale, err error) string {
	if own := spokenWords(err); own != "" {
		return here.Text("sentence.gap") + "(" + own + ")"
	}
	return ""
}

// spokenWords are an error's own words, or none.
func spokenWords(err error) string {
	for _, kind := range spokenErrors {
		if _, own, ok := strings.Cut(err.Error(), kind.Error()+": "); ok && errors.Is(err, kind) {
			return own
		}
	}
	return ""
}
