package dlq

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// ReasonTexts are the English sentences of every reason, by catalog key. Values
// stand in braces. Times (at, since, event_time) are RFC 3339 in UTC, counts and
// ids are integers, all else is text. The pages have their own translations.
var ReasonTexts = map[string]string{
	"reason.no_event_id.none":     "The letter carries no stable event id, so a duplicate could not be recognised.",
	"reason.no_event_id.position": "The id found is made of topic, partition or offset: it changes when the event comes again.",

	"reason.unknown.no_cluster":       "Cluster {cluster} is not configured here, so nothing can be sent to it.",
	"reason.unknown.broker":           "Cluster {cluster} did not answer at {at}, so the groups that a replay reaches are not known.",
	"reason.unknown.origin_missing":   "Origin topic {topic} does not exist.",
	"reason.unknown.target_missing":   "Target topic {topic} does not exist.",
	"reason.unknown.queue_missing":    "Queue {queue} does not exist.",
	"reason.unknown.bindings":         "Which queues are bound to exchange {exchange} for key {key} is not known: that takes the management API, and an exchange that routes by key.",
	"reason.unknown.unbound":          "No queue is bound to exchange {exchange} for key {key}.",
	"reason.unknown.evidence":         "Evidence database {connection} did not answer at {at}.",
	"reason.unknown.evidence_timeout": "Evidence database {connection} took longer than {seconds} s at {at}.",
	"reason.unknown.evidence_table":   "Evidence table {table} on {connection} could not be read at {at}: {error}.",
	"reason.unknown.evidence_replica": "Evidence connection {connection} is a replica that had not caught up when it was asked at {at}.",
	"reason.no_group_target":          "{group} has no topic of its own that reaches only this group.",
	"reason.no_group":                 "The letter names no consumer group, so no topic reaches only the group that failed.",
	"reason.no_origin":                "The letter does not name the topic it came from.",
	"reason.no_group_queue":           "Neither the letter nor the config names the consumer group that failed.",
	"reason.no_origin_queue":          "The letter does not name the queue that it failed in.",
	"reason.queue_guessed":            "That the letter came from queue {queue} is a guess by name. Declare the queue under its group's queues to replay there.",
	"reason.no_exchange":              "The letter does not say to which exchange it was published.",

	"reason.collides.record": "A record exists for an id that the database takes for the same, {found}, at {at}.",

	"reason.altered.record":             "The original has a record of {at} in {table}: an edited copy would change nothing.",
	"reason.altered.unsettled_original": "The original was sent by replay R-{replay}, which has not shown what it did: both could take effect.",
	"reason.altered.unsettled_revision": "Revision {revision} was sent by replay R-{replay}, which has not shown what it did: both could take effect.",

	"reason.altered.elsewhere": "{group} did not give this event up, so it may yet apply the original: both could take effect.",

	"reason.compensated.mark": "Compensation C-{compensation} repaired this effect at {at}: a replay would repeat it.",

	"reason.in_flight.replay":       "Replay R-{replay} holds this event since {at}.",
	"reason.in_flight.compensation": "Compensation C-{compensation} holds this event since {at}.",

	"reason.expired.complete_since":      "Records are complete since {since}; the event is from {event_time}, so no record proves nothing.",
	"reason.expired.retention":           "Records are kept for {kept}; the event is from {event_time}, so its record may be gone.",
	"reason.expired.event_time_unknown":  "The event's time is not known, so a record may have existed and be gone.",
	"reason.expired.window":              "The receiver recognises repeats for {window}; the event is from {event_time}.",
	"reason.expired.window_time_unknown": "The receiver recognises repeats for {window}; the event's time is not known.",

	"reason.unprotected.no_evidence": "{group} keeps no records that could be asked, so a second effect is possible.",
	"reason.unprotected.external":    "{group} acts on another system with no declared idempotency window, so a second effect is possible.",
	"reason.unprotected.no_readers":  "No consumer group is known to read {topic}; whoever does may apply it twice.",

	"reason.out_of_order.later":   "Offset {offset} of {topic}, partition {partition}, holds a later event of the same key.",
	"reason.out_of_order.beyond":  "Later events of the same key may exist: only {scanned} records after this one were looked at.",
	"reason.out_of_order.trimmed": "The record is not retained any more in {topic}, partition {partition}, so later events of its key cannot be ruled out.",
	"reason.out_of_order.queue":   "A queue keeps neither keys nor what came after a message, so later events may have been consumed. Where their order does not matter, declare order: none for the group.",
	"reason.out_of_order.unnamed": "Where the event was published is not known, so later events of its key cannot be ruled out.",
	"reason.out_of_order.unread":  "{topic}, partition {partition}, could not be read at {at}, so later events of the same key cannot be ruled out.",

	"reason.safe.no_record":      "No record of this event in {group}; a record would be there.",
	"reason.safe.no_record_late": "No record of this event in {group}; a record would be there. It may apply late: order is not declared.",

	"reason.already_applied.record": "Record of {at} in {table}.",

	"reason.original.not_named":  "The letter does not name the record it came from.",
	"reason.original.trimmed":    "Offset {offset} of {topic}, partition {partition}, is not retained any more.",
	"reason.original.no_topic":   "Topic {topic} does not exist any more.",
	"reason.original.other":      "Offset {offset} of {topic}, partition {partition}, holds another event.",
	"reason.original.unread":     "{topic}, partition {partition}, could not be read at {at}.",
	"reason.original.no_cluster": "Cluster {cluster} is not configured here.",
}

// reason fills a sentence of ReasonTexts. pairs are name, value, name, value, …
func reason(key string, pairs ...any) Reason {
	return reasonFrom(ReasonTexts, key, pairs)
}

func reasonFrom(texts map[string]string, key string, pairs []any) Reason {
	args := make(map[string]any, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		args[pairs[i].(string)] = pairs[i+1]
	}
	return Reason{Key: key, Args: args, Text: fill(texts[key], args)}
}

// fill puts values into the braces of a template.
func fill(template string, args map[string]any) string {
	for name, v := range args {
		template = strings.ReplaceAll(template, "{"+name+"}", fmt.Sprint(v))
	}
	return template
}

// storedArgs reads a reason's values as storeReason wrote them: whole numbers
// stay whole, so that an offset never reads 8.841207e+06. Other JSON gives nil:
// the English sentence, which is kept beside it, remains.
func storedArgs(b []byte) map[string]any {
	var args map[string]any
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := d.Decode(&args); err != nil {
		return nil
	}
	for name, v := range args {
		if n, ok := v.(json.Number); ok {
			if i, err := n.Int64(); err == nil {
				args[name] = i
			}
		}
	}
	return args
}

// instant is how reasons carry times: RFC 3339 in UTC, to the millisecond.
func instant(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }
