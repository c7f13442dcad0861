package dlq

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"
)

const (
	orderRecords = 20_000          // records of one partition that are looked through for later events of a key
	orderTimeout = 3 * time.Second // for one partition
	orderReaders = 4               // partitions read at a time
	orderLater   = 100             // later events of one key that are told apart
)

// place is one partition of an origin topic.
type place struct {
	cluster, topic string
	partition      int32
}

// follower is what stands in a partition after a letter's own record.
type follower struct {
	unread  bool    // the partition could not be read
	trimmed bool    // the letter's own record is gone, and later ones may be
	noKey   bool    // the event has no key, so it has no order either
	later   []int64 // offsets of later records of the same key, at most orderLater
	scanned int     // records looked at after the letter's
	whole   bool    // up to the end
}

// checkOrder turns Safe into OutOfOrder in groups that declare order by key,
// where a later event of the letter's key was consumed or may be by the time the
// replay is. Later events that are open letters of the same group were not.
func (j *Judge) checkOrder(ctx context.Context, inquiries []inquiry) error {
	wanted := map[place]map[int64]bool{}
	var checked []*asked
	for i := range inquiries {
		for k := range inquiries[i].groups {
			a := &inquiries[i].groups[k]
			if !a.ordered() {
				continue
			}
			checked = append(checked, a)
			if p, offset, ok := a.subject.place(); ok {
				addTo(wanted, p, offset)
			}
		}
	}
	if len(checked) == 0 {
		return nil
	}
	found := j.followers(ctx, wanted)
	waiting, err := j.waiting(ctx, checked, found)
	if err != nil {
		return err
	}
	for _, a := range checked {
		if r := outOfOrder(*a, found, waiting); r != nil {
			a.verdict, a.reason = OutOfOrder, *r
		}
	}
	return nil
}

// addTo puts a value into a set of sets.
func addTo[K, V comparable](sets map[K]map[V]bool, k K, v V) {
	if sets[k] == nil {
		sets[k] = map[V]bool{}
	}
	sets[k][v] = true
}

func (a asked) ordered() bool { return a.verdict == Safe && a.known != nil && a.known.OrderKey }

// place is where the letter's own record stands; ok is false when not known.
func (s Subject) place() (p place, offset int64, ok bool) {
	if s.OriginTopic == "" || s.OriginPartition == nil || s.OriginOffset == nil {
		return place{}, 0, false
	}
	return place{s.Cluster, s.OriginTopic, *s.OriginPartition}, *s.OriginOffset, true
}

// outOfOrder says why a group may meet the event out of order; nil: it does not.
func outOfOrder(a asked, found map[place]map[int64]*follower, waiting map[line]map[int64]bool) *Reason {
	p, offset, ok := a.subject.place()
	if a.subject.Published != nil { // a queue cannot be read behind a message, and knows no keys
		return ptr(reason("reason.out_of_order.queue"))
	}
	if !ok {
		return ptr(reason("reason.out_of_order.unnamed"))
	}
	f := found[p][offset]
	switch {
	case f == nil || f.unread:
		return ptr(reason("reason.out_of_order.unread", "topic", p.topic, "partition", p.partition, "at", instant(a.now)))
	case f.trimmed:
		return ptr(reason("reason.out_of_order.trimmed", "topic", p.topic, "partition", p.partition))
	case f.noKey:
		return nil
	}
	for _, later := range f.later {
		if !waiting[line{a.group, p}][later] {
			return ptr(reason("reason.out_of_order.later", "offset", later, "topic", p.topic, "partition", p.partition))
		}
	}
	if !f.whole || len(f.later) == orderLater {
		return ptr(reason("reason.out_of_order.beyond", "scanned", f.scanned))
	}
	return nil
}

// line is what one group reads of one partition, in order.
type line struct {
	group string
	place place
}

const sqlWaitingLetters = `
SELECT DISTINCT d.origin_offset FROM dead_letter d
WHERE d.group_id = (SELECT id FROM letter_name WHERE kind = 1 AND name = @group) AND d.state IN (1, 2)
  AND d.origin_id = (SELECT id FROM letter_name WHERE kind = 3 AND name = @topic)
  AND d.origin_partition = @partition AND d.origin_offset = ANY(@offsets)`

// waiting tells which of the later events wait as letters of the same group:
// those had no effect either. It is one statement for each group and partition.
func (j *Judge) waiting(ctx context.Context, checked []*asked, found map[place]map[int64]*follower) (map[line]map[int64]bool, error) {
	later := map[line]map[int64]bool{}
	for _, a := range checked {
		p, offset, ok := a.subject.place()
		if f := found[p][offset]; ok && f != nil {
			for _, o := range f.later {
				addTo(later, line{a.group, p}, o)
			}
		}
	}
	out := make(map[line]map[int64]bool, len(later))
	for l, offsets := range later {
		rows, err := j.pool.Query(ctx, sqlWaitingLetters, pgx.NamedArgs{"group": l.group, "topic": l.place.topic,
			"partition": l.place.partition, "offsets": slices.Collect(maps.Keys(offsets))})
		if err != nil {
			return nil, fmt.Errorf("query waiting letters of %s: %w", l.group, err)
		}
		var offset int64
		if _, err := pgx.ForEachRow(rows, []any{&offset}, func() error { addTo(out, l, offset); return nil }); err != nil {
			return nil, fmt.Errorf("read waiting letters of %s: %w", l.group, err)
		}
	}
	return out, nil
}

// followers looks at what stands after the wanted offsets, one pass a partition,
// a few partitions at a time.
func (j *Judge) followers(ctx context.Context, wanted map[place]map[int64]bool) map[place]map[int64]*follower {
	out := make(map[place]map[int64]*follower, len(wanted))
	var work errgroup.Group
	work.SetLimit(orderReaders)
	for p, offsets := range wanted {
		found := make(map[int64]*follower, len(offsets))
		for o := range offsets {
			found[o] = &follower{unread: true}
		}
		out[p] = found
		work.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, orderTimeout)
			defer cancel()
			j.topo.follow(ctx, p, found)
			return nil
		})
	}
	_ = work.Wait() // what could not be read stays unread
	return out
}

// follow reads a partition from the lowest wanted offset on, up to the end, to
// orderRecords or to ctx's deadline. What could not be read stays unread.
func (t *Topology) follow(ctx context.Context, p place, found map[int64]*follower) {
	c := t.clusters[p.cluster]
	if c == nil {
		return
	}
	start, end, err := c.bounds(ctx, p.topic, p.partition)
	if err != nil {
		return
	}
	from := end
	for o, f := range found {
		f.unread = false
		if o < start || o >= end {
			f.trimmed = true
			continue
		}
		from = min(from, o)
	}
	if from == end {
		return
	}
	s := keyScan{found: found, waiting: map[string][]*follower{}}
	err = c.scan(ctx, p.topic, p.partition, from, end, orderRecords, s.record)
	s.finish(err == nil)
}

// keyScan matches the records of a partition with the wanted ones before them.
type keyScan struct {
	found   map[int64]*follower
	waiting map[string][]*follower // by key
	begun   []*follower
	all     int
}

func (s *keyScan) record(r *kgo.Record) {
	s.all++
	for _, f := range s.waiting[string(r.Key)] {
		if r.Key != nil && len(f.later) < orderLater {
			f.later = append(f.later, r.Offset)
		}
	}
	f := s.found[r.Offset]
	if f == nil {
		return
	}
	s.begun = append(s.begun, f)
	f.scanned = -s.all // what stood before does not count
	if f.noKey = r.Key == nil; !f.noKey {
		s.waiting[string(r.Key)] = append(s.waiting[string(r.Key)], f)
	}
}

// finish says for each wanted offset how far the scan got. One whose own record
// did not come up was compacted away, or lies beyond what was read.
func (s *keyScan) finish(whole bool) {
	for _, f := range s.begun {
		f.scanned += s.all
		f.whole = whole
	}
	for _, f := range s.found {
		if f.trimmed || slices.Contains(s.begun, f) {
			continue
		}
		f.trimmed, f.unread = whole, !whole
	}
}
