package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	amqp "github.com/rabbitmq/amqp091-go"

	"oncemore/consumer/pgstore"
	"oncemore/dlq"
	"oncemore/dlq/dialect"
	"oncemore/internal/access"
)

const (
	queueLetters      = 30_000
	queueReplayGoal   = 1.0
	shovelPrefetch    = 1000 // the plug-in's default
	rabbitAskEvery    = 50 * time.Millisecond
	shovelTime        = 2 * time.Minute
	rabbitStatsMargin = 10 * time.Second
)

// RabbitReplay measures letters of a queue from the start of their replay until the
// broker has confirmed the last: judged anew, claimed, published, confirmed,
// recorded. Beside it the broker's shovel plug-in, confirmed as well, moves as many
// equal messages from a dead-letter queue to another in the same run. The broker has
// to have rabbitmq_shovel and rabbitmq_shovel_management, so it is one of its own.
func (e Env) RabbitReplay(ctx context.Context, management string, work Work) error {
	if e.Rabbit == "" || management == "" {
		return errors.New("rabbit-replay: addresses of a RabbitMQ with the shovel plug-in and of its management API are needed")
	}
	return e.ratio("rabbit_replay", queueReplayGoal,
		func() (rate, error) { return e.queueReplay(ctx, management, work) },
		func() (rate, error) { return e.shovel(ctx, management) })
}

// queueReplay drains a dead-letter queue and replays all of it to the queue that
// failed. Nobody consumes there, as nobody does beside the shovel.
func (e Env) queueReplay(ctx context.Context, management string, work Work) (r rate, err error) {
	pool, drop, err := e.migrated(ctx)
	if err != nil {
		return r, err
	}
	defer drop()
	shop, dropShop, err := e.shop(ctx)
	if err != nil {
		return r, err
	}
	defer dropShop()
	b, err := e.deadQueue(ctx)
	if err != nil {
		return r, err
	}
	defer b.remove()
	cluster, err := dlq.NewRabbitCluster("bench", dlq.RabbitOptions{URLs: []string{e.Rabbit}, ManagementURL: management})
	if err != nil {
		return r, err
	}
	defer cluster.Close()
	groups := queueGroups(shop, b.home)
	if err := drainQueue(ctx, pool, cluster, b.dead, groups); err != nil {
		return r, err
	}
	replays, err := queueReplays(pool, cluster, groups)
	if err != nil {
		return r, err
	}
	stop := background(ctx, func(ctx context.Context) error { return work(ctx, pool, replays) })
	defer stop()
	return timeQueueReplay(ctx, pool, replays)
}

func drainQueue(ctx context.Context, pool *pgxpool.Pool, cluster *dlq.Cluster, queue string, groups dlq.GroupBook) error {
	set, err := dialect.Load()
	if err != nil {
		return err
	}
	drain := dlq.NewDrain(dlq.DrainerConfig{Pool: pool, Cluster: cluster, Sources: []dlq.DrainSource{{Pattern: queue}}, Dialects: set,
		Log: slog.New(slog.DiscardHandler), Groups: groups})
	stop := background(ctx, drain.Run)
	defer stop()
	err = until(ctx, func() (bool, error) {
		status := drain.Status()
		return len(status) == 1 && status[0].Drained >= queueLetters, nil
	})
	if err != nil {
		return err
	}
	if _, err := dlq.Fold(ctx, pool); err != nil {
		return err
	}
	_, err = pool.Exec(ctx, "analyze")
	return err
}

func queueGroups(shop *pgxpool.Pool, queue string) dlq.GroupBook {
	return dlq.GroupBook{{Name: "points", Cluster: "bench", Topics: []string{queue}, Effect: dlq.EffectLocal, Evidence: &dlq.Evidence{
		Connection: "shop", Pool: shop, Table: pgstore.Table, EventID: "event_id", ConsumerGroup: "consumer_group", ConsumedAt: "consumed_at",
		CompleteSince: time.Now().Add(-24 * time.Hour),
	}}}
}

func queueReplays(pool *pgxpool.Pool, cluster *dlq.Cluster, groups dlq.GroupBook) (*dlq.Replays, error) {
	clusters := map[string]*dlq.Cluster{"bench": cluster}
	judge := dlq.NewJudge(pool, clusters, groups, time.Now)
	dialects, err := dialect.Load()
	if err != nil {
		return nil, err
	}
	return dlq.NewReplays(pool, clusters, judge, dlq.NewOrigins(pool, judge.Topology()), dlq.ReplayOptions{
		ApprovalSize: queueLetters, Dialects: dialects, Log: slog.New(slog.DiscardHandler)})
}

const sqlReplaySent = `SELECT waiting = 0 AND sent = total FROM replay WHERE id = $1`

// timeQueueReplay plans a replay of everything, and measures it from its start.
// What a page asks for while it runs is not part of it.
func timeQueueReplay(ctx context.Context, pool *pgxpool.Pool, replays *dlq.Replays) (rate, error) {
	actor := access.Actor{User: "bench", Role: access.Operator, Via: "bench", Reason: "measured"}
	plan, err := replays.Plan(ctx, actor, dlq.PlanRequest{Selection: dlq.Selection{Filter: &dlq.LetterFilter{State: dlq.Open}}, Target: dlq.ToGroup})
	if err != nil {
		return rate{}, err
	}
	var now dlq.Replay
	err = until(ctx, func() (bool, error) {
		now, err = replays.Get(ctx, plan.ID)
		return now.State == dlq.Planned, err
	})
	if err != nil {
		return rate{}, err
	}
	if now.Total != queueLetters {
		return rate{}, fmt.Errorf("%d of %d letters are planned", now.Total, queueLetters)
	}
	if err := replays.Start(ctx, actor, plan.ID); err != nil {
		return rate{}, err
	}
	began := time.Now()
	err = untilEvery(ctx, rabbitAskEvery, func() (sent bool, err error) {
		err = pool.QueryRow(ctx, sqlReplaySent, plan.ID).Scan(&sent)
		return sent, err
	})
	if err != nil {
		return rate{}, err
	}
	return rate{queueLetters, time.Since(began)}, nil
}

// deadQueue is a queue and its dead letters.
type deadQueue struct {
	home, dead string
	conn       *amqp.Connection
}

func (b *deadQueue) remove() {
	if ch, err := b.conn.Channel(); err == nil {
		_, _ = ch.QueueDelete(b.home, false, false, false)
		_, _ = ch.QueueDelete(b.dead, false, false, false)
	}
	b.conn.Close()
}

// deadQueue makes quorum queues, and dead letters as the broker makes them of
// messages of 1 KB.
func (e Env) deadQueue(ctx context.Context) (*deadQueue, error) {
	conn, err := amqp.Dial(e.Rabbit)
	if err != nil {
		return nil, errors.New("rabbit-replay: the broker does not answer") // the error may quote the password
	}
	b := &deadQueue{home: unique("bench.paid"), conn: conn}
	b.dead = b.home + ".dlq"
	if err := b.fill(ctx); err != nil {
		b.remove()
		return nil, fmt.Errorf("fill queue %s: %w", b.dead, err)
	}
	return b, nil
}

func (b *deadQueue) fill(ctx context.Context) error {
	ch, err := b.conn.Channel()
	if err != nil {
		return err
	}
	for _, name := range []string{b.home, b.dead} {
		if _, err := ch.QueueDeclare(name, true, false, false, false, amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeQuorum}); err != nil {
			return err
		}
	}
	if err := ch.Confirm(false); err != nil {
		return err
	}
	filler := strings.Repeat("paid by card, ", 64)
	now := time.Now().Truncate(time.Second)
	var last *amqp.DeferredConfirmation
	for i := range queueLetters {
		id := eventID(i)
		last, err = ch.PublishWithDeferredConfirmWithContext(ctx, "", b.dead, true, false, amqp.Publishing{
			MessageId: id, DeliveryMode: amqp.Persistent, ContentType: "application/json", Timestamp: now, Headers: b.death(now),
			Body: fmt.Appendf(nil, `{"eventId":%q,"orderId":"%d","points":100,"note":%q}`, id, i, filler)})
		if err != nil {
			return err
		}
		if i%1000 == 999 {
			if ok, err := last.WaitContext(ctx); err != nil || !ok {
				return fmt.Errorf("message %d: confirmed %v, %w", i, ok, err)
			}
		}
	}
	return nil
}

// death is what the broker writes on a message that the queue's consumer rejected.
func (b *deadQueue) death(at time.Time) amqp.Table {
	return amqp.Table{
		"x-death":             []any{amqp.Table{"count": int64(1), "reason": "rejected", "queue": b.home, "time": at, "exchange": "", "routing-keys": []any{b.home}}},
		"x-first-death-queue": b.home, "x-first-death-reason": "rejected", "x-first-death-exchange": "",
	}
}

// shovel lets the plug-in move a dead-letter queue to another queue, and measures
// from the moment that it moves until the last message is there.
func (e Env) shovel(ctx context.Context, management string) (r rate, err error) {
	b, err := e.deadQueue(ctx)
	if err != nil {
		return r, err
	}
	defer b.remove()
	ch, err := b.conn.Channel()
	if err != nil {
		return r, err
	}
	remove, err := e.addShovel(ctx, management, b)
	if err != nil {
		return r, err
	}
	defer remove()
	moved := func() (int, error) {
		q, err := ch.QueueDeclarePassive(b.home, true, false, false, false, nil)
		return q.Messages, err
	}
	first := 0
	ctx, cancel := context.WithTimeout(ctx, shovelTime)
	defer cancel()
	if err := until(ctx, func() (bool, error) { first, err = moved(); return first > 0, err }); err != nil {
		return r, err
	}
	began := time.Now()
	err = untilEvery(ctx, rabbitAskEvery, func() (bool, error) { n, err := moved(); return n >= queueLetters, err })
	return rate{queueLetters - first, time.Since(began)}, err
}

// addShovel declares a dynamic shovel until the returned function removes it.
func (e Env) addShovel(ctx context.Context, management string, b *deadQueue) (func(), error) {
	name := unique("bench")
	uri := strings.TrimSuffix(e.Rabbit, "/") // to Erlang a slash alone is a virtual host without a name
	definition, err := json.Marshal(map[string]any{"value": map[string]any{
		"src-protocol": "amqp091", "src-uri": uri, "src-queue": b.dead, "src-prefetch-count": shovelPrefetch,
		"dest-protocol": "amqp091", "dest-uri": uri, "dest-queue": b.home, "ack-mode": "on-confirm",
	}})
	if err != nil {
		return nil, err
	}
	at := "/api/parameters/shovel/" + url.PathEscape("/") + "/" + name
	if err := callManagement(ctx, http.MethodPut, management, at, definition); err != nil {
		return nil, fmt.Errorf("add a shovel: %w: are rabbitmq_shovel and rabbitmq_shovel_management enabled?", err)
	}
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rabbitStatsMargin)
		defer cancel()
		if err := callManagement(ctx, http.MethodDelete, management, at, nil); err != nil {
			fmt.Fprintln(e.Out, "left behind:", err)
		}
	}, nil
}

func callManagement(ctx context.Context, method, management, path string, body []byte) error {
	at, err := url.Parse(management)
	if err != nil {
		return errors.New("the management URL is malformed")
	}
	user := at.User
	at.User = nil
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(at.String(), "/")+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	if user != nil {
		password, _ := user.Password()
		req.SetBasicAuth(user.Username(), password)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("the management API answers %s", resp.Status)
	}
	return nil
}
