package dlq

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	orderRecords = 20_000          // records of one partition that are looked through for later events of a key
	orderTimeout = 3 * time.Second // for all partitions of one judgement
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
	for _, q := range inquiries {
		if p, offset, ok := q.subject.place(); ok && q.ordered() {
			if wanted[p] == nil {
				wanted[p] = map[int64]bool{}
			}
			wanted[p][offset] = true
		}
	}
	found := j.followers(ctx, wanted)
	for i := range inquiries {
		for k := range inquiries[i].groups {
			a := &inquiries[i].groups[k]
			if !a.ordered() {
				continue
			}
			r, err := j.outOfOrder(ctx, *a, found)
			if err != nil {
				return err
			}
			if r != nil {
				a.verdict, a.reason = OutOfOrder, *r
			}
		}
	}
	return nil
}

func (a asked) ordered() bool { return a.verdict == Safe && a.known != nil && a.known.OrderKey }

func (q inquiry) ordered() bool { return slices.ContainsFunc(q.groups, asked.ordered) }

// place is where the letter's own record stands; ok is false when not known.
func (s Subject) place() (p place, offset int64, ok bool) {
	if s.OriginTopic == "" || s.OriginPartition == nil || s.OriginOffset == nil {
		return place{}, 0, false
	}
	return place{s.Cluster, s.OriginTopic, *s.OriginPartition}, *s.OriginOffset, true
}

// outOfOrder says why a group may meet the event out of order; nil: it does not.
func (j *Judge) outOfOrder(ctx context.Context, a asked, found map[place]map[int64]*follower) (*Reason, error) {
	p, offset, ok := a.subject.place()
	if !ok {
		return ptr(reason("reason.out_of_order.unnamed")), nil
	}
	f := found[p][offset]
	switch {
	case f == nil || f.unread:
		return ptr(reason("reason.out_of_order.unread", "topic", p.topic, "partition", p.partition, "at", instant(a.now))), nil
	case f.trimmed:
		return ptr(reason("reason.out_of_order.trimmed", "topic", p.topic, "partition", p.partition)), nil
	case f.noKey:
		return nil, nil
	}
	consumed, err := j.withoutLetters(ctx, a.group, p, f.later)
	if err != nil {
		return nil, err
	}
	switch {
	case len(consumed) > 0:
		return ptr(reason("reason.out_of_order.later", "offset", consumed[0], "topic", p.topic, "partition", p.partition)), nil
	case !f.whole || len(f.later) == orderLater:
		return ptr(reason("reason.out_of_order.beyond", "scanned", f.scanned)), nil
	}
	return nil, nil
}

const sqlLaterLetters = `
SELECT d.origin_offset FROM dead_letter d
WHERE d.group_id = (SELECT id FROM letter_name WHERE kind = 1 AND name = @group) AND d.state IN (1, 2)
  AND d.origin_id = (SELECT id FROM letter_name WHERE kind = 3 AND name = @topic)
  AND d.origin_partition = @partition AND d.origin_offset = ANY(@offsets)`

// withoutLetters leaves out the offsets that wait as letters of the group: their
// events had no effect either.
func (j *Judge) withoutLetters(ctx context.Context, group string, p place, offsets []int64) ([]int64, error) {
	if len(offsets) == 0 {
		return nil, nil
	}
	rows, err := j.pool.Query(ctx, sqlLaterLetters, pgx.NamedArgs{
		"group": group, "topic": p.topic, "partition": p.partition, "offsets": offsets})
	if err != nil {
		return nil, fmt.Errorf("query later letters of %s: %w", group, err)
	}
	letters, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("read later letters of %s: %w", group, err)
	}
	return slices.DeleteFunc(slices.Clone(offsets), func(o int64) bool { return slices.Contains(letters, o) }), nil
}

// followers looks at what stands after the wanted offsets, one pass a partition.
func (j *Judge) followers(ctx context.Context, wanted map[place]map[int64]bool) map[place]map[int64]*follower {
	ctx, cancel := context.WithTimeout(ctx, orderTimeout)
	defer cancel()
	out := make(map[place]map[int64]*follower, len(wanted))
	for p, offsets := range wanted {
		found := make(map[int64]*follower, len(offsets))
		for o := range offsets {
			found[o] = &follower{unread: true}
		}
		out[p] = found
		j.topo.follow(ctx, p, found)
	}
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
