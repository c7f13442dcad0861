// Package dialect reads how frameworks mark the messages they gave up on. The
// marks are described in dialects.yaml, which this package interprets; users may
// add a file of their own in the same form.
package dialect

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
)

// ErrUnknown is returned for a dialect id that no loaded file has.
var ErrUnknown = errors.New("dialect: no such dialect")

//go:embed dialects.yaml
var builtin []byte

// builtinName stands in messages for the embedded file.
const builtinName = "dialects.yaml"

// shareGroup is the one dialect whose writer may leave the value out.
const shareGroup = "kafka-share-group"

// dialect is one entry of the file, compiled.
type dialect struct {
	id, name, broker string
	file             string // "" built in
	priority         int
	fallsBackTo      string
	recordTime       string
	detect           detect
	fields           []field // a field stands after those that it refers to
	eventID          []locator
	strip            []stripRule
	keep             []string

	// What a replay over RabbitMQ does besides stripping headers.
	wrap           wrap
	edits, notices []bodyRule
	sets           []setRule
	refusal        string // why nothing of it can be replayed; "": it can
}

// field is one thing a dialect knows, with the places to look for it, best first.
type field struct {
	name       string
	candidates []locator
}

// Set is the dialects in force. It is safe for concurrent use.
type Set struct {
	byID     map[string]*dialect
	byBroker map[string][]*dialect // by descending priority, fallbacks left out
	eventIDs []idPlace
	patterns patternCache
}

// Load reads the embedded dialects, then each file in turn: a dialect with the
// id of an earlier one replaces it, others are added. Errors name file, line and
// key, all of them at once.
func Load(files ...string) (*Set, error) {
	parsed := []file{}
	for i, name := range append([]string{builtinName}, files...) {
		text := builtin
		if i > 0 {
			var err error
			if text, err = os.ReadFile(name); err != nil {
				return nil, fmt.Errorf("read dialects: %w", err)
			}
		}
		f, err := parse(name, text)
		if err != nil {
			return nil, err
		}
		parsed = append(parsed, f)
	}
	return link(parsed)
}

// Name is the dialect's name for people; the id itself when no file has it.
func (s *Set) Name(id string) string {
	if d, ok := s.byID[id]; ok {
		return d.name
	}
	return id
}

// IDs lists all dialects, sorted.
func (s *Set) IDs() []string {
	ids := make([]string, 0, len(s.byID))
	for id := range s.byID {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// link joins the files into one set and resolves what dialects say of each other.
func link(files []file) (*Set, error) {
	s := &Set{byID: map[string]*dialect{}, byBroker: map[string][]*dialect{}}
	entries := map[string]entry{}
	order := []string{}
	for _, f := range files {
		for _, e := range f.dialects {
			if _, known := entries[e.id]; !known {
				order = append(order, e.id)
			}
			entries[e.id] = e
		}
		s.eventIDs = append(slices.Clone(f.eventIDs), s.eventIDs...)
	}
	var problems []error
	for _, id := range order {
		d, err := entries[id].link(entries)
		problems = append(problems, err)
		s.byID[id] = d
		if !d.detect.empty() {
			s.byBroker[d.broker] = append(s.byBroker[d.broker], d)
		}
	}
	for _, list := range s.byBroker {
		slices.SortStableFunc(list, func(a, b *dialect) int { return cmp.Compare(b.priority, a.priority) })
	}
	return s, errors.Join(problems...)
}

// link gives the dialect the candidates of the one it falls back to, behind its
// own, and orders its fields so that a field stands after those it refers to.
func (e entry) link(all map[string]entry) (*dialect, error) {
	d := e.dialect
	fields := slices.Clone(d.fields)
	if d.fallsBackTo != "" {
		other, ok := all[d.fallsBackTo]
		if !ok || other.broker != d.broker || other.id == d.id {
			return &d, e.at.errorf("falls_back_to", "no other %s dialect %q", d.broker, d.fallsBackTo)
		}
		fields = merge(fields, other.fields)
	}
	sorted, err := sortByReference(fields)
	if err != nil {
		return &d, e.at.errorf("fields", "%v", err)
	}
	for _, f := range sorted {
		if f.name == fieldEventID {
			d.eventID = f.candidates
		}
	}
	d.fields = slices.DeleteFunc(sorted, func(f field) bool { return f.name == fieldEventID })
	return &d, nil
}

func merge(own, other []field) []field {
	for _, f := range other {
		i := slices.IndexFunc(own, func(o field) bool { return o.name == f.name })
		if i < 0 {
			own = append(own, f)
			continue
		}
		own[i].candidates = slices.Concat(own[i].candidates, f.candidates)
	}
	return own
}

func sortByReference(fields []field) ([]field, error) {
	sorted := make([]field, 0, len(fields))
	const underway, done = 1, 2
	state := map[string]int{}
	var visit func(f field) error
	visit = func(f field) error {
		switch state[f.name] {
		case underway:
			return fmt.Errorf("%s refers to itself", f.name)
		case done:
			return nil
		}
		state[f.name] = underway
		for _, ref := range f.references() {
			i := slices.IndexFunc(fields, func(o field) bool { return o.name == ref })
			if i < 0 {
				return fmt.Errorf("%s refers to $%s, which this dialect does not have", f.name, ref)
			}
			if err := visit(fields[i]); err != nil {
				return err
			}
		}
		state[f.name] = done
		sorted = append(sorted, f)
		return nil
	}
	for _, f := range fields {
		if err := visit(f); err != nil {
			return nil, err
		}
	}
	return sorted, nil
}

func (f field) references() []string {
	var refs []string
	for _, c := range f.candidates {
		for _, m := range reference.FindAllStringSubmatch(c.reText, -1) {
			refs = append(refs, m[1])
		}
		for _, v := range c.where {
			if m := reference.FindStringSubmatch(v); m != nil {
				refs = append(refs, m[1])
			}
		}
	}
	return refs
}

// reference is a $field inside re or where.
var reference = regexp.MustCompile(`\$([a-z][a-z_]*)`)
