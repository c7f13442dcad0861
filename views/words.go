// Package views holds the pages. Each takes one view model with only what it
// shows; none knows the domain or looks anything up.
package views

import (
	"context"

	"oncemore/views/locale"
)

// T is the text of key in the reader's language.
func T(ctx context.Context, key string, args ...any) string { return locale.T(ctx, key, args...) }
