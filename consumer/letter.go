package consumer

import (
	"errors"
	"fmt"
	"strings"
)

// Letter is a delivery that was given up, and why.
type Letter struct {
	Event       // ID is "" when none was found; Attempt is how often it was tried
	Err   error // what the last attempt failed with
}

// ErrorTrace tells where err came from: the stack of a panic, else the chain of
// errors, outermost first, one per line with its type.
func ErrorTrace(err error) string {
	var panicked *PanicError
	if errors.As(err, &panicked) {
		return panicked.Error() + "\n" + string(panicked.Stack)
	}
	var b strings.Builder
	writeChain(&b, err, "")
	return b.String()
}

// writeChain skips our own marks: they say what to do, not what happened.
func writeChain(b *strings.Builder, err error, lead string) {
	if marked, ok := err.(*outcomeError); ok {
		writeChain(b, marked.err, lead)
		return
	}
	fmt.Fprintf(b, "%s%T: %s\n", lead, err, err)
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		if next := e.Unwrap(); next != nil {
			writeChain(b, next, "caused by ")
		}
	case interface{ Unwrap() []error }:
		for _, next := range e.Unwrap() {
			writeChain(b, next, "caused by ")
		}
	}
}
