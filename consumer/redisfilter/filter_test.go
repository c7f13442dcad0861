package redisfilter_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"oncemore/consumer"
	"oncemore/consumer/consumertest"
	"oncemore/consumer/redisfilter"
	"oncemore/internal/testkit"
)

var quiet = slog.New(slog.DiscardHandler)

// patient is a time-out that a loaded machine keeps.
const patient = 2 * time.Second

func open(t *testing.T, url string, o redisfilter.Options) *redisfilter.Filter {
	t.Helper()
	if o.Prefix == "" {
		o.Prefix = testkit.Name("test")
	}
	if o.Timeout == 0 {
		o.Timeout = patient
	}
	o.Logger = quiet
	f, err := redisfilter.Open(url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func up(t *testing.T, f *redisfilter.Filter) {
	t.Helper()
	testkit.Eventually(t, 10*time.Second, f.Up, "the filter connects")
}

func client(t *testing.T) *redis.Client {
	t.Helper()
	o, err := redis.ParseURL(testkit.Redis(t))
	if err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(o)
	t.Cleanup(func() { c.Close() })
	return c
}

func wantSeen(t *testing.T, f *redisfilter.Filter, group string, ids []string, want ...bool) {
	t.Helper()
	got, err := f.Seen(t.Context(), group, ids)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("seen %q of %s: %v, want %v (%v)", ids, group, got, want, err)
	}
}

func TestRemembersByGroup(t *testing.T) {
	t.Parallel()
	f := open(t, testkit.Redis(t), redisfilter.Options{})
	up(t, f)
	f.Committed(t.Context(), "points", []string{"a", "支付-1", "with space", "😀"})
	wantSeen(t, f, "points", []string{"b", "a", "支付-1", "with space", "A", "😀"}, false, true, true, true, false, true)
	wantSeen(t, f, "stock", []string{"a"}, false)
	wantSeen(t, f, "points", nil)
}

// The keys are the specification's: SET mq:consume:{group}:{eventId} 1 NX EX 86400.
func TestKeysAreTheSpecifiedOnes(t *testing.T) {
	t.Parallel()
	f := open(t, testkit.Redis(t), redisfilter.Options{Prefix: "mq:consume"})
	up(t, f)
	c, group := client(t), testkit.Name("points")
	key := "mq:consume:" + group + ":payment-success-10001"
	t.Cleanup(func() { c.Del(context.Background(), key) })
	f.Committed(t.Context(), group, []string{"payment-success-10001"})
	if got := c.Get(t.Context(), key).Val(); got != "1" {
		t.Errorf("value %q, want 1", got)
	}
	if ttl := c.TTL(t.Context(), key).Val(); ttl <= 86390*time.Second || ttl > 86400*time.Second {
		t.Errorf("time to live %s, want 24h", ttl)
	}
	c.Expire(t.Context(), key, time.Minute)
	f.Committed(t.Context(), group, []string{"payment-success-10001"})
	if ttl := c.TTL(t.Context(), key).Val(); ttl > time.Minute {
		t.Errorf("a key that was there got a new time to live: %s", ttl)
	}
}

// A key of somebody else, or of another type, is no proof.
func TestForeignKeysAreNoProof(t *testing.T) {
	t.Parallel()
	f := open(t, testkit.Redis(t), redisfilter.Options{})
	up(t, f)
	c := client(t)
	c.Set(t.Context(), f.Key("g", "other"), "processing", time.Minute)
	wantSeen(t, f, "g", []string{"other"}, false)
	c.LPush(t.Context(), f.Key("g", "list"), "1")
	t.Cleanup(func() { c.Del(context.Background(), f.Key("g", "list")) })
	if seen, err := f.Seen(t.Context(), "g", []string{"list"}); err == nil && seen[0] {
		t.Error("a list counts as consumed")
	}
}

func TestKeysOfDifferentEventsDiffer(t *testing.T) {
	t.Parallel()
	f := open(t, "redis://127.0.0.1:1", redisfilter.Options{Prefix: "p"})
	part := rapid.StringOfN(rapid.SampledFrom([]rune(`a%3A`)), 1, 4, -1)
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOfN(part, 3, 5).Draw(t, "parts") // one text, cut at two places
		i := rapid.IntRange(1, len(parts)-2).Draw(t, "first cut")
		j := rapid.IntRange(i+1, len(parts)-1).Draw(t, "second cut")
		one := f.Key(strings.Join(parts[:i], ":"), strings.Join(parts[i:], ":"))
		two := f.Key(strings.Join(parts[:j], ":"), strings.Join(parts[j:], ":"))
		if one == two {
			t.Fatalf("%q cut at %d and %d: both are %s", parts, i, j, one)
		}
	})
}

func TestBadURL(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"http://127.0.0.1", "redis://u:secret#x@127.0.0.1:6379/0", "redis://u:secret@127.0.0.1/0?read_timeout=3s", "redis://u:secret@127.0.0.1/none"} {
		if _, err := redisfilter.Open(address, redisfilter.Options{}); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	if err := redisfilter.Check(t.Context(), testkit.Redis(t), testkit.Name("test")); err != nil {
		t.Error(err)
	}
	for _, address := range []string{"redis://127.0.0.1:1/0", "http://127.0.0.1/"} {
		if err := redisfilter.Check(t.Context(), address, "test"); err == nil {
			t.Errorf("%s answers", address)
		}
	}
}

// line is a connection to Redis that can be cut, or left without an answer.
type line struct {
	addr, to string
	mu       sync.Mutex
	mode     string // "", cut, dead
	open     []net.Conn
}

func newLine(t *testing.T) *line {
	t.Helper()
	o, err := redis.ParseURL(testkit.Redis(t))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	w := &line{addr: l.Addr().String(), to: o.Addr}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			w.carry(conn)
		}
	}()
	return w
}

func (w *line) carry(near net.Conn) {
	far, err := net.Dial("tcp", w.to)
	if err != nil || !w.keep(near, far) {
		near.Close()
		return
	}
	for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
		go func() {
			defer near.Close()
			defer far.Close()
			b := make([]byte, 4096)
			for {
				n, err := way[0].Read(b)
				if err != nil {
					return
				}
				if w.is("dead") {
					continue
				}
				way[1].Write(b[:n])
			}
		}()
	}
}

func (w *line) keep(conns ...net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open = append(w.open, conns...)
	return w.mode != "cut"
}

func (w *line) is(mode string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mode == mode
}

// set changes the mode and ends connections when they are cut or mended.
func (w *line) set(mode string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mode = mode
	if mode == "dead" {
		return
	}
	for _, c := range w.open {
		c.Close()
	}
	w.open = nil
}

// An outage costs the time-out once. Then Redis is left alone, and asked again
// when it is back.
func TestOutageAndReturn(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"cut", "dead"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			w := newLine(t)
			f := open(t, "redis://"+w.addr, redisfilter.Options{Timeout: 200 * time.Millisecond, CoolDown: 50 * time.Millisecond})
			up(t, f)
			testkit.Eventually(t, 5*time.Second, func() bool {
				up(t, f)
				f.Committed(t.Context(), "g", []string{"a"})
				seen, err := f.Seen(t.Context(), "g", []string{"a"})
				return err == nil && seen[0]
			}, "an id is remembered")
			w.set(mode)
			began := time.Now()
			if _, err := f.Seen(t.Context(), "g", []string{"a"}); err == nil {
				t.Error("an answer through a broken line")
			}
			for range 1000 {
				f.Committed(t.Context(), "g", []string{"b"})
				if _, err := f.Seen(t.Context(), "g", []string{"a"}); err == nil {
					t.Fatal("an answer through a broken line")
				}
			}
			if took := time.Since(began); took > time.Second {
				t.Errorf("1000 batches took %s longer", took)
			}
			w.set("")
			testkit.Eventually(t, 10*time.Second, func() bool {
				seen, err := f.Seen(t.Context(), "g", []string{"a", "b"})
				return err == nil && slices.Equal(seen, []bool{true, false})
			}, "the filter comes back")
		})
	}
}

func TestNeverReachable(t *testing.T) {
	t.Parallel()
	f := open(t, fmt.Sprintf("redis://127.0.0.1:%d", testkit.FreePort(t)), redisfilter.Options{})
	began := time.Now()
	for range 1000 {
		f.Committed(t.Context(), "g", []string{"a"})
		if _, err := f.Seen(t.Context(), "g", []string{"a"}); err == nil {
			t.Fatal("an answer from nowhere")
		}
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("1000 batches took %s", took)
	}
}

// A delivery that is cut off by shutdown says nothing about Redis.
func TestEndedContextIsNoOutage(t *testing.T) {
	t.Parallel()
	f := open(t, testkit.Redis(t), redisfilter.Options{})
	up(t, f)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.Seen(ctx, "g", []string{"a"}); err == nil {
		t.Error("no error")
	}
	if !f.Up() {
		t.Error("Redis is taken for down")
	}
}

// service is a consumer with a filter and a store in memory, fed by hand.
type service struct {
	t       *testing.T
	filter  *redisfilter.Filter
	store   *claims
	meter   consumer.Meter
	cfg     consumer.Config[*[]string]
	effects []string
	fail    map[string]error
}

// claims counts what the store is asked.
type claims struct {
	*consumertest.Memory[*[]string]
	asked int
}

func (c *claims) Claim(ctx context.Context, group string, ids []string) (consumer.Claim[*[]string], error) {
	c.asked += len(ids)
	return c.Memory.Claim(ctx, group, ids)
}

func newService(t *testing.T, f *redisfilter.Filter) *service {
	t.Helper()
	s := &service{t: t, filter: f, fail: map[string]error{}}
	s.store = &claims{Memory: consumertest.NewMemory(&s.effects)}
	cfg, err := consumer.Config[*[]string]{
		Group: "g", Store: s.store, Filter: f, EventID: consumer.EventIDSource{JSON: "id"}, Logger: quiet,
		Retry: consumer.RetryPolicy{Attempts: -1},
		Handler: func(_ context.Context, tx *[]string, ev consumer.Event) error {
			if err := s.fail[ev.ID]; err != nil {
				return err
			}
			*tx = append(*tx, ev.ID)
			return nil
		},
	}.Complete()
	if err != nil {
		t.Fatal(err)
	}
	s.cfg = cfg
	return s
}

func (s *service) deliver(ids ...string) {
	s.t.Helper()
	deliveries := make([]consumer.Delivery, len(ids))
	for i, id := range ids {
		deliveries[i] = consumer.NewDelivery(consumer.Event{Group: "g", Value: fmt.Appendf(nil, `{"id":%q}`, id)}, s.cfg.EventID)
	}
	if err := consumer.NewWorker(s.cfg, port{}, &s.meter, &consumer.Gate{}).Process(s.t.Context(), nil, deliveries); err != nil {
		s.t.Fatal(err)
	}
}

func (s *service) status() (st consumer.Status) {
	s.meter.Fill(&st)
	return st
}

type port struct{}

func (port) Done(int)                                          {}
func (port) DeadLetter(context.Context, consumer.Letter) error { return nil }
func (port) Waiting(bool)                                      {}

// Duplicates are recognised without the store. When Redis has lost all, the
// store is asked again: each effect still happens once.
func TestFlushCostsSpeedOnly(t *testing.T) {
	t.Parallel()
	url := testkit.Redis(t)
	f := open(t, url, redisfilter.Options{})
	up(t, f)
	s := newService(t, f)
	s.deliver("a", "b")
	s.deliver("a", "b", "c")
	if st := s.status(); s.store.asked != 3 || st.Filtered != 2 || st.Duplicates != 2 || st.Consumed != 3 {
		t.Errorf("store asked for %d, filtered %d, duplicates %d, consumed %d", s.store.asked, st.Filtered, st.Duplicates, st.Consumed)
	}
	c := client(t)
	for _, id := range []string{"a", "b", "c"} { // as FLUSHALL or eviction would, for these keys
		if n, err := c.Del(t.Context(), f.Key("g", id)).Result(); n != 1 || err != nil {
			t.Fatalf("key of %s: deleted %d (%v)", id, n, err)
		}
	}
	s.deliver("a", "b", "c")
	s.deliver("a", "b", "c")
	if st := s.status(); s.store.asked != 6 || st.Filtered != 5 || st.Consumed != 3 || len(s.effects) != 3 {
		t.Errorf("store asked for %d, filtered %d, consumed %d, effects %v", s.store.asked, st.Filtered, st.Consumed, s.effects)
	}
}

// An event whose transaction failed is not remembered.
func TestOnlyCommittedIDsAreRemembered(t *testing.T) {
	t.Parallel()
	f := open(t, testkit.Redis(t), redisfilter.Options{})
	up(t, f)
	s := newService(t, f)
	s.fail["bad"] = errors.New("no")
	s.fail["drop"] = consumer.Discard(errors.New("no"))
	s.deliver("bad", "good", "drop")
	wantSeen(t, f, "g", []string{"bad", "good", "drop"}, false, true, false)
	clear(s.fail)
	s.deliver("bad", "drop")
	if want := []string{"good", "bad", "drop"}; !slices.Equal(s.effects, want) {
		t.Errorf("effects %v, want %v", s.effects, want)
	}
}

// Redis dies and comes back while copies arrive: no effect is missing or doubled.
func TestOutageChangesNoEffect(t *testing.T) {
	t.Parallel()
	w := newLine(t)
	f := open(t, "redis://"+w.addr, redisfilter.Options{Timeout: 50 * time.Millisecond, CoolDown: 5 * time.Millisecond})
	s := newService(t, f)
	var want []string
	for i := range 60 {
		id := fmt.Sprint(i)
		want = append(want, id)
		s.deliver(id, id, "0")
		w.set([]string{"dead", "", "cut", ""}[i%4])
		if i%4 == 1 {
			up(t, f)
		}
	}
	if n := s.status().Filtered; n == 0 || n >= int64(len(want)-1) {
		t.Errorf("%d of the duplicates were filtered: no outage, or nothing else", n)
	}
	if !slices.Equal(s.effects, want) {
		t.Errorf("effects %v, want %v", s.effects, want)
	}
}

func TestKeysExpire(t *testing.T) {
	t.Parallel()
	f := open(t, testkit.Redis(t), redisfilter.Options{TTL: time.Second})
	up(t, f)
	f.Committed(t.Context(), "g", []string{"a"})
	testkit.Eventually(t, 10*time.Second, func() bool {
		seen, err := f.Seen(t.Context(), "g", []string{"a"})
		return err == nil && !seen[0]
	}, "the id is forgotten")
}
