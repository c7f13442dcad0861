package dlq

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
)

// replaySuffix makes a group's own replay topic.
const replaySuffix = ".replay"

// asked is one group of a letter: whether the target reaches it, and in the end
// the verdict.
type asked struct {
	facts
	reached bool
	verdict Verdict
	reason  Reason
}

// inquiry is one letter on its way to a verdict.
type inquiry struct {
	subject Subject
	route   *Route
	noRoute Reason
	blocked *Reason // why the route cannot be judged
	groups  []asked
}

// inquire finds the route and the groups of each subject.
func (j *Judge) inquire(ctx context.Context, subjects []Subject, target Target) ([]inquiry, error) {
	out := make([]inquiry, len(subjects))
	needed := j.topics(subjects)
	for i, s := range subjects {
		q := inquiry{subject: s}
		view, err := j.topo.view(ctx, s.Cluster, needed[s.Cluster]...)
		switch {
		case errors.Is(err, ErrNoCluster):
			q.blocked = ptr(reason("reason.unknown.no_cluster", "cluster", s.Cluster))
		case err != nil:
			return nil, err
		case view.Err != nil:
			q.blocked = ptr(reason("reason.unknown.broker", "cluster", s.Cluster, "at", instant(view.At)))
		}
		if view == nil {
			view = &clusterView{}
		}
		if s.Published != nil {
			j.resolveQueue(&q, view, target)
		} else {
			j.resolve(&q, view, target)
			j.addGroups(&q, view)
		}
		out[i] = q
	}
	return out, nil
}

// topics are the topics that routes may lead to: one that is not in the kept
// answer may have been made since.
func (j *Judge) topics(subjects []Subject) map[string][]string {
	sets := map[string]map[string]bool{}
	for _, s := range subjects {
		if sets[s.Cluster] == nil {
			sets[s.Cluster] = map[string]bool{}
		}
		if s.OriginTopic != "" {
			sets[s.Cluster][s.OriginTopic] = true
		}
		if g := j.groups.Find(s.Cluster, s.Group); g != nil && g.Ours && s.Published == nil {
			sets[s.Cluster][s.Group+replaySuffix] = true
		} else if g != nil && g.Target != "" {
			sets[s.Cluster][g.Target] = true
		}
	}
	out := make(map[string][]string, len(sets))
	for cluster, set := range sets {
		out[cluster] = slices.Collect(maps.Keys(set))
	}
	return out
}

// resolve chooses the route: the target asked for, or for ToSafe the narrowest.
func (j *Judge) resolve(q *inquiry, view *clusterView, target Target) {
	switch target {
	case ToOrigin:
		q.route, q.noRoute = originRoute(q.subject)
	case ToGroup:
		q.route, q.noRoute = j.groupRoute(q.subject, view)
	default:
		if q.route, q.noRoute = j.groupRoute(q.subject, view); q.route == nil {
			q.route, q.noRoute = originRoute(q.subject)
		}
	}
	switch {
	case q.route == nil && q.blocked != nil: // whether there is a target is not known either
		q.noRoute = *q.blocked
	case q.route == nil || q.blocked != nil || view.has(q.route.Topic):
	case q.route.Group == "":
		q.blocked = ptr(reason("reason.unknown.origin_missing", "topic", q.route.Topic))
	default:
		q.blocked = ptr(reason("reason.unknown.target_missing", "topic", q.route.Topic))
	}
}

func originRoute(s Subject) (*Route, Reason) {
	if s.OriginTopic == "" {
		return nil, reason("reason.no_origin")
	}
	return &Route{Cluster: s.Cluster, Topic: s.OriginTopic}, Reason{}
}

// groupRoute is the topic that reaches only the letter's group: its replay topic
// where it serves one, else the configured one.
func (j *Judge) groupRoute(s Subject, view *clusterView) (*Route, Reason) {
	if s.Group == "" {
		return nil, reason("reason.no_group")
	}
	known := j.groups.Find(s.Cluster, s.Group)
	own := s.Group + replaySuffix
	switch {
	case view.has(own) && (view.reads(s.Group, own) || known != nil && known.Ours):
		return &Route{Cluster: s.Cluster, Topic: own, Group: s.Group}, Reason{}
	case known != nil && known.Target != "":
		return &Route{Cluster: s.Cluster, Topic: known.Target, Group: s.Group}, Reason{}
	case known != nil && known.Ours: // its topic is missing: said as such
		return &Route{Cluster: s.Cluster, Topic: own, Group: s.Group}, Reason{}
	}
	return nil, reason("reason.no_group_target", "group", s.Group)
}

// addGroups lists every group that is known for the letter, its own first.
func (j *Judge) addGroups(q *inquiry, view *clusterView) {
	s := q.subject
	reached := map[string]bool{}
	if s.Group != "" {
		reached[s.Group] = q.route != nil
	}
	readers := func(topic string, reach bool) {
		for _, g := range slices.Concat(view.Readers[topic], j.groups.Reading(s.Cluster, topic)) {
			if q.route == nil || !q.route.readBy(g, topic) {
				reached[g] = reached[g] || reach
			}
		}
	}
	if q.route != nil {
		readers(q.route.Topic, true)
	}
	if s.OriginTopic != "" {
		readers(s.OriginTopic, q.route != nil && q.route.Topic == s.OriginTopic)
	}
	j.ask(q, reached)
}

// ask lists the groups, the letter's own first.
func (j *Judge) ask(q *inquiry, reached map[string]bool) {
	s := q.subject
	names := slices.Sorted(maps.Keys(reached))
	slices.SortStableFunc(names, func(a, b string) int { return rank(a, s.Group) - rank(b, s.Group) })
	if len(names) == 0 {
		names, reached[""] = []string{""}, q.route != nil
	}
	now := j.clock()
	for _, name := range names {
		a := asked{facts: facts{subject: s, group: name, known: j.groups.Find(s.Cluster, name), now: now}, reached: reached[name]}
		if a.reached {
			a.blocked = q.blocked
		}
		q.groups = append(q.groups, a)
	}
	if q.route == nil && names[0] == "" {
		q.groups[0].blocked = &q.noRoute
	}
}

// readBy reports whether the reader is the route's group under another name.
func (r Route) readBy(reader, topic string) bool {
	return r.Group != "" && topic == r.Topic && reader == retryReader(r.Group, topic)
}

// retryReader is the name under which Spring Kafka reads a retry topic of the
// group: orders-retry-0 as points-retry-0 (EndpointCustomizerFactory). It is one
// duty with one set of consume records. "" for other topics.
func retryReader(group, topic string) string {
	if at := strings.LastIndex(topic, retryInfix); at > 0 {
		return group + topic[at:]
	}
	return ""
}

// retryInfix is what follows the origin's name in a retry topic's, in Spring
// Kafka's way and in ours.
const retryInfix = "-retry"

func rank(name, own string) int {
	if name == own {
		return 0
	}
	return 1
}
