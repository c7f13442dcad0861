package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"oncemore/consumer/pgstore"
	"oncemore/dlq"
	"oncemore/internal/access"
	"oncemore/internal/config"
	"oncemore/internal/testkit"
	"oncemore/migrations/pgtest"
)

const soakConfig = `
environment: soak
database: {url_file: %[1]q}
clusters: {c: {kafka: {brokers: [%[2]q]}}}
connections: {shop: {kind: postgres, url_file: %[3]q}}
sources: [{cluster: c, pattern: %[4]q, event_id: {header: event-id}}]
groups:
  %[6]s: {evidence: {connection: shop, table: mq_consume_record, complete_since: %[7]q}}
consumers:
  - group: %[6]s
    cluster: c
    topics: [%[5]q]
    connection: shop
    event_id: {header: event-id}
    effect:
      sql: |
        insert into user_points (order_id, points) values (:orderId, :points)
        on conflict (order_id) do update set points = user_points.points + excluded.points
    retry: {attempts: 2, initial: 100ms, multiplier: 1, max: 100ms}
    concurrency: 2
approval: {replay_size: 100000}
`

const soakTables = `
create table user_points (order_id text primary key, points bigint not null);
create table stuck (order_id text primary key);
create function points_rules() returns trigger language plpgsql as $$
begin
  if exists (select from stuck s where s.order_id = new.order_id) then raise exception 'rules: not available'; end if;
  return new;
end $$;
create trigger points_rules before insert on user_points for each row execute function points_rules();`

// soak is a fleet of console processes under fire.
type soak struct {
	*testing.T
	file         string // console.yaml
	conf         *config.Config
	shop         *pgxpool.Pool
	client       *kgo.Client
	topic, group string
	fleet        []*exec.Cmd
	sent, stuck  int
	log          *os.File // of all processes
	failures     int      // deliveries of stuck orders: each is a letter
	state        string   // of the group, when last looked at
}

const (
	soakProcesses  = 3
	soakPartitions = 6
	soakRate       = 10 * time.Millisecond // between orders
	outageTime     = 5 * time.Second
	stuckEvery     = 40
	twiceEvery     = 7
)

// TestSoakChurnAndOutages kills processes, cuts sessions and stops the broker
// and the database while orders flow, and then counts: every effect once, every
// letter there, every replay applied.
func TestSoakChurnAndOutages(t *testing.T) {
	testkit.Soak(t)
	s := setupSoak(t)
	for range soakProcesses {
		s.fleet = append(s.fleet, s.process())
	}
	ctx, stop := context.WithTimeout(t.Context(), soakTime(t))
	defer stop()
	fire := make(chan struct{})
	go func() { defer close(fire); s.underFire(ctx) }()
	s.orders(ctx)
	<-fire
	s.settles()
	s.wantEffects(s.sent - s.stuck)
	s.replayAll()
	s.wantEffects(s.sent)
}

// soakTime is how long the fire lasts: ONCEMORE_SOAK as a duration, else three
// minutes.
func soakTime(t *testing.T) time.Duration {
	t.Helper()
	if d, err := time.ParseDuration(os.Getenv("ONCEMORE_SOAK")); err == nil {
		return d
	}
	return 3 * time.Minute
}

func setupSoak(t *testing.T) *soak {
	t.Helper()
	kafka := testkit.Kafka(t)
	s := &soak{T: t, topic: testkit.Topic(t, kafka, "soak", soakPartitions), group: testkit.Name("soak")}
	shopURL := pgtest.Empty(t)
	s.shop = pgtest.Open(t, shopURL)
	if _, err := s.shop.Exec(t.Context(), soakTables); err != nil {
		t.Fatal(err)
	}
	if err := pgstore.Migrate(t.Context(), s.shop); err != nil {
		t.Fatal(err)
	}
	since := time.Now().Add(-24 * time.Hour).UTC().Format(time.RFC3339)
	text := fmt.Sprintf(soakConfig, secretFile(t, pgtest.URL(t)), kafka, secretFile(t, shopURL), s.topic+".DLT", s.topic, s.group, since)
	s.file = filepath.Join(t.TempDir(), "console.yaml")
	if err := os.WriteFile(s.file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	if s.conf, err = config.Load(s.file); err != nil {
		t.Fatal(err)
	}
	s.client = testkit.Client(t, kafka, kgo.RecordDeliveryTimeout(2*time.Minute))
	if s.log, err = os.CreateTemp("", "oncemore-soak-*.log"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.keepLog)
	return s
}

// keepLog says where the processes' log is when it is worth reading.
func (s *soak) keepLog() {
	s.log.Close()
	if s.Failed() {
		s.Logf("log of the processes: %s", s.log.Name())
		return
	}
	os.Remove(s.log.Name())
}

// process starts a console that does everything but pages.
func (s *soak) process() *exec.Cmd {
	cmd := console(s.T, "serve", "--config", s.file, "--roles", "drain,consume,jobs", "--log", "warn")
	cmd.Stderr = s.log
	if err := cmd.Start(); err != nil {
		s.Errorf("start a console: %v", err)
	}
	return cmd
}

// orders flow until ctx ends; some are delivered twice, some cannot be handled.
func (s *soak) orders(ctx context.Context) {
	tick := time.NewTicker(soakRate)
	defer tick.Stop()
	for ctx.Err() == nil {
		s.order()
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	if err := s.client.Flush(s.Context()); err != nil {
		s.Fatal(err)
	}
}

func (s *soak) order() {
	s.sent++
	id := strconv.Itoa(s.sent)
	if s.sent%stuckEvery == 0 {
		s.stuck++
		s.insist("insert into stuck values ($1) on conflict do nothing", id)
	}
	copies := 1
	if s.sent%twiceEvery == 0 {
		copies = 2
	}
	if s.sent%stuckEvery == 0 {
		s.failures += copies
	}
	for range copies {
		r := &kgo.Record{Topic: s.topic, Key: []byte(id), Value: fmt.Appendf(nil, `{"orderId":%q,"points":100}`, id),
			Headers: []kgo.RecordHeader{{Key: "event-id", Value: []byte("soak-" + id)}}}
		s.client.Produce(s.Context(), r, func(_ *kgo.Record, err error) {
			if err != nil {
				s.Errorf("order %s was not taken: %v", id, err)
			}
		})
	}
}

// insist repeats a statement while the database is away.
func (s *soak) insist(sql string, args ...any) {
	s.Helper()
	testkit.Eventually(s, time.Minute, func() bool {
		_, err := s.shop.Exec(s.Context(), sql, args...)
		return err == nil
	}, "%s", sql)
}

// underFire does something bad every few seconds until ctx ends.
func (s *soak) underFire(ctx context.Context) {
	outages := []func(){s.outage("KAFKA"), s.outage("POSTGRES")}
	tick := time.NewTicker(4 * time.Second)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		switch {
		case n%8 == 7 && len(outages) > 0:
			outages[0]()
			outages = outages[1:]
		case n%8 == 1:
			s.endOne(os.Kill) // the group waits for its session to run out
		case n%4 == 3:
			s.endOne(syscall.SIGTERM)
		default:
			s.cutSessions()
		}
	}
}

// endOne ends one process by the signal and starts another in its place.
func (s *soak) endOne(sig os.Signal) {
	i := rand.IntN(len(s.fleet))
	if err := s.fleet[i].Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		s.Errorf("%s: %v", sig, err)
	}
	s.fleet[i].Wait() //nolint:errcheck // it was ended
	s.fleet[i] = s.process()
}

const sqlCut = `select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'oncemore' and datname = current_database()`

func (s *soak) cutSessions() {
	if _, err := s.shop.Exec(s.Context(), sqlCut); err != nil {
		s.Logf("sessions not cut: %v", err)
	}
}

// outage stops a server of the soak's own for some seconds. ONCEMORE_<what>_DOWN
// and _UP are the commands; without them there is none.
func (s *soak) outage(what string) func() {
	down, up := os.Getenv("ONCEMORE_"+what+"_DOWN"), os.Getenv("ONCEMORE_"+what+"_UP")
	return func() {
		if down == "" || up == "" {
			s.Logf("no command stops %s: its outage is left out", what)
			return
		}
		s.Logf("%s goes away", what)
		s.shell(down)
		<-time.After(outageTime)
		s.shell(up)
	}
}

func (s *soak) shell(command string) {
	if out, err := exec.Command("/bin/sh", "-c", command).CombinedOutput(); err != nil {
		s.Errorf("%s: %v: %s", command, err, out)
	}
}

// settleTime is for the worst that a killed process leaves behind: a rebalance
// under way waits for it until its time-out of 30 s, then its partitions lie still
// until its session of 15 s runs out. The backlog comes on top.
const settleTime = 4 * time.Minute

// settles waits until the group has committed to the end and the letters are in.
func (s *soak) settles() {
	s.Helper()
	defer s.dump()
	admin := kadm.NewClient(s.client)
	testkit.Eventually(s, settleTime, func() bool {
		lags, err := admin.Lag(s.Context(), s.group)
		group := lags[s.group]
		if err != nil || group.Error() != nil {
			s.state = fmt.Sprintf("lag not known: %v, %v", err, group.Error())
			return false
		}
		total, known := int64(0), 0
		for _, l := range group.Lag[s.topic] {
			if l.Err == nil && l.Commit.At >= 0 { // else its lag says nothing
				total += l.Lag
				known++
			}
		}
		s.state = fmt.Sprintf("group %s of %d members, lag %d of %d partitions", group.State, len(group.Members), total, known)
		return total == 0 && known == soakPartitions
	}, "the group reaches the end")
}

// dump makes the processes of a failed soak write their goroutines to the log.
func (s *soak) dump() {
	if !s.Failed() {
		return
	}
	s.Log(s.state)
	for _, p := range s.fleet {
		if err := p.Process.Signal(syscall.SIGQUIT); err == nil {
			p.Wait() //nolint:errcheck // it ends by that
		}
	}
}

func (s *soak) wantEffects(want int) {
	s.Helper()
	var records, orders, most int
	err := s.shop.QueryRow(s.Context(), "select (select count(*) from mq_consume_record), count(*), coalesce(max(points), 0) from user_points").Scan(&records, &orders, &most)
	if err != nil {
		s.Fatal(err)
	}
	if records != want || orders != want || most != 100 {
		s.Errorf("%d records, %d orders with points, at most %d points; want %d, %d, 100 (of %d sent, %d stuck)", records, orders, most, want, want, s.sent, s.stuck)
	}
	s.Logf("%d orders, %d stuck: %d records, %d effects", s.sent, s.stuck, records, orders)
}

// replayAll mends the rules and replays every letter by one click.
func (s *soak) replayAll() {
	s.Helper()
	defer s.dump()
	s.insist("delete from stuck")
	a, err := openApp(s.Context(), s.conf, slog.New(slog.DiscardHandler))
	if err != nil {
		s.Fatal(err)
	}
	defer a.close()
	open := dlq.LetterFilter{State: dlq.Open, Group: s.group}
	var n int64
	defer func() { s.Logf("%d open letters of %d failures", n, s.failures) }()
	testkit.Eventually(s, 2*time.Minute, func() bool {
		n, _, err = a.letters.Count(s.Context(), open)
		return err == nil && n == int64(s.failures)
	}, "%d open letters", s.failures)
	actor := access.Actor{User: "soak", Role: access.Operator, Via: "test", Reason: "soak"}
	plan, err := a.replays.Plan(s.Context(), actor, dlq.PlanRequest{Selection: dlq.Selection{Filter: &open}, Target: dlq.ToSafe})
	if err != nil {
		s.Fatal(err)
	}
	var r dlq.Replay
	testkit.Eventually(s, 5*time.Minute, func() bool {
		r, err = a.replays.Get(s.Context(), plan.ID)
		return err == nil && r.State == dlq.Done
	}, "the replay is done")
	if r.Outcomes[dlq.Applied] != s.stuck || len(r.Outcomes) != 1 {
		s.Errorf("outcomes %v, want %d applied: letters of one event are one item", r.Outcomes, s.stuck)
	}
}
