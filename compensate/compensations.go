package compensate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"oncemore/dlq"
	"oncemore/reconcile"
)

// Errors of commands on compensations.
var (
	// ErrNotFound is returned for a compensation that does not exist.
	ErrNotFound = errors.New("compensate: no such compensation")
	// ErrState is returned for a command that the compensation's state does not allow.
	ErrState = errors.New("compensate: the compensation is in another state")
	// ErrOwn is returned to whoever asked for a compensation and wants to decide about it.
	ErrOwn = errors.New("compensate: somebody else has to approve what you asked for")
	// ErrVoid is returned when what was approved, or shown, is no longer what would be done.
	ErrVoid = errors.New("compensate: what would be done has changed")
	// ErrExpired is returned for a proposal or an approval that is too old.
	ErrExpired = errors.New("compensate: the proposal has expired")
	// ErrNotFor is returned for an action that does not repair such a thing.
	ErrNotFor = errors.New("compensate: the action is not for this")
	// ErrTwice is returned where the action repairs this already, or has repaired it.
	ErrTwice = errors.New("compensate: this is being repaired, or has been")
	// ErrLimit is returned for more than a limit of the action allows.
	ErrLimit = errors.New("compensate: a limit of the action")
)

// Target is a business database that compensations write to, by a credential of
// their own; one of its pools is set.
type Target struct {
	Postgres *pgxpool.Pool
	MySQL    *sql.DB
}

// Base is an address that requests may call.
type Base struct {
	URL     string
	Headers map[string]string // secret: sent with every call, never shown
}

// Config is what compensations work with.
type Config struct {
	Pool    *pgxpool.Pool // the console's own
	Actions *Actions
	Runs    *reconcile.Runs
	Breaks  *reconcile.Breaks
	Jobs    *reconcile.Jobs
	Letters *dlq.Letters // nil: only breaks are repaired
	Judge   *dlq.Judge   // with Letters
	Replays Replaying
	Targets map[string]Target // by the connection's name
	Bases   map[string]Base   // what requests may call, by name
	Client  *http.Client      // nil: one that follows no redirects

	StepTime time.Duration // how long one step of the queue works; 0 is 20 s
	Lease    time.Duration // how long a step may be silent before it is overtaken; 0 is 60 s
	Clock    func() time.Time
	Log      *slog.Logger
}

// ErrNotReplayed is returned for an event that the safe replay does not send,
// with why.
var ErrNotReplayed = errors.New("compensate: the event is not replayed")

// ReplayRequest is a replay that a compensation asks for.
type ReplayRequest struct {
	EventID  string
	Group    string
	LetterID *uuid.UUID // nil: any letter of the event in the group
	Key      string     // the same for every time that the compensation asks
	Reason   string
}

// Replaying is what the action replay_event needs of the safe replay.
type Replaying interface {
	// Start plans and starts a replay, and returns its number. Error:
	// ErrNotReplayed with why nothing is sent; any other one may pass.
	Start(ctx context.Context, r ReplayRequest) (int64, error)
	// Outcome says what became of it in the group; settled: for good.
	Outcome(ctx context.Context, replay int64, group string) (outcome string, settled bool, err error)
}

// Compensations are the repairs. They are safe for any number of replicas.
type Compensations struct {
	Config
	river   *river.Client[pgx.Tx] // inserts steps
	secrets *strings.Replacer
	counts  counter
	pins    sync.Map // *Action by pin
	keys    sync.Map // the columns of a job's key, by its pin
	looks   looks
	reached func(moment) // for tests that stop a step at a moment
}

// moment is a place between the commits of an attempt.
type moment string

const (
	momentIntended moment = "intended" // the intent is committed, nothing is sent
	momentAnswered moment = "answered" // the other side has answered, nothing is recorded
)

// New makes the repairs. Errors are of River's options.
func New(c Config) (*Compensations, error) {
	if c.StepTime == 0 {
		c.StepTime = 20 * time.Second
	}
	if c.Lease == 0 {
		c.Lease = time.Minute
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Client == nil {
		transport := http.DefaultTransport.(*http.Transport).Clone() //nolint:errcheck // it is one
		transport.MaxIdleConnsPerHost = 32                           // many repairs call one participant
		c.Client = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	client, err := river.NewClient(riverpgxv5.New(c.Pool), &river.Config{Logger: c.Log})
	if err != nil {
		return nil, fmt.Errorf("make the queue of compensations: %w", err)
	}
	all := &Compensations{Config: c, river: client, secrets: masker(c.Bases), reached: func(moment) {}}
	all.looks.states = func(ctx context.Context, job string, breaks []reconcile.Break) ([]reconcile.Finding, error) {
		return all.Runs.States(ctx, job, breaks)
	}
	return all, nil
}

const columns = `
  id, action, version, job, break_id, letter_id, key_text, event_id, group_name, currency, amount::text, inputs, effect, hash,
  state, attempt_group, asked_by, asked_at, reason, checkers, approved_at, expires_at, due_at, paused_by, cancel_by,
  started_at, finished_at, why, replay_id, verify_run, bulk_id, automatic`

const sqlGet = `SELECT` + columns + ` FROM compensation WHERE id = @id`

// Get reads one compensation. Error: ErrNotFound.
func (c *Compensations) Get(ctx context.Context, id int64) (*Compensation, error) {
	return get(ctx, c.Pool, sqlGet, id)
}

func get(ctx context.Context, db querier, sql string, id int64) (*Compensation, error) {
	rows, err := db.Query(ctx, sql, pgx.NamedArgs{"id": id})
	if err != nil {
		return nil, fmt.Errorf("query compensation %d: %w", id, err)
	}
	one, err := pgx.CollectExactlyOneRow(rows, pgx.RowToAddrOfStructByPos[Compensation])
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("%w: %d", ErrNotFound, id)
	}
	if err != nil {
		return nil, fmt.Errorf("read compensation %d: %w", id, err)
	}
	return one, nil
}

const sqlLock = sqlGet + ` FOR UPDATE`

const sqlTell = `
INSERT INTO compensation_note (compensation_id, by, kind, text, detail) VALUES (@id, @by, @kind, @text, @detail)`

// tell adds to a compensation's timeline.
func tell(ctx context.Context, tx pgx.Tx, id int64, by, kind, text string, detail any) error {
	_, err := tx.Exec(ctx, sqlTell, pgx.NamedArgs{"id": id, "by": by, "kind": kind, "text": text, "detail": detail})
	if err != nil {
		return fmt.Errorf("note on compensation %d: %w", id, err)
	}
	return nil
}
