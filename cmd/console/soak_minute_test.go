package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"oncemore/consumer"
	"oncemore/consumer/kafka"
	"oncemore/consumer/pgstore"
	"oncemore/internal/testkit"
	"oncemore/migrations/pgtest"
)

// awayFor is longer than sessions, request time-outs and every retry's pause.
const awayFor = time.Minute

// The database, then the broker, is stopped for a minute in the middle of the work:
// that is waited for. No attempt is counted, nothing is dead-lettered, no offset is
// ahead of its effect, and in the end each effect is there once.
func TestSoakServersAreAwayForAMinute(t *testing.T) {
	testkit.Soak(t)
	for _, server := range []string{"POSTGRES", "KAFKA"} {
		t.Run(server, func(t *testing.T) { awayForAMinute(t, server) }) // one after another: they share the servers
	}
}

func awayForAMinute(t *testing.T, server string) {
	const n, partitions = 3000, 3
	addr := testkit.Kafka(t)
	topic := testkit.Topic(t, addr, "minute", partitions)
	testkit.MakeTopic(t, addr, topic+".DLT", 1)
	pool := pgtest.Open(t, pgtest.Empty(t))
	if err := pgstore.Migrate(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), "create table user_points (order_id int primary key, points int not null)"); err != nil {
		t.Fatal(err)
	}
	client := testkit.Client(t, addr, kgo.RecordDeliveryTimeout(2*time.Minute))
	for i := range n {
		client.Produce(t.Context(), &kgo.Record{Topic: topic, Key: fmt.Append(nil, i), Value: fmt.Appendf(nil, `{"eventId":"payment-success-%d","orderId":%d}`, i, i)}, nil)
	}
	if err := client.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	group := testkit.Name("minute")
	member := minuteConsumer(t, pool, addr, group, topic)
	count := func(sql string) (got int) {
		testkit.Eventually(t, time.Minute, func() bool { return pool.QueryRow(t.Context(), sql).Scan(&got) == nil }, "%s", sql)
		return got
	}
	testkit.Eventually(t, time.Minute, func() bool { return member.Status().Consumed > n/10 }, "some progress")
	away(t, server)
	testkit.Eventually(t, 3*time.Minute, func() bool { return count("select count(*)::int from mq_consume_record") == n }, "all is consumed")
	admin := kadm.NewClient(client)
	testkit.Eventually(t, time.Minute, func() bool {
		lags, err := admin.Lag(t.Context(), group)
		ours := lags[group]
		return err == nil && ours.Error() == nil && ours.Lag.TotalByTopic()[topic].Lag == 0
	}, "all is acknowledged")
	if wrong := count("select count(*)::int from generate_series(0, 2999) o left join user_points on order_id = o where points is distinct from 100"); wrong != 0 {
		t.Errorf("%d orders without exactly 100 points", wrong)
	}
	if st := member.Status(); st.Retried != 0 || st.DeadLettered != 0 || st.LastError == "" {
		t.Errorf("retried %d, letters %d, last error %q", st.Retried, st.DeadLettered, st.LastError)
	}
}

// away stops a server of the soak's own for a minute.
func away(t *testing.T, server string) {
	t.Helper()
	down, up := os.Getenv("ONCEMORE_"+server+"_DOWN"), os.Getenv("ONCEMORE_"+server+"_UP")
	if down == "" || up == "" {
		t.Fatalf("ONCEMORE_%s_DOWN and _UP say how to stop and start the server: scripts/test soak sets them", server)
	}
	for _, command := range []string{down, up} {
		if out, err := exec.Command("/bin/sh", "-c", command).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", command, err, out)
		}
		if command == down {
			<-time.After(awayFor)
		}
	}
}

func minuteConsumer(t *testing.T, pool *pgxpool.Pool, addr, group, topic string) consumer.Runner {
	t.Helper()
	member, err := kafka.New(consumer.Config[pgstore.Tx]{
		Group: group, Store: pgstore.New(pool, pgstore.Options{}), EventID: consumer.EventIDSource{JSON: "$.eventId"},
		Retry: consumer.RetryPolicy{Attempts: -1}, BatchSize: 20, Logger: slog.New(slog.DiscardHandler),
		Handler: func(ctx context.Context, tx pgstore.Tx, ev consumer.Event) error {
			var order struct{ OrderID int }
			if err := json.Unmarshal(ev.Value, &order); err != nil {
				return consumer.Permanent(err)
			}
			if _, err := tx.Exec(ctx, "select pg_sleep(0.005)"); err != nil {
				return err
			}
			tx.Queue("insert into user_points values ($1, 100) on conflict (order_id) do update set points = user_points.points + 100", order.OrderID)
			return nil
		},
	}, kafka.Options{Topics: []string{topic}, Client: []kgo.Opt{kgo.SeedBrokers(addr)}, CreateTopics: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- member.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the consumer ended with %v", err)
		}
	})
	return member
}
