package compensate

import (
	"errors"
	"maps"
	"slices"
	"strings"
)

// Check says what actions name that this configuration does not have: bases
// under urls, and connections that compensations may write to. The error lists
// all of it, as file:line: sentence.
func Check(actions []*Action, bases map[string]bool, writable map[string]bool) error {
	var bad []error
	for _, a := range actions {
		for _, name := range a.bases() {
			if !bases[name] {
				bad = append(bad, a.Pos.Problemf("action %s calls {{%s}}, and there is no %s under urls in the config", a.Name, name, name))
			}
		}
		for _, name := range a.connections() {
			if !writable[name] {
				bad = append(bad, a.Pos.Problemf("action %s writes to connection %s, which has no compensation_url_env or compensation_url_file in the config", a.Name, name))
			}
		}
	}
	return errors.Join(bad...)
}

// bases are the names that the action's calls begin with.
func (a *Action) bases() []string {
	names := map[string]bool{}
	for _, s := range a.Steps {
		for _, r := range s.requests() {
			if m := placeholder.FindStringSubmatch(r.URL); m != nil && strings.HasPrefix(r.URL, m[0]) {
				names[m[1]] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// requests are all calls of a step, in whichever direction.
func (s Step) requests() (all []*Request) {
	for _, r := range []*Request{s.Request, s.Confirm, s.Cancel} {
		if r != nil {
			all = append(all, r)
		}
	}
	if s.Probe != nil && s.Probe.Request != nil {
		all = append(all, s.Probe.Request)
	}
	return all
}

// connections are the names of those that the action's statements run on.
func (a *Action) connections() []string {
	names := map[string]bool{}
	for _, s := range a.Steps {
		if s.Statement != nil {
			names[s.Statement.Connection] = true
		}
		if s.Probe != nil && s.Probe.Statement != nil {
			names[s.Probe.Statement.Connection] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}
