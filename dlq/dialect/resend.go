package dialect

import (
	"fmt"
	"slices"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/tidwall/gjson"
)

// Resend is what a replay of a letter of RabbitMQ publishes: the message as its
// producer sent it, so far as the letter holds it.
type Resend struct {
	// Publishing lacks only the replay's own two headers. user_id, which the broker
	// takes from nobody else, and expiration are not in it.
	Publishing amqp.Publishing
	LeftOut    []string // names of headers that are not sent again, sorted
	Unwrapped  bool     // the letter wrapped the message: its body is not the letter's
	Notes      []Why    // what somebody should know before sending
}

// ResendOptions are choices that are somebody's to make.
type ResendOptions struct {
	// KeepExpiration sends the message's own time to live again: it may expire
	// before a consumer sees it.
	KeepExpiration bool
}

// bodyRule is one place in a JSON body that a replay changes, or that a reader
// should know of.
type bodyRule struct {
	text string
	path path
	why  string
}

// setRule is a header that a replay sets.
type setRule struct {
	name  string
	value any // of AMQP
	why   string
}

// wrap says how a dialect wraps a message into another.
type wrap struct {
	body       path     // of the original body in the letter's JSON body; nil: the body is as it was
	forms      []string // utf8-text, base64
	properties path     // of the original properties, in the body or in header
	header     string   // that holds the properties as JSON; "": the body does
	dotnet     bool     // written by .NET, which writes header texts as bytes
}

func (w *wrap) empty() bool { return w.body == nil && w.properties == nil }

// Resend makes what a replay of a letter of this dialect publishes. Errors:
// ErrUnknown; *Refusal where the dialect does not let the message be rebuilt
// exactly.
func (s *Set) Resend(id string, d amqp.Delivery, opts ResendOptions) (Resend, error) {
	dia, ok := s.byID[id]
	if !ok {
		return Resend{}, fmt.Errorf("%w: %q", ErrUnknown, id)
	}
	if dia.refusal != "" {
		return Resend{}, refuse("reason.dialect.refused", "dialect", dia.name, "why", dia.refusal)
	}
	r := Resend{Publishing: again(d)}
	if opts.KeepExpiration {
		r.Publishing.Expiration = expirationOf(s, dia, d)
	}
	if !dia.wrap.empty() {
		if refusal := dia.unwrap(d, &r, opts); refusal != nil {
			return Resend{}, refusal
		}
	}
	r.strip(dia)
	if refusal := dia.edit(&r); refusal != nil {
		return Resend{}, refusal
	}
	dia.notice(&r)
	dia.setHeaders(&r)
	return r, nil
}

// again is a delivery to be published once more, with a table of its own.
func again(d amqp.Delivery) amqp.Publishing {
	headers := make(amqp.Table, len(d.Headers))
	for name, value := range d.Headers {
		headers[name] = value
	}
	return amqp.Publishing{
		Headers: headers, Body: d.Body, DeliveryMode: d.DeliveryMode,
		ContentType: d.ContentType, ContentEncoding: d.ContentEncoding, Priority: d.Priority,
		CorrelationId: d.CorrelationId, ReplyTo: d.ReplyTo, MessageId: d.MessageId,
		Timestamp: d.Timestamp, Type: d.Type, AppId: d.AppId,
	}
}

// expirationOf is the message's own time to live, which a broker takes off when
// it dead-letters, and notes in x-death.
func expirationOf(s *Set, dia *dialect, d amqp.Delivery) string {
	if d.Expiration != "" {
		return d.Expiration
	}
	v := &view{Message: FromAMQP("", d), fields: map[string]any{}}
	v.headers = v.Headers
	for i := range dia.fields {
		if value, by := dia.fields[i].find(s, v); by != nil {
			v.fields[dia.fields[i].name] = value
		}
	}
	ttl, _ := v.fields["origin_expiration"].(string)
	return ttl
}

// strip takes out what the framework, the broker or an earlier replay added.
func (r *Resend) strip(dia *dialect) {
	added, _ := r.Publishing.Headers[addedHeader].(string)
	for name := range r.Publishing.Headers {
		if dia.strips(name, nil) || added != "" && name == added {
			delete(r.Publishing.Headers, name)
			r.LeftOut = append(r.LeftOut, name)
		}
	}
	slices.Sort(r.LeftOut)
}

// addedHeader names the header that a consumer of ours put on a letter whose
// message carries its id elsewhere.
const addedHeader = "x-original-addedHeader"

// brokersOwn are headers that RabbitMQ writes, or that route a message again.
func brokersOwn(name string) bool {
	switch name {
	case "x-death", "x-delivery-count", "x-acquired-count", "x-opt-deaths", "CC", "BCC":
		return true
	}
	return strings.HasPrefix(name, "x-first-death-") || strings.HasPrefix(name, "x-last-death-")
}

// edit takes out of the body what the framework would count from.
func (d *dialect) edit(r *Resend) *Refusal {
	for _, rule := range d.edits {
		body, removed, ok := removeMember(r.Publishing.Body, rule.path)
		if !ok {
			return refuse("reason.dialect.edit", "path", rule.text)
		}
		if removed {
			r.Publishing.Body = body
			r.Notes = append(r.Notes, why("reason.dialect.note_edited", "path", rule.text, "why", rule.why))
		}
	}
	return nil
}

// notice tells of what stays in the body though it belongs to the failure.
func (d *dialect) notice(r *Resend) {
	if len(d.notices) == 0 {
		return
	}
	body, ok := parseJSON(r.Publishing.Body)
	if !ok {
		return
	}
	for _, rule := range d.notices {
		for _, found := range rule.path.walk(body, nil) {
			if at, isJSON := found.(gjson.Result); isJSON && at.Type != gjson.Null {
				r.Notes = append(r.Notes, why("reason.dialect.note_body", "path", rule.text, "value", at.String(), "why", rule.why))
			}
		}
	}
}

func (d *dialect) setHeaders(r *Resend) {
	for _, rule := range d.sets {
		r.Publishing.Headers[rule.name] = rule.value
		r.Notes = append(r.Notes, why("reason.dialect.note_set", "name", rule.name, "value", fieldText(rule.value), "why", rule.why))
		r.LeftOut = slices.DeleteFunc(r.LeftOut, func(name string) bool { return name == rule.name })
	}
}

// Delivery is the message as a consumer will receive it.
func (r Resend) Delivery() amqp.Delivery {
	p := r.Publishing
	return amqp.Delivery{
		Headers: p.Headers, Body: p.Body, DeliveryMode: p.DeliveryMode, ContentType: p.ContentType, ContentEncoding: p.ContentEncoding,
		Priority: p.Priority, CorrelationId: p.CorrelationId, ReplyTo: p.ReplyTo, Expiration: p.Expiration, MessageId: p.MessageId,
		Timestamp: p.Timestamp, Type: p.Type, AppId: p.AppId,
	}
}
