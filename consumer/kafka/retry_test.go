package kafka

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"oncemore/consumer"
	"oncemore/consumer/pgstore"
)

// calls notes when the handler saw which attempt of which event.
type calls struct {
	mu  sync.Mutex
	all []call
}

type call struct {
	id        string
	attempt   int
	at        time.Time
	topic     string
	partition int32
	offset    int64
}

func (c *calls) note(ev consumer.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, call{ev.ID, ev.Attempt, time.Now(), ev.Topic, ev.Partition, ev.Offset})
}

func (c *calls) of(no int) []call {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.all), func(k call) bool { return k.id != fmt.Sprintf("payment-success-%d", no) })
}

var errShop = errors.New("shop is closed")

// retrying is a config whose handler fails the first n attempts of an order.
func (s *shop) retrying(seen *calls, fails map[int]int) consumer.Config[pgstore.Tx] {
	cfg := s.config()
	cfg.Retry = consumer.RetryPolicy{Initial: 300 * time.Millisecond, Jitter: -1}
	cfg.Handler = func(ctx context.Context, tx pgstore.Tx, ev consumer.Event) error {
		seen.note(ev)
		for no, n := range fails {
			if ev.ID == fmt.Sprintf("payment-success-%d", no) && ev.Attempt <= n {
				return errShop
			}
		}
		return addPoints(ctx, tx, ev)
	}
	return cfg
}

func (s *shop) retryOptions() Options {
	opts := options(s.addr, s.topic)
	opts.CreateTopics, opts.RetryTopics = true, &RetryTopics{}
	return opts
}

func (s *shop) consumed(no int) bool { return s.points(no) == 100 }

func TestRetryTopics(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, addr string) {
		s := openShop(t, addr, 2)
		var seen calls
		m := s.runWith(s.retrying(&seen, map[int]int{1: math.MaxInt, 2: 1}), s.retryOptions())
		s.publish(paymentOn(9, 1), paymentOn(1, 1), paymentOn(2, 1), paymentOn(3, 1))
		s.await("the neighbour does not wait", func() bool { return s.consumed(3) })
		if got := seen.of(1); len(got) > 2 {
			t.Errorf("it waited: event 1 was tried %d times before", len(got))
		}
		s.await("the second attempt takes effect", func() bool { return s.consumed(2) })
		s.await("the other becomes a letter", func() bool { return m.Status().DeadLettered == 1 })
		tries := seen.of(1)
		if len(tries) < 4 {
			t.Fatalf("tries %+v", tries)
		}
		for i, pause := range []time.Duration{300, 600, 1200} {
			waited := tries[len(tries)-3+i].at.Sub(tries[len(tries)-4+i].at)
			if waited < pause*time.Millisecond {
				t.Errorf("attempt %d came after %s, due after %d ms", i+2, waited, pause)
			}
		}
		for i, c := range tries[len(tries)-4:] {
			if c.attempt != i+1 || c.topic != s.topic || c.partition != 1 || c.offset != 1 {
				t.Errorf("attempt %d was seen as %+v", i+1, c)
			}
		}
		letter := letterOf(s.letters()[0])
		if letter.Topic != s.topic || letter.OriginPartition != 1 || letter.Offset != 1 || letter.Attempt != 4 || letter.EventID != "payment-success-1" ||
			letter.Group != s.group || letter.Text != errShop.Error() || len(letter.Headers) != 0 {
			t.Errorf("letter %+v", letter)
		}
		s.settled(4)
		s.await("retry topics are acknowledged", func() bool {
			return s.Acked(t, s.group, RetryTopic(s.topic, 300*time.Millisecond)) == 2 && s.Acked(t, s.group, RetryTopic(s.topic, 1200*time.Millisecond)) == 1
		})
		if got := m.Status(); got.Consumed != 3 || got.Retried != 4 {
			t.Errorf("%+v", got)
		}
		s.retryHeaders(readAll(t, addr, RetryTopic(s.topic, 600*time.Millisecond)))
	})
}

// retryHeaders checks a record that waits for its third delivery.
func (s *shop) retryHeaders(records []*kgo.Record) {
	s.Helper()
	if len(records) != 1 {
		s.Fatalf("%d records", len(records))
	}
	got := map[string][]byte{}
	for _, h := range records[0].Headers {
		got[h.Key] = h.Value
	}
	origin := readAll(s.T, s.addr, s.topic)
	at := slices.IndexFunc(origin, func(r *kgo.Record) bool { return r.Partition == 1 && r.Offset == 1 })
	sent := origin[at].Timestamp.UnixMilli()
	want := map[string][]byte{
		"kafka_original-topic": []byte(s.topic), "kafka_original-partition": int32be(1), "kafka_original-offset": int64be(1),
		"kafka_original-timestamp": int64be(sent), "kafka_original-timestamp-type": []byte("CreateTime"),
		"kafka_dlt-original-consumer-group": []byte(s.group), "kafka_exception-message": []byte(errShop.Error()),
		"kafka_exception-fqcn": []byte("*errors.errorString"), "retry_topic-original-timestamp": minimal(sent), "retry_topic-attempts": int32be(3),
	}
	if len(got) != len(want)+1 || len(records[0].Headers) != len(got) {
		s.Errorf("headers %v", slices.Sorted(maps.Keys(got)))
	}
	for name, value := range want {
		if string(got[name]) != string(value) {
			s.Errorf("%s is %q, want %q", name, got[name], value)
		}
	}
	if wait := time.UnixMilli(intOf(got["retry_topic-backoff-timestamp"])).Sub(records[0].Timestamp); wait < 500*time.Millisecond || wait > 700*time.Millisecond {
		s.Errorf("due %s after it was written", wait)
	}
}

// Two groups with the same retry topics: each sees its own retries only.
func TestRetryTopicsAreSharedByGroups(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, addr string) {
		s := openShop(t, addr, 1)
		var mine, theirs calls
		s.runWith(s.retrying(&mine, map[int]int{1: 2}), s.retryOptions())
		cfg := s.retrying(&theirs, map[int]int{1: 2})
		cfg.Group = s.group + "-other"
		s.runWith(cfg, s.retryOptions())
		s.publish(payment(1))
		done := func() bool { return s.points(1) == 200 }
		s.await("both took effect", done)
		s.await("all is acknowledged, the other's as well", func() bool {
			topic := RetryTopic(s.topic, 600*time.Millisecond)
			return s.Acked(t, s.group, topic) == 2 && s.Acked(t, cfg.Group, topic) == 2
		})
		for _, c := range []*calls{&mine, &theirs} {
			for i, got := range c.of(1) {
				if got.attempt != i+1 || i > 2 {
					t.Errorf("tries %+v", c.of(1))
				}
			}
		}
	})
}

// A wait many sessions long in a retry topic: the member stays, other partitions
// go on, the stop does not wait, and another process takes the record over.
func TestRetryTopicWaitsWithoutBlocking(t *testing.T) {
	t.Parallel()
	s := openShop(t, fake(t).ListenAddrs()[0], 1)
	cfg := s.config()
	wait := 4 * session(s.addr)
	cfg.Handler = func(ctx context.Context, tx pgstore.Tx, ev consumer.Event) error {
		if ev.ID == "payment-success-1" && ev.Attempt == 1 {
			return consumer.RetryAfter(errShop, wait)
		}
		return addPoints(ctx, tx, ev)
	}
	began := time.Now()
	m := s.runWith(cfg, s.retryOptions())
	s.publish(payment(1), payment(2))
	s.await("the neighbour took effect", func() bool { return s.consumed(2) })
	s.settled(2)
	before := s.memberIDs()
	s.holds(2*session(s.addr), "the same member, and no effect yet", func() bool {
		now := s.memberIDs()
		return len(now) == 1 && now[0] == before[0] && s.points(1) == 0
	})
	stopping := time.Now()
	m.stop()
	if took := time.Since(stopping); took > 5*time.Second {
		t.Errorf("the stop took %s", took)
	}
	s.runWith(cfg, s.retryOptions())
	s.await("the next process takes it over", func() bool { return s.consumed(1) })
	if took := time.Since(began); took < wait {
		t.Errorf("tried after %s, due after %s", took, wait)
	}
}

func TestHeldErrorsKeepTheOrder(t *testing.T) {
	t.Parallel()
	s := openShop(t, fake(t).ListenAddrs()[0], 1)
	var seen calls
	opts := s.retryOptions()
	opts.RetryTopics.Hold = func(err error) bool { return errors.Is(err, errShop) }
	s.runWith(s.retrying(&seen, map[int]int{1: 1}), opts)
	s.publish(payment(1), payment(2))
	s.settled(2)
	if at := s.Acked(t, s.group, RetryTopic(s.topic, 300*time.Millisecond)); at > 0 {
		t.Errorf("%d records went through the retry topic", at)
	}
	one, two := seen.of(1), seen.of(2)
	if len(one) < 2 || one[len(one)-1].attempt != 2 || two[len(two)-1].at.Before(one[len(one)-1].at) {
		t.Errorf("order: %+v, %+v", one, two)
	}
}

// A retry topic that refuses holds the offset; excluded classes never go there.
func TestRetryTopicRefuses(t *testing.T) {
	t.Parallel()
	cluster := fake(t)
	s := openShop(t, cluster.ListenAddrs()[0], 1)
	topic := RetryTopic(s.topic, 300*time.Millisecond)
	fault := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Err: kerr.TopicAuthorizationFailed, Count: -1})
	var seen calls
	cfg := s.retrying(&seen, map[int]int{1: 1})
	m := s.runWith(cfg, s.retryOptions())
	s.publish(payment(1))
	s.await("it is told", func() bool { return strings.Contains(m.Status().LastError, topic) })
	s.holds(500*time.Millisecond, "nothing is acknowledged", func() bool { return s.acked() <= 0 && len(s.letters()) == 0 })
	fault.Remove()
	s.await("it goes on", func() bool { return s.consumed(1) })
	m.stop()

	cfg.Retry.Exclude = []string{"*errors.errorString"}
	cfg.Handler = func(context.Context, pgstore.Tx, consumer.Event) error { return errShop }
	s.runWith(cfg, s.retryOptions())
	s.publish(payment(2))
	s.await("the excluded class is a letter at once", func() bool { return len(s.letters()) == 1 })
	if l := letterOf(s.letters()[0]); l.Attempt != 1 || l.EventID != "payment-success-2" {
		t.Errorf("%+v", l)
	}
}

// On the main topic such headers are left over from an earlier life.
func TestStaleRetryHeadersMeanNothing(t *testing.T) {
	t.Parallel()
	s := openShop(t, fake(t).ListenAddrs()[0], 1)
	cfg := s.config()
	var seen calls
	cfg.Handler = func(_ context.Context, _ pgstore.Tx, ev consumer.Event) error {
		seen.note(ev)
		return consumer.Permanent(errShop)
	}
	s.runWith(cfg, s.retryOptions())
	m := payment(1)
	m.Headers = []consumer.Header{{Name: retryAttempts, Value: int32be(4)}, {Name: retryTopic, Value: []byte("elsewhere")},
		{Name: retryDue, Value: minimal(time.Now().Add(time.Hour).UnixMilli())}, {Name: "mine", Value: []byte("kept")}}
	s.publish(m)
	s.await("a letter", func() bool { return len(s.letters()) == 1 })
	l := letterOf(s.letters()[0])
	if got := seen.of(1); got[0].attempt != 1 || got[0].topic != s.topic || l.Topic != s.topic || l.Attempt != 1 {
		t.Errorf("seen as %+v, letter %+v", got, l)
	}
	if fmt.Sprint(l.Headers) != fmt.Sprint([]consumer.Header{{Name: "mine", Value: []byte("kept")}}) {
		t.Errorf("headers of the letter: %v", l.Headers)
	}
}

func TestRetryTopicNames(t *testing.T) {
	t.Parallel()
	opts := Options{Topics: []string{"order.paid"}, RetryTopics: &RetryTopics{}}
	r, err := newRetries("g", consumer.RetryPolicy{}, opts)
	if err != nil || fmt.Sprint(r.names()) != "[order.paid-retry-1000 order.paid-retry-2000 order.paid-retry-4000]" {
		t.Errorf("by default %v, %v", r.names(), err)
	}
	for pause, want := range map[time.Duration]string{1: "1000", 900 * time.Millisecond: "1000", 1001 * time.Millisecond: "2000", time.Hour: "4000"} {
		for _, origin := range []string{"order.paid", "g.replay"} {
			if got := r.topicFor(origin, pause); got != "order.paid-retry-"+want {
				t.Errorf("%s of %s waits in %s", origin, pause, got)
			}
		}
	}
	for name, c := range map[string]struct {
		policy consumer.RetryPolicy
		topic  string
	}{
		"none":      {consumer.RetryPolicy{Attempts: -1}, "t"},
		"too many":  {consumer.RetryPolicy{Attempts: 100, Multiplier: 1.01, Max: time.Hour}, "t"},
		"long name": {consumer.RetryPolicy{}, strings.Repeat("t", 245)},
	} {
		if _, err := newRetries("g", c.policy, Options{Topics: []string{c.topic}, RetryTopics: &RetryTopics{}}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// As in a capture of Spring's: 1773480413589 is AZzrq4mV.
func TestMinimalIntegers(t *testing.T) {
	t.Parallel()
	if got := base64.StdEncoding.EncodeToString(minimal(1773480413589)); got != "AZzrq4mV" {
		t.Errorf("%s", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.Int64().Draw(t, "v")
		if got := intOf(minimal(v)); got != v {
			t.Errorf("%d became %d", v, got)
		}
	})
}
