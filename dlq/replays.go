package dlq

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"oncemore/dlq/dialect"
)

// ReplayQueue is the River queue that the steps of replays run in. The client of
// role jobs works it; its size is how many replays advance at once.
const ReplayQueue = "replay"

// RefusalsShown is how many refusals a Plan lists itself.
const RefusalsShown = 200

// Judging is what a replay asks before it sends, and again afterwards.
type Judging interface {
	Judge(ctx context.Context, subjects []Subject, target Target) ([]Judged, error)
	Subjects(ctx context.Context, ids []uuid.UUID) ([]Subject, error)
}

// OriginReading finds the records that letters came from.
type OriginReading interface {
	Originals(ctx context.Context, subjects []Subject) (map[uuid.UUID]Original, error)
	OriginalsOf(ctx context.Context, subjects []Subject, letters map[uuid.UUID]Body) (map[uuid.UUID]Original, error)
}

// ReplayOptions are the engine's limits. A zero value takes the default.
type ReplayOptions struct {
	ApprovalSize int              // items above which a second person approves; default 1000
	ApprovalFor  time.Duration    // how long an approval holds; default 24 h
	PlanLimit    int              // letters that one plan may hold; default 500,000
	PlanAtOnce   int              // letters up to which a plan is made in one call, beyond it in steps; default 20,000
	ReplayCap    int              // replays of one letter after which it is parked; default 5
	ChunkSize    int              // items judged, claimed and sent together; default and most 500
	SettleAfter  time.Duration    // after this an item that no group took up is not_seen; default 10 min
	SendTimeout  time.Duration    // how long the brokers may take to confirm a chunk; default 15 s
	StepTime     time.Duration    // how long one job goes on; default 20 s
	Lease        time.Duration    // after this a step that was not heard of counts as crashed; default 60 s
	Patience     time.Duration    // how long a chunk waits for a broker or evidence that does not answer; default 10 s
	Poll         time.Duration    // how soon outcomes are first looked for; default 500 ms
	Dialects     *dialect.Set     // decides which headers are left out; default the embedded ones
	Log          *slog.Logger     // default slog.Default
	Clock        func() time.Time // decides only when a job is due; default time.Now
}

func (o ReplayOptions) withDefaults() ReplayOptions {
	o.ApprovalSize = cmp.Or(o.ApprovalSize, 1000)
	o.ApprovalFor = cmp.Or(o.ApprovalFor, 24*time.Hour)
	o.PlanLimit = cmp.Or(o.PlanLimit, 500_000)
	o.PlanAtOnce = cmp.Or(o.PlanAtOnce, 20_000)
	o.ReplayCap = cmp.Or(o.ReplayCap, 5)
	o.ChunkSize = min(cmp.Or(o.ChunkSize, 500), 500)
	o.SettleAfter = cmp.Or(o.SettleAfter, 10*time.Minute)
	o.SendTimeout = cmp.Or(o.SendTimeout, 15*time.Second)
	o.StepTime = cmp.Or(o.StepTime, 20*time.Second)
	o.Lease = cmp.Or(o.Lease, time.Minute)
	o.Patience = cmp.Or(o.Patience, 10*time.Second)
	o.Poll = cmp.Or(o.Poll, 500*time.Millisecond)
	o.Log = cmp.Or(o.Log, slog.Default())
	if o.Clock == nil {
		o.Clock = time.Now
	}
	return o
}

// Replays plans replays, runs them and says what each did. All times in its
// tables are of the database's clock.
type Replays struct {
	pool     *pgxpool.Pool
	clusters map[string]*Cluster
	judge    Judging
	origins  OriginReading
	opts     ReplayOptions
	jobs     *river.Client[pgx.Tx] // only inserts
	reached  func(moment)          // for tests that stop a chunk at a moment
}

// moment is a place between the commits of a chunk.
type moment string

const (
	momentClaimed   moment = "claimed"   // the intent is committed, nothing is sent
	momentPublished moment = "published" // the broker has answered, nothing is recorded
)

// NewReplays works on the console's database and sends to the given clusters,
// by name. It needs no River client: it makes one that only inserts. Errors are
// of the embedded dialects or of River's options.
func NewReplays(pool *pgxpool.Pool, clusters map[string]*Cluster, judge Judging, origins OriginReading, opts ReplayOptions) (*Replays, error) {
	r := &Replays{pool: pool, clusters: clusters, judge: judge, origins: origins, opts: opts.withDefaults(), reached: func(moment) {}}
	var err error
	if r.jobs, err = river.NewClient(riverpgxv5.New(pool), &river.Config{Logger: r.opts.Log}); err != nil {
		return nil, fmt.Errorf("replays: river client: %w", err)
	}
	if r.opts.Dialects == nil {
		if r.opts.Dialects, err = dialect.Load(); err != nil {
			return nil, fmt.Errorf("replays: %w", err)
		}
	}
	return r, nil
}

// AddWorkers registers the steps with the workers of a River client that works
// ReplayQueue.
func (r *Replays) AddWorkers(w *river.Workers) { river.AddWorker(w, &stepWorker{replays: r}) }
