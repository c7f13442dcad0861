package dlq

import (
	"cmp"
	"slices"
	"time"
)

// SourceStatus is how far one dead-letter topic or queue is, as far as this
// process drains it.
type SourceStatus struct {
	Cluster     string
	Source      string    // topic or queue
	Drained     int64     // records stored since the start of this process
	Waiting     int64     // records between our position and the end, or ready in the queue, when last heard
	Unacked     *int64    // of a queue: handed to somebody and not acknowledged; nil: not known
	Copies      bool      // of a queue: its messages are copied and stay
	LastArrival time.Time // zero: none since the start
	LastError   string    // "": none, or overcome
	LastErrorAt time.Time
}

// Status says how far each topic is that this process drains or has drained, by
// name.
func (d *Drainer) Status() []SourceStatus {
	d.mu.Lock()
	defer d.mu.Unlock()
	waiting := map[string]int64{}
	for tp, c := range d.cursors {
		d.statusOf(tp.topic)
		waiting[tp.topic] += max(0, c.end-c.stored)
	}
	list := make([]SourceStatus, 0, len(d.status))
	for _, s := range d.status {
		copied := *s
		copied.Waiting = waiting[s.Source]
		list = append(list, copied)
	}
	slices.SortFunc(list, func(a, b SourceStatus) int { return cmp.Compare(a.Source, b.Source) })
	return list
}

// statusOf needs the lock.
func (d *Drainer) statusOf(topic string) *SourceStatus {
	s := d.status[topic]
	if s == nil {
		s = &SourceStatus{Cluster: d.conf.Cluster.Name, Source: topic}
		d.status[topic] = s
	}
	return s
}

func (d *Drainer) failed(topic string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.statusOf(topic)
	s.LastError, s.LastErrorAt = err.Error(), d.conf.Clock()
}
