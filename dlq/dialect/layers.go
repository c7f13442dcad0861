package dialect

import "time"

// Layer is what one dialect says of a message.
type Layer struct {
	Dialect string  // id
	Name    string  // for people
	Fields  []Named // by name, without the stack
	Stack   string  // "" none; may hold bytes that are not UTF-8
}

// Named is a field with its value: a string (which may hold bytes that are not
// UTF-8), an int64 or a time.Time.
type Named struct {
	Name  string
	Value any
}

// Layers reads a message by the dialect that counts and, behind it, by each other
// that matches and has something else to say: a message that died under one
// framework and again under another carries the marks of both.
func (s *Set) Layers(msg *Message, conf Configured) []Layer {
	first := s.Read(msg, conf)
	layers := []Layer{s.layer(first, nil)}
	for _, id := range first.AlsoSeen {
		v := &view{Message: msg, headers: msg.Headers, fields: map[string]any{}}
		if l := s.layer(s.readBy(s.byID[id], v, conf), first); len(l.Fields) > 0 || l.Stack != "" {
			layers = append(layers, l)
		}
	}
	return layers
}

// layer leaves out what another reading says, too.
func (s *Set) layer(r, other *Reading) Layer {
	l := Layer{Dialect: r.Dialect, Name: s.Name(r.Dialect)}
	for _, name := range FieldNames() {
		value := r.Field(name)
		if value == nil || other != nil && other.Field(name) == value {
			continue
		}
		if name != fieldStack {
			l.Fields = append(l.Fields, Named{name, value})
		} else if stack, ok := value.(string); ok {
			l.Stack = stack
		}
	}
	return l
}

// Death is one entry of a broker's history of dead-lettering: all times that a
// message died in a queue for one reason.
type Death struct {
	Queue, Reason, Exchange string
	RoutingKeys             []string
	Count                   int64
	FirstAt                 *time.Time // whole seconds
	Expiration              string     // milliseconds, of a message that had its own
}

// Deaths reads RabbitMQ's x-death, newest first; none where there is none, or
// something else stands there.
func Deaths(msg *Message) []Death {
	var deaths []Death
	for _, h := range msg.Headers {
		if h.Name != "x-death" {
			continue
		}
		for _, e := range elements(h.Typed) {
			entry, ok := e.(map[string]any)
			if !ok {
				continue
			}
			d := Death{}
			d.Queue, _ = entry["queue"].(string)
			d.Reason, _ = entry["reason"].(string)
			d.Exchange, _ = entry["exchange"].(string)
			d.Count, _ = entry["count"].(int64)
			d.Expiration, _ = entry["original-expiration"].(string)
			if at, ok := entry["time"].(time.Time); ok {
				d.FirstAt = &at
			}
			for _, k := range elements(entry["routing-keys"]) {
				if key, ok := k.(string); ok {
					d.RoutingKeys = append(d.RoutingKeys, key)
				}
			}
			deaths = append(deaths, d)
		}
	}
	return deaths
}
