package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/compensate"
	"oncemore/internal/access"
	"oncemore/reconcile"
)

const (
	sagaRepairs = 1000 // per round
	sagaAtOnce  = 32   // of the hand-written loop, and of connections
	sagaGoal    = 0.4
	sagaFlat    = 0.7 // of the speed beside a hundred open ones, beside a hundred thousand
)

var (
	sagaMaker   = access.Actor{User: "max", Role: access.Operator, Via: "bench", Reason: "bench"}
	sagaChecker = access.Actor{User: "cleo", Role: access.Approver, Via: "bench", Reason: "bench"}
)

// Repair carries out compensations until ctx ends, as a console with role jobs.
type Repair func(ctx context.Context, pool *pgxpool.Pool, c *compensate.Compensations) error

// repairs is a console whose repairs call a participant that does nothing.
type repairs struct {
	pool     *pgxpool.Pool // the console's
	business *pgxpool.Pool
	runs     *reconcile.Runs
	breaks   *reconcile.Breaks
	all      *compensate.Compensations
	server   *httptest.Server
	calls    atomic.Int64
	events   int
	drop     []func()
}

// Saga measures approved repairs from the start of the queue until each is
// verified: the last look at the key, the claim, every attempt's intent and
// answer, and their end. It stands beside a loop written by hand that makes the
// same calls and writes the same rows, with an intent committed before each call
// and its answer after it, by as many workers as there are connections; and beside
// itself with more and more open repairs.
func (e Env) Saga(ctx context.Context, work Repair, open []int) error {
	r, err := e.openRepairs(ctx)
	if err != nil {
		return err
	}
	defer r.close()
	for _, action := range []string{"http", "saga"} {
		steps := map[string]int{"http": 1, "saga": 3}[action]
		err := e.ratio(action+"-repairs", sagaGoal,
			func() (rate, error) { return r.ours(ctx, work, action, steps) },
			func() (rate, error) { return r.byHand(ctx, action, steps) })
		if err != nil {
			return err
		}
	}
	return e.flat(ctx, r, work, open)
}

// flat measures three-step sagas beside more and more open ones.
func (e Env) flat(ctx context.Context, r *repairs, work Repair, open []int) error {
	var first float64
	have := 0
	for _, n := range open {
		if err := r.fill(ctx, n-have); err != nil {
			return err
		}
		have = n
		var speeds []float64
		for range max(e.Rounds, 1) {
			got, err := r.ours(ctx, work, "saga", 3)
			if err != nil {
				return err
			}
			speeds = append(speeds, got.perSecond())
		}
		speed := median(speeds)
		if first == 0 {
			first = speed
		}
		fmt.Fprintf(e.Out, "saga beside %d open: %.0f/s, %.2f ms each\nRATIO saga-beside-%d-open %.2f goal >= %g\n", n, speed, 1000/speed, n, speed/first, sagaFlat)
	}
	return nil
}

const benchJob = `
job: points
window: {size: 24h, overlap: 10m, grace: 5m}
consumed: {connection: shop, query: 'select event_id, amount, currency, at from consumed where at >= :from and at < :to', lookup: 'select event_id, amount, currency, at from consumed where event_id in (:keys)'}
effect: {connection: shop, query: 'select event_id, amount, currency, at from effect where at >= :from and at < :to', lookup: 'select event_id, amount, currency, at from effect where event_id in (:keys)'}
key: [event_id]
match: {mode: one_to_one, amount: amount, currency: currency, consumed_time: at, effect_time: at}
limits: {breaks: 1000000}
`

var benchActions = map[string]string{
	"undo": `{action: undo, kind: http, url: "{{points-api}}/undo"}`,
	"http": `{action: http, applies_to: [missing_effect], group: points, kind: http, url: "{{points-api}}/credit", body: {eventId: "{{key.event_id}}"}, verify: none}`,
	"saga": `
action: saga
applies_to: [missing_effect]
group: points
kind: saga
verify: none
steps:
  - {id: a, kind: http, url: "{{points-api}}/a", body: {eventId: "{{key.event_id}}"}, compensate: undo}
  - {id: b, kind: http, url: "{{points-api}}/b", body: {eventId: "{{key.event_id}}"}, compensate: undo}
  - {id: c, kind: http, url: "{{points-api}}/c", body: {eventId: "{{key.event_id}}"}, compensate: undo}
`}

func (e Env) openRepairs(ctx context.Context) (*repairs, error) {
	r := &repairs{}
	plain, drop, err := e.migrated(ctx)
	if err != nil {
		return nil, err
	}
	r.drop = append(r.drop, drop)
	conf := plain.Config().Copy()
	conf.MaxConns = sagaAtOnce + 8
	if r.pool, err = pgxpool.NewWithConfig(ctx, conf); err != nil {
		return nil, err
	}
	r.drop = append(r.drop, r.pool.Close)
	if r.business, drop, err = e.database(ctx); err != nil {
		return nil, err
	}
	r.drop = append(r.drop, drop)
	for _, table := range []string{"consumed", "effect"} {
		if _, err := r.business.Exec(ctx, "create table "+table+" (event_id text primary key, amount numeric, currency text, at timestamptz)"); err != nil {
			return nil, err
		}
	}
	reading, drop, err := e.reader(ctx, r.business)
	if err != nil {
		return nil, err
	}
	r.drop = append(r.drop, drop)
	r.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body) // a participant that does nothing
		r.calls.Add(1)
	}))
	r.drop = append(r.drop, r.server.Close)
	return r, r.define(ctx, reading)
}

// reader is a pool whose role only reads: reconciliation refuses others.
func (e Env) reader(ctx context.Context, business *pgxpool.Pool) (*pgxpool.Pool, func(), error) {
	role := strings.ReplaceAll(unique("reader"), "-", "_")
	for _, st := range []string{"create role " + role + " login password 'reader'", "grant select on all tables in schema public to " + role} {
		if _, err := business.Exec(ctx, st); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", st, err)
		}
	}
	conf := business.Config().Copy()
	conf.ConnConfig.User, conf.ConnConfig.Password = role, "reader"
	pool, err := pgxpool.NewWithConfig(ctx, conf)
	return pool, func() {
		pool.Close()
		_, _ = business.Exec(context.WithoutCancel(ctx), "drop owned by "+role) // a failure leaves a role of the bench behind
		_, _ = business.Exec(context.WithoutCancel(ctx), "drop role "+role)
	}, err
}

func (r *repairs) define(ctx context.Context, reading *pgxpool.Pool) error {
	jobs, actions := reconcile.NewJobs(r.pool), compensate.NewActions(r.pool)
	err := pgx.BeginFunc(ctx, r.pool, func(tx pgx.Tx) error {
		j, err := reconcile.ParseJob("bench", []byte(benchJob))
		if err == nil {
			_, err = jobs.Keep(ctx, tx, j, benchJob, "bench")
		}
		for _, text := range benchActions {
			if err != nil {
				return err
			}
			var a *compensate.Action
			if a, err = compensate.ParseAction("bench", []byte(text)); err == nil {
				_, err = actions.Keep(ctx, tx, a, text, "bench")
			}
		}
		return err
	})
	if err != nil {
		return err
	}
	quiet := slog.New(slog.DiscardHandler)
	r.runs, err = reconcile.NewRuns(r.pool, jobs, map[string]reconcile.Database{"shop": {Name: "shop", Postgres: reading}}, reconcile.Options{Log: quiet})
	if err != nil {
		return err
	}
	r.breaks = reconcile.NewBreaks(r.pool)
	r.all, err = compensate.New(compensate.Config{
		Pool: r.pool, Actions: actions, Runs: r.runs, Breaks: r.breaks, Jobs: jobs, Bases: map[string]compensate.Base{"points-api": {URL: r.server.URL}}, Log: quiet,
	})
	return err
}

func (r *repairs) close() {
	for i := len(r.drop) - 1; i >= 0; i-- {
		r.drop[i]()
	}
}

// missing makes so many breaks, found by a run.
func (r *repairs) missing(ctx context.Context, n int) ([]int64, error) {
	r.events++
	day := time.Now().UTC().Truncate(24 * time.Hour).Add(-time.Duration(r.events+1) * 24 * time.Hour)
	_, err := r.business.Exec(ctx, "insert into consumed select $1 || '-' || n, 5, 'CNY', $2::timestamptz + n * interval '1 millisecond' from generate_series(1, $3) n", fmt.Sprint("e", r.events), day, n)
	if err != nil {
		return nil, err
	}
	run, err := r.runs.Ask(ctx, sagaMaker, reconcile.Request{Job: "points", From: day, To: day.Add(24 * time.Hour)})
	if err == nil {
		_, err = r.runs.Do(ctx, run)
	}
	if err != nil {
		return nil, err
	}
	rows, err := r.pool.Query(ctx, "select id from reconcile_break where opened_run = $1 order by id", run)
	if err != nil {
		return nil, err
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err == nil && len(ids) != n {
		err = fmt.Errorf("%d breaks, not %d", len(ids), n)
	}
	return ids, err
}

// approved asks for repairs of new breaks and approves them.
func (r *repairs) approved(ctx context.Context, action string, n int) ([]int64, error) {
	breaks, err := r.missing(ctx, n)
	if err != nil {
		return nil, err
	}
	ids, err := r.all.Propose(ctx, sagaMaker, action, breaks)
	if err != nil {
		return nil, err
	}
	rows, err := r.pool.Query(ctx, "select id, hash from compensation where id = any($1)", ids)
	if err != nil {
		return nil, err
	}
	seen, err := pgx.CollectRows(rows, pgx.RowToStructByPos[compensate.Seen])
	if err != nil {
		return nil, err
	}
	results, err := r.all.ApproveAll(ctx, sagaChecker, seen)
	for _, result := range results {
		if err == nil {
			err = result.Err
		}
	}
	return ids, err
}

// ours carries out approved repairs by the queue.
func (r *repairs) ours(ctx context.Context, work Repair, action string, steps int) (rate, error) {
	ids, err := r.approved(ctx, action, sagaRepairs)
	if err != nil {
		return rate{}, err
	}
	if _, err := r.pool.Exec(ctx, "vacuum analyze compensation, saga_step, river_job"); err != nil {
		return rate{}, err
	}
	before := r.calls.Load()
	working, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	began := time.Now()
	go func() { ended <- work(working, r.pool, r.all) }()
	err = untilEvery(ctx, 20*time.Millisecond, func() (done bool, err error) {
		err = r.pool.QueryRow(ctx, "select not exists (select from compensation where id = any($1) and state <> 5)", ids).Scan(&done)
		return done, err
	})
	took := time.Since(began)
	stop()
	if stopped := <-ended; err == nil {
		err = stopped
	}
	if made := int(r.calls.Load() - before); err == nil && made != len(ids)*steps {
		err = fmt.Errorf("%d calls, not %d", made, len(ids)*steps)
	}
	return rate{len(ids), took}, err
}

// byHand is the limit: a loop that makes the same calls and writes the same rows.
func (r *repairs) byHand(ctx context.Context, action string, steps int) (rate, error) {
	ids, err := r.approved(ctx, action, sagaRepairs)
	if err != nil {
		return rate{}, err
	}
	if _, err := r.pool.Exec(ctx, "delete from river_job where kind = 'compensation_step' and (args->>'compensation')::bigint = any($1)", ids); err != nil {
		return rate{}, err
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: sagaAtOnce}}
	defer client.CloseIdleConnections()
	todo := make(chan int64)
	var workers sync.WaitGroup
	failed := make(chan error, sagaAtOnce)
	began := time.Now()
	for range sagaAtOnce {
		workers.Go(func() {
			for id := range todo {
				if err := r.repair(ctx, client, id, steps); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	for _, id := range ids {
		select {
		case todo <- id:
		case err := <-failed:
			return rate{}, err
		}
	}
	close(todo)
	workers.Wait()
	return rate{len(ids), time.Since(began)}, nil
}

// entry is a statement of the loop.
type entry struct {
	sql  string
	args []any
}

func (r *repairs) write(ctx context.Context, all ...entry) error {
	return pgx.BeginFunc(ctx, r.pool, func(tx pgx.Tx) error {
		for _, w := range all {
			if _, err := tx.Exec(ctx, w.sql, w.args...); err != nil {
				return fmt.Errorf("%s: %w", w.sql, err)
			}
		}
		return nil
	})
}

// repair carries out one compensation by hand.
func (r *repairs) repair(ctx context.Context, client *http.Client, id int64, steps int) error {
	var event string
	var broken int64
	if err := r.pool.QueryRow(ctx, "select event_id, break_id from compensation where id = $1 and state = 2", id).Scan(&event, &broken); err != nil {
		return err
	}
	err := r.write(ctx,
		entry{"update compensation set state = 3, started_at = now(), epoch = epoch + 1 where id = $1 and state = 2", []any{id}},
		entry{"insert into saga_step (compensation_id, no, op, step) select $1, n, 1, 's' || n from generate_series(0, $2 - 1) n", []any{id, steps}},
		entry{"insert into event_claim (event_id, group_id, kind, holder_id, item_no, verdict) values ($1, 1, 2, $2, 0, 0) on conflict do nothing", []any{event, id}},
		entry{"insert into compensation_day (action, day, currency, amount, items) values ('hand', current_date, 'CNY', 5, 1) on conflict (action, day, currency) do update set amount = compensation_day.amount + 5, items = compensation_day.items + 1", nil},
		entry{"update reconcile_break set state = 4 where id = $1", []any{broken}},
		entry{"insert into reconcile_note (break_id, by, kind) values ($1, 'hand', 'compensating')", []any{broken}},
		entry{"insert into compensation_note (compensation_id, by, kind) values ($1, 'hand', 'started')", []any{id}})
	if err != nil {
		return err
	}
	for no := range steps {
		if err := r.stepByHand(ctx, client, id, no, event); err != nil {
			return err
		}
	}
	return r.write(ctx,
		entry{"update compensation set state = 5, finished_at = now() where id = $1", []any{id}},
		entry{"insert into compensation_note (compensation_id, by, kind) values ($1, 'hand', 'executed'), ($1, 'hand', 'verified')", []any{id}},
		entry{"insert into letter_compensated (event_id, group_id, compensation_id, at) values ($1, 1, $2, now()) on conflict do nothing", []any{event, id}},
		entry{"delete from event_claim where kind = 2 and holder_id = $1", []any{id}})
}

func (r *repairs) stepByHand(ctx context.Context, client *http.Client, id int64, no int, event string) error {
	body := fmt.Sprintf(`{"eventId":%q}`, event)
	shown, err := json.Marshal(map[string]string{"method": "POST", "url": r.server.URL, "body": body})
	if err != nil {
		return err
	}
	err = r.write(ctx,
		entry{"update saga_step set state = 1, tries = 1, started_at = now() where compensation_id = $1 and no = $2 and op = 1", []any{id, no}},
		entry{"insert into compensation_attempt (compensation_id, no, op, request) values ($1, $2, 1, $3)", []any{id, no, shown}})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.server.URL, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", fmt.Sprintf("C-%d:%d", id, no))
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	resp.Body.Close() //nolint:errcheck // it was read
	if err != nil || resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s, %w", resp.Status, err)
	}
	return r.write(ctx,
		entry{"update compensation_attempt set outcome = 'done', answer = $3, took_ms = 1 where id = (select max(id) from compensation_attempt where compensation_id = $1 and no = $2)", []any{id, no, `{"status": 200}`}},
		entry{"update saga_step set state = 2, done_at = now() where compensation_id = $1 and no = $2 and op = 1", []any{id, no}})
}

// fill adds open repairs: half wait for their day, half for a person.
func (r *repairs) fill(ctx context.Context, n int) error {
	for _, st := range []string{
		`insert into compensation (action, version, event_id, group_name, currency, amount, inputs, effect, hash, state, asked_by, reason, checkers, due_at)
select 'saga', 1, 'open-' || gen_random_uuid(), 'points', 'CNY', 5, '{}', '[]', '\x00', case when n % 2 = 0 then 2 else 7 end, 'max', 'bench', 0, now() + interval '30 days' from generate_series(1, $1) n`,
		`insert into saga_step (compensation_id, no, op, step, state, tries)
select c.id, n, 1, 's' || n, 3, 1 from (select id from compensation where state = 7 order by id desc limit $1 / 2) c, generate_series(0, 2) n`,
		`insert into event_claim (event_id, group_id, kind, holder_id, item_no, verdict)
select event_id, 1, 2, id, 0, 0 from (select id, event_id from compensation where state = 7 order by id desc limit $1 / 2) c on conflict do nothing`,
		`insert into river_job (args, kind, max_attempts, queue, state, scheduled_at)
select jsonb_build_object('compensation', id, 'epoch', 0), 'compensation_step', 1000, 'compensate', 'scheduled', due_at from (select id, due_at from compensation where state = 2 order by id desc limit $1 / 2) c`,
	} {
		if _, err := r.pool.Exec(ctx, st, n); err != nil {
			return fmt.Errorf("fill: %w", err)
		}
	}
	_, err := r.pool.Exec(ctx, "vacuum analyze compensation, saga_step, event_claim, river_job")
	return err
}
