package dlq

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
)

// TimelineEvent is one line of "what happened".
type TimelineEvent struct {
	Kind string         // the catalog key without "timeline." and without a variant after a dot
	At   *time.Time     // nil: the time is not known, or it is the present
	Key  string         // catalog key, one of TimelineTexts
	Args map[string]any // strings and integers
	Text string         // English
	sort time.Time
}

// TimelineTexts are the English sentences of a timeline, by catalog key. Values
// stand in braces.
var TimelineTexts = map[string]string{
	"timeline.produced":                    "Produced to {topic}, partition {partition}, offset {offset}",
	"timeline.produced.topic":              "Produced to {topic}",
	"timeline.produced.unknown":            "Produced",
	"timeline.applied":                     "Applied by {group}",
	"timeline.applied_elsewhere":           "Applied by another group, {group}",
	"timeline.failed":                      "Failed in {group}, attempt {attempts}",
	"timeline.failed.unknown":              "Failed, attempt {attempts}",
	"timeline.dead_lettered":               "Dead-lettered by {group} to {source}, partition {partition}, offset {offset}",
	"timeline.dead_lettered.unknown":       "Dead-lettered to {source}, partition {partition}, offset {offset}",
	"timeline.dead_lettered.queue":         "Dead-lettered by {group} to {source}",
	"timeline.dead_lettered.queue_unknown": "Dead-lettered to {source}",
	"timeline.occurrence.queue":            "The same failure arrived again in {source}",
	"timeline.reopened.queue":              "Came back from replay R-{replay}, in {source}",
	"timeline.replay_sent.queue":           "Sent by replay R-{replay} to {topic}",
	"timeline.drained":                     "Stored here",
	"timeline.occurrence":                  "The same failure arrived again in {source}, partition {partition}, offset {offset}",
	"timeline.reopened":                    "Came back from replay R-{replay}, in {source}, partition {partition}, offset {offset}",
	"timeline.revised":                     "Revision {no} made by {by} from the letter as it arrived",
	"timeline.revised.again":               "Revision {no} made by {by} from revision {base}",
	"timeline.replay_planned":              "Planned for replay R-{replay} by {by}",
	"timeline.replay_sent":                 "Sent by replay R-{replay} to {topic}, partition {partition}, offset {offset}",
	"timeline.replay_not_sent":             "Not sent by replay R-{replay}",
	"timeline.replay_unconfirmed":          "Replay R-{replay} may have sent it: the broker did not confirm",
	"timeline.outcome":                     "Replay R-{replay}, {group}: {outcome}",
	"timeline.resolved":                    "Resolved",
	"timeline.discarded":                   "Discarded",
	"timeline.not_replayed":                "Not replayed yet",
}

// Timeline tells a letter from produce to outcome, oldest first. Errors: ErrNotFound.
func (l *Letters) Timeline(ctx context.Context, id uuid.UUID) ([]TimelineEvent, error) {
	d, err := l.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	return d.Timeline(), nil
}

// Timeline tells the letter from produce to outcome, oldest first.
func (d LetterDetail) Timeline() []TimelineEvent {
	var t timeline
	t.produced(d.Letter)
	t.applied(d)
	t.failed(d.Letter)
	t.add("drained", "", &d.DrainedAt)
	for _, o := range d.Occurrences {
		t.arrivedAgain(o)
	}
	for _, r := range d.Revisions {
		t.revised(r)
	}
	for _, r := range d.Replays {
		t.replayed(r)
	}
	t.closing(d)
	slices.SortStableFunc(t.events, func(a, b TimelineEvent) int { return a.sort.Compare(b.sort) })
	return t.events
}

type timeline struct{ events []TimelineEvent }

// add adds an event; one without a time stands where the last one stood.
func (t *timeline) add(kind, variant string, at *time.Time, pairs ...any) {
	key := "timeline." + kind
	if variant != "" {
		key += "." + variant
	}
	r := reason(key, pairs...)
	e := TimelineEvent{Kind: kind, At: at, Key: key, Args: r.Args, Text: fill(TimelineTexts[key], r.Args)}
	switch {
	case at != nil:
		e.sort = *at
	case len(t.events) > 0:
		e.sort = t.events[len(t.events)-1].sort
	}
	t.events = append(t.events, e)
}

func (t *timeline) produced(l Letter) {
	o := l.Origin
	switch {
	case l.EventTime == nil && o.Topic == nil:
	case o.Topic == nil:
		t.add("produced", "unknown", l.EventTime)
	case o.Partition == nil || o.Offset == nil:
		t.add("produced", "topic", l.EventTime, "topic", *o.Topic)
	default:
		t.add("produced", "", l.EventTime, "topic", *o.Topic, "partition", *o.Partition, "offset", *o.Offset)
	}
}

// applied tells of the consume records that the evidence holds.
func (t *timeline) applied(d LetterDetail) {
	for _, v := range d.Verdicts {
		switch {
		case v.ConsumedAt == nil:
		case d.Group != nil && v.Group == *d.Group:
			t.add("applied", "", v.ConsumedAt, "group", v.Group)
		default:
			t.add("applied_elsewhere", "", v.ConsumedAt, "group", v.Group)
		}
	}
}

func (t *timeline) failed(l Letter) {
	variant, args := "unknown", []any{}
	if l.Group != nil {
		variant, args = "", []any{"group", *l.Group}
	}
	at := cmp.Or(l.FailedAt, &l.DrainedAt)
	if l.Attempts != nil {
		t.add("failed", variant, at, append(args, "attempts", *l.Attempts)...)
	}
	if l.DrainPartition == nil {
		variant = map[string]string{"": "queue", "unknown": "queue_unknown"}[variant]
	}
	t.add("dead_lettered", variant, at, append(args, placeArgs(l.Source, l.DrainPartition, l.DrainOffset)...)...)
}

func (t *timeline) arrivedAgain(o Occurrence) {
	args := placeArgs(o.Source, o.Partition, o.Offset)
	if o.ReplayID != nil {
		t.add("reopened", queued(o.Partition), &o.At, append(args, "replay", *o.ReplayID)...)
		return
	}
	t.add("occurrence", queued(o.Partition), &o.At, args...)
}

func (t *timeline) revised(r Revision) {
	variant := ""
	if r.Base > 0 {
		variant = "again"
	}
	t.add("revised", variant, &r.CreatedAt, "no", r.No, "by", r.CreatedBy, "base", r.Base)
}

func (t *timeline) replayed(r LetterReplay) {
	t.add("replay_planned", "", &r.CreatedAt, "replay", r.ReplayID, "by", r.CreatedBy)
	switch {
	case r.SentAt != nil && r.ItemState == "sent":
		t.add("replay_sent", queued(r.Partition), r.SentAt, append(placeArgs(r.Topic, r.Partition, r.Offset), "topic", r.Topic, "replay", r.ReplayID)...)
	case r.ItemState == "left_out" || r.ItemState == "not_sent":
		t.add("replay_not_sent", "", nil, "replay", r.ReplayID)
	case r.ItemState == "unconfirmed":
		t.add("replay_unconfirmed", "", r.SentAt, "replay", r.ReplayID)
	}
	for _, g := range r.Outcomes {
		if g.Outcome != 0 && g.Outcome != Pending {
			t.add("outcome", "", g.At, "replay", r.ReplayID, "group", g.Group, "outcome", g.Outcome.String())
		}
	}
}

// closing is where the letter stands now.
func (t *timeline) closing(d LetterDetail) {
	switch {
	case d.State == Resolved:
		t.add("resolved", "", &d.StateAt)
	case d.State == Discarded:
		t.add("discarded", "", &d.StateAt)
	case len(d.Replays) == 0:
		t.add("not_replayed", "", nil)
		t.events[len(t.events)-1].sort = time.Unix(1<<40, 0) // the present: last
	}
}

// queued is the variant of a sentence about a queue, which has no places.
func queued(partition *int32) string {
	if partition == nil {
		return "queue"
	}
	return ""
}

func placeArgs(source string, partition *int32, offset *int64) []any {
	args := []any{"source", source, "partition", "–", "offset", "–"}
	if partition != nil {
		args[3] = *partition
	}
	if offset != nil {
		args[5] = *offset
	}
	return args
}
