package compensate

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/internal/access"
	"oncemore/internal/audit"
	"oncemore/internal/strictyaml"
)

// ErrNoAction is returned for an action that no file and no version knows.
var ErrNoAction = errors.New("compensate: no such action")

// Definition is a version of an action as its file said it.
type Definition struct {
	Action         string
	Version        int
	Hash           []byte
	Text           string
	TrustedBy      *string // who lets the schedule propose and approve it
	TrustedVersion *int
}

// Trusted reports whether the schedule may propose and approve this version.
func (d Definition) Trusted() bool { return d.TrustedVersion != nil && *d.TrustedVersion == d.Version }

// Parse reads the definition again; it was right when it was loaded.
func (d Definition) Parse() (*Action, error) {
	return ParseAction(fmt.Sprintf("%s version %d", d.Action, d.Version), []byte(d.Text))
}

// Actions are the definitions and all their versions.
type Actions struct{ pool *pgxpool.Pool }

// NewActions makes the book of actions.
func NewActions(pool *pgxpool.Pool) *Actions { return &Actions{pool} }

// ReadDir reads every action in a folder; files of other kinds of definitions
// are left alone. The error lists what is wrong in all files, what refers to
// actions that do not exist included.
func ReadDir(dir string) ([]*Action, map[string]string, error) {
	var actions []*Action
	texts := map[string]string{}
	err := strictyaml.EachFile(dir, "action", func(file string, b []byte) error {
		a, err := ParseAction(file, b)
		switch {
		case err != nil:
			return err
		case texts[a.Name] != "":
			return a.Pos.Problemf("action %s is in another file too", a.Name)
		}
		actions, texts[a.Name] = append(actions, a), string(b)
		return nil
	})
	bad, known := []error{err}, map[string]*Action{}
	for _, a := range actions {
		known[a.Name] = a
	}
	for _, a := range actions {
		bad = append(bad, a.references(known)...)
	}
	return actions, texts, errors.Join(bad...)
}

// references lists steps that name an action which is not there, or cannot undo.
func (a *Action) references(known map[string]*Action) (bad []error) {
	for _, s := range a.Steps {
		undo, ok := known[s.Compensate]
		switch {
		case s.Compensate == "":
		case !ok:
			bad = append(bad, a.Pos.Problemf("step %s is undone by %s, and there is no such action", s.ID, s.Compensate))
		case undo.Kind != HTTP && undo.Kind != SQL:
			bad = append(bad, a.Pos.Problemf("step %s is undone by %s, which is of kind %s and has to be http or sql", s.ID, s.Compensate, undo.Kind))
		}
	}
	return bad
}

const (
	sqlVersionByHash = `SELECT version FROM compensation_action_version WHERE action = @action AND hash = @hash`
	sqlNextVersion   = `SELECT coalesce(max(version), 0) + 1 FROM compensation_action_version WHERE action = @action`
	sqlAddVersion    = `
INSERT INTO compensation_action_version (action, version, hash, definition, loaded_by)
VALUES (@action, @version, @hash, @text, @by)`
	sqlSetVersion = `
INSERT INTO compensation_action (name, version) VALUES (@action, @version)
ON CONFLICT (name) DO UPDATE SET version = @version, gone_at = NULL`
	sqlLockActions = `SELECT pg_advisory_xact_lock(hashtextextended('compensation_action', 0))`
)

// Keep makes a definition the current one of its action: a new version if its
// text was never there, in the caller's transaction.
func (b *Actions) Keep(ctx context.Context, tx pgx.Tx, a *Action, text, by string) (version int, err error) {
	if _, err := tx.Exec(ctx, sqlLockActions); err != nil {
		return 0, err
	}
	args := pgx.NamedArgs{"action": a.Name, "hash": a.Hash[:], "text": text, "by": by}
	err = tx.QueryRow(ctx, sqlVersionByHash, args).Scan(&version)
	if errors.Is(err, pgx.ErrNoRows) {
		if err = tx.QueryRow(ctx, sqlNextVersion, args).Scan(&version); err == nil {
			args["version"] = version
			_, err = tx.Exec(ctx, sqlAddVersion, args)
		}
	}
	if err == nil {
		args["version"] = version
		_, err = tx.Exec(ctx, sqlSetVersion, args)
	}
	if err != nil {
		return 0, fmt.Errorf("keep action %s: %w", a.Name, err)
	}
	return version, nil
}

const sqlGone = `UPDATE compensation_action SET gone_at = now() WHERE gone_at IS NULL AND name <> ALL(@names)`

// Load takes over what a folder says: new and changed actions, and those that
// are gone.
func (b *Actions) Load(ctx context.Context, dir string) ([]*Action, error) {
	var actions []*Action
	var texts map[string]string
	var err error
	if dir != "" {
		if actions, texts, err = ReadDir(dir); err != nil {
			return nil, err
		}
	}
	names := make([]string, 0, len(actions))
	err = pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		for _, a := range actions {
			names = append(names, a.Name)
			if _, err := b.Keep(ctx, tx, a, texts[a.Name], "system"); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, sqlGone, pgx.NamedArgs{"names": names})
		return err
	})
	return actions, err
}

const sqlDefinition = `
SELECT v.action, v.version, v.hash, v.definition, a.trusted_by, a.trusted_version
FROM compensation_action_version v JOIN compensation_action a ON a.name = v.action
WHERE v.action = @action AND v.version = coalesce(@version, a.version)`

// Current is an action's present definition. Error: ErrNoAction.
func (b *Actions) Current(ctx context.Context, action string) (Definition, error) {
	return definition(ctx, b.pool, pgx.NamedArgs{"action": action, "version": nil})
}

// Version is one definition of an action. Error: ErrNoAction.
func (b *Actions) Version(ctx context.Context, action string, version int) (Definition, error) {
	return definition(ctx, b.pool, pgx.NamedArgs{"action": action, "version": version})
}

// querier is a pool or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

func definition(ctx context.Context, db querier, args pgx.NamedArgs) (Definition, error) {
	rows, err := db.Query(ctx, sqlDefinition, args)
	if err != nil {
		return Definition{}, fmt.Errorf("query action %s: %w", args["action"], err)
	}
	d, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[Definition])
	if errors.Is(err, pgx.ErrNoRows) {
		return d, fmt.Errorf("%w: %s", ErrNoAction, args["action"])
	}
	if err != nil {
		return d, fmt.Errorf("read action %s: %w", args["action"], err)
	}
	return d, nil
}

const sqlDefinitions = `
SELECT v.action, v.version, v.hash, v.definition, a.trusted_by, a.trusted_version
FROM compensation_action a JOIN compensation_action_version v ON v.action = a.name AND v.version = a.version
WHERE a.gone_at IS NULL ORDER BY a.name`

// List gives the present definition of every action that has a file.
func (b *Actions) List(ctx context.Context) ([]Definition, error) {
	rows, err := b.pool.Query(ctx, sqlDefinitions)
	if err != nil {
		return nil, fmt.Errorf("query actions: %w", err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Definition])
	if err != nil {
		return nil, fmt.Errorf("read actions: %w", err)
	}
	return all, nil
}

const sqlTrust = `UPDATE compensation_action SET trusted_by = @by, trusted_version = @version WHERE name = @action`

// Trust lets the schedule propose and approve the present version of an action
// by itself, within the action's own caps; a changed file asks for it anew.
// Without trust it is taken back. It needs a reason.
func (b *Actions) Trust(ctx context.Context, actor access.Actor, action string, trust bool) error {
	if err := actor.Check(access.ApproveCompensation); err != nil {
		return err
	}
	if actor.Reason == "" {
		return access.ErrReasonRequired
	}
	d, err := b.Current(ctx, action)
	if err != nil {
		return err
	}
	args, act := pgx.NamedArgs{"action": action, "by": nil, "version": nil}, "action.distrusted"
	if trust {
		args["by"], args["version"], act = actor.User, d.Version, "action.trusted"
	}
	return pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, sqlTrust, args); err != nil {
			return fmt.Errorf("trust %s: %w", action, err)
		}
		return audit.Write(ctx, tx, actor, audit.Entry{Action: act, Target: "action/" + action, Detail: map[string]any{"version": d.Version}})
	})
}
