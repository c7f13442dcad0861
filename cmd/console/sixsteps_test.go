package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"oncemore/consumer/pgstore"
	"oncemore/dlq"
	"oncemore/internal/access"
	"oncemore/internal/config"
	"oncemore/internal/testkit"
	"oncemore/migrations/pgtest"
)

// business is the shop of the six steps. The trigger fails before the points
// change; the sequence counts attempts, since it does not roll back.
const business = `
create table user_points (order_id text primary key, points bigint not null);
create table switch (broken boolean not null);
insert into switch values (false);
create sequence attempt;
create function points_rules() returns trigger language plpgsql as $$
begin
  perform nextval('attempt');
  if (select broken from switch) then raise exception 'rules: not available'; end if;
  return new;
end $$;
create trigger points_rules before insert on user_points for each row execute function points_rules();
insert into user_points (order_id, points) values ('10001', 0), ('10002', 0), ('10003', 0)`

const sixStepsConfig = `
environment: test
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
    event_id: {header: event-id, json: $.eventId}
    effect:
      sql: |
        insert into user_points (order_id, points) values (:orderId, :points)
        on conflict (order_id) do update set points = user_points.points + excluded.points
    retry: {attempts: 3, initial: 600ms, multiplier: 1, max: 600ms}
`

// sixSteps is a console with one consumer, wired as serve does it.
type sixSteps struct {
	*testing.T
	app          *app
	shop         *pgxpool.Pool
	client       *kgo.Client
	admin        *kadm.Client
	topic, group string
}

func setupSixSteps(t *testing.T, kafka string) *sixSteps {
	t.Helper()
	s := &sixSteps{T: t, topic: testkit.Topic(t, kafka, "order.paid", 2), group: testkit.Name("points")}
	shopURL := pgtest.Empty(t)
	s.shop = pgtest.Open(t, shopURL)
	if _, err := s.shop.Exec(t.Context(), business); err != nil {
		t.Fatal(err)
	}
	if err := pgstore.Migrate(t.Context(), s.shop); err != nil {
		t.Fatal(err)
	}
	since := time.Now().Add(-24 * time.Hour).UTC().Format(time.RFC3339)
	text := fmt.Sprintf(sixStepsConfig, secretFile(t, pgtest.URL(t)), kafka, secretFile(t, shopURL), s.topic+".DLT", s.topic, s.group, since)
	conf, err := config.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	s.client = testkit.Client(t, kafka)
	s.admin = kadm.NewClient(s.client)
	s.serve(conf)
	return s
}

// serve runs all roles but web until the test ends.
func (s *sixSteps) serve(conf *config.Config) {
	s.Helper()
	var err error
	if s.app, err = openApp(s.Context(), conf, slog.New(slog.NewTextHandler(s.Output(), nil))); err != nil {
		s.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.app.serve(ctx, roles{Drain: true, Consume: true, Jobs: true}, nil, extras{}) }()
	s.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			s.Errorf("serve: %v", err)
		}
		s.app.close()
	})
}

func secretFile(t *testing.T, value string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(value), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func (s *sixSteps) deliver(order string) {
	s.Helper()
	value, err := json.Marshal(map[string]any{"eventId": "payment-success-" + order, "orderId": order, "points": 100})
	if err != nil {
		s.Fatal(err)
	}
	record := &kgo.Record{Topic: s.topic, Key: []byte(order), Value: value,
		Headers: []kgo.RecordHeader{{Key: "event-id", Value: []byte("payment-success-" + order)}}}
	if err := s.client.ProduceSync(s.Context(), record).FirstErr(); err != nil {
		s.Fatal(err)
	}
}

func (s *sixSteps) breakRules(broken bool) {
	s.Helper()
	if _, err := s.shop.Exec(s.Context(), "update switch set broken = $1", broken); err != nil {
		s.Fatal(err)
	}
}

func (s *sixSteps) number(sql string, args ...any) (n int64) {
	s.Helper()
	if err := s.shop.QueryRow(s.Context(), sql, args...).Scan(&n); err != nil {
		s.Fatal(err)
	}
	return n
}

func (s *sixSteps) points(order string) int64 {
	s.Helper()
	return s.number("select points from user_points where order_id = $1", order)
}

func (s *sixSteps) consumed(order string) bool {
	s.Helper()
	at, err := pgstore.Find(s.Context(), s.shop, s.group, "payment-success-"+order)
	if err != nil {
		s.Fatal(err)
	}
	return at != nil
}

// committed is the sum of the group's offsets on the topic.
func (s *sixSteps) committed() (n int64) {
	s.Helper()
	offsets, err := s.admin.FetchOffsets(s.Context(), s.group)
	if errors.Is(err, kerr.GroupIDNotFound) {
		return 0 // it has not committed yet
	}
	if err != nil {
		s.Fatal(err)
	}
	offsets.Each(func(o kadm.OffsetResponse) {
		if o.Topic == s.topic {
			n += max(o.At, 0)
		}
	})
	return n
}

func (s *sixSteps) wants(what string, got, want any) {
	s.Helper()
	if got != want {
		s.Errorf("%s: %v, want %v", what, got, want)
	}
}

// letter waits for the order's open letter.
func (s *sixSteps) letter(order string) uuid.UUID {
	s.Helper()
	var id uuid.UUID
	testkit.Eventually(s, 30*time.Second, func() bool {
		page, err := s.app.letters.List(s.Context(), dlq.LetterFilter{State: dlq.Open, EventID: "payment-success-" + order}, dlq.Page{})
		if err != nil {
			s.Fatal(err)
		}
		if len(page.Items) == 1 {
			id = page.Items[0].ID
		}
		return len(page.Items) == 1
	}, "a letter of order %s", order)
	return id
}

// replay plans and starts a replay of the letter to its own group, and waits
// for its outcome. It returns the verdict that the plan saw and the outcome.
func (s *sixSteps) replay(letter uuid.UUID) (dlq.Verdict, dlq.Outcome) {
	s.Helper()
	actor := access.Actor{User: "ada", Role: access.Operator, Via: "test", Reason: "six steps"}
	plan, err := s.app.replays.Plan(s.Context(), actor, dlq.PlanRequest{Selection: dlq.Selection{LetterIDs: []uuid.UUID{letter}}, Target: dlq.ToGroup})
	if err != nil {
		s.Fatal(err)
	}
	if plan.Total != 1 || len(plan.Verdicts) != 1 {
		s.Fatalf("plan: %+v", plan)
	}
	if err := s.app.replays.Start(s.Context(), actor, plan.ID); err != nil {
		s.Fatal(err)
	}
	var r dlq.Replay
	testkit.Eventually(s, 60*time.Second, func() bool {
		if r, err = s.app.replays.Get(s.Context(), plan.ID); err != nil {
			s.Fatal(err)
		}
		return r.State == dlq.Done
	}, "replay R-%d is done", plan.ID)
	if r.Sent != 1 || len(r.Outcomes) != 1 {
		s.Fatalf("replay: sent %d, outcomes %v", r.Sent, r.Outcomes)
	}
	return first(plan.Verdicts), first(r.Outcomes)
}

func first[K comparable, V any](m map[K]V) (k K) {
	for k = range maps.Keys(m) {
		break
	}
	return k
}

func TestSixStepsOnFakeKafka(t *testing.T) {
	t.Parallel()
	runSixSteps(t, testkit.FakeKafkaAddr(t))
}

func runSixSteps(t *testing.T, kafka string) {
	s := setupSixSteps(t, kafka)

	// 1 and 2: zero points, then the same event twice.
	s.wants("points at first", s.points("10001"), int64(0))
	s.deliver("10001")
	s.deliver("10001")
	testkit.Eventually(s, 30*time.Second, func() bool { return s.committed() == 2 }, "both deliveries are acknowledged")
	s.wants("records", s.number("select count(*) from mq_consume_record"), int64(1))
	s.wants("points of two deliveries", s.points("10001"), int64(100))

	// 3: an error before the points change leaves nothing behind.
	s.breakRules(true)
	attempts := s.number("select last_value from attempt")
	s.deliver("10002")
	testkit.Eventually(s, 30*time.Second, func() bool { return s.number("select last_value from attempt") > attempts }, "the handler fails")
	s.wants("record after the error", s.consumed("10002"), false)
	s.wants("points after the error", s.points("10002"), int64(0))
	s.wants("offsets after the error", s.committed(), int64(2))

	// 4: delivered again, it works.
	s.breakRules(false)
	testkit.Eventually(s, 30*time.Second, func() bool { return s.committed() == 3 }, "the retry goes through")
	s.wants("record after the retry", s.consumed("10002"), true)
	s.wants("points after the retry", s.points("10002"), int64(100))

	// 5: retries exhausted, a letter; its replay takes effect.
	s.breakRules(true)
	s.deliver("10003")
	letter := s.letter("10003")
	s.wants("offsets after the letter", s.committed(), int64(4))
	s.breakRules(false)
	verdict, outcome := s.replay(letter)
	s.wants("verdict before the first replay", verdict, dlq.Safe)
	s.wants("outcome of the first replay", outcome, dlq.Applied)
	s.wants("points after the first replay", s.points("10003"), int64(100))

	// 6: a second replay is known to do nothing, and does nothing.
	verdict, outcome = s.replay(letter)
	s.wants("verdict before the second replay", verdict, dlq.AlreadyApplied)
	s.wants("outcome of the second replay", outcome, dlq.Duplicate)
	s.wants("points after the second replay", s.points("10003"), int64(100))
	s.wants("records in the end", s.number("select count(*) from mq_consume_record"), int64(3))
}
