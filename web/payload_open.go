package web

import (
	"context"
	"slices"
	"strings"

	"oncemore/dlq"
	"oncemore/dlq/amqpform"
	"oncemore/dlq/payload"
)

// openBody takes layer after layer off a letter's value, for showing.
func (s *Server) openBody(ctx context.Context, cluster string, body dlq.Body) *payload.Opened {
	in := payloadInput(body)
	in.Registry = s.Registries[cluster]
	return payload.Open(ctx, in)
}

// payloadInput is what a message says of its value: in headers, and in the
// properties of RabbitMQ.
func payloadInput(body dlq.Body) payload.Input {
	in := payload.Input{Value: body.Value}
	for _, h := range body.Headers {
		switch strings.ToLower(h.Name) {
		case "content-type", "contenttype":
			in.ContentType = h.Text()
		case "content-encoding":
			in.ContentEncoding = h.Text()
		case "__value_schema_id":
			in.SchemaHeader = h.Value
		}
		for _, prefix := range payload.EventPrefixes {
			if name, ok := strings.CutPrefix(h.Name, prefix); ok && name != "" {
				in.Attributes = append(in.Attributes, payload.Attribute{Name: name, Value: h.Text()})
			}
		}
	}
	if body.AMQP == nil {
		return in
	}
	if d, err := amqpform.ReadEnvelope(body.AMQP); err == nil {
		in.ContentType, in.ContentEncoding = d.ContentType, d.ContentEncoding
	}
	return in
}

// bodyView is one view of an opened value, for a reader.
type bodyView struct {
	name    string   // of the view that is shown
	views   []string // that there are for this reader
	content []byte
	isJSON  bool
}

// viewFor gives the asked view, or the one that says most. Where values are hidden, there are
// texts with their values taken out, and no bytes; the name is "" where nothing is left
// to be seen.
func viewFor(o *payload.Opened, asked string, hide bool, keep string) bodyView {
	if !hide {
		v := bodyView{name: asked, views: o.Views()}
		if !slices.Contains(v.views, asked) {
			v.name = o.Best()
		}
		v.content, v.isJSON = o.Content(v.name)
		return v
	}
	hidden := map[string]bodyView{}
	v := bodyView{}
	for _, name := range o.Views() {
		content, isJSON := o.Content(name)
		if name == payload.Hex || readable(content) == nil {
			continue // bytes have no part that may be shown
		}
		content, _ = MaskBytes(content, keep)
		hidden[name] = bodyView{content: content, isJSON: isJSON}
		v.views = append(v.views, name)
	}
	if len(v.views) == 0 {
		return v
	}
	v.name = v.views[0]
	if slices.Contains(v.views, asked) {
		v.name = asked
	}
	v.content, v.isJSON = hidden[v.name].content, hidden[v.name].isJSON
	return v
}
