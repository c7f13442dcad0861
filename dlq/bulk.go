package dlq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
)

// BulkQueue is the River queue that commands on many letters go on in.
const BulkQueue = "letters"

// BulkKind is what a command does to its letters.
type BulkKind int16

// The commands on many letters.
const (
	BulkDiscard BulkKind = iota + 1 // open letters
	BulkRestore                     // discarded letters
	BulkAssign
)

var bulkKindNames = map[BulkKind]string{BulkDiscard: "discard", BulkRestore: "restore", BulkAssign: "assign"}

// String is the kind's name in the API.
func (k BulkKind) String() string { return bulkKindNames[k] }

// BulkState is where a command stands.
type BulkState int16

// The states of a command.
const (
	BulkFreezing BulkState = iota + 1 // its letters are being gathered; nothing has changed yet
	BulkRunning
	BulkDone
)

var bulkStateNames = map[BulkState]string{BulkFreezing: "freezing", BulkRunning: "running", BulkDone: "done"}

// String is the state's name in the API.
func (s BulkState) String() string { return bulkStateNames[s] }

// Bulk is one command on a frozen set of letters.
type Bulk struct {
	ID         int64
	Kind       BulkKind
	State      BulkState
	FaultID    *int32
	Filter     string  // the selection as JSON
	Owner      *string // of an assignment; nil: nobody's from now on
	Undoes     *int64  // the command that a restoration takes back
	UndoneBy   *int64  // the restoration that took this one back
	Total      int64   // letters in the set, as far as it is frozen
	Changed    int64
	PassedOver int64  // letters of the set that were in another state when their turn came
	Digest     []byte // SHA-256 chained over the frozen ids; complete from BulkRunning on
	Reason     string
	CreatedBy  string
	CreatedAt  time.Time
	FinishedAt *time.Time
}

// Left is how many letters of the set wait for their turn.
func (b Bulk) Left() int64 { return b.Total - b.Changed - b.PassedOver }

// ErrBulkRunning is returned to who takes back a command that is still at work.
var ErrBulkRunning = errors.New("dlq: the command is still at work")

// ErrNotUndoable is returned to who takes back what was no discarding.
var ErrNotUndoable = errors.New("dlq: only a discarding can be taken back")

// bulkChunk is how many letters change in one transaction, and how many a
// request changes itself: more go on as steps.
const bulkChunk = 2000

// Bulks discards, restores and assigns letters. A command's set is frozen before
// anything changes. Letters are locked in id order, so that two commands on the
// same letters take turns.
type Bulks struct {
	pool    *pgxpool.Pool
	letters *Letters
	jobs    *river.Client[pgx.Tx] // only inserts
	opts    BulkOptions
}

// BulkOptions are the limits of commands. A zero value takes the default.
type BulkOptions struct {
	Chunk    int           // letters in one transaction; default 2,000
	StepTime time.Duration // how long one job goes on; default 20 s
	Log      *slog.Logger  // default slog.Default
}

// NewBulks works on the console's database. Errors are of River's options.
func NewBulks(pool *pgxpool.Pool, opts BulkOptions) (*Bulks, error) {
	opts.Chunk = cmp.Or(opts.Chunk, bulkChunk)
	opts.StepTime = cmp.Or(opts.StepTime, 20*time.Second)
	opts.Log = cmp.Or(opts.Log, slog.Default())
	jobs, err := river.NewClient(riverpgxv5.New(pool), &river.Config{Logger: opts.Log})
	if err != nil {
		return nil, fmt.Errorf("commands on letters: river client: %w", err)
	}
	return &Bulks{pool: pool, letters: NewLetters(pool), jobs: jobs, opts: opts}, nil
}

// AddWorkers registers the steps with the workers of a River client that works
// BulkQueue.
func (b *Bulks) AddWorkers(w *river.Workers) { river.AddWorker(w, &bulkWorker{bulks: b}) }

const sqlBulkColumns = `
SELECT b.id, b.kind, b.state, b.fault_id, b.filter::text, w.name, b.undoes,
  (SELECT max(u.id) FROM letter_bulk u WHERE u.undoes = b.id), b.total, b.changed, b.passed_over, b.digest,
  b.reason, b.created_by, b.created_at, b.finished_at
FROM letter_bulk b LEFT JOIN letter_name w ON w.id = b.owner_id`

func scanBulk(row pgx.CollectableRow) (b Bulk, err error) {
	err = row.Scan(&b.ID, &b.Kind, &b.State, &b.FaultID, &b.Filter, &b.Owner, &b.Undoes, &b.UndoneBy, &b.Total, &b.Changed,
		&b.PassedOver, &b.Digest, &b.Reason, &b.CreatedBy, &b.CreatedAt, &b.FinishedAt)
	return b, err
}

// Get reads one command. Errors: ErrNotFound.
func (b *Bulks) Get(ctx context.Context, id int64) (Bulk, error) {
	all, err := b.read(ctx, sqlBulkColumns+" WHERE b.id = @id", pgx.NamedArgs{"id": id})
	if err != nil {
		return Bulk{}, err
	}
	if len(all) == 0 {
		return Bulk{}, fmt.Errorf("command %d: %w", id, ErrNotFound)
	}
	return all[0], nil
}

// Latest lists the latest commands, newest first, at most 50.
func (b *Bulks) Latest(ctx context.Context) ([]Bulk, error) {
	return b.read(ctx, sqlBulkColumns+" ORDER BY b.id DESC LIMIT 50", nil)
}

// OfFault lists the latest commands on one fault's letters, newest first.
func (b *Bulks) OfFault(ctx context.Context, fault int32) ([]Bulk, error) {
	return b.read(ctx, sqlBulkColumns+" WHERE b.fault_id = @fault ORDER BY b.id DESC LIMIT 10", pgx.NamedArgs{"fault": fault})
}

// Of gives the command that discarded a letter last and is not taken back; nil: none.
func (b *Bulks) Of(ctx context.Context, letter uuid.UUID) (*Bulk, error) {
	all, err := b.read(ctx, sqlBulkColumns+`
WHERE b.id = (SELECT d.bulk_id FROM dead_letter d WHERE d.id = @letter AND d.state = 4)`, pgx.NamedArgs{"letter": letter})
	if err != nil || len(all) == 0 {
		return nil, err
	}
	return &all[0], nil
}

func (b *Bulks) read(ctx context.Context, sql string, args pgx.NamedArgs) ([]Bulk, error) {
	rows, err := b.pool.Query(ctx, sql, args)
	if err != nil {
		return nil, fmt.Errorf("query commands on letters: %w", err)
	}
	all, err := pgx.CollectRows(rows, scanBulk)
	if err != nil {
		return nil, fmt.Errorf("read commands on letters: %w", err)
	}
	return all, nil
}
