package dialect

import (
	"cmp"
	"slices"
	"strings"
)

// Info is a dialect in a list.
type Info struct {
	ID, Name, Broker string
	Priority         int    // of two that match, the higher one counts
	File             string // where it stands; "" built in
	Refuses          string // why its letters are never replayed; "": they can be
}

// List gives all dialects, by broker and as they are tried.
func (s *Set) List() []Info {
	all := make([]Info, 0, len(s.byID))
	for _, d := range s.byID {
		all = append(all, Info{ID: d.id, Name: d.name, Broker: d.broker, Priority: d.priority, File: d.file, Refuses: d.refusal})
	}
	slices.SortFunc(all, func(a, b Info) int {
		return cmp.Or(cmp.Compare(a.Broker, b.Broker), cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.ID, b.ID))
	})
	return all
}

// StripReason says why a replay of this dialect leaves a header out, "" where the
// dialect does not say or keeps it.
func (s *Set) StripReason(id, header string) string {
	d, ok := s.byID[id]
	if !ok || !d.strips(header, nil) {
		return ""
	}
	reason := d.reasonOf(header)
	if other, refers := strings.CutPrefix(reason, "see "); refers && s.byID[other] != nil {
		return s.byID[other].reasonOf(header)
	}
	return reason
}
