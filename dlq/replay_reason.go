package dlq

import (
	"encoding/json"
	"fmt"
	"strings"
)

// ReplayReasonTexts are the English sentences that a replay itself adds to
// ReasonTexts, by catalog key.
var ReplayReasonTexts = map[string]string{
	"reason.letter.replaying": "The letter is being replayed.",
	"reason.letter.discarded": "The letter was discarded. Restore it first.",
	"reason.letter.changed":   "The letter is no longer {was}: it is {is}.",
	"reason.letter.gone":      "The letter does not exist any more.",
	"reason.letter.parked":    "It was replayed {n} times, and {cap} is the most. It is parked until somebody allows more.",
	"reason.plan.failed":      "The plan could not be made: {error}.",
	"reason.revision.newer":   "Revision {newest} was made after the plan. Plan again to send it.",
	"reason.revision.two":     "Two letters of this event have different edited forms, and only one can be sent. Replay them one by one, to their own group.",
	"reason.revision.missing": "Revision {no} of the letter does not exist.",
	"reason.letter.body":      "The letter's stored bytes could not be read: {error}.",
	"reason.letter.dialect":   "Dialect {dialect} is not loaded, so it is not known which headers to leave out.",

	"reason.claim.replay":       "Replay R-{replay} by {by} holds this event since {at}.",
	"reason.claim.compensation": "Compensation C-{compensation} holds this event since {at}.",
	"reason.claim.same":         "Item {item} of this replay holds this event.",

	"reason.verdict.changed": "{group}: {verdict} now. {text}",
	"reason.route.changed":   "The target is no longer {topic}.",

	"reason.not_sent.broker":    "The broker refused it: {error}.",
	"reason.not_sent.not_found": "The broker did not confirm it, and it is not in {topic}. It is not sent again by itself.",
	"reason.not_sent.tries":     "The broker did not confirm it {tries} times, and it is not in {topic}.",
	"reason.unconfirmed.gone":   "The broker did not confirm it, and {topic} cannot be searched any more: what stood there is gone.",
	"reason.unconfirmed.queue":  "The broker did not confirm it, and a queue cannot be searched: {topic} may hold it or not.",
	"reason.unconfirmed.partly": "The broker nacked it: at least one queue that {topic} leads to refused it, and others may have it.",
	"reason.resent":             "An earlier send did not arrive; it is sent again.",

	"reason.edit.event_id":    "The event id stands in {where} and has to stay there: with another id it would be another event.",
	"reason.edit.framed":      "The value carries the id of a schema, and can be edited only as that schema's document. {error}",
	"reason.edit.schema":      "The edited document cannot be written by its schema: {error}.",
	"reason.edit.not_carried": "The dead letter does not carry the value, so there is nothing to edit.",
	"reason.edit.not_json":    "The value is not valid JSON any more: {error}.",
	"reason.edit.locked":      "Header {name} says which event this is or where it goes. It cannot be changed.",
	"reason.edit.sensitive":   "Header {name} gives access or says what the value is. Confirm that you mean to change it.",
	"reason.edit.no_name":     "A header has no name.",
	"reason.edit.nothing":     "Nothing was changed.",
	"reason.edit.size":        "The value is larger than {limit} MiB.",
	"reason.edit.state":       "The letter is {state}, so it cannot be edited.",
	"reason.edit.overtaken":   "Somebody has made revision {newest} meanwhile. Look at it, and edit again.",

	"reason.wait.window":     "It sends only within {window}. It goes on at {at}.",
	"reason.wait.rung":       "Rung {rung} waits for the outcomes of {n} items.",
	"reason.wait.rung_pause": "Rung {rung} was sent. The next one waits for somebody to go on.",
	"reason.wait.rung_empty": "Nothing of rung {rung} could be sent, so it proves nothing.",
	"reason.wait.rung_bad":   "{bad} of the {tried} items of rung {rung} did not go well.",
	"reason.wait.stopped":    "{bad} of {tried} items failed; it stops at {share}%.",
	"reason.wait.unanswered": "The broker did not answer for some messages. {seconds} s after they left, the topic is searched for them.",
	"reason.wait.searching":  "{topic} is searched for messages that the broker did not confirm. That takes several rounds.",
	"reason.wait.error":      "It was tried and will be tried again: {error}.",
	"reason.wait.nobody":     "No process with role jobs has taken it up.",

	"reason.outcome.applied":            "No record before, one now, of {at}.",
	"reason.outcome.duplicate":          "A record was there before; the group has passed offset {offset}.",
	"reason.outcome.duplicate_expected": "A record was there before; {queue} has taken the message, and its consumer will find the record.",
	"reason.outcome.queue_unreadable":   "{queue} has taken the message, but the evidence could not be read for {waited}.",
	"reason.outcome.queue_empty":        "{queue} was empty after it, and it did not come back within {waited}; there is no evidence that says more.",
	"reason.outcome.queue_no_record":    "{queue} was empty after it, but within {waited} there was neither a record nor a letter.",
	"reason.outcome.queue_waiting":      "{queue} was not seen empty within {waited}: the message may still wait there.",
	"reason.outcome.failed_again":       "It came back as letter {letter}.",
	"reason.outcome.swallowed":          "The group has passed offset {offset}, but there is neither a record nor a letter.",
	"reason.outcome.not_seen":           "The group had not reached offset {offset} after {waited}.",
	"reason.outcome.no_commits":         "The group commits no offsets for {topic}, so it is not known whether it read it.",
	"reason.outcome.no_evidence":        "The group has passed offset {offset} and it did not come back; there is no evidence that says more.",
	"reason.outcome.unreadable":         "The group has passed offset {offset}, but the evidence could not be read for {waited}.",
	"reason.outcome.drain_behind":       "The group has passed offset {offset}, but dead letters were not read far enough for {waited} to say that it did not come back.",
	"reason.outcome.broker_silent":      "Cluster {cluster} did not answer for {waited}.",
}

// replayReason fills a sentence of ReplayReasonTexts. pairs are name, value, …
func replayReason(key string, pairs ...any) Reason {
	return reasonFrom(ReplayReasonTexts, key, pairs)
}

// storedReason is a reason as three columns hold it.
type storedReason struct {
	Text string
	Key  string
	Args []byte // JSON object
}

func storeReason(r Reason) storedReason {
	args := []byte("{}")
	if len(r.Args) > 0 {
		clean := make(map[string]any, len(r.Args))
		for name, v := range r.Args {
			if s, ok := v.(string); ok {
				v = storableText(s)
			}
			clean[name] = v
		}
		b, err := json.Marshal(clean)
		if err != nil {
			panic(fmt.Sprintf("dlq: values of reason %s: %v", r.Key, err)) // strings, integers and times only
		}
		args = b
	}
	return storedReason{Text: storableText(r.Text), Key: r.Key, Args: args}
}

// loadReason is the reverse of storeReason. Nil columns make a zero Reason.
func loadReason(text, key *string, args []byte) Reason {
	var r Reason
	if text != nil {
		r.Text = *text
	}
	if key != nil {
		r.Key = *key
	}
	if len(args) > 2 {
		r.Args = storedArgs(args)
	}
	return r
}

// storableText is s as PostgreSQL takes it: UTF-8 without zero bytes.
func storableText(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}
