package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/compensate"
	"oncemore/consumer/mysqlstore"
	"oncemore/internal/config"
)

// openCompensations takes over the actions of the config's folder. It comes after
// openReconciliation and the replays.
func (a *app) openCompensations(ctx context.Context) error {
	targets, err := repairTargets(ctx, a.business, a.conf)
	if err != nil {
		return err
	}
	bases, err := repairBases(a.conf)
	if err != nil {
		return err
	}
	a.compensations, err = compensate.New(compensate.Config{
		Pool: a.pool, Actions: compensate.NewActions(a.pool), Runs: a.reconcile.runs, Breaks: a.reconcile.breaks, Jobs: a.reconcile.jobs,
		Letters: a.letters, Judge: a.judge, Replays: compensate.SafeReplays{Letters: a.letters, Replays: a.replays},
		Targets: targets, Bases: bases, Clock: a.clock, Log: a.log,
	})
	if err != nil {
		return err
	}
	actions, err := a.compensations.Actions.Load(ctx, a.conf.ReconcileFolder())
	if err == nil {
		err = checkActions(a.conf, actions)
	}
	if err != nil {
		return fmt.Errorf("reconcile_dir: %w", err)
	}
	a.compensations.Schedule(a.scheduler)
	return a.compensations.Plan(ctx, actions)
}

// checkActions says what actions name and the config does not have.
func checkActions(conf *config.Config, actions []*compensate.Action) error {
	bases, writable := map[string]bool{}, map[string]bool{}
	for name := range conf.URLs {
		bases[name] = true
	}
	for _, c := range conf.Connections {
		writable[c.Name] = c.Repairs.Set()
	}
	return compensate.Check(actions, bases, writable)
}

// repairTargets are the databases that compensations may write to, each by its
// own credential.
func repairTargets(ctx context.Context, business *connections, conf *config.Config) (map[string]compensate.Target, error) {
	all := map[string]compensate.Target{}
	for _, c := range conf.Connections {
		if !c.Repairs.Set() {
			continue
		}
		t, err := repairTarget(ctx, business, c)
		if err != nil {
			return nil, err
		}
		all[c.Name] = t
	}
	return all, nil
}

func repairTarget(ctx context.Context, business *connections, c config.Connection) (t compensate.Target, err error) {
	if c.Kind == "mysql" {
		t.MySQL, err = business.openMySQL(c.Name+" repair", c.Repairs, mysqlstore.PoolOptions{MaxConns: 8})
		return t, err
	}
	t.Postgres, err = business.open(ctx, c.Name+" repair", c.Repairs, func(p *pgxpool.Config) {
		p.ConnConfig.RuntimeParams["lock_timeout"] = "5000" // a repair waits for nobody's row for long
		p.ConnConfig.RuntimeParams["statement_timeout"] = "30000"
		p.ConnConfig.RuntimeParams["idle_in_transaction_session_timeout"] = "60000"
		p.MaxConns = 8
	})
	return t, err
}

func repairBases(conf *config.Config) (map[string]compensate.Base, error) {
	all := map[string]compensate.Base{}
	for name, url := range conf.URLs {
		base := compensate.Base{URL: url, Headers: map[string]string{}}
		for header, secret := range conf.URLHeaders[name] {
			value, err := secret.Value()
			if err != nil {
				return nil, err
			}
			base.Headers[header] = value
		}
		all[name] = base
	}
	return all, nil
}
