package views

import (
	"context"
	"net/url"
	"strconv"
	"time"

	"oncemore/views/locale"
	"oncemore/views/ui"
)

type ctxT = context.Context

// boolWord is one of two words.
func boolWord(yes bool, a, b string) string {
	if yes {
		return a
	}
	return b
}

// itoa writes an id: without separators, unlike a count.
func itoa[I int | int32 | int64](n I) string { return strconv.FormatInt(int64(n), 10) }

func pathEscape(s string) string { return url.PathEscape(s) }

// orUnknown is the name, or the word where it is not known.
func orUnknown(ctx context.Context, s string) string {
	if s == "" {
		return T(ctx, "word.unknown")
	}
	return s
}

func eventOr(ctx context.Context, id string) string {
	if id == "" {
		return T(ctx, "letter.no_event_id")
	}
	return id
}

// optional writes a number, or the word where it is not known: never 0.
func optional(ctx context.Context, n *int) string {
	if n == nil {
		return T(ctx, "word.unknown")
	}
	return ui.N(*n)
}

// countWords is "184 letters", or "10,000+ letters" where there are more.
func countWords(ctx context.Context, n int, bounded bool) string {
	if bounded {
		return T(ctx, "count.letters_bounded", "count", ui.N(n)+"+")
	}
	return T(ctx, "count.letters", "n", n)
}

func sum(values []int) int {
	n := 0
	for _, v := range values {
		n += v
	}
	return n
}

// mayGo reports whether a replay of a letter with this verdict needs no override.
func mayGo(verdict string) bool { return verdict == "safe" || verdict == "already_applied" }

// staysWhy lists what stays, by verdict: "2 Unprotected, 1 No event id".
func staysWhy(ctx context.Context, counts []ui.Count) string {
	words := make([]string, 0, len(counts))
	for _, c := range counts {
		word := locale.From(ctx).Inside(T(ctx, ui.VerdictKey(c.Name)))
		if len(counts) > 1 {
			word = T(ctx, "fault.stay_one", "n", c.N, "verdict", word)
		}
		words = append(words, word)
	}
	return locale.From(ctx).List(words)
}

// allMatching is the offer to take all that match instead of the page.
func allMatching(ctx context.Context, v LetterList) string {
	if v.Query == "" || (!v.Bounded && v.Total <= len(v.Rows)) {
		return ""
	}
	return T(ctx, "select.all_matching", "count", v.total(ctx))
}

func took(ctx context.Context, d time.Duration) string {
	return T(ctx, "replays.took", "duration", locale.From(ctx).Duration(d))
}

// receivers says who receives what is sent to a target.
func receivers(ctx context.Context, groups []string) string {
	if len(groups) == 0 {
		return T(ctx, "plan.receives_unknown")
	}
	return T(ctx, "replay.receivers", "n", len(groups), "groups", locale.From(ctx).List(groups))
}

// ItemOutcome is how an item without outcomes shows itself.
func ItemOutcome(state string) string {
	switch state {
	case "left_out", "not_sent", "unconfirmed":
		return state
	case "sending", "sent":
		return "pending"
	}
	return "waiting"
}

// topicsOf says what a group reads, and where.
func topicsOf(ctx context.Context, r ConsumerRow) string {
	if len(r.Topics) == 0 {
		return r.Cluster
	}
	topics := locale.From(ctx).List(r.Topics)
	if r.Cluster == "" { // of a group that is declared for any
		return topics
	}
	return r.Cluster + " · " + topics
}

func roleWords(ctx context.Context, roles []string) string {
	words := make([]string, 0, len(roles))
	for _, r := range roles {
		words = append(words, T(ctx, "role."+r))
	}
	return locale.From(ctx).List(words)
}
