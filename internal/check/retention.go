package check

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// What is added where the config says nothing.
const (
	defaultRecovery = 7 * 24 * time.Hour
	defaultMargin   = 3 * 24 * time.Hour
)

// kept is how long the consume records of a group are kept, and what its events
// travel through.
type kept struct {
	group, cluster      string
	topics, deadLetters []string
	queue               string        // of RabbitMQ, in place of topics
	horizon             time.Duration // of its queues, as declared; 0: not
	maxRetry, retention time.Duration
}

// retention checks promise 9 for each group with consume records: they outlive
// broker retention + longest retry + redelivery by hand + recovery + replay
// window + margin.
func (r *run) retention(clusters map[string]*brokers) {
	for _, k := range r.kept() {
		subject, v := "group/"+k.group, values{"group": k.group, "cluster": k.cluster, "kept": days(k.retention)}
		if k.retention == 0 {
			r.say("retention.promise.never", subject, v)
			continue
		}
		need, lines, ok := r.need(k, clusters)
		if k.retention == Computed && ok {
			if need == endless {
				r.say("retention.promise.never", subject, v, lines...)
				continue
			}
			k.retention, v["kept"] = need, days(need)
		}
		v["need"] = days(need)
		lines = append(lines, "kept: "+days(k.retention))
		switch {
		case !ok:
			r.say("retention.promise.unknown", subject, v, lines...)
		case need == endless:
			r.say("retention.promise.endless", subject, v, lines...)
		case k.retention < need:
			r.say("retention.promise.short", subject, v, lines...)
		default:
			r.say("retention.promise.ok", subject, v, lines...)
		}
	}
}

// kept joins consumers and evidence by group: either may know the retention.
func (r *run) kept() []kept {
	var all []kept
	for _, c := range r.in.Consumers {
		all = append(all, c.kept())
	}
	for _, e := range r.in.Evidence {
		i := slices.IndexFunc(all, func(k kept) bool { return k.group == e.Group })
		if i < 0 {
			all = append(all, kept{group: e.Group, cluster: e.Cluster, topics: e.Topics, retention: e.Retention})
			continue
		}
		all[i].retention = cmp.Or(e.Retention, all[i].retention)
	}
	return all
}

// need adds up how late an event may come back, line by line. endless: at any
// time. ok is false if a broker could not say.
func (r *run) need(k kept, clusters map[string]*brokers) (need time.Duration, lines []string, ok bool) {
	ok = true
	add := func(what string, d time.Duration, known bool) {
		switch {
		case !known:
			ok = false
			lines = append(lines, what+": not known")
		case d == endless:
			need = endless
			lines = append(lines, what+": endless")
		default:
			lines = append(lines, what+": "+days(d))
			if need != endless {
				need += d
			}
		}
	}
	if k.queue != "" {
		wait, known := clusters[k.cluster].wait(k.queue, k.horizon)
		add("wait in the queue", wait, known)
		add("longest retry", k.maxRetry, true)
		byHand, known := clusters[k.cluster].wait(k.deadLetters[0], k.horizon)
		add("redelivery by hand, from the dead-letter queue", byHand, known)
	} else {
		broker, known := longest(k.topics, k.cluster, clusters)
		add("broker retention of the topics", broker, known)
		add("longest retry", k.maxRetry, true)
		byHand, known := longest(k.deadLetters, k.cluster, clusters)
		add("redelivery by hand, from the dead-letter topic", byHand, known || len(k.deadLetters) == 0)
	}
	add("recovery", cmp.Or(r.in.Recovery, defaultRecovery), true)
	window := r.in.ReplayWindow
	if window == 0 {
		window = endless
	}
	add("replay window, as long as letters are kept", window, true)
	add("margin", cmp.Or(r.in.Margin, defaultMargin), true)
	if need != endless && ok {
		lines = append(lines, fmt.Sprintf("needed: %s", days(need)))
	}
	return need, lines, ok
}

// longest is the longest retention of the topics. A topic that does not exist
// yet holds nothing back; no topic at all is not known.
func longest(topics []string, cluster string, clusters map[string]*brokers) (time.Duration, bool) {
	b := clusters[cluster]
	if cluster == "" && len(clusters) == 1 {
		for _, only := range clusters {
			b = only
		}
	}
	if b == nil || b.queues != nil || len(topics) == 0 {
		return 0, false
	}
	var keep time.Duration
	for _, topic := range topics {
		if !b.has(topic) {
			continue
		}
		d, ok := b.retention(topic)
		switch {
		case !ok:
			return 0, false
		case d == endless:
			return endless, true
		}
		keep = max(keep, d)
	}
	return keep, true
}
