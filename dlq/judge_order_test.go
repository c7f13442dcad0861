package dlq

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func offsetsOf(topic string, at int64) kadm.Offsets {
	var o kadm.Offsets
	o.AddOffset(topic, 0, at, -1)
	return o
}

func TestLaterEventsOfAKeyAreOutOfOrder(t *testing.T) {
	t.Parallel()
	onBrokers(t, func(t *testing.T, addr string) {
		c := newCourt(t, addr)
		c.judge.groups[0].OrderKey, c.judge.groups[0].OrderSet = true, true
		offsets := produce(t, c.cluster, c.topic,
			&kgo.Record{Key: []byte("trimmed"), Value: []byte("0")},
			&kgo.Record{Key: []byte("a"), Value: []byte("1")},
			&kgo.Record{Key: []byte("b"), Value: []byte("2")},
			&kgo.Record{Key: []byte("c"), Value: []byte("3")},
			&kgo.Record{Value: []byte("4")},
			&kgo.Record{Key: []byte("a"), Value: []byte("5")},
			&kgo.Record{Key: []byte("c"), Value: []byte("6")},
			&kgo.Record{Value: []byte("7")},
		)
		trim(t, c.cluster, c.topic, offsets[1])
		letter := func(i int) seedLetter {
			l := c.letter(fmt.Sprint("e-", i))
			l.offset = &offsets[i]
			return l
		}
		unnamed := c.letter("e-9")
		unnamed.offset = nil
		ids := c.add(letter(1), letter(2), letter(3), letter(4), letter(6), letter(0), unnamed)
		judged := c.ask(ToGroup, ids...)
		for i, want := range []struct {
			verdict Verdict
			reason  string
		}{
			{OutOfOrder, "reason.out_of_order.later"}, // a: offset 5 was consumed
			{Safe, "reason.safe.no_record"},           // b: nothing later
			{Safe, "reason.safe.no_record"},           // c: the later one is a letter too
			{Safe, "reason.safe.no_record"},           // no key, no order
			{Safe, "reason.safe.no_record"},           // c: the last one
			{OutOfOrder, "reason.out_of_order.trimmed"},
			{OutOfOrder, "reason.out_of_order.unnamed"},
		} {
			if own := judged[i].Groups[0]; own.Verdict != want.verdict || own.Reason.Key != want.reason {
				t.Errorf("letter %d: %s because of %s, want %s because of %s", i, own.Verdict, own.Reason.Key, want.verdict, want.reason)
			}
		}
		if later := judged[0].Groups[0].Reason.Args["offset"]; later != offsets[5] {
			t.Errorf("the later event is at %v, want %d", later, offsets[5])
		}
		c.exec("UPDATE dead_letter SET state = 3 WHERE id = $1", ids[4]) // the later one was replayed
		if own := c.ask(ToGroup, ids[2])[0].Groups[0]; own.Verdict != OutOfOrder {
			t.Errorf("after the later one took effect: %s", own.Verdict)
		}
		c.consumed("e-1", c.points)
		if own := c.ask(ToGroup, ids[0])[0].Groups[0]; own.Verdict != AlreadyApplied {
			t.Errorf("with a record: %s", own.Verdict)
		}
	})
}

func TestWhatWasNotLookedThroughMayBeOutOfOrder(t *testing.T) {
	t.Parallel()
	found := map[int64]*follower{3: {}, 7: {}}
	s := keyScan{found: found, waiting: map[string][]*follower{}}
	for o := range int64(6) {
		s.record(&kgo.Record{Offset: o, Key: []byte("k"), Timestamp: time.Now()})
	}
	s.finish(false)
	if f := found[3]; f.whole || f.scanned != 2 || len(f.later) != 2 || f.unread {
		t.Errorf("seen in part: %+v", f)
	}
	if f := found[7]; !f.unread || f.trimmed {
		t.Errorf("beyond what was read: %+v", f)
	}
	p := place{"main", "t", 0}
	for _, f := range []*follower{{scanned: 9}, {later: nil, scanned: 1}} {
		a := asked{facts: facts{subject: Subject{Cluster: "main", OriginTopic: "t", OriginPartition: ptr(int32(0)), OriginOffset: ptr(int64(3))}}}
		r := outOfOrder(a, map[place]map[int64]*follower{p: {3: f}}, nil)
		if r == nil || r.Key != "reason.out_of_order.beyond" {
			t.Errorf("%+v: %v", f, r)
		}
	}
}

// A queue says nothing of what came after a message, and the reason says so.
func TestTheOrderOfAQueueIsNotKnown(t *testing.T) {
	t.Parallel()
	a := asked{facts: facts{subject: Subject{Cluster: "rabbit", OriginTopic: "orders", Published: &Published{Known: true, Key: "orders"}}}}
	if r := outOfOrder(a, nil, nil); r == nil || r.Key != "reason.out_of_order.queue" {
		t.Errorf("%v", r)
	}
}
