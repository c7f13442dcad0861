package dlq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
)

// stepArgs is one step of a replay. Epoch is the replay's when the step was
// asked for: the step takes the next one, and whoever comes with an older one
// changes nothing.
type stepArgs struct {
	Replay int64 `json:"replay"`
	Epoch  int   `json:"epoch"`
	Idle   int   `json:"idle,omitempty"` // steps before it that found nothing to do
}

// Kind is River's name of the job.
func (stepArgs) Kind() string { return "replay_step" }

// InsertOpts lets a step be tried until the database and the brokers are back.
func (stepArgs) InsertOpts() river.InsertOpts {
	return river.InsertOpts{Queue: ReplayQueue, MaxAttempts: 1000}
}

// insertStep asks for a step in the caller's transaction.
func (r *Replays) insertStep(ctx context.Context, tx pgx.Tx, args stepArgs, delay time.Duration) error {
	opts := &river.InsertOpts{}
	if delay > 0 {
		opts.ScheduledAt = r.opts.Clock().Add(delay)
	}
	if _, err := r.jobs.InsertTx(ctx, tx, args, opts); err != nil {
		return fmt.Errorf("insert step of replay %d: %w", args.Replay, err)
	}
	return nil
}

// errFenced ends a step whose place another one has taken.
var errFenced = errors.New("dlq: another step has taken over")

type stepWorker struct {
	river.WorkerDefaults[stepArgs]
	replays *Replays
}

// Timeout leaves a step time to send and record its last chunk.
func (w *stepWorker) Timeout(*river.Job[stepArgs]) time.Duration {
	return w.replays.opts.StepTime + 2*w.replays.opts.SendTimeout + 30*time.Second
}

// NextRetry is soon: a failed step has left nothing half done.
func (w *stepWorker) NextRetry(job *river.Job[stepArgs]) time.Time {
	return w.replays.opts.Clock().Add(min(time.Duration(job.Attempt)*2*time.Second, 30*time.Second))
}

// Work takes the replay's lease and does one step.
func (w *stepWorker) Work(ctx context.Context, job *river.Job[stepArgs]) error {
	r := w.replays
	epoch, wait, err := r.acquire(ctx, job.Args)
	switch {
	case errors.Is(err, errFenced):
		return nil
	case err != nil:
		return err
	case wait > 0:
		return river.JobSnooze(wait)
	}
	s := &step{r: r, id: job.Args.Replay, epoch: epoch, idle: job.Args.Idle, log: r.opts.Log.With(slog.Int64("replay", job.Args.Replay))}
	defer s.close()
	err = s.run(ctx)
	if errors.Is(err, errFenced) {
		s.log.Warn("replay step was overtaken", slog.Int("epoch", epoch))
		return nil
	}
	if err != nil {
		s.giveBack(ctx, err)
		return fmt.Errorf("step of replay %d: %w", s.id, err)
	}
	return nil
}

const sqlAcquire = `
UPDATE replay SET epoch = epoch + 1, lease_until = now() + @lease::interval
WHERE id = @id AND (epoch = @epoch AND lease_until IS NULL OR lease_until < now())
RETURNING epoch`

const sqlLease = `
SELECT epoch, extract(epoch FROM lease_until - now())::float8 FROM replay WHERE id = @id`

// acquire makes this step the replay's only one. wait is how long to wait for
// one at work that may yet turn out to have crashed. errFenced: there is nothing
// for this step to do, its work was done or is another's.
func (r *Replays) acquire(ctx context.Context, args stepArgs) (epoch int, wait time.Duration, err error) {
	err = r.pool.QueryRow(ctx, sqlAcquire, pgx.NamedArgs{"id": args.Replay, "epoch": args.Epoch, "lease": r.opts.Lease}).Scan(&epoch)
	if err == nil {
		return epoch, 0, nil
	}
	if !errors.Is(err, pgx.ErrNoRows) {
		return 0, 0, fmt.Errorf("acquire replay %d: %w", args.Replay, err)
	}
	var left *float64 // seconds
	err = r.pool.QueryRow(ctx, sqlLease, pgx.NamedArgs{"id": args.Replay}).Scan(&epoch, &left)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return 0, 0, errFenced
	case err != nil:
		return 0, 0, fmt.Errorf("read lease of replay %d: %w", args.Replay, err)
	case left == nil || args.Epoch < epoch-1:
		return 0, 0, errFenced
	}
	return 0, max(time.Second, min(time.Duration(*left*float64(time.Second)), 5*time.Second)), nil
}

const sqlExpired = `SELECT id, epoch FROM replay WHERE lease_until < now() - interval '2 seconds'`

// Revive asks for a step of every replay whose step was not heard of for the
// lease, and returns how many: a process that crashed is overtaken sooner than
// River finds its job.
func (r *Replays) Revive(ctx context.Context) (int, error) {
	rows, err := r.pool.Query(ctx, sqlExpired)
	if err != nil {
		return 0, fmt.Errorf("query crashed replays: %w", err)
	}
	crashed, err := pgx.CollectRows(rows, pgx.RowToStructByPos[struct {
		ID    int64
		Epoch int
	}])
	if err != nil {
		return 0, fmt.Errorf("read crashed replays: %w", err)
	}
	for _, c := range crashed {
		if _, err := r.jobs.Insert(ctx, stepArgs{Replay: c.ID, Epoch: c.Epoch}, nil); err != nil {
			return 0, fmt.Errorf("revive replay %d: %w", c.ID, err)
		}
	}
	return len(crashed), nil
}

// Run calls Revive and Revisit every ten seconds until ctx ends; for role jobs.
// Any number of processes may run it.
func (r *Replays) Run(ctx context.Context) {
	tick := time.NewTicker(10 * time.Second)
	defer tick.Stop()
	for {
		_, err := r.Revive(ctx)
		if err == nil {
			_, err = r.Revisit(ctx)
		}
		if err != nil && ctx.Err() == nil {
			r.opts.Log.Error("replays could not be looked after", slog.Any("error", err))
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// step is one job's work on one replay.
type step struct {
	r         *Replays
	id        int64
	epoch     int
	idle      int
	log       *slog.Logger
	sending   sync.Mutex        // over senders
	senders   map[string]sender // by cluster
	ahead     *preparing        // nil: nothing is read ahead
	flying    *flight           // nil: nothing is on its way
	flew      time.Duration     // how long the last flight took
	watched   time.Time         // when outcomes were last looked for
	watchTook time.Duration     // and how long that took
	silence   time.Time         // since when something that has to be asked does not answer; zero: it does
	unheard   Reason            // what that is
	now       standing          // as last read
	sendAt    time.Time         // by the rate nothing is sent before
	taken     int               // items of the last chunk
	queuesAt  time.Time         // when records of what was sent to queues were last read
}

const sqlFenceStep = `
UPDATE replay SET version = version + 1, lease_until = now() + @lease::interval
WHERE id = @id AND epoch = @epoch RETURNING state`

// fenced runs do in a transaction that fails with errFenced when another step
// has taken over. It holds the replay's row, so commands wait for it.
func (s *step) fenced(ctx context.Context, do func(tx pgx.Tx, state ReplayState) error) error {
	return pgx.BeginFunc(ctx, s.r.pool, func(tx pgx.Tx) error {
		var state ReplayState
		err := tx.QueryRow(ctx, sqlFenceStep, pgx.NamedArgs{"id": s.id, "epoch": s.epoch, "lease": s.r.opts.Lease}).Scan(&state)
		if errors.Is(err, pgx.ErrNoRows) {
			return errFenced
		}
		if err != nil {
			return fmt.Errorf("fence: %w", err)
		}
		return do(tx, state)
	})
}

// run sends and watches until the replay is done, the step's time is over, or
// there is nothing to do for a while.
func (s *step) run(ctx context.Context) error {
	st, err := s.standing(ctx)
	if err != nil {
		return err
	}
	if st.state == Planning {
		return s.planOn(ctx)
	}
	end := time.Now().Add(s.r.opts.StepTime)
	pause, moved := s.r.opts.Poll, false
	for {
		p, err := s.advance(ctx)
		if err != nil {
			return errors.Join(err, s.land(ctx))
		}
		moved = moved || p.moved
		over := time.Now().After(end) || ctx.Err() != nil || s.idle > 0 && !moved || p.nothingSoon()
		if p.finished || over {
			if err := s.land(ctx); err != nil {
				return err
			}
			return s.end(context.WithoutCancel(ctx), p, moved)
		}
		if p.moved && p.due.IsZero() {
			pause = s.r.opts.Poll
			continue
		}
		wait(ctx, s.until(p.due, pause))
		pause = min(pause*3/2, 4*s.r.opts.Poll)
	}
}

// progress is what one round found and did.
type progress struct {
	moved    bool      // something was sent or came out
	finished bool      // nothing is left for any step
	due      time.Time // when more may be sent; zero: now, or when something came out
	idle     bool      // until then there is nothing to look for either
}

// nothingSoon reports whether the next thing to do is so far off that a later
// step does it.
func (p progress) nothingSoon() bool { return p.idle && !p.due.IsZero() }

const sqlStanding = `
SELECT r.state, r.waiting > 0,
  EXISTS (SELECT FROM replay_chunk c WHERE c.replay_id = r.id AND c.state = 0 AND c.from_no <> @flying),
  EXISTS (SELECT FROM event_claim c WHERE c.kind = 1 AND c.holder_id = r.id),
  r.pace, r.rung, r.total, r.next_no, r.sent, r.stop_bad, r.stop_tried, coalesce(r.wait_key, ''), coalesce(r.wait_text, ''), r.paced_until
FROM replay r WHERE r.id = @id`

// standing is what is left to do, and how fast.
type standing struct {
	state                        ReplayState
	waiting, unsettled, watching bool
	pace                         Pace
	rung, total, nextNo, sent    int
	stopBad, stopTried           int
	waitKey, waitText            string
	pacedUntil                   *time.Time
}

func (s *step) standing(ctx context.Context) (st standing, err error) {
	flying := 0
	if s.flying != nil {
		flying = s.flying.c.items[0].no
	}
	err = s.r.pool.QueryRow(ctx, sqlStanding, pgx.NamedArgs{"id": s.id, "flying": flying}).Scan(&st.state, &st.waiting, &st.unsettled, &st.watching,
		&st.pace, &st.rung, &st.total, &st.nextNo, &st.sent, &st.stopBad, &st.stopTried, &st.waitKey, &st.waitText, &st.pacedUntil)
	if err != nil {
		return st, fmt.Errorf("read standing: %w", err)
	}
	if s.now = st; s.sendAt.IsZero() && st.pacedUntil != nil {
		s.sendAt = *st.pacedUntil
	}
	return st, nil
}

// watchShare is how many times longer than looking for outcomes a step sends in
// between, so that a replay that is far ahead of its consumers does not slow down.
const watchShare = 5

// advance does one round: settle what an earlier step left open, send a chunk,
// look for outcomes.
func (s *step) advance(ctx context.Context) (progress, error) {
	var p progress
	st, err := s.standing(ctx)
	if err != nil {
		return p, err
	}
	if st.unsettled {
		s.dropAhead() // what is put back comes before it
		if p.moved, err = s.settleOpen(ctx); err != nil {
			return p, fmt.Errorf("recover: %w", err)
		}
	} else if st.waiting && st.state == Running && ctx.Err() == nil {
		if p, err = s.sendPaced(ctx, st); err != nil {
			return p, fmt.Errorf("send: %w", err)
		}
	}
	if !p.moved || time.Since(s.watched) >= max(s.r.opts.Poll, watchShare*s.watchTook) {
		if err := s.land(ctx); err != nil {
			return p, fmt.Errorf("send: %w", err)
		}
		came, err := s.watch(ctx)
		if err != nil {
			return p, fmt.Errorf("watch: %w", err)
		}
		if p.moved = p.moved || came; came {
			p.due = time.Time{} // a rung may be through
		}
	}
	st, err = s.standing(ctx)
	p.idle = !st.unsettled && !st.watching && s.flying == nil
	p.finished = err == nil && p.idle && (!st.waiting || st.state != Running)
	return p, err
}

const sqlEndStep = `UPDATE replay SET lease_until = NULL, paced_until = @paced WHERE id = @id`

const sqlDone = `
UPDATE replay SET state = 6, finished_at = now(), paused_by = NULL, state_by = 'system', state_at = now(),
  wait_key = NULL, wait_text = NULL, wait_args = NULL, wait_since = NULL
WHERE id = @id AND state IN (4, 5) AND waiting = 0`

// idleDelay is how long to wait before outcomes are looked for again when a
// whole step saw none.
const idleDelay = 5 * time.Second

// end closes the step: the replay is done, or its successor is asked for in the
// same transaction.
func (s *step) end(ctx context.Context, p progress, moved bool) error {
	next := stepArgs{Replay: s.id, Epoch: s.epoch, Idle: s.idle + 1}
	delay := idleDelay
	if moved {
		next.Idle, delay = 0, 0
	}
	if p.nothingSoon() {
		delay = s.until(p.due, longestDelay)
	}
	err := s.fenced(ctx, func(tx pgx.Tx, _ ReplayState) error {
		if _, err := tx.Exec(ctx, sqlEndStep, pgx.NamedArgs{"id": s.id, "paced": zeroNull(s.sendAt)}); err != nil {
			return err
		}
		if !p.finished {
			return s.r.insertStep(ctx, tx, next, delay)
		}
		_, err := tx.Exec(ctx, sqlDone, pgx.NamedArgs{"id": s.id})
		return err
	})
	if err != nil {
		return fmt.Errorf("end step: %w", err)
	}
	return nil
}

const sqlGiveBack = `
UPDATE replay SET lease_until = now() - interval '1 second', version = version + 1,
  wait_key = @key, wait_text = @text, wait_args = @args, wait_since = CASE WHEN wait_key = @key THEN wait_since ELSE now() END
WHERE id = @id AND epoch = @epoch`

// giveBack lets the retried job go on at once after an error, which the page
// shows meanwhile.
func (s *step) giveBack(ctx context.Context, failed error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	why := storeReason(replayReason("reason.wait.error", "error", failed.Error()))
	args := pgx.NamedArgs{"id": s.id, "epoch": s.epoch, "key": why.Key, "text": why.Text, "args": why.Args}
	if _, err := s.r.pool.Exec(ctx, sqlGiveBack, args); err != nil {
		s.log.Warn("replay lease was not given back; it runs out by itself", slog.Any("error", err))
	}
}

func (s *step) close() {
	if s.flying != nil { // its step panicked; recovery says what came of it
		<-s.flying.done
	}
	s.dropAhead()
	s.dropSenders()
}
