package reconcile

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/internal/strictyaml"
)

var (
	// ErrNoJob is returned for a job that no file and no version knows.
	ErrNoJob = errors.New("reconcile: no such job")
	// ErrNoRun is returned for a run that does not exist.
	ErrNoRun = errors.New("reconcile: no such run")
)

// Definition is a version of a job as its file said it.
type Definition struct {
	Job      string
	Version  int
	Hash     []byte
	Text     string
	LoadedAt time.Time
	LoadedBy string
}

// Parse reads the definition again; it was right when it was loaded.
func (d Definition) Parse() (*Job, error) {
	return ParseJob(fmt.Sprintf("%s version %d", d.Job, d.Version), []byte(d.Text))
}

// Jobs are the definitions and all their versions.
type Jobs struct{ pool *pgxpool.Pool }

// NewJobs makes the book of jobs.
func NewJobs(pool *pgxpool.Pool) *Jobs { return &Jobs{pool} }

// ReadDir reads every job in a folder, by name; files of other kinds of
// definitions are left alone. The error lists what is wrong in all files.
func ReadDir(dir string) ([]*Job, map[string]string, error) {
	var jobs []*Job
	texts := map[string]string{}
	err := strictyaml.EachFile(dir, "job", func(file string, b []byte) error {
		j, err := ParseJob(file, b)
		switch {
		case err != nil:
			return err
		case texts[j.Name] != "":
			return j.Pos.Problemf("job %s is in another file too", j.Name)
		}
		jobs, texts[j.Name] = append(jobs, j), string(b)
		return nil
	})
	return jobs, texts, err
}

const (
	sqlVersionByHash = `SELECT version FROM reconcile_job_version WHERE job = @job AND hash = @hash`
	sqlNextVersion   = `SELECT coalesce(max(version), 0) + 1 FROM reconcile_job_version WHERE job = @job`
	sqlAddVersion    = `
INSERT INTO reconcile_job_version (job, version, hash, definition, loaded_by)
VALUES (@job, @version, @hash, @text, @by)`
	sqlSetVersion = `
INSERT INTO reconcile_job (name, version) VALUES (@job, @version)
ON CONFLICT (name) DO UPDATE SET version = @version, gone_at = NULL`
	sqlLockJobs = `SELECT pg_advisory_xact_lock(hashtextextended('reconcile_job', 0))`
)

// Keep makes a definition the current one of its job: a new version if its
// text was never there, in the caller's transaction.
func (b *Jobs) Keep(ctx context.Context, tx pgx.Tx, j *Job, text, by string) (version int, err error) {
	if _, err := tx.Exec(ctx, sqlLockJobs); err != nil {
		return 0, err
	}
	args := pgx.NamedArgs{"job": j.Name, "hash": j.Hash[:], "text": text, "by": by}
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
		return 0, fmt.Errorf("keep job %s: %w", j.Name, err)
	}
	return version, nil
}

const (
	sqlGone     = `UPDATE reconcile_job SET gone_at = now() WHERE gone_at IS NULL AND file_version IS NOT NULL AND name <> ALL(@names)`
	sqlFromFile = `UPDATE reconcile_job SET file_version = @version WHERE name = @job`
)

// Load takes over what a folder says: new and changed jobs, and those that are
// gone. A file wins over what was approved in the console since; jobs that were
// made there stay. An empty folder name means that there are no files.
func (b *Jobs) Load(ctx context.Context, dir string) ([]*Job, error) {
	var jobs []*Job
	var texts map[string]string
	var err error
	if dir != "" {
		if jobs, texts, err = ReadDir(dir); err != nil {
			return nil, err
		}
	}
	names := make([]string, 0, len(jobs))
	err = pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		for _, j := range jobs {
			names = append(names, j.Name)
			version, err := b.Keep(ctx, tx, j, texts[j.Name], "system")
			if err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, sqlFromFile, pgx.NamedArgs{"job": j.Name, "version": version}); err != nil {
				return fmt.Errorf("keep the file's version of %s: %w", j.Name, err)
			}
		}
		_, err := tx.Exec(ctx, sqlGone, pgx.NamedArgs{"names": names})
		return err
	})
	return jobs, err
}

const sqlDefinition = `
SELECT v.job, v.version, v.hash, v.definition, v.loaded_at, v.loaded_by
FROM reconcile_job_version v JOIN reconcile_job j ON j.name = v.job
WHERE v.job = @job AND v.version = coalesce(@version, j.version)`

// Current is a job's present definition. Error: ErrNoJob.
func (b *Jobs) Current(ctx context.Context, job string) (Definition, error) {
	return b.definition(ctx, pgx.NamedArgs{"job": job, "version": nil})
}

// Version is one definition of a job. Error: ErrNoJob.
func (b *Jobs) Version(ctx context.Context, job string, version int) (Definition, error) {
	return b.definition(ctx, pgx.NamedArgs{"job": job, "version": version})
}

func (b *Jobs) definition(ctx context.Context, args pgx.NamedArgs) (Definition, error) {
	rows, err := b.pool.Query(ctx, sqlDefinition, args)
	if err != nil {
		return Definition{}, fmt.Errorf("query job %s: %w", args["job"], err)
	}
	d, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[Definition])
	if errors.Is(err, pgx.ErrNoRows) {
		return d, fmt.Errorf("%w: %s", ErrNoJob, args["job"])
	}
	if err != nil {
		return d, fmt.Errorf("read job %s: %w", args["job"], err)
	}
	return d, nil
}
