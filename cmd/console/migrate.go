package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/consumer/barrier"
	"oncemore/consumer/mysqlstore"
	"oncemore/consumer/pgstore"
	"oncemore/internal/config"
	"oncemore/migrations"
)

type migrateCmd struct {
	configFlag
	Target string `help:"Name of a connection: makes mq_consume_record and oncemore_barrier in that business database, with its writer credential." placeholder:"CONNECTION"`
}

// Run migrates and says what it did.
func (c migrateCmd) Run(e *edge) error {
	conf, err := c.load()
	if err != nil {
		return err
	}
	if c.Target != "" {
		return c.target(e, conf)
	}
	pool, err := openConsole(e.ctx, conf)
	if err != nil {
		return err
	}
	defer pool.Close()
	before, err := migrations.Pending(e.ctx, pool)
	if err != nil {
		return err
	}
	if err := migrations.Up(e.ctx, pool); err != nil {
		return err
	}
	_, err = fmt.Fprintf(e.out, "the console's database is up to date, %d migrations were missing\n", before)
	return err
}

func (c migrateCmd) target(e *edge, conf *config.Config) error {
	if conf.Connection(c.Target) == nil {
		return fmt.Errorf("there is no connection %q under connections in %s", c.Target, conf.File)
	}
	if err := migrateBusiness(e.ctx, conf, c.Target); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(e.out, "%[1]s is in %[3]s\n%[2]s is in %[3]s\n", pgstore.Table, barrier.Table, c.Target); err != nil {
		return err
	}
	if r := conf.RecordsOf(c.Target); r.Archive {
		return c.archive(e, conf, r)
	}
	return nil
}

// archive gives the table an archive and moves what is older than the hot window,
// chunk by chunk while consumers go on. It may be ended and run again.
func (c migrateCmd) archive(e *edge, conf *config.Config, r config.Records) error {
	business := newConnections(conf.Connections)
	defer business.close()
	move := movePostgres
	if business.isMySQL(c.Target) {
		move = moveMySQL
	}
	moved, busy, err := move(e.ctx, business, c.Target, r.Hot)
	switch {
	case err != nil:
		return fmt.Errorf("connection %s: %d records were moved, run it again for the rest: %w", c.Target, moved, err)
	case busy:
		_, err = fmt.Fprintf(e.out, "%s is in %s, a running console is moving records to it\n", pgstore.Archive, c.Target)
	default:
		_, err = fmt.Fprintf(e.out, "%s is in %s, %d records were moved to it\n", pgstore.Archive, c.Target, moved)
	}
	return err
}

// dropsNone makes a keeper that moves, and drops nothing.
func dropsNone(context.Context) (map[string]time.Duration, error) { return nil, nil }

func movePostgres(ctx context.Context, business *connections, name string, hot time.Duration) (moved int64, busy bool, _ error) {
	pool, err := business.writer(ctx, name)
	if err != nil {
		return 0, false, err
	}
	if err := pgstore.MigrateArchive(ctx, pool); err != nil {
		return 0, false, err
	}
	keeper, err := pgstore.NewKeeper(pool, pgstore.KeeperOptions{Archive: true, Hot: hot, Keep: dropsNone})
	if err != nil {
		return 0, false, err
	}
	done, err := keeper.RunOnce(ctx)
	return done.Moved, done.Busy, err
}

func moveMySQL(ctx context.Context, business *connections, name string, hot time.Duration) (moved int64, busy bool, _ error) {
	db, err := business.mysqlWriter(name)
	if err != nil {
		return 0, false, err
	}
	if err := mysqlstore.MigrateArchive(ctx, db); err != nil {
		return 0, false, err
	}
	keeper, err := mysqlstore.NewKeeper(db, mysqlstore.KeeperOptions{Archive: true, Hot: hot, Keep: dropsNone})
	if err != nil {
		return 0, false, err
	}
	done, err := keeper.RunOnce(ctx)
	return done.Moved, done.Busy, err
}

// migrateConsole brings the console's tables up to date.
func migrateConsole(ctx context.Context, conf *config.Config) error {
	pool, err := openConsole(ctx, conf)
	if err != nil {
		return err
	}
	defer pool.Close()
	return migrations.Up(ctx, pool)
}

// migrateBusiness makes the tables of consume records and of the sagas' barrier in
// a business database.
func migrateBusiness(ctx context.Context, conf *config.Config, name string) error {
	business := newConnections(conf.Connections)
	defer business.close()
	var err error
	if business.isMySQL(name) {
		var db *sql.DB
		if db, err = business.mysqlWriter(name); err == nil {
			err = errors.Join(mysqlstore.Migrate(ctx, db), barrier.MigrateMySQL(ctx, db))
		}
	} else {
		var pool *pgxpool.Pool
		if pool, err = business.writer(ctx, name); err == nil {
			err = errors.Join(pgstore.Migrate(ctx, pool), barrier.Migrate(ctx, pool))
		}
	}
	if err != nil {
		return fmt.Errorf("connection %s: %w", name, err)
	}
	return nil
}
