package alert_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"oncemore/internal/access"
	"oncemore/internal/alert"
	"oncemore/internal/testkit"
	"oncemore/migrations/pgtest"
)

// desk is an engine with a rule that finds what the test says, a receiver, and a
// clock that stands still.
type desk struct {
	t        *testing.T
	pool     *pgxpool.Pool
	engine   *alert.Engine
	receiver *receiver
	options  alert.Options

	mu    sync.Mutex
	now   time.Time
	found []alert.Condition
	err   error
}

func newDesk(t *testing.T, change func(*alert.Options)) *desk {
	t.Helper()
	d := &desk{t: t, pool: pgtest.New(t), now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC), receiver: newReceiver(t)}
	d.options = alert.Options{
		Environment: "shop", ConsoleURL: "https://console.example/", Clock: d.clock, Log: slog.New(slog.DiscardHandler),
		Rules:    []alert.Rule{{Name: "age", Severity: alert.Warning, Look: d.look}},
		Channels: []alert.Channel{d.receiver.channel("ops")},
		Words:    func(language, key string, args map[string]any) string { return fmt.Sprint(key, " ", args["n"]) },
		Retry:    func(int) time.Duration { return time.Millisecond },
	}
	if change != nil {
		change(&d.options)
	}
	d.engine = d.another()
	return d
}

// another is an engine of the same config, as a second replica has it.
func (d *desk) another() *alert.Engine {
	d.t.Helper()
	e, err := alert.New(d.pool, d.options)
	if err != nil {
		d.t.Fatal(err)
	}
	return e
}

func (d *desk) clock() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.now
}

func (d *desk) look(context.Context) ([]alert.Condition, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.found), d.err
}

func (d *desk) find(err error, keys ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.found, d.err = nil, err
	for i, key := range keys {
		d.found = append(d.found, alert.Condition{Key: key, Args: map[string]any{"n": int64(i)}, Href: "/faults/" + key})
	}
}

func (d *desk) tick(after time.Duration) {
	d.t.Helper()
	d.mu.Lock()
	d.now = d.now.Add(after)
	d.mu.Unlock()
	if err := d.engine.Tick(d.t.Context()); err != nil {
		d.t.Fatal(err)
	}
}

// work sends what was decided, until the test ends.
func (d *desk) work() {
	d.t.Helper()
	workers := river.NewWorkers()
	d.engine.AddWorkers(workers)
	client, err := river.NewClient(riverpgxv5.New(d.pool), &river.Config{
		Queues: map[string]river.QueueConfig{alert.Queue: {MaxWorkers: 2}}, Workers: workers, Logger: slog.New(slog.DiscardHandler),
		FetchPollInterval: 100 * time.Millisecond, FetchCooldown: 10 * time.Millisecond,
	})
	if err != nil {
		d.t.Fatal(err)
	}
	if err := client.Start(context.Background()); err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := client.StopAndCancel(ctx); err != nil {
			d.t.Errorf("stop: %v", err)
		}
	})
}

// deliveries are the kinds of messages that were decided, oldest first.
func (d *desk) deliveries() (kinds []string) {
	d.t.Helper()
	all, err := d.engine.Deliveries(d.t.Context(), 100)
	if err != nil {
		d.t.Fatal(err)
	}
	for _, one := range slices.Backward(all) {
		kinds = append(kinds, fmt.Sprint(one.Kind, " ", one.Alerts))
	}
	return kinds
}

func (d *desk) expect(want ...string) {
	d.t.Helper()
	if got := d.deliveries(); !slices.Equal(got, want) {
		d.t.Errorf("decided %q, want %q", got, want)
	}
}

// receiver is a webhook that may refuse.
type receiver struct {
	server *httptest.Server
	mu     sync.Mutex
	refuse int // how many calls are answered 503
	answer string
	bodies []string
	calls  []*http.Request
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{}
	r.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.calls = append(r.calls, req)
		if r.refuse > 0 {
			r.refuse--
			http.Error(w, "no room", http.StatusServiceUnavailable)
			return
		}
		r.bodies = append(r.bodies, string(body))
		io.WriteString(w, r.answer)
	}))
	t.Cleanup(r.server.Close)
	return r
}

func (r *receiver) channel(name string) alert.Channel {
	return alert.Channel{Name: name, Type: alert.Webhook, URL: func() (string, error) { return r.server.URL + "/secret-path", nil }}
}

func (r *receiver) got() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.bodies)
}

var operator = access.Actor{User: "chen", Role: access.Operator, Via: "session"}

func TestAnAlertIsToldOnceRemindedAndEnded(t *testing.T) {
	t.Parallel()
	d := newDesk(t, nil)
	d.tick(0)
	d.expect()
	d.find(nil, "a", "b")
	d.tick(time.Minute)
	d.expect("firing 2")
	for range 5 {
		d.tick(5 * time.Minute)
	}
	d.expect("firing 2")
	d.find(nil, "b")
	d.tick(time.Hour)
	d.expect("firing 2", "resolved 1")
	d.tick(4 * time.Hour)
	d.expect("firing 2", "resolved 1", "reminder 1")
	d.find(nil)
	d.tick(time.Hour)
	d.find(nil, "b") // it came back: another alert
	d.tick(time.Hour)
	d.expect("firing 2", "resolved 1", "reminder 1", "resolved 1", "firing 1")
}

// What comes within the throttle waits, and goes together.
func TestMessagesAreThrottledAndGrouped(t *testing.T) {
	t.Parallel()
	d := newDesk(t, nil)
	d.find(nil, "a")
	d.tick(0)
	for _, keys := range [][]string{{"a", "b"}, {"a", "b", "c"}, {"b", "c", "d"}} {
		d.find(nil, keys...)
		d.tick(time.Minute)
	}
	d.expect("firing 1")
	d.tick(2 * time.Minute)
	d.expect("firing 1", "firing 4") // b, c, d, and that a ended
}

// Several are acknowledged at once; what is over, or was acknowledged before, does
// not stand in the way.
func TestSeveralAreAcknowledgedAtOnce(t *testing.T) {
	t.Parallel()
	d := newDesk(t, nil)
	d.find(nil, "a", "b", "c")
	d.tick(0)
	lasting, err := d.engine.Lasting(t.Context(), 10)
	if err != nil || len(lasting) != 3 {
		t.Fatal(lasting, err)
	}
	if err := d.engine.Acknowledge(t.Context(), operator, lasting[0].ID); err != nil {
		t.Fatal(err)
	}
	if err := d.engine.Acknowledge(t.Context(), operator, lasting[0].ID, lasting[1].ID, lasting[1].ID, 99); err != nil {
		t.Fatal(err)
	}
	if c, err := d.engine.Count(t.Context()); err != nil || c.Unacknowledged() != 1 {
		t.Errorf("counts %+v, %v", c, err)
	}
	if err := d.engine.Acknowledge(t.Context(), operator, lasting[0].ID, lasting[1].ID); !errors.Is(err, alert.ErrNoAlert) {
		t.Errorf("again: %v", err)
	}
	if err := d.engine.Acknowledge(t.Context(), operator); !errors.Is(err, alert.ErrNoAlert) {
		t.Errorf("none: %v", err)
	}
}

func TestAnAcknowledgedAlertIsNotReminded(t *testing.T) {
	t.Parallel()
	d := newDesk(t, nil)
	d.find(nil, "a")
	d.tick(0)
	lasting, err := d.engine.Lasting(t.Context(), 10)
	if err != nil || len(lasting) != 1 {
		t.Fatal(lasting, err)
	}
	viewer := access.Actor{User: "v", Role: access.Viewer}
	if err := d.engine.Acknowledge(t.Context(), viewer, lasting[0].ID); !errors.Is(err, access.ErrForbidden) {
		t.Errorf("a viewer: %v", err)
	}
	if err := d.engine.Acknowledge(t.Context(), operator, lasting[0].ID); err != nil {
		t.Fatal(err)
	}
	if err := d.engine.Acknowledge(t.Context(), operator, lasting[0].ID); !errors.Is(err, alert.ErrNoAlert) {
		t.Errorf("twice: %v", err)
	}
	if c, err := d.engine.Count(t.Context()); err != nil || c.Unacknowledged() != 0 || c.All[alert.Warning] != 1 {
		t.Errorf("counts %+v, %v", c, err)
	}
	d.tick(24 * time.Hour)
	d.expect("firing 1")
	d.find(nil)
	d.tick(time.Hour)
	d.expect("firing 1", "resolved 1")
	var audited int
	if err := d.pool.QueryRow(t.Context(), "SELECT count(*) FROM audit_log WHERE action = 'alert.acknowledged' AND actor = 'chen'").Scan(&audited); err != nil || audited != 1 {
		t.Errorf("%d audit rows, %v", audited, err)
	}
}

// A rule that cannot look leaves what it found as it is: unknown is not over.
func TestARuleThatCannotLookEndsNothing(t *testing.T) {
	t.Parallel()
	d := newDesk(t, nil)
	d.find(nil, "a")
	d.tick(0)
	d.find(errors.New("broker\x00 silent"))
	d.tick(time.Hour)
	d.tick(time.Hour)
	lasting, err := d.engine.Lasting(t.Context(), 10)
	looks, err2 := d.engine.Looks(t.Context())
	if len(lasting) != 1 || err != nil || err2 != nil {
		t.Fatal(lasting, err, err2)
	}
	if l := looks["age"]; l.Error != "broker silent" || l.ErrorSince == nil || !l.ErrorSince.Equal(d.now.Add(-time.Hour)) || !l.At.Equal(d.now.Add(-2*time.Hour)) {
		t.Errorf("look %+v", l)
	}
	d.find(errors.New("half of it is silent"), "b") // what the other half says begins
	d.tick(time.Hour)
	if lasting, err = d.engine.Lasting(t.Context(), 10); len(lasting) != 2 || err != nil {
		t.Errorf("%+v, %v", lasting, err)
	}
	d.find(nil)
	d.tick(time.Hour)
	if looks, _ = d.engine.Looks(t.Context()); looks["age"].Error != "" {
		t.Errorf("look %+v", looks["age"])
	}
	d.expect("firing 1", "firing 1", "resolved 2")
}

func TestOfTwoReplicasOneTells(t *testing.T) {
	t.Parallel()
	d := newDesk(t, nil)
	other := d.another()
	for round := range 8 {
		d.find(nil, fmt.Sprint("k", round))
		d.mu.Lock()
		d.now = d.now.Add(time.Hour)
		d.mu.Unlock()
		var both sync.WaitGroup
		for _, e := range []*alert.Engine{d.engine, other} {
			both.Go(func() {
				if err := e.Tick(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
	}
	told := map[string]int{}
	for _, kind := range d.deliveries() {
		told[kind]++
	}
	if n := told["firing 1"] + told["firing 2"]; n != 8 { // one a round, together with the end of the one before
		t.Errorf("8 alerts were told as %v", told)
	}
	var rows int
	if err := d.pool.QueryRow(t.Context(), "SELECT count(*) FROM alert").Scan(&rows); err != nil || rows != 8 {
		t.Errorf("%d alerts, %v", rows, err)
	}
}

func TestAChannelHearsItsRulesAndSeverities(t *testing.T) {
	t.Parallel()
	var d *desk
	d = newDesk(t, func(o *alert.Options) {
		both := o.Channels[0]
		pager, others := both, both
		pager.Name, pager.Least = "pager", alert.Critical
		others.Name, others.Rules = "others", []string{"gap"}
		o.Channels = []alert.Channel{both, pager, others}
		o.Rules = append(o.Rules, alert.Rule{Name: "gap", Severity: alert.Critical, Momentary: true, Look: func(ctx context.Context) ([]alert.Condition, error) { return d.look(ctx) }})
	})
	d.find(nil, "x")
	d.tick(0)
	told := func() map[string]int {
		all, err := d.engine.Deliveries(t.Context(), 100)
		if err != nil {
			t.Fatal(err)
		}
		n := map[string]int{}
		for _, one := range all {
			n[one.Channel] += one.Alerts
		}
		return n
	}
	if n := told(); n["ops"] != 2 || n["pager"] != 1 || n["others"] != 1 {
		t.Errorf("told %v", n)
	}
	d.find(nil)
	d.tick(time.Hour)
	if n := told(); n["ops"] != 3 || n["pager"] != 1 || n["others"] != 1 { // the end of a gap is no news
		t.Errorf("told %v", n)
	}
	d.options.Rules = d.options.Rules[1:] // switched off
	d.find(nil, "x")
	d.tick(time.Hour)
	d.engine = d.another()
	d.tick(time.Hour)
	if lasting, _ := d.engine.Lasting(t.Context(), 10); len(lasting) != 1 || lasting[0].Rule != "gap" {
		t.Errorf("of a rule that is off: %+v", lasting)
	}
}

// A receiver that fails twice gets the message at the third try, once, and what
// it answered is seen meanwhile.
func TestADeliveryIsTriedAgain(t *testing.T) {
	t.Parallel()
	d := newDesk(t, nil)
	d.receiver.refuse = 2
	d.find(nil, "a")
	d.tick(0)
	d.work()
	last := func() alert.Delivery {
		all, err := d.engine.Deliveries(t.Context(), 1)
		if err != nil || len(all) != 1 {
			t.Fatal(all, err)
		}
		return all[0]
	}
	testkit.Eventually(t, 60*time.Second, func() bool { return last().State == alert.Sent }, "the message is delivered")
	if l := last(); l.Tries != 3 || l.Error != "" || len(d.receiver.got()) != 1 {
		t.Errorf("%+v, received %d", l, len(d.receiver.got()))
	}
	var body struct {
		Kind, Environment, Title, Link string
		Alerts                         []struct{ ID, Rule, Key, Severity, Text, Link string }
	}
	if err := json.Unmarshal([]byte(d.receiver.got()[0]), &body); err != nil {
		t.Fatal(err)
	}
	if body.Kind != "firing" || body.Environment != "shop" || body.Link != "https://console.example/alerts" || len(body.Alerts) != 1 ||
		body.Alerts[0].Rule != "age" || body.Alerts[0].Key != "a" || body.Alerts[0].Severity != "warning" || body.Alerts[0].Link != "https://console.example/faults/a" {
		t.Errorf("received %+v", body)
	}
}

// The last error is kept without the webhook's address, which is a secret.
func TestAnErrorNamesNoAddress(t *testing.T) {
	t.Parallel()
	d := newDesk(t, nil)
	d.receiver.server.Close()
	d.find(nil, "a")
	d.tick(0)
	d.work()
	var last alert.Delivery
	testkit.Eventually(t, 60*time.Second, func() bool {
		all, _ := d.engine.Deliveries(t.Context(), 1)
		last = all[0]
		return last.Tries > 0
	}, "the message is tried")
	if last.Error == "" || strings.Contains(last.Error, "secret-path") {
		t.Errorf("error %q", last.Error)
	}
}

func TestTheTestButton(t *testing.T) {
	t.Parallel()
	d := newDesk(t, nil)
	admin := access.Actor{User: "root", Role: access.Admin}
	if err := d.engine.Test(t.Context(), operator, "ops"); !errors.Is(err, access.ErrForbidden) {
		t.Errorf("an operator: %v", err)
	}
	if err := d.engine.Test(t.Context(), admin, "nobody"); !errors.Is(err, alert.ErrNoChannel) {
		t.Errorf("no channel: %v", err)
	}
	d.find(nil, "a")
	d.tick(0)
	if err := d.engine.Test(t.Context(), admin, "ops"); err != nil { // past the throttle
		t.Fatal(err)
	}
	d.expect("firing 1", "test 0")
	d.work()
	testkit.Eventually(t, 60*time.Second, func() bool { return len(d.receiver.got()) == 2 }, "both arrive")
}

// Rows that a crash left between sending and noting are sent again, never lost;
// what was noted is not.
func TestWhatWasSentIsNotSentAgain(t *testing.T) {
	t.Parallel()
	d := newDesk(t, nil)
	d.find(nil, "a")
	d.tick(0)
	if _, err := d.pool.Exec(t.Context(), "UPDATE alert_delivery SET state = 2, done_at = now()"); err != nil {
		t.Fatal(err)
	}
	d.work()
	testkit.Eventually(t, 60*time.Second, func() bool {
		var done int
		err := d.pool.QueryRow(t.Context(), "SELECT count(*) FROM river_job WHERE kind = 'alert_delivery' AND state = 'completed'").Scan(&done)
		return err == nil && done == 1
	}, "the job ends")
	if n := len(d.receiver.got()); n != 0 {
		t.Errorf("sent %d times", n)
	}
}

func TestOldAlertsAreForgotten(t *testing.T) {
	t.Parallel()
	d := newDesk(t, nil)
	d.find(nil, "a")
	d.tick(0)
	d.find(nil)
	d.tick(time.Hour)
	d.tick(100 * 24 * time.Hour)
	var n int
	err := d.pool.QueryRow(t.Context(), "SELECT (SELECT count(*) FROM alert) + (SELECT count(*) FROM alert_told) + (SELECT count(*) FROM alert_delivery)").Scan(&n)
	if err != nil || n != 0 {
		t.Errorf("%d rows are left, %v", n, err)
	}
}

func TestRunStopsAndOneLooks(t *testing.T) {
	t.Parallel()
	d := newDesk(t, func(o *alert.Options) { o.Every = 10 * time.Millisecond })
	d.find(nil, "a")
	ctx, cancel := context.WithCancel(t.Context())
	var both sync.WaitGroup
	for _, e := range []*alert.Engine{d.engine, d.another()} {
		both.Go(func() {
			if err := e.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	testkit.Eventually(t, 30*time.Second, func() bool {
		all, err := d.engine.Deliveries(context.Background(), 1)
		return err == nil && len(all) == 1
	}, "somebody tells")
	cancel()
	both.Wait()
	d.expect("firing 1")
}
