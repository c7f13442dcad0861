// Package bench measures consuming and draining against what the database can
// do with the same rows in the same run. Figures from other machines or days
// compare with nothing.
package bench

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	pgxuuid "github.com/vgarvardt/pgx-google-uuid/v5"

	"oncemore/internal/embedded"
)

// Env is where to measure. Databases and topics are made and dropped.
type Env struct {
	Postgres string // address of a server whose user may create databases
	Kafka    string // host:port
	Rabbit   string // amqp://…; for the benchmark of that name alone
	Rounds   int    // the median of so many counts; 0 is 3
	Out      io.Writer
}

// rate is what one round did.
type rate struct {
	n    int
	took time.Duration
}

func (r rate) perSecond() float64 { return float64(r.n) / r.took.Seconds() }

// ratio measures ours against the limit Rounds times, alternating so that both
// see the same machine, and prints the medians and one RATIO line.
func (e Env) ratio(name string, goal float64, ours, limit func() (rate, error)) error {
	rounds := e.Rounds
	if rounds == 0 {
		rounds = 3
	}
	var mine, best, ratios []float64
	for range rounds {
		m, err := ours()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		l, err := limit()
		if err != nil {
			return fmt.Errorf("%s, the limit: %w", name, err)
		}
		mine, best, ratios = append(mine, m.perSecond()), append(best, l.perSecond()), append(ratios, m.perSecond()/l.perSecond())
	}
	_, err := fmt.Fprintf(e.Out, "%s: %.0f/s, limit %.0f/s (medians of %d)\nRATIO %s %.2f goal >= %g\n",
		name, median(mine), median(best), rounds, name, median(ratios), goal)
	return err
}

func median(v []float64) float64 {
	v = slices.Clone(v)
	slices.Sort(v)
	return v[len(v)/2]
}

// database makes an empty database until the returned function drops it.
func (e Env) database(ctx context.Context) (*pgxpool.Pool, func(), error) {
	name := unique("bench")
	url, err := embedded.EnsureDatabase(ctx, e.Postgres, name)
	if err != nil {
		return nil, nil, err
	}
	pool, err := openPool(ctx, url)
	if err != nil {
		return nil, nil, err
	}
	return pool, func() {
		pool.Close()
		if err := embedded.DropDatabase(context.WithoutCancel(ctx), e.Postgres, name); err != nil {
			fmt.Fprintln(e.Out, "left behind:", err)
		}
	}, nil
}

// openPool connects as the console does.
func openPool(ctx context.Context, url string) (*pgxpool.Pool, error) {
	settings, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	settings.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		pgxuuid.Register(conn.TypeMap())
		_, err := conn.Exec(ctx, "SET jit = off")
		return err
	}
	return pgxpool.NewWithConfig(ctx, settings)
}

// topic makes a topic with records until the returned function deletes it.
func (e Env) topic(ctx context.Context, name string, partitions int32, records []*kgo.Record) (func(), error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(e.Kafka), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.MaxBufferedRecords(100_000))
	if err != nil {
		return nil, err
	}
	admin := kadm.NewClient(client)
	remove := func() {
		_, err := admin.DeleteTopics(context.WithoutCancel(ctx), name)
		if err != nil {
			fmt.Fprintln(e.Out, "left behind:", err)
		}
		client.Close()
	}
	if _, err := admin.CreateTopic(ctx, partitions, 1, nil, name); err != nil {
		client.Close()
		return nil, fmt.Errorf("create topic %s: %w", name, err)
	}
	for i, r := range records {
		r.Topic, r.Partition = name, int32(i)%partitions
	}
	if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		remove()
		return nil, fmt.Errorf("fill topic %s: %w", name, err)
	}
	return remove, nil
}

func unique(prefix string) string {
	return prefix + "_" + strings.ReplaceAll(uuid.NewString(), "-", "")[:12]
}

// until asks every few milliseconds, so that the end of a round is not missed
// by much.
func until(ctx context.Context, done func() (bool, error)) error {
	return untilEvery(ctx, 5*time.Millisecond, done)
}

// untilEvery is until for questions that cost the measured something.
func untilEvery(ctx context.Context, every time.Duration, done func() (bool, error)) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
