package dialect

import (
	"fmt"
	"strings"
)

// Why is a sentence about a message: a key of the message catalog with its
// values, and the English text. Its shape is that of dlq.Reason.
type Why struct {
	Key  string
	Args map[string]any
	Text string
}

// Refusal is returned for a letter that a replay cannot rebuild exactly.
type Refusal struct{ Why }

// Error is the English sentence.
func (r *Refusal) Error() string { return r.Text }

// WhyTexts are the English sentences of every Why, by catalog key.
var WhyTexts = map[string]string{
	"reason.dialect.refused":          "Letters of {dialect} cannot be replayed: {why}.",
	"reason.dialect.wrapper":          "The letter wraps the original message, but not in the form that {dialect} writes: {part} is missing or damaged.",
	"reason.dialect.body_lost":        "The wrapped body holds characters that stand for bytes which {dialect} could not read as UTF-8: the original bytes are lost.",
	"reason.dialect.body_ambiguous":   "The wrapped body may be text or base64, and nothing says which, so the original bytes are not known.",
	"reason.dialect.property":         "Property {name} of the original message was not written in a form that can be restored: {value}.",
	"reason.dialect.property_unknown": "The wrapped properties have {name}, which is no property of a message.",
	"reason.dialect.header":           "Header {name} of the original message was not written in a form that can be restored.",
	"reason.dialect.header_ambiguous": "Header {name} of the original message may be text or base64, and nothing says which.",
	"reason.dialect.edit":             "{path} has to be taken out of the body before it is sent again, but the body is not JSON.",

	"reason.dialect.note_body":      "The body still holds {path} ({value}): {why}.",
	"reason.dialect.note_numbers":   "Whole numbers in the restored headers are sent as 64-bit: how wide they were is not written.",
	"reason.dialect.note_set":       "Header {name} is sent as {value}: {why}.",
	"reason.dialect.note_unwrapped": "The letter wraps the original message; that is what is sent, not the wrapper.",
	"reason.dialect.note_edited":    "{path} is taken out of the body: {why}.",
}

// why fills a sentence of WhyTexts. pairs are name, value, name, value, …
func why(key string, pairs ...any) Why {
	w := Why{Key: key, Args: map[string]any{}, Text: WhyTexts[key]}
	for i := 0; i+1 < len(pairs); i += 2 {
		name := pairs[i].(string)
		w.Args[name] = pairs[i+1]
		w.Text = strings.ReplaceAll(w.Text, "{"+name+"}", fmt.Sprint(pairs[i+1]))
	}
	return w
}

func refuse(key string, pairs ...any) *Refusal { return &Refusal{why(key, pairs...)} }
