package dlq

import (
	"errors"
	"fmt"
)

// ErrNotFound is returned for a letter, fault or body that is not there.
var ErrNotFound = errors.New("dlq: not found")

// ErrBadFilter says which key of a list's query is wrong, and why.
type ErrBadFilter struct {
	Field  string // API name: state, cursor, limit, …
	Reason string // English, such as "must be one of open, replaying, resolved, discarded"
}

// Error is "dlq: bad filter <field>: <reason>".
func (e *ErrBadFilter) Error() string {
	return fmt.Sprintf("dlq: bad filter %s: %s", e.Field, e.Reason)
}

// ErrBadPattern is returned for a source pattern that cannot be used.
var ErrBadPattern = errors.New("dlq: bad source pattern")
