package dlq

import (
	"bytes"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"
)

// EditKind is how a value can be edited.
type EditKind string

// The kinds.
const (
	EditText   EditKind = "text"   // UTF-8, JSON or not
	EditBinary EditKind = "binary" // as hex or by upload
	EditFramed EditKind = "framed" // schema-registry framing: not without its schema
	EditNot    EditKind = "none"   // the dialect does not carry the value
)

func editKind(l Letter, value []byte) EditKind {
	switch {
	case l.Flags&FlagValueNotCarried != 0:
		return EditNot
	case l.Flags&FlagFramed != 0, framed(value):
		return EditFramed
	case utf8.Valid(value) && !bytes.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\n' && r != '\r' && r != '\t' }):
		return EditText
	}
	return EditBinary
}

// framed reports the wire format of schema registries: a zero byte and the
// schema's id in four.
func framed(value []byte) bool { return len(value) > 5 && value[0] == 0 }

// Class says whether a header may be edited.
type Class string

// The classes of headers.
const (
	Locked    Class = "locked"    // identity, dialect or routing: shown, not editable
	Sensitive Class = "sensitive" // editable on purpose, and with a second person
	Free      Class = "free"
)

// FormHeader is a header of a form and its class.
type FormHeader struct {
	Header
	Class Class
	Why   string // identity | routing | typed | credential | type; "" free
}

// classify gives each header its class, in order.
func classify(l Letter, headers []Header) []FormHeader {
	out := make([]FormHeader, len(headers))
	for i, h := range headers {
		out[i] = FormHeader{Header: h, Class: Free}
		switch why := lockedBecause(l, h); {
		case why != "":
			out[i].Class, out[i].Why = Locked, why
		default:
			if why := sensitiveBecause(h.Name); why != "" {
				out[i].Class, out[i].Why = Sensitive, why
			}
		}
	}
	return out
}

// identityNames are headers that say which event it is, in lower case.
var identityNames = []string{
	"event-id", "eventid", "event_id", "message-id", "messageid", "message_id", "x-event-id", "x-message-id", "ce_id", "ce-id", "cloudevents:id",
	"idempotency-key", "x-idempotency-key", "_watermill_message_uuid", "cap-msg-id", "nservicebus.messageid", "mt-message-id",
}

// routingPrefixes are headers by which frameworks and brokers decide where a
// message goes, in lower case.
var routingPrefixes = []string{
	"kafka_", "spring_", "x-death", "x-first-death", "x-last-death", "x-delivered", "x-retry", "x-exception", "cc", "bcc", "nservicebus.",
	"mt-fault", "oncemore-", "x-opt-", "x-stream-", "__connect.", "x-delay",
}

func lockedBecause(l Letter, h Header) string {
	name := strings.ToLower(h.Name)
	switch {
	case h.typed() && h.Type != 'S':
		return "typed"
	case slices.Contains(identityNames, name), l.EventID != nil && strings.TrimSpace(h.Text()) == *l.EventID:
		return "identity"
	case name == "cc", name == "bcc":
		return "routing"
	}
	for _, prefix := range routingPrefixes {
		if len(prefix) > 3 && strings.HasPrefix(name, prefix) {
			return "routing"
		}
	}
	return ""
}

// sensitiveWords are parts of names that give access or say who acts.
var sensitiveWords = []string{"auth", "token", "secret", "password", "cookie", "session", "api-key", "apikey", "signature", "credential", "tenant", "user-id", "user_id", "userid", "principal"}

func sensitiveBecause(header string) string {
	name := strings.ToLower(header)
	if slices.ContainsFunc(sensitiveWords, func(word string) bool { return strings.Contains(name, word) }) {
		return "credential"
	}
	if name == "__typeid__" || strings.HasPrefix(name, "content-") || name == "contenttype" || strings.Contains(name, "schema") || strings.HasPrefix(name, "ce_") || strings.HasPrefix(name, "ce-") {
		return "type"
	}
	return ""
}

// check refuses an edit that would make another event of it, or no message, and
// says what it changes, and whether that is sensitive.
func check(l Letter, base Form, e Edit) (changed []string, sensitive bool, err error) {
	if len(e.Value) > MaxRevisionBytes {
		return nil, false, badEdit("value", "reason.edit.size", "limit", MaxRevisionBytes>>20)
	}
	if !sameBytes(base.Body.Value, e.Value) {
		changed = append(changed, "value")
		if err := checkValue(l, base, e); err != nil {
			return nil, false, err
		}
	}
	if !sameBytes(base.Body.Key, e.Key) {
		changed = append(changed, "key")
		if l.EventID != nil && strings.TrimSpace(string(base.Body.Key)) == *l.EventID {
			return nil, false, badEdit("key", "reason.edit.event_id", "where", "key")
		}
	}
	names, sensitive, err := checkHeaders(l, base, e)
	if err != nil {
		return nil, false, err
	}
	if changed = append(changed, names...); len(changed) == 0 {
		return nil, false, badEdit("revision", "reason.edit.nothing")
	}
	return changed, sensitive, nil
}

func checkValue(l Letter, base Form, e Edit) error {
	before, after := base.Body.Value, e.Value
	switch {
	case base.EditAs == EditNot:
		return badEdit("value", "reason.edit.not_carried")
	case base.EditAs == EditFramed && e.Document == nil:
		return badEdit("value", "reason.edit.framed", "error", base.Why)
	case base.EditAs == EditFramed:
		before, after = base.Document, e.Document
	}
	return checkDocument(l, before, after, e.AsIs)
}

// checkDocument holds the event id in its places, and JSON to be JSON.
func checkDocument(l Letter, before, after []byte, asIs bool) error {
	if !isJSON(before) {
		if l.EventID != nil && bytes.Contains(before, []byte(*l.EventID)) && !bytes.Contains(after, []byte(*l.EventID)) {
			return badEdit("value", "reason.edit.event_id", "where", "value")
		}
		return nil
	}
	paths := idPaths(before, l)
	if !isJSON(after) {
		if len(paths) > 0 {
			return badEdit("value", "reason.edit.event_id", "where", paths[0].text)
		}
		if !asIs {
			return badEdit("value", "reason.edit.not_json", "error", jsonError(after))
		}
		return nil
	}
	kept := idPaths(after, l)
	for _, p := range paths {
		if !slices.Contains(kept, p) || p.rivals(after, l) > p.rivals(before, l) {
			return badEdit("value", "reason.edit.event_id", "where", p.text)
		}
	}
	return nil
}

func isJSON(b []byte) bool { return jsonError(b) == "" }

// jsonError is why bytes are no JSON document; "" for one. Repeated names are
// none of our business.
func jsonError(b []byte) string {
	d := jsontext.NewDecoder(bytes.NewReader(b), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if _, err := d.ReadValue(); err != nil {
		return err.Error()
	}
	if _, err := d.ReadToken(); err == nil {
		return "there is more after the document"
	}
	return ""
}

// idPath is a place in a JSON document that holds the event id.
type idPath struct{ text string }

// idPaths finds every scalar that is the event id, in either of its forms.
func idPaths(doc []byte, l Letter) []idPath {
	if l.EventID == nil {
		return nil
	}
	var found []idPath
	eachValue(gjson.ParseBytes(doc), "$", func(path string, v gjson.Result) {
		if isID(v, l) {
			found = append(found, idPath{path})
		}
	})
	return found
}

func isID(v gjson.Result, l Letter) bool {
	return v.Type == gjson.String && strings.TrimSpace(v.String()) == *l.EventID || v.Type == gjson.Number && v.Raw == *l.EventID
}

// rivals counts what else stands under the same name, which JSON allows: most
// readers take the last one. Elements of a list are none.
func (p idPath) rivals(doc []byte, l Letter) (n int) {
	if strings.Contains(p.text, "[]") {
		return 0
	}
	eachValue(gjson.ParseBytes(doc), "$", func(path string, v gjson.Result) {
		if path == p.text && !isID(v, l) {
			n++
		}
	})
	return n
}

// eachValue visits a value and all in it, by path: elements of a list have one.
func eachValue(v gjson.Result, path string, visit func(path string, v gjson.Result)) {
	visit(path, v)
	switch {
	case v.IsObject():
		v.ForEach(func(name, child gjson.Result) bool { eachValue(child, path+"."+name.String(), visit); return true })
	case v.IsArray():
		v.ForEach(func(_, child gjson.Result) bool { eachValue(child, path+"[]", visit); return true })
	}
}

// checkHeaders compares the edited headers with those of the form. Locked ones
// stay as and where they are among themselves.
func checkHeaders(l Letter, base Form, e Edit) (changed []string, sensitive bool, err error) {
	after := classify(l, e.Headers)
	was, is := ofClass(base.Fields, Locked), ofClass(after, Locked)
	if !slices.EqualFunc(was, is, sameHeader) {
		return nil, false, badEdit("header", "reason.edit.locked", "name", firstOther(was, is))
	}
	for _, h := range e.Headers {
		if h.Name == "" {
			return nil, false, badEdit("header", "reason.edit.no_name")
		}
	}
	for _, class := range []Class{Sensitive, Free} {
		was, is := ofClass(base.Fields, class), ofClass(after, class)
		if slices.EqualFunc(was, is, sameHeader) {
			continue
		}
		if sensitive = sensitive || class == Sensitive; sensitive && !e.Sensitive {
			return nil, true, badEdit("header", "reason.edit.sensitive", "name", firstOther(was, is))
		}
		for _, name := range otherNames(was, is) {
			changed = append(changed, "header "+name)
		}
	}
	return changed, sensitive, nil
}

func sameHeader(a, b FormHeader) bool {
	return a.Name == b.Name && a.Type == b.Type && sameBytes(a.Value, b.Value)
}

func ofClass(headers []FormHeader, class Class) (of []FormHeader) {
	for _, h := range headers {
		if h.Class == class {
			of = append(of, h)
		}
	}
	return of
}

// firstOther names the first header in which two lists differ.
func firstOther(was, is []FormHeader) string {
	for i := range max(len(was), len(is)) {
		switch {
		case i >= len(was):
			return is[i].Name
		case i >= len(is) || !sameHeader(was[i], is[i]):
			return was[i].Name
		}
	}
	return ""
}

// otherNames names the headers whose values differ, each once.
func otherNames(was, is []FormHeader) (names []string) {
	values := func(of []FormHeader, name string) (v []FormHeader) {
		for _, h := range of {
			if h.Name == name {
				v = append(v, h)
			}
		}
		return v
	}
	for _, h := range slices.Concat(was, is) {
		if !slices.Contains(names, h.Name) && !slices.EqualFunc(values(was, h.Name), values(is, h.Name), sameHeader) {
			names = append(names, h.Name)
		}
	}
	if len(names) == 0 && len(was)+len(is) > 0 {
		names = append(names, "order")
	}
	return names
}

func blank(s string) bool { return strings.TrimSpace(s) == "" }
