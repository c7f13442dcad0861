// Package dialect reads how frameworks mark the messages they gave up on. The
// marks are described in dialects.yaml, which this package interprets; users may
// add a file of their own in the same form.
package dialect

import (
	"errors"
)

// The headers that a replay sets; stripped in every dialect.
const (
	HeaderReplay = "oncemore-replay"
	HeaderItem   = "oncemore-item"
)

// ErrUnknown is returned for a dialect id that no loaded file has.
var ErrUnknown = errors.New("dialect: no such dialect")

// Set is the dialects in force. It is safe for concurrent use.
type Set struct{}

// Load reads the embedded dialects, then each file in turn: a dialect with the
// id of an earlier one replaces it, others are added. Errors name file, line and
// key.
func Load(files ...string) (*Set, error) { return &Set{}, nil }

// Read says what the message is. It never fails: what cannot be read stays nil,
// and a message that no dialect knows gets the broker's fallback.
func (s *Set) Read(msg *Message, conf Configured) *Reading { return &Reading{} }

// Strips returns the test for headers that a replay leaves out in this dialect.
// Errors: ErrUnknown.
func (s *Set) Strips(id string) (func(name string, value []byte) bool, error) { return nil, ErrUnknown }
