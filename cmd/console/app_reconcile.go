package main

import (
	"context"
	"fmt"

	"oncemore/internal/config"
	"oncemore/reconcile"
)

// reconciliation is what reconcile/ offers, wired.
type reconciliation struct {
	jobs   *reconcile.Jobs
	runs   *reconcile.Runs
	breaks *reconcile.Breaks
}

// openReconciliation takes over the jobs of the config's folder.
func (a *app) openReconciliation(ctx context.Context) error {
	databases, err := a.reconcileDatabases(ctx)
	if err != nil {
		return err
	}
	a.reconcile.jobs, a.reconcile.breaks = reconcile.NewJobs(a.pool), reconcile.NewBreaks(a.pool)
	a.reconcile.runs, err = reconcile.NewRuns(a.pool, a.reconcile.jobs, databases, reconcile.Options{Clock: a.clock, Log: a.log})
	if err != nil {
		return err
	}
	a.reconcile.runs.Schedule(a.scheduler)
	jobs, err := a.reconcile.jobs.Load(ctx, a.conf.ReconcileFolder())
	if err != nil {
		return fmt.Errorf("reconcile_dir: %w", err)
	}
	return a.reconcile.runs.Plan(ctx, jobs)
}

// reconcileDatabases are the connections as reconciliation reads them: by the
// reader's credential.
func (a *app) reconcileDatabases(ctx context.Context) (map[string]reconcile.Database, error) {
	all := map[string]reconcile.Database{}
	if a.conf.ReconcileDir == "" {
		return all, nil
	}
	for _, c := range a.conf.Connections {
		db, err := a.reconcileDatabase(ctx, c)
		if err != nil {
			return nil, err
		}
		all[c.Name] = db
	}
	return all, nil
}

func (a *app) reconcileDatabase(ctx context.Context, c config.Connection) (db reconcile.Database, err error) {
	db.Name = c.Name
	if a.business.isMySQL(c.Name) {
		db.MySQL, err = a.business.mysqlReader(c.Name)
		return db, err
	}
	db.Postgres, err = a.business.reader(ctx, c.Name)
	return db, err
}
