package web

import (
	"strings"
	"testing"

	"oncemore/dlq"
	"oncemore/views/locale"
)

// A set that is still gathered has no size: a title with the number so far would
// stay on the page.
func TestACommandsTitleHasNoNumberWhileItsSetIsGathered(t *testing.T) {
	t.Parallel()
	undone := int64(3)
	for _, tag := range []locale.Tag{locale.English, locale.Chinese} {
		here := locale.Locale{Tag: tag}
		for _, b := range []dlq.Bulk{{Kind: dlq.BulkDiscard, Total: 2000}, {Kind: dlq.BulkRestore, Total: 2000}, {Kind: dlq.BulkAssign, Total: 2000}, {Kind: dlq.BulkRestore, Undoes: &undone, Total: 2000}} {
			b.State = dlq.BulkFreezing
			if title := commandTitle(here, b); strings.Contains(title, "2") || strings.Contains(title, "command.") {
				t.Errorf("%s: %q", tag, title)
			}
			b.State = dlq.BulkRunning
			if title := commandTitle(here, b); !strings.Contains(title, "2,000") {
				t.Errorf("%s: %q", tag, title)
			}
		}
	}
}
