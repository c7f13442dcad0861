package compensate

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/twmb/franz-go/pkg/kgo"

	"oncemore/dlq"
	"oncemore/dlq/dialect"
	"oncemore/internal/access"
	"oncemore/internal/testkit"
	"oncemore/reconcile"
)

const pointsGroup = "points-consumer-group"

// deadLetters is a bank whose consumer group also leaves dead letters behind, and
// keeps consume records.
type deadLetters struct {
	*bank
	addr     string
	producer *kgo.Client
	replays  *dlq.Replays
}

func openDeadLetters(t *testing.T) *deadLetters {
	t.Helper()
	d := &deadLetters{bank: openBank(t), addr: testkit.FakeKafkaAddr(t)}
	d.producer = testkit.Client(t, d.addr)
	for _, topic := range []string{"order.paid", "order.paid.DLT", pointsGroup + ".replay"} {
		testkit.MakeTopic(t, d.addr, topic, 1)
	}
	d.exec(`CREATE TABLE mq_consume_record (event_id text, consumer_group text, consumed_at timestamptz DEFAULT now(), PRIMARY KEY (event_id, consumer_group))`)
	cluster, err := dlq.NewCluster("shop", kgo.SeedBrokers(d.addr))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	dialects, err := dialect.Load()
	if err != nil {
		t.Fatal(err)
	}
	quiet, clusters := slog.New(slog.DiscardHandler), map[string]*dlq.Cluster{"shop": cluster}
	groups := dlq.GroupBook{{Name: pointsGroup, Topics: []string{"order.paid"}, Ours: true, Effect: dlq.EffectLocal, OrderSet: true, Evidence: &dlq.Evidence{
		Connection: "pg", Pool: d.business, Table: "mq_consume_record", EventID: "event_id", ConsumerGroup: "consumer_group", ConsumedAt: "consumed_at"}}}
	d.Letters, d.Judge = dlq.NewLetters(d.console), dlq.NewJudge(d.console, clusters, groups, time.Now)
	d.replays, err = dlq.NewReplays(d.console, clusters, d.Judge, dlq.NewOrigins(d.console, d.Judge.Topology()), dlq.ReplayOptions{
		Poll: 50 * time.Millisecond, SettleAfter: 30 * time.Second, Log: quiet, Dialects: dialects})
	if err != nil {
		t.Fatal(err)
	}
	d.Replays = SafeReplays{Letters: d.Letters, Replays: d.replays}
	drainer := dlq.NewDrainer(dlq.DrainerConfig{Pool: d.console, Cluster: cluster, Dialects: dialects, Log: quiet,
		Sources: []dlq.DrainSource{{Pattern: "*.DLT", Configured: dialect.Configured{EventIDHeader: "event-id"}}}})
	ctx, stop := context.WithCancel(context.Background())
	drained := make(chan error, 1)
	go func() { drained <- drainer.Run(ctx) }()
	workers := river.NewWorkers()
	d.replays.AddWorkers(workers)
	client, err := river.NewClient(riverpgxv5.New(d.console), &river.Config{
		Queues: map[string]river.QueueConfig{dlq.ReplayQueue: {MaxWorkers: 2}}, Workers: workers, Logger: quiet, FetchPollInterval: 100 * time.Millisecond})
	if err == nil {
		err = client.Start(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		<-client.Stopped()
		if err := <-drained; err != nil {
			t.Errorf("drain: %v", err)
		}
	})
	return d
}

// letter produces an event and its dead letter, and waits until it is stored.
func (d *deadLetters) letter(event string) uuid.UUID {
	d.Helper()
	origin := &kgo.Record{Topic: "order.paid", Key: []byte(event), Value: fmt.Appendf(nil, `{"order": {"points": 12.50, "currency": "CNY", "name": "Ada"}}`), Headers: []kgo.RecordHeader{{Key: "event-id", Value: []byte(event)}}}
	d.produce(origin)
	headers := append([]kgo.RecordHeader{},
		kgo.RecordHeader{Key: "event-id", Value: []byte(event)},
		kgo.RecordHeader{Key: "kafka_dlt-original-topic", Value: []byte("order.paid")},
		kgo.RecordHeader{Key: "kafka_dlt-original-partition", Value: binary.BigEndian.AppendUint32(nil, uint32(origin.Partition))},
		kgo.RecordHeader{Key: "kafka_dlt-original-offset", Value: binary.BigEndian.AppendUint64(nil, uint64(origin.Offset))},
		kgo.RecordHeader{Key: "kafka_dlt-original-timestamp", Value: binary.BigEndian.AppendUint64(nil, uint64(origin.Timestamp.UnixMilli()))},
		kgo.RecordHeader{Key: "kafka_dlt-original-consumer-group", Value: []byte(pointsGroup)},
		kgo.RecordHeader{Key: "kafka_dlt-exception-fqcn", Value: []byte("shop.PointsDown")})
	d.produce(&kgo.Record{Topic: "order.paid.DLT", Key: origin.Key, Value: origin.Value, Headers: headers})
	var id uuid.UUID
	testkit.Eventually(d.T, 30*time.Second, func() bool {
		page, err := d.Letters.List(d.Context(), dlq.LetterFilter{EventID: event}, dlq.Page{Limit: 1})
		if err == nil && len(page.Items) == 1 {
			id = page.Items[0].ID
		}
		return id != uuid.Nil
	}, "the letter of %s is not stored", event)
	return id
}

func (d *deadLetters) produce(r *kgo.Record) {
	d.Helper()
	if err := d.producer.ProduceSync(d.Context(), r).FirstErr(); err != nil {
		d.Fatal(err)
	}
}

// approvedLetters proposes and approves a repair of a letter.
func (d *deadLetters) approvedLetter(action string, id uuid.UUID) *Compensation {
	d.Helper()
	ids, err := d.ProposeLetters(d.Context(), maker, action, []uuid.UUID{id})
	if err != nil {
		d.Fatal(err)
	}
	comp := d.get(ids[0])
	if err := d.Approve(d.Context(), checker, comp.ID, comp.Hash); err != nil {
		d.Fatal(err)
	}
	return comp
}

const letterCredit = `
action: letters
applies_to: [letter]
amount: "{{payload.order.points}}"
currency: "{{payload.order.currency}}"
kind: http
url: "{{points-api}}/credit/{{event_id}}"
body: {eventId: "{{event_id}}", amount: "{{payload.order.points}}"}
attempts: {max: 3, initial: 10s}
`

// A letter is repaired with what its payload says; afterwards it is done, and a
// replay of the event is refused.
func TestLetterIsRepaired(t *testing.T) {
	t.Parallel()
	d := openDeadLetters(t)
	d.define(letterCredit)
	id := d.letter("pay-1")
	comp := d.approvedLetter("letters", id)
	if comp.Amount.String() != "12.5" && comp.Amount.String() != "12.50" || comp.Currency != "CNY" || *comp.Group != pointsGroup || !strings.Contains(comp.Effect[0].Body, `"amount":"12.50"`) {
		t.Errorf("%s %s of %v: %s", comp.Amount, comp.Currency, comp.Group, comp.Effect[0].Body)
	}
	if _, ok := comp.Inputs["payload.order.name"]; ok {
		t.Error("a field that the action does not name is kept")
	}
	var refused error
	d.answers(func(http.ResponseWriter, *http.Request) { // while the call is under way
		_, refused = d.Replays.Start(context.WithoutCancel(t.Context()), ReplayRequest{EventID: "pay-1", Group: pointsGroup, Key: "during", Reason: "x"})
	})
	if comp = d.do(comp.ID); comp.State != Verified {
		t.Fatalf("%s: %s", comp.State, text(comp.Why, ""))
	}
	if refused == nil {
		t.Error("a replay was started while the compensation worked at the event")
	}
	letter, err := d.Letters.Get(t.Context(), id)
	if err != nil || letter.State != dlq.Resolved || letter.Verdict != dlq.Compensated {
		t.Errorf("the letter is %s, %s, %v", letter.State, letter.Verdict, err)
	}
	_, refused = d.Replays.Start(t.Context(), ReplayRequest{EventID: "pay-1", Group: pointsGroup, Key: "afterwards", Reason: "x"})
	if !errors.Is(refused, ErrNotReplayed) || !strings.Contains(refused.Error(), "ompensat") {
		t.Errorf("a replay afterwards: %v", refused)
	}
	if _, err := d.ProposeLetters(t.Context(), maker, "letters", []uuid.UUID{id}); !errors.Is(err, ErrNotFor) {
		t.Errorf("a letter that is done: %v", err)
	}
}

// What the consumer has applied meanwhile is not repaired: nothing is sent.
func TestAppliedLetterIsNotNeeded(t *testing.T) {
	t.Parallel()
	d := openDeadLetters(t)
	d.define(letterCredit)
	comp := d.approvedLetter("letters", d.letter("pay-1"))
	d.exec("INSERT INTO mq_consume_record VALUES ('pay-1', $1)", pointsGroup)
	if comp = d.do(comp.ID); comp.State != NotNeeded || len(d.called()) != 0 {
		t.Errorf("%s after %v: %s", comp.State, d.called(), text(comp.Why, ""))
	}
}

// A letter that somebody discards, or that cannot be rendered, is not repaired.
func TestLettersThatAreNotRepaired(t *testing.T) {
	t.Parallel()
	d := openDeadLetters(t)
	d.define(letterCredit)
	d.define(strings.Replace(strings.Replace(letterCredit, "action: letters", "action: unknown", 1), "{{payload.order.points}}", "{{payload.points}}", 1))
	d.define(sqlCredit)
	first, second := d.letter("pay-1"), d.letter("pay-2")
	for action, want := range map[string]error{"unknown": ErrInput, "credit": ErrNotFor} {
		if _, err := d.ProposeLetters(t.Context(), maker, action, []uuid.UUID{first}); !errors.Is(err, want) {
			t.Errorf("%s: %v", action, err)
		}
	}
	sel := Selection{Letter: &dlq.LetterFilter{Group: pointsGroup}}
	bulk, err := d.ProposeMany(t.Context(), maker, "letters", sel, "")
	if err != nil || bulk.Total != 2 {
		t.Fatalf("%+v, %v", bulk, err)
	}
	if _, err := d.bulkChunk(t.Context(), bulkArgs{Bulk: bulk.ID}); err != nil {
		t.Fatal(err)
	}
	rows, _, err := d.List(t.Context(), Filter{LetterID: second, Limit: 1})
	if err != nil || len(rows) != 1 || *rows[0].BulkID != bulk.ID {
		t.Fatalf("%+v, %v", rows, err)
	}
	bulks, err := dlq.NewBulks(d.console, dlq.BulkOptions{})
	if err == nil {
		_, err = bulks.Discard(t.Context(), access.Actor{User: "max", Role: access.Operator, Reason: "test data"}, dlq.BulkRequest{Selection: dlq.Selection{LetterIDs: []uuid.UUID{second}}})
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Approve(t.Context(), checker, rows[0].ID, rows[0].Hash); !errors.Is(err, ErrVoid) || d.get(rows[0].ID).State != Voided {
		t.Errorf("a discarded letter: %v", err)
	}
}

const replayBreak = `
action: again
applies_to: [missing_effect, letter]
group: points-consumer-group
kind: replay_event
attempts: {max: 2, initial: 10s}
`

// replay_event goes through the safe replay: asked for again while it is under
// way, without counting attempts, and settled by its outcome.
func TestReplayEvent(t *testing.T) {
	t.Parallel()
	d := openDeadLetters(t)
	d.define(replayBreak)
	d.letter("pay-1")
	id := d.missing("pay-1", 100)
	comp := d.approved("again", id)
	for range 5 { // nobody has consumed it yet
		if comp = d.do(comp.ID); comp.State != Running || comp.ReplayID == nil {
			t.Fatalf("%s: %s", comp.State, text(comp.Why, ""))
		}
		d.pass(3 * time.Second)
	}
	steps, err := d.Steps(t.Context(), comp.ID)
	if err != nil || len(steps) != 1 || steps[0].Tries != 1 || !strings.Contains(text(steps[0].Why, ""), "under way") {
		t.Errorf("steps %+v, %v", steps, err)
	}
	testkit.Eventually(t, time.Minute, func() bool { // or it would have been applied before
		r, err := d.replays.Get(t.Context(), *comp.ReplayID)
		return err == nil && r.Sent == 1
	}, "the replay is sent")
	d.exec("INSERT INTO effect VALUES ('pay-1', 100, $1)", noon.Add(2*time.Hour))
	d.exec("INSERT INTO mq_consume_record VALUES ('pay-1', $1)", pointsGroup)
	testkit.Eventually(t, 40*time.Second, func() bool {
		d.pass(3 * time.Second)
		comp = d.do(comp.ID)
		return comp.State != Running
	}, "the replay is not settled")
	if comp.State != Verified {
		t.Errorf("%s: %s", comp.State, text(comp.Why, ""))
	}
	attempts, err := d.Attempts(t.Context(), comp.ID)
	if err != nil || len(attempts) != 1 || *attempts[0].Outcome != "done" {
		t.Errorf("attempts %+v, %v", attempts, err)
	}
	if b, err := d.breaks.Get(t.Context(), id); err != nil || b.State != reconcile.Verified {
		t.Errorf("break %s, %v", b.State, err)
	}
	// what has no letter cannot be sent again
	lost := d.approved("again", d.missing("pay-2", 5))
	if lost = d.do(lost.ID); lost.State != NeedsAttention || !strings.Contains(text(lost.Why, ""), "no dead letter") {
		t.Errorf("%s: %s", lost.State, text(lost.Why, ""))
	}
}
