package dialect

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
)

// maxEventID is the longest event id in bytes.
const maxEventID = 255

// idPlace is an entry of event_id_headers.list.
type idPlace struct {
	where    from
	name     string
	path     path
	requires []string // top-level keys of the body
	brokers  []string
}

// eventID is an id and its other form: the way it stands in the message, where
// that differs.
type eventID struct{ id, raw string }

// findEventID looks where the config says, else where the dialect says, else
// through the list: exact header names and properties, then names in another
// case, then the body. The first sound candidate is the id; if that is made of a
// position there is none, for consumers that found it know the event by it.
func (s *Set) findEventID(d *dialect, v *view, conf Configured) (eventID, bool) {
	if id, ok := v.configuredID(conf); ok {
		return id, true
	}
	for i := range d.eventID {
		if id, ok := d.eventID[i].eventID(s, v); ok {
			return id, true
		}
	}
	for _, look := range []func(*idPlace) (eventID, bool){v.idExactly, v.idAnyCase, v.idInBody} {
		for i := range s.eventIDs {
			p := &s.eventIDs[i]
			if !slices.Contains(p.brokers, v.Broker) {
				continue
			}
			if id, ok := look(p); ok {
				return id, true
			}
		}
	}
	return eventID{}, false
}

func (v *view) configuredID(conf Configured) (eventID, bool) {
	if conf.EventIDHeader != "" {
		if id, ok := v.idOf(func(name string) bool { return name == conf.EventIDHeader }); ok {
			return id, true
		}
	}
	if conf.EventIDProperty != "" {
		if id, ok := idFrom(v.Properties[conf.EventIDProperty]); ok {
			return id, true
		}
	}
	if conf.EventIDJSON == "" {
		return eventID{}, false
	}
	p, err := parsePath(conf.EventIDJSON)
	if err != nil {
		return eventID{}, false // the config check reports it
	}
	return v.idAt(p)
}

func (l *locator) eventID(s *Set, v *view) (eventID, bool) {
	if l.from == fromHeader && l.path == nil && l.reText == "" {
		return v.idOf(func(name string) bool { return name == l.name })
	}
	raw, ok := l.read(s, v)
	if !ok {
		return eventID{}, false
	}
	return idFrom(raw)
}

// idFrom takes text and numbers.
func idFrom(value any) (eventID, bool) {
	text, ok := anyText(value)
	if _, isContainer := value.(container); isContainer || !ok {
		return eventID{}, false
	}
	return soundID([]byte(text.(string)))
}

func (v *view) idExactly(p *idPlace) (eventID, bool) {
	switch p.where {
	case fromHeader:
		return v.idOf(func(name string) bool { return name == p.name })
	case fromProperty:
		return idFrom(v.Properties[p.name])
	}
	return eventID{}, false
}

func (v *view) idAnyCase(p *idPlace) (eventID, bool) {
	if p.where != fromHeader {
		return eventID{}, false
	}
	return v.idOf(func(name string) bool { return strings.EqualFold(name, p.name) })
}

func (v *view) idInBody(p *idPlace) (eventID, bool) {
	if p.where != fromBody || !v.mayHold(p.path[len(p.path)-1].key) {
		return eventID{}, false
	}
	if len(p.requires) > 0 && !v.bodyHas(p.requires) {
		return eventID{}, false
	}
	return v.idAt(p.path)
}

// idOf takes the last sound header that fits.
func (v *view) idOf(fits func(name string) bool) (eventID, bool) {
	for _, h := range slices.Backward(v.headers) {
		if !fits(h.Name) {
			continue
		}
		value := h.Value
		if text, ok := anyText(h.Typed); ok {
			value = []byte(text.(string))
		}
		if id, ok := soundID(value); ok {
			return id, true
		}
	}
	return eventID{}, false
}

func (v *view) idAt(p path) (eventID, bool) {
	object, ok := v.object()
	if !ok {
		return eventID{}, false
	}
	for _, node := range p.walk(object, nil) {
		if value, ok := scalar(node); ok {
			return idFrom(value)
		}
	}
	return eventID{}, false
}

// soundID judges one candidate. Header converters and Spring's JSON header mapper
// write ids with spaces around or as one JSON string: the plain form is the id,
// since an id has no space at either end and a consumer sees it unquoted; the
// form on the wire stays beside it.
func soundID(value []byte) (eventID, bool) {
	if len(value) == 16 && !plain(string(value)) {
		id, _ := uuid.FromBytes(value)
		return eventID{id: id.String()}, true
	}
	raw := string(value)
	id := unquote(strings.TrimSpace(raw))
	if !plain(id) || !plain(raw) {
		return eventID{}, false
	}
	if id == raw {
		raw = ""
	}
	return eventID{id: id, raw: raw}, true
}

func unquote(s string) string {
	var inner string
	if len(s) > 2 && s[0] == '"' && json.Unmarshal([]byte(s), &inner) == nil {
		if inner = strings.TrimSpace(inner); plain(inner) {
			return inner
		}
	}
	return s
}

func plain(s string) bool {
	return s != "" && len(s) <= maxEventID && utf8.ValidString(s) && strings.IndexFunc(s, unicode.IsControl) < 0
}

// positionID splits an id such as orders-0-17, orders:0:17 or orders-0@17.
var positionID = regexp.MustCompile(`^(.+?)(?:\[|[-:/@._#|+])(\d{1,10})\]?[-:/@._#|+](\d{1,19})$`)

// manyPartitions bounds what is taken for a partition where the numbers are not
// the letter's own: order-2026-17 is a fair business id.
const manyPartitions = 1000

// madeOfPosition reports an id that is made of topic, partition and offset:
// those of this letter, of where it came from, or of an earlier hop.
func (r *Reading) madeOfPosition(id string, at Place) bool {
	named := at.Topic != "" && strings.Contains(id, at.Topic) || r.OriginTopic != nil && strings.Contains(id, *r.OriginTopic)
	if !named { // most ids
		return false
	}
	m := positionID.FindStringSubmatch(id)
	if m == nil {
		return false
	}
	partition, okP := decimal(m[2])
	offset, okO := decimal(m[3])
	if !okP || !okO || leadingZero(m[2]) || leadingZero(m[3]) {
		return false
	}
	if at.Topic != "" && endsIn(m[1], at.Topic) {
		return partition < manyPartitions || partition == int64(at.Partition) && offset == at.Offset
	}
	if r.OriginTopic == nil || !hopOf(m[1], *r.OriginTopic) {
		return false
	}
	own := r.OriginPartition != nil && r.OriginOffset != nil &&
		partition == int64(*r.OriginPartition) && offset == *r.OriginOffset
	return own || partition < manyPartitions
}

func leadingZero(digits string) bool { return len(digits) > 1 && digits[0] == '0' }

// endsIn reports that name is the topic, perhaps with a cluster's name before it.
func endsIn(name, topic string) bool {
	before, ok := strings.CutSuffix(name, topic)
	return ok && (before == "" || strings.ContainsAny(before[len(before)-1:], "-:/@._#|+"))
}

// hopOf reports that name is the origin topic or a retry topic of it.
func hopOf(name, origin string) bool {
	if endsIn(name, origin) {
		return true
	}
	after, ok := strings.CutPrefix(name, origin)
	return ok && len(after) > 1 && strings.HasPrefix(strings.ToLower(after[1:]), "retry")
}
