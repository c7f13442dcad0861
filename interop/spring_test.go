package interop_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"oncemore/internal/testkit"
	"oncemore/interop"
	"oncemore/migrations/pgtest"
)

// frozen accounts make Spring's handler fail until somebody thaws them.
const frozen = `
create table frozen (user_id text primary key);
create function points_rules() returns trigger language plpgsql as $$
begin
  if exists (select from frozen f where f.user_id = new.user_id) then raise exception 'account % is frozen', new.user_id; end if;
  return new;
end $$;
create trigger points_rules before insert on user_points for each row execute function points_rules()`

const springConfig = `
environment: interop
database: {url_env: CONSOLE_DATABASE_URL}
clusters: {shop-kafka: {kafka: {brokers: [%[1]q]}}}
connections: {shop: {kind: postgres, url_env: SHOP_DATABASE_URL}}
sources:
  - {cluster: shop-kafka, pattern: %[2]q, event_id: {json: $.eventId}}
  - {cluster: shop-kafka, pattern: %[3]q, event_id: {json: $.eventId}}
groups:
  %[4]s:
    evidence: {connection: shop, table: mq_consume_record, complete_since: %[5]q}
  %[4]s-promo:
    evidence: {connection: shop, table: mq_consume_record, complete_since: %[5]q}
    group_target: %[6]s
`

// shop is the Spring application at work, and a console beside it.
type shop struct {
	*testing.T
	*console
	db                  *pgxpool.Pool
	kafka               *kgo.Client
	topic, promo, group string
}

// jar is the Spring application, which make interop has built and named.
func jar(t *testing.T) string {
	t.Helper()
	jar := os.Getenv("ONCEMORE_INTEROP")
	if jar == "" {
		t.Skip("needs the Spring application: run make interop")
	}
	if _, err := exec.LookPath("java"); err != nil {
		t.Fatalf("ONCEMORE_INTEROP is set, but there is no Java: %v", err)
	}
	return jar
}

func setupShop(t *testing.T) *shop {
	t.Helper()
	app := interop.Spring{Jar: jar(t), Kafka: testkit.Kafka(t), Retry: 50 * time.Millisecond}
	broker := app.Kafka
	s := &shop{T: t, kafka: testkit.Client(t, broker), topic: testkit.Name("orders.paid"), promo: testkit.Name("orders.promo"), group: testkit.Name("points-service")}
	for _, topic := range []string{s.topic, s.topic + ".DLT", s.promo, s.promo + "-retry-0", s.promo + "-retry-1", s.promo + "-retry-2", s.promo + "-dlt"} {
		testkit.MakeTopic(t, broker, topic, 2)
	}
	database := pgtest.Empty(t)
	s.db = pgtest.Open(t, database)
	s.makeTables()
	app.Postgres, app.Topic, app.Group, app.Promo = database, s.topic, s.group, s.promo
	s.startSpring(app)
	since := time.Now().Add(-24 * time.Hour).UTC().Format(time.RFC3339)
	config := fmt.Sprintf(springConfig, broker, s.topic+".DLT", s.promo+"-dlt", s.group, since, s.promo+"-retry-0")
	s.console = startConsole(t, config, "CONSOLE_DATABASE_URL="+pgtest.Empty(t), "SHOP_DATABASE_URL="+database)
	return s
}

func (s *shop) makeTables() {
	s.T.Helper()
	schema, err := os.ReadFile("spring-consumer/schema.sql")
	if err != nil {
		s.T.Fatal(err)
	}
	for _, sql := range []string{string(schema), frozen} {
		if _, err := s.db.Exec(s.T.Context(), sql); err != nil {
			s.T.Fatal(err)
		}
	}
}

func (s *shop) startSpring(app interop.Spring) {
	s.T.Helper()
	cmd, err := app.Command(context.WithoutCancel(s.T.Context())) // the cleanup ends it
	if err != nil {
		s.T.Fatal(err)
	}
	startProcess(s.T, cmd)
}

// story is one test with an account of its own.
type story struct {
	*shop
	*testing.T
	user string
}

func (s *shop) story(t *testing.T) story {
	return story{shop: s, T: t, user: testkit.Name("user")}
}

func (s story) exec(sql string, args ...any) {
	s.Helper()
	if _, err := s.db.Exec(s.Context(), sql, args...); err != nil {
		s.Fatal(err)
	}
}

func (s story) freeze() { s.exec("insert into frozen values ($1)", s.user) }
func (s story) thaw()   { s.exec("delete from frozen where user_id = $1", s.user) }

// event is named after the account: each story has one.
func (s story) event() string { return "payment-success-" + s.user }

// value has what a Spring service that reads and writes JSON does not keep: its
// order, its spaces, and fields that the service does not know.
func (s story) value() []byte {
	return fmt.Appendf(nil, `{ "amount": 249.00, "points":100, "orderId":"o-%[1]s", "userId":"%[1]s", "note":"满意 ", "eventId":"%[2]s" }`, s.user, s.event())
}

func (s story) publish(topic string) {
	s.Helper()
	s.publishValue(topic, s.value())
}

func (s story) publishValue(topic string, value []byte) {
	s.Helper()
	r := &kgo.Record{Topic: topic, Key: []byte(s.user), Value: value, Headers: []kgo.RecordHeader{{Key: "traceparent", Value: []byte("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")}}}
	if err := s.kafka.ProduceSync(s.Context(), r).FirstErr(); err != nil {
		s.Fatal(err)
	}
}

func (s story) points() (n int64) {
	s.Helper()
	if err := s.db.QueryRow(s.Context(), "select coalesce(sum(points), 0) from user_points where user_id = $1", s.user).Scan(&n); err != nil {
		s.Fatal(err)
	}
	return n
}

func (s story) records() (n int64) {
	s.Helper()
	if err := s.db.QueryRow(s.Context(), "select count(*) from mq_consume_record where event_id = $1", s.event()).Scan(&n); err != nil {
		s.Fatal(err)
	}
	return n
}

func (s story) wantPoints(when string, want int64) {
	s.Helper()
	if got := s.points(); got != want {
		s.Errorf("points %s: %d, want %d", when, got, want)
	}
}

func (s story) wantVerdict(l letter, group, want string) {
	s.Helper()
	if got := s.verdict(l.ID, group); got != want {
		s.Errorf("verdict of letter %s for %s: %s, want %s", l.ID, group, got, want)
	}
}

func (s story) wantReplay(l letter, want string) item {
	s.Helper()
	i, outcome := s.replayed(l.ID)
	if outcome != want {
		s.Errorf("outcome of the replay of letter %s: %s, want %s", l.ID, outcome, want)
	}
	return i
}

// record reads what lies at the item's position.
func (s story) record(i item) *kgo.Record {
	s.Helper()
	at := map[string]map[int32]kgo.Offset{*i.Topic: {*i.Partition: kgo.NewOffset().At(*i.Offset)}}
	reader := testkit.Client(s.T, s.broker(), kgo.ConsumePartitions(at))
	ctx, cancel := context.WithTimeout(s.Context(), 30*time.Second)
	defer cancel()
	fetched := reader.PollRecords(ctx, 1)
	if err := fetched.Err(); err != nil {
		s.Fatal(err)
	}
	return fetched.Records()[0]
}

func (s story) broker() string { return testkit.Kafka(s.T) }

func TestSpring(t *testing.T) {
	t.Parallel()
	shop := setupShop(t)
	for name, run := range map[string]func(story){
		"a poison event applies once after its replay": poisonAppliesOnce,
		"an event applied meanwhile is a duplicate":    appliedMeanwhile,
		"a replay that fails again joins its letter":   failsAgain,
		"what is no JSON stays as it came":             noJSON,
		"retry topics end in a letter of one group":    retryTopics,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			within := *shop.console
			within.T = t
			shop := *shop
			shop.console = &within
			run(shop.story(t))
		})
	}
}

func poisonAppliesOnce(s story) {
	s.freeze()
	s.publish(s.topic)
	l := s.open(s.topic+".DLT", s.event(), 1)
	if l.Dialect != "spring-kafka-dlpr" || l.ConsumerGroup == nil || *l.ConsumerGroup != s.group {
		s.Errorf("letter %+v", l)
	}
	if l.Error.Class == nil || *l.Error.Class != "org.springframework.jdbc.UncategorizedSQLException" {
		s.Errorf("error of the letter: %+v", l.Error)
	}
	s.wantPoints("of a dead letter", 0)
	s.wantVerdict(l, s.group, "safe")
	s.thaw()
	i := s.wantReplay(l, "applied")
	s.wantPoints("after the replay", 100)
	s.wantSame(i)
	// By now the effect is there: asked again, a replay is harmless and does nothing.
	s.wantVerdict(l, s.group, "already_applied")
	s.wantReplay(l, "duplicate")
	s.wantPoints("after a second replay", 100)
	if n := s.records(); n != 1 {
		s.Errorf("%d consume records", n)
	}
}

// wantSame compares the replayed record with what the producer once sent.
func (s story) wantSame(i item) {
	s.Helper()
	r := s.record(i)
	if string(r.Value) != string(s.value()) || string(r.Key) != s.user {
		s.Errorf("replayed %s: %s, want %s", r.Key, r.Value, s.value())
	}
	var names []string
	for _, h := range r.Headers {
		names = append(names, h.Key)
	}
	if want := []string{"traceparent", "oncemore-replay", "oncemore-item"}; !slices.Equal(names, want) {
		s.Errorf("headers of the replayed record: %v, want %v", names, want)
	}
}

func appliedMeanwhile(s story) {
	s.freeze()
	s.publish(s.topic)
	l := s.open(s.topic+".DLT", s.event(), 1)
	s.thaw()
	s.publish(s.topic) // the producer's own second delivery
	testkit.Eventually(s.T, time.Minute, func() bool { return s.points() == 100 }, "the second delivery gives the points")
	s.wantVerdict(l, s.group, "already_applied")
	s.wantReplay(l, "duplicate")
	s.wantPoints("after the replay", 100)
}

func failsAgain(s story) {
	s.freeze()
	s.publish(s.topic)
	l := s.open(s.topic+".DLT", s.event(), 1)
	before := s.body(l.ID).headerBytes()
	s.wantReplay(l, "failed_again")
	again := s.open(s.topic+".DLT", s.event(), 2)
	if again.ID != l.ID {
		s.Errorf("the failed replay is a letter of its own: %s beside %s", again.ID, l.ID)
	}
	if after := s.body(l.ID).headerBytes(); after != before {
		s.Errorf("the letter's headers changed from %d to %d bytes", before, after)
	}
	s.thaw()
	i := s.wantReplay(again, "applied")
	s.wantSame(i)
	s.wantPoints("after the second replay", 100)
}

// Spring passes on what it cannot read. There is no id that could recognise a
// duplicate, so one click sends nothing.
func noJSON(s story) {
	value := []byte("\x00\x01{not JSON" + s.user)
	s.publishValue(s.topic, value)
	var id string
	testkit.Eventually(s.T, time.Minute, func() bool {
		for _, l := range s.letters(s.topic + ".DLT") {
			if bytes.Equal(s.body(l.ID).Value, value) {
				id = l.ID
			}
		}
		return id != ""
	}, "a letter with the bytes as they were")
	s.wantVerdict(letter{ID: id}, s.group, "no_event_id")
	if p := s.replaySafely(id); p.Total != 0 || p.RefusedTotal != 1 {
		s.Errorf("one click on a letter without an id: %+v", p)
	}
}

func retryTopics(s story) {
	s.freeze()
	s.publish(s.promo)
	l := s.open(s.promo+"-dlt", s.event(), 1)
	if l.Dialect != "spring-kafka-retry-topic" || l.Attempts == nil || *l.Attempts != 4 || l.Origin.Topic == nil || *l.Origin.Topic != s.promo {
		s.Errorf("letter %+v", l)
	}
	group := s.group + "-promo"
	s.wantVerdict(l, group, "safe")
	s.thaw()
	i := s.wantReplay(l, "applied")
	if *i.Topic != s.promo+"-retry-0" {
		s.Errorf("replayed to %s, want the retry topic that only this group reads", *i.Topic)
	}
	s.wantSame(i)
	s.wantPoints("after the replay", 100)
	s.wantVerdict(l, group, "already_applied")
}
