package dialect

import (
	"time"
)

// Read says what the message is. It never fails: what cannot be read stays nil,
// and a message that no dialect knows gets the broker's fallback.
func (s *Set) Read(msg *Message, conf Configured) *Reading {
	v := &view{Message: msg, headers: msg.Headers, fields: map[string]any{}}
	d, others := s.recognise(v)
	r := s.readBy(d, v, conf)
	for _, o := range others {
		r.AlsoSeen = append(r.AlsoSeen, o.id)
		r.TwoLayers = r.TwoLayers || o.standsWithout(d, msg)
	}
	return r
}

// readBy reads by one dialect.
func (s *Set) readBy(d *dialect, v *view, conf Configured) *Reading {
	r := &Reading{Dialect: d.id, RecordTimestampIs: d.recordTime}
	for i := range d.fields {
		f := &d.fields[i]
		if f.name == fieldStack {
			r.later = func() any { value, _ := f.find(s, v); return value }
			continue
		}
		value, by := f.find(s, v)
		if by == nil {
			continue
		}
		v.fields[f.name] = value
		if f.name == "origin_topic" || f.name == "origin_queue" && d.id == RabbitMQ+unknownSuffix {
			r.OriginGuessed = by.from == fromSource
		}
	}
	r.fields = v.fields
	r.take()
	r.configure(v.Broker, conf)
	r.CarriesValue = d.id != shareGroup || v.Value != nil || v.Key != nil
	r.Framed = framed(v.Value)
	s.readEventID(d, v, conf, r)
	return r
}

// Fallback is the reading of a message that nothing is to be known of: the
// broker's dialect for unknown messages, without any field.
func Fallback(broker string) *Reading {
	return &Reading{Dialect: broker + unknownSuffix, RecordTimestampIs: "unknown", CarriesValue: true}
}

// unknownSuffix ends the id of the dialect that a broker's other messages get.
const unknownSuffix = "-unknown"

// recognise returns the dialect that counts and the others that match.
func (s *Set) recognise(v *view) (*dialect, []*dialect) {
	var seen []*dialect
	for _, d := range s.byBroker[v.Broker] {
		if d.detect.matches(v) {
			seen = append(seen, d)
		}
	}
	if len(seen) > 0 {
		return seen[0], seen[1:]
	}
	if d, ok := s.byID[v.Broker+unknownSuffix]; ok {
		return d, nil
	}
	return &dialect{id: v.Broker + unknownSuffix, broker: v.Broker}, nil
}

// standsWithout reports that the dialect also matches without the headers of
// another: the message then carries two layers, and not one that looks like two.
func (d *dialect) standsWithout(other *dialect, msg *Message) bool {
	v := &view{Message: msg}
	for _, h := range msg.Headers {
		if !other.owns(h.Name) {
			v.headers = append(v.headers, h)
		}
	}
	return d.detect.matches(v)
}

// take moves the fields that are in general use into the reading's own.
func (r *Reading) take() {
	r.OriginTopic = r.text("origin_topic")
	r.OriginPartition = r.int32("origin_partition")
	if n, ok := r.fields["origin_offset"].(int64); ok {
		r.OriginOffset = &n
	}
	r.OriginTime = r.time("origin_timestamp")
	r.OriginQueue = r.textOrEmpty("origin_queue")
	r.OriginExchange = r.textOrEmpty("origin_exchange")
	r.OriginRoutingKey = r.textOrEmpty("origin_routing_key")
	r.Group = r.text("consumer_group")
	r.ExceptionClass = r.text("exception_class")
	r.ExceptionMessage = r.text("exception_message")
	r.Attempts = r.int32("attempts")
	r.FailedAt = r.time("failed_at")
	if known(r.OriginQueue) || r.OriginExchange == nil || *r.OriginExchange != "" || !known(r.OriginRoutingKey) {
		return
	}
	r.OriginQueue = r.OriginRoutingKey // the default exchange routes to the queue of the key's name
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func known(s *string) bool { return s != nil && *s != "" }

func (r *Reading) text(name string) *string {
	if s := r.textOrEmpty(name); s != nil && *s != "" {
		return s
	}
	return nil
}

// textOrEmpty keeps an empty text: RabbitMQ's default exchange is "".
func (r *Reading) textOrEmpty(name string) *string {
	s, ok := r.fields[name].(string)
	if !ok {
		return nil
	}
	return &s
}

func (r *Reading) int32(name string) *int32 {
	n, ok := r.fields[name].(int64)
	if !ok {
		return nil
	}
	small := int32(n) // integer() has bounded it
	return &small
}

func (r *Reading) time(name string) *time.Time {
	t, ok := r.fields[name].(time.Time)
	if !ok {
		return nil
	}
	return &t
}

// configure applies what the operator knows better.
func (r *Reading) configure(broker string, conf Configured) {
	origin := &r.OriginTopic
	if broker == RabbitMQ {
		origin = &r.OriginQueue
		if queue, mapped := conf.Transports[deref(r.text("origin_transport"))]; mapped && !known(*origin) {
			*origin = &queue
		}
	}
	if conf.Origin != "" && (!known(*origin) || r.OriginGuessed) {
		*origin, r.OriginGuessed = &conf.Origin, false
	}
	if conf.Group != "" && r.Group == nil {
		r.Group = &conf.Group
	}
}

func (s *Set) readEventID(d *dialect, v *view, conf Configured, r *Reading) {
	found, ok := s.findEventID(d, v, conf)
	if !ok {
		return
	}
	if r.madeOfPosition(found.id, v.From) {
		r.PositionID = &found.id
		return
	}
	r.EventID = &found.id
	r.fields[fieldEventID] = found.id
	if found.raw != "" {
		r.EventIDAlt = &found.raw
	}
}

// framed reports a schema registry's frame: a zero byte and a four-byte schema id
// before the payload.
func framed(value []byte) bool { return len(value) > 5 && value[0] == 0 }
