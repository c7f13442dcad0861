// Package payload shows message bodies: it inflates, decodes and lays out what
// the bytes mean, and never changes the bytes. It also writes an edited form back
// into the frame that it came in.
package payload

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The ways to look at a body.
const (
	Event      = "event"       // a CloudEvent: attributes and data
	Avro       = "avro"        // as JSON, by the schema registry
	Protobuf   = "protobuf"    // as JSON, by the schema registry
	JSONSchema = "json_schema" // JSON in a registry's frame
	MsgPack    = "msgpack"     // as JSON
	JSON       = "json"
	Text       = "text"
	Hex        = "hex" // the stored bytes, not inflated
)

// Views are all ways to look at a body, in the order in which they are offered.
var Views = []string{Event, Avro, Protobuf, JSONSchema, MsgPack, JSON, Text, Hex}

// Input is a body with what its message says of it.
type Input struct {
	Value           []byte
	ContentType     string // of a header or property; "" not said
	ContentEncoding string
	Attributes      []Attribute // of a CloudEvent in binary mode, in order
	SchemaHeader    []byte      // __value_schema_id: which schema wrote the value, which then has no frame
	Registry        *Registry   // of the cluster; nil: none is configured
}

// Attribute is one of a CloudEvent's attributes, without its prefix.
type Attribute struct{ Name, Value string }

// Opened is what could be made of a body.
type Opened struct {
	Stored   []byte // as it is kept
	Inflated []byte // Stored, where nothing was compressed
	Cut      bool   // Inflated is only the beginning: there is more than MaxInflated
	Steps    []Step // what was done, outermost first
	Document []byte // what a schema or MessagePack decoded to, as JSON; nil: nothing was
	Problems []Why  // what a decoder could not do

	format string // of Document
	event  []byte // CloudEvent as JSON
	isJSON bool   // Inflated is
}

// Step is one layer that was taken off.
type Step struct {
	Kind   string // gzip, zlib, zstd, snappy, lz4, or a view with a schema
	Size   int    // in bytes, after it
	Schema string // id or GUID in the registry; "" none
	Name   string // of the record or message
}

// Why is a sentence: a key of the message catalog with its values, and English.
type Why struct {
	Key  string
	Args map[string]any
	Text string
}

// Error makes a Why an error.
func (w *Why) Error() string { return w.Text }

// WhyTexts are the English sentences of every Why, by catalog key.
var WhyTexts = map[string]string{
	"payload.why.inflate":            "The body says that it is {encoding}, but cannot be inflated: {error}.",
	"payload.why.no_registry":        "The body has the frame of a schema registry, schema {schema}, but the cluster has no schema_registry in the config.",
	"payload.why.apicurio":           "The body has the frame of an Apicurio registry, schema {schema} in eight bytes, which is not looked up. It follows the first 9 bytes.",
	"payload.why.glue":               "The body has the frame of the AWS Glue Schema Registry, schema version {schema}, which is not looked up. It follows the first 18 bytes.",
	"payload.why.registry":           "The schema registry did not answer for schema {schema}: {error}.",
	"payload.why.schema_missing":     "The schema registry has no schema {schema}.",
	"payload.why.schema_bad":         "Schema {schema} cannot be read: {error}.",
	"payload.why.decode":             "The body cannot be read by schema {schema} ({name}): {error}.",
	"payload.why.invalid":            "The body is not what schema {schema} asks for: {error}.",
	"payload.why.unknown_fields":     "{n} bytes belong to fields that schema {schema} does not have; they are not shown.",
	"payload.why.msgpack":            "The body says that it is MessagePack, but is not: {error}.",
	"payload.why.event":              "The body says that it is a CloudEvent, but is not JSON.",
	"payload.why.not_framed":         "The body has no frame of a schema registry.",
	"payload.why.edit_json":          "The edited body is not valid JSON: {error}.",
	"payload.why.edit_schema":        "The edited body does not fit schema {schema} ({name}): {error}.",
	"payload.why.edit_inexact":       "The body holds something that its JSON form does not show, so it cannot be written back exactly. Edit the bytes instead.",
	"payload.why.edit_unknown_field": "The body has fields that schema {schema} does not know; written back they would be lost. Edit the bytes instead.",
}

func why(key string, pairs ...any) *Why {
	w := &Why{Key: key, Args: map[string]any{}, Text: WhyTexts[key]}
	for i := 0; i+1 < len(pairs); i += 2 {
		name := pairs[i].(string)
		w.Args[name] = pairs[i+1]
		w.Text = strings.ReplaceAll(w.Text, "{"+name+"}", fmt.Sprint(pairs[i+1]))
	}
	return w
}

// likelySchemas is what ids of real registries stay below.
const likelySchemas = 10_000_000

// MaxDecoded bounds the bodies that a schema decodes for showing; larger ones are
// shown as bytes, and can be downloaded.
const MaxDecoded = 4 << 20

// Open takes layer after layer off a body, as far as it can. It never fails: what
// could not be done is one of Problems. It is bounded by MaxInflated and, where
// the registry is asked, by its time-out.
func Open(ctx context.Context, in Input) *Opened {
	o := &Opened{Stored: in.Value, Inflated: in.Value}
	o.inflate(in.ContentEncoding)
	o.decode(ctx, in)
	o.isJSON = o.Document == nil && !o.Cut && json.Valid(o.Inflated)
	o.findEvent(in)
	return o
}

func (o *Opened) problem(w *Why) {
	if w != nil {
		o.Problems = append(o.Problems, *w)
	}
}

// decode reads the innermost layer.
func (o *Opened) decode(ctx context.Context, in Input) {
	if o.Cut || len(o.Inflated) > MaxDecoded {
		return
	}
	if id, place, ok := headerFrame(in.SchemaHeader); ok {
		o.decodeFramed(ctx, in.Registry, id, slices.Concat(place, o.Inflated))
		return
	}
	if w := foreignFrame(o.Inflated); w != nil {
		o.problem(w)
		return
	}
	if id, rest, ok := frame(o.Inflated); ok {
		if in.Registry == nil && id > likelySchemas {
			return // bytes that begin with a zero by chance
		}
		o.decodeFramed(ctx, in.Registry, strconv.Itoa(id), rest)
		return
	}
	o.decodeMsgPack(in.ContentType)
}

func (o *Opened) decodeFramed(ctx context.Context, registry *Registry, id string, rest []byte) {
	if registry == nil {
		o.problem(why("payload.why.no_registry", "schema", id))
		return
	}
	s, w := registry.schema(ctx, id)
	if w != nil {
		o.problem(w)
		return
	}
	d, w := s.decode(rest)
	o.problem(w)
	if d.document != nil {
		o.Document, o.format = d.document, s.format
		o.Steps = append(o.Steps, Step{Kind: s.format, Size: len(d.document), Schema: id, Name: d.name})
	}
}

// Views are those that this body has, in the order in which they are offered.
func (o *Opened) Views() []string {
	var views []string
	for _, v := range Views {
		if o.has(v) {
			views = append(views, v)
		}
	}
	return views
}

func (o *Opened) has(view string) bool {
	switch view {
	case Event:
		return o.event != nil
	case JSON:
		return o.isJSON
	case Text:
		return true
	case Hex:
		return true
	}
	return o.Document != nil && o.format == view
}

// Best is the view that says most.
func (o *Opened) Best() string {
	if first := o.Views()[0]; first != Text {
		return first
	}
	head := o.Inflated[:min(len(o.Inflated), looksLike)]
	if BrokenBytes(head) > len(head)/10 {
		return Hex
	}
	return Text
}

// Content is what a view shows, and whether it is a JSON document. A view that
// this body does not have shows what Hex does.
func (o *Opened) Content(view string) (content []byte, isJSON bool) {
	switch {
	case !o.has(view), view == Hex:
		return o.Stored, false
	case view == Event:
		return o.event, true
	case view == JSON:
		return o.Inflated, true
	case view == Text:
		return o.Inflated, false
	}
	return o.Document, true
}

// looksLike is how much of a body is looked at to tell text from bytes.
const looksLike = 64 << 10

// BrokenBytes counts what is no text in UTF-8.
func BrokenBytes(value []byte) int {
	n := 0
	for i := 0; i < len(value); {
		r, size := utf8.DecodeRune(value[i:])
		if r == utf8.RuneError && size == 1 || r == 0 {
			n++
		}
		i += size
	}
	return n
}
