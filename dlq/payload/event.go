package payload

import (
	"encoding/base64"
	"encoding/json"
	"mime"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"
)

// EventPrefixes begin the names of headers that carry a CloudEvent's attributes
// in binary mode: Kafka's and the two of AMQP.
var EventPrefixes = []string{"ce_", "cloudEvents:", "cloudEvents_"}

// required are the attributes that every CloudEvent has.
var required = []string{"specversion", "id", "source", "type"}

// findEvent recognises a CloudEvent: the attributes stand in headers and the body
// is the data, or a JSON document holds both.
func (o *Opened) findEvent(in Input) {
	media, _, _ := mime.ParseMediaType(in.ContentType)
	structured := strings.HasPrefix(media, "application/cloudevents")
	switch {
	case hasAll(in.Attributes):
		o.event = o.binaryEvent(in)
	case o.isJSON && (structured || looksLikeEvent(o.Inflated)):
		o.event = structuredEvent(o.Inflated)
	case structured && o.Document == nil:
		o.problem(why("payload.why.event"))
	}
}

func hasAll(attributes []Attribute) bool {
	found := 0
	for _, name := range required {
		for _, a := range attributes {
			if a.Name == name {
				found++
				break
			}
		}
	}
	return found == len(required)
}

func looksLikeEvent(document []byte) bool {
	doc := gjson.ParseBytes(document)
	if !doc.IsObject() {
		return false
	}
	seen := map[string]bool{}
	doc.ForEach(func(name, value gjson.Result) bool {
		seen[name.Str] = value.Type == gjson.String
		return true
	})
	for _, name := range required {
		if !seen[name] {
			return false
		}
	}
	return true
}

// binaryEvent puts attributes and data into the structured form.
func (o *Opened) binaryEvent(in Input) []byte {
	out := []byte{'{'}
	said := in.ContentType == ""
	for _, a := range in.Attributes {
		said = said || a.Name == "datacontenttype"
		out = append(appendText(out, a.Name), ':')
		out = append(appendText(out, a.Value), ',')
	}
	if !said {
		out = append(appendText(append(out, `"datacontenttype":`...), in.ContentType), ',')
	}
	switch {
	case o.Document != nil:
		out = append(append(out, `"data":`...), o.Document...)
	case o.isJSON:
		out = append(append(out, `"data":`...), o.Inflated...)
	case o.Stored == nil:
		out = append(out, `"data":null`...)
	case utf8.Valid(o.Inflated):
		out = appendText(append(out, `"data":`...), string(o.Inflated))
	default:
		out = appendText(append(out, `"data_base64":`...), base64.StdEncoding.EncodeToString(o.Inflated))
	}
	return append(out, '}')
}

// structuredEvent is the document with data in base64 opened, where that is JSON
// or text: nobody reads base64.
func structuredEvent(document []byte) []byte {
	doc := gjson.ParseBytes(document)
	if !doc.IsObject() {
		return document // a batch
	}
	out := []byte{'{'}
	doc.ForEach(func(name, value gjson.Result) bool {
		if len(out) > 1 {
			out = append(out, ',')
		}
		key, raw := name.Raw, value.Raw
		if name.Str == "data_base64" {
			if b, err := base64.StdEncoding.DecodeString(value.Str); err == nil && utf8.Valid(b) {
				key = `"data"`
				if raw = string(b); !json.Valid(b) {
					raw = string(appendText(nil, raw))
				}
			}
		}
		out = append(append(append(out, key...), ':'), raw...)
		return true
	})
	return append(out, '}')
}

// appendText quotes a text; bytes that are no UTF-8 become replacement characters.
func appendText(out []byte, s string) []byte {
	quoted, _ := jsontext.AppendQuote(out, s) // the error tells of those bytes
	return quoted
}
