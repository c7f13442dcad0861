package dlq

import (
	"context"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
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
}

// ReplayOptions are the engine's limits. A zero value takes the default.
type ReplayOptions struct {
	ApprovalSize int           // items above which a second person approves; default 1000
	PlanLimit    int           // letters that one plan may hold; default 500,000
	ChunkSize    int           // items judged, claimed and sent together; default and most 500
	SettleAfter  time.Duration // after this an item that no group took up is not_seen; default 10 min
	SendTimeout  time.Duration // how long a broker may take to confirm a chunk; default 15 s
	StepTime     time.Duration // how long one job goes on; default 20 s
	Lease        time.Duration // after this a step that was not heard of counts as crashed; default 60 s
	Poll         time.Duration // how soon outcomes are first looked for; default 500 ms
	Clock        func() time.Time
	Log          *slog.Logger
}

// Replays plans replays, runs them and says what each did.
type Replays struct {
	pool     *pgxpool.Pool
	clusters map[string]*Cluster
	judge    Judging
	origins  OriginReading
	opts     ReplayOptions
}

// NewReplays works on the console's database and sends to the given clusters,
// by name. It needs no River client: it makes one that only inserts.
func NewReplays(pool *pgxpool.Pool, clusters map[string]*Cluster, judge Judging, origins OriginReading, opts ReplayOptions) *Replays {
	return &Replays{pool: pool, clusters: clusters, judge: judge, origins: origins, opts: opts}
}

// AddWorkers registers the steps with the workers of a River client that works
// ReplayQueue.
func (r *Replays) AddWorkers(w *river.Workers) {}
