package dialect

import (
	"encoding/base64"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/tidwall/gjson"
)

// unwrap replaces the letter by the message that it wraps. What cannot be
// restored byte for byte is refused: a replay that is nearly the message is worse
// than none.
func (d *dialect) unwrap(in amqp.Delivery, r *Resend, opts ResendOptions) *Refusal {
	body := r.Publishing.Body
	if d.wrap.body != nil {
		inner, refusal := d.innerBody(body)
		if refusal != nil {
			return refusal
		}
		body, r.Unwrapped = inner, true
		r.Notes = append(r.Notes, why("reason.dialect.note_unwrapped"))
	}
	properties, ok := d.wrap.innerProperties(in)
	if !ok {
		return refuse("reason.dialect.wrapper", "dialect", d.name, "part", d.wrap.where())
	}
	inner := restorer{dialect: d, headers: amqp.Table{}, keepExpiration: opts.KeepExpiration}
	if refusal := inner.restore(properties); refusal != nil {
		return refusal
	}
	if inner.widthsGuessed {
		r.Notes = append(r.Notes, why("reason.dialect.note_numbers"))
	}
	for name := range in.Headers {
		if _, restored := inner.headers[name]; !restored {
			r.LeftOut = append(r.LeftOut, name)
		}
	}
	r.Publishing = inner.publishing
	r.Publishing.Headers, r.Publishing.Body = inner.headers, body
	return nil
}

func (w *wrap) where() string {
	if w.header != "" {
		return w.header
	}
	return w.properties.String()
}

func (w *wrap) innerProperties(in amqp.Delivery) (gjson.Result, bool) {
	text := in.Body
	if w.header != "" {
		value, ok := anyText(in.Headers[w.header])
		if !ok {
			return gjson.Result{}, false
		}
		text = []byte(value.(string))
	}
	doc, ok := parseJSON(text)
	if !ok {
		return gjson.Result{}, false
	}
	if list := doc.Array(); doc.IsArray() && len(list) > 0 { // parked twice: the latest stands first
		doc = list[0]
	}
	for _, found := range w.properties.walk(doc, nil) {
		at, isJSON := found.(gjson.Result)
		return at, isJSON && at.IsObject()
	}
	return gjson.Result{}, false
}

// innerBody is the original body. It was text in UTF-8, where a replacement
// character stands for bytes that are lost, or base64.
func (d *dialect) innerBody(letter []byte) ([]byte, *Refusal) {
	doc, ok := parseJSON(letter)
	if !ok {
		return nil, refuse("reason.dialect.wrapper", "dialect", d.name, "part", d.wrap.body.String())
	}
	found := d.wrap.body.walk(doc, nil)
	if len(found) != 1 {
		return nil, refuse("reason.dialect.wrapper", "dialect", d.name, "part", d.wrap.body.String())
	}
	at, isJSON := found[0].(gjson.Result)
	if !isJSON || at.Type != gjson.String {
		return nil, refuse("reason.dialect.wrapper", "dialect", d.name, "part", d.wrap.body.String())
	}
	mayBeText, mayBeBase64 := slices.Contains(d.wrap.forms, "utf8-text"), slices.Contains(d.wrap.forms, "base64")
	decoded, err := base64.StdEncoding.Strict().DecodeString(at.Str)
	switch isBase64 := mayBeBase64 && err == nil && at.Str != ""; {
	case isBase64 && (!mayBeText || !json.Valid([]byte(at.Str)) && json.Valid(decoded)):
		return decoded, nil
	case isBase64 && !json.Valid([]byte(at.Str)):
		return nil, refuse("reason.dialect.body_ambiguous")
	case !mayBeText:
		return nil, refuse("reason.dialect.wrapper", "dialect", d.name, "part", d.wrap.body.String())
	case strings.ContainsRune(at.Str, utf8.RuneError):
		return nil, refuse("reason.dialect.body_lost", "dialect", d.name)
	}
	return []byte(at.Str), nil
}

// restorer makes a message's properties of their JSON form.
type restorer struct {
	dialect        *dialect
	publishing     amqp.Publishing
	headers        amqp.Table
	keepExpiration bool
	widthsGuessed  bool // a whole number's width is not written
}

func (p *restorer) restore(properties gjson.Result) (refusal *Refusal) {
	properties.ForEach(func(name, value gjson.Result) bool {
		if value.Type != gjson.Null {
			refusal = p.property(name.Str, value)
		}
		return refusal == nil
	})
	return refusal
}

// property restores one. Writers differ in their spelling: MessageId, message_id.
func (p *restorer) property(name string, value gjson.Result) *Refusal {
	m := &p.publishing
	plain := strings.ToLower(strings.ReplaceAll(name, "_", ""))
	texts := map[string]*string{
		"contenttype": &m.ContentType, "contentencoding": &m.ContentEncoding, "correlationid": &m.CorrelationId,
		"replyto": &m.ReplyTo, "messageid": &m.MessageId, "type": &m.Type, "appid": &m.AppId,
	}
	switch into := texts[plain]; {
	case into != nil:
		*into = value.Str
		return p.need(value.Type == gjson.String && short(value.Str), name, value)
	case plain == "headers":
		return p.headerTable(name, value)
	case plain == "deliverymode", plain == "priority":
		n, err := strconv.ParseUint(value.Raw, 10, 8)
		if plain == "priority" {
			m.Priority = uint8(n)
		} else {
			m.DeliveryMode = uint8(n)
		}
		return p.need(err == nil, name, value)
	case plain == "timestamp":
		at, ok := timestamp(value)
		m.Timestamp = at
		return p.need(ok, name, value)
	case plain == "expiration":
		return p.expiration(name, value)
	case plain == "userid", plain == "clusterid", strings.HasSuffix(plain, "present") && value.IsBool(), name == "$type":
		return nil
	}
	return refuse("reason.dialect.property_unknown", "name", name)
}

func (p *restorer) need(ok bool, name string, value gjson.Result) *Refusal {
	if ok {
		return nil
	}
	return refuse("reason.dialect.property", "name", name, "value", value.Raw)
}

// short holds for what AMQP takes as a property.
func short(s string) bool { return len(s) <= 255 && !strings.ContainsRune(s, utf8.RuneError) }

// timestamp is seconds since the epoch, where 0 is none, or a text as Ruby writes it.
func timestamp(value gjson.Result) (time.Time, bool) {
	if value.Type == gjson.Number {
		seconds, err := strconv.ParseInt(value.Raw, 10, 64)
		if err != nil || seconds == 0 {
			return time.Time{}, err == nil
		}
		return time.Unix(seconds, 0).UTC(), seconds > 0 && seconds <= lastMS/1000
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02 15:04:05 -0700", "2006-01-02 15:04:05 MST"} {
		if at, err := time.Parse(layout, value.Str); err == nil && (layout[len(layout)-1] != 'T' || strings.HasSuffix(value.Str, " UTC")) {
			return at.UTC(), true
		}
	}
	return time.Time{}, false
}

// expiration is milliseconds as text, or as .NET writes a time span: [d.]hh:mm:ss[.fraction].
func (p *restorer) expiration(name string, value gjson.Result) *Refusal {
	if !p.keepExpiration {
		return nil
	}
	if ms, ok := decimal(value.String()); ok && ms >= 0 {
		p.publishing.Expiration = strconv.FormatInt(ms, 10)
		return nil
	}
	span, ok := timeSpan(value.Str)
	p.publishing.Expiration = strconv.FormatInt(span.Milliseconds(), 10)
	return p.need(ok, name, value)
}

func timeSpan(s string) (time.Duration, bool) {
	parts := strings.Split(s, ":")
	if len(parts) != 3 {
		return 0, false
	}
	days, hours, hasDays := strings.Cut(parts[0], ".")
	if !hasDays {
		days, hours = "0", parts[0]
	}
	d, err1 := strconv.ParseUint(days, 10, 16)
	h, err2 := strconv.ParseUint(hours, 10, 8)
	m, err3 := strconv.ParseUint(parts[1], 10, 8)
	sec, err4 := strconv.ParseFloat(parts[2], 64)
	if err1 != nil || err2 != nil || err3 != nil || err4 != nil || sec < 0 || sec >= 60 {
		return 0, false
	}
	return time.Duration(d*24+h)*time.Hour + time.Duration(m)*time.Minute + time.Duration(math.Round(sec*1e3))*time.Millisecond, true
}

func (p *restorer) headerTable(name string, value gjson.Result) (refusal *Refusal) {
	if !value.IsObject() {
		return refuse("reason.dialect.property", "name", name, "value", value.Raw)
	}
	value.ForEach(func(header, v gjson.Result) bool {
		if header.Str == "$type" || p.dialect.strips(header.Str, nil) {
			return true
		}
		restored, key := p.field(v)
		if key != "" {
			refusal = refuse(key, "name", header.Str)
		}
		p.headers[header.Str] = restored
		return refusal == nil
	})
	return refusal
}

// field restores one value of a field table; key says why it cannot be.
func (p *restorer) field(v gjson.Result) (value any, key string) {
	const damaged = "reason.dialect.header"
	switch v.Type {
	case gjson.Null:
		return nil, ""
	case gjson.True, gjson.False:
		return v.Bool(), ""
	case gjson.Number:
		return p.numeral(v.Raw)
	case gjson.String:
		if strings.ContainsRune(v.Str, utf8.RuneError) {
			return nil, damaged
		}
		if _, err := base64.StdEncoding.Strict().DecodeString(v.Str); p.dialect.wrap.dotnet && err == nil && v.Str != "" {
			return nil, "reason.dialect.header_ambiguous"
		}
		return v.Str, ""
	}
	if v.IsArray() {
		return p.list(v)
	}
	kind, typed := member(v, "$type")
	switch {
	case !typed:
		return p.table(v)
	case strings.HasPrefix(kind.Str, "System.Byte[]"):
		bytes, err := base64.StdEncoding.Strict().DecodeString(v.Get("$value").Str)
		if err != nil {
			return nil, damaged
		}
		return string(bytes), "" // .NET reads a long string as bytes
	case strings.HasPrefix(kind.Str, "RabbitMQ.Client.AmqpTimestamp"):
		return time.Unix(v.Get("UnixTime").Int(), 0).UTC(), ""
	case v.Get("$values").IsArray():
		return p.list(v.Get("$values"))
	case strings.HasPrefix(kind.Str, "System.Collections.Generic.Dictionary`2"):
		return p.table(v)
	}
	return nil, damaged
}

func (p *restorer) numeral(raw string) (any, string) {
	if n, err := strconv.ParseInt(raw, 10, 64); err == nil {
		p.widthsGuessed = true
		return n, ""
	}
	f, err := strconv.ParseFloat(raw, 64)
	if err != nil || !strings.ContainsAny(raw, ".eE") {
		return nil, "reason.dialect.header"
	}
	return f, ""
}

func (p *restorer) list(v gjson.Result) (any, string) {
	list := []any{}
	key := ""
	v.ForEach(func(_, item gjson.Result) bool {
		var restored any
		restored, key = p.field(item)
		list = append(list, restored)
		return key == ""
	})
	return list, key
}

func (p *restorer) table(v gjson.Result) (any, string) {
	table := amqp.Table{}
	key := ""
	v.ForEach(func(name, item gjson.Result) bool {
		if name.Str != "$type" {
			table[name.Str], key = p.field(item)
		}
		return key == ""
	})
	return table, key
}
