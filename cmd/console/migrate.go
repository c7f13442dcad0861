package main

import (
	"context"
	"fmt"
	"time"

	"oncemore/consumer/pgstore"
	"oncemore/internal/config"
	"oncemore/migrations"
)

type migrateCmd struct {
	configFlag
	Target string `help:"Name of a connection: makes mq_consume_record in that business database, with its writer credential." placeholder:"CONNECTION"`
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
	conn := conf.Connection(c.Target)
	switch {
	case conn == nil:
		return fmt.Errorf("there is no connection %q under connections in %s", c.Target, conf.File)
	case conn.Kind != "postgres":
		return conn.Pos.Problemf("a %s connection is not supported yet in this version", conn.Kind)
	}
	if err := migrateBusiness(e.ctx, conf, c.Target); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(e.out, "%s is in %s\n", pgstore.Table, c.Target); err != nil {
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
	pool, err := business.writer(e.ctx, c.Target)
	if err != nil {
		return err
	}
	if err := pgstore.MigrateArchive(e.ctx, pool); err != nil {
		return fmt.Errorf("connection %s: %w", c.Target, err)
	}
	none := func(context.Context) (map[string]time.Duration, error) { return nil, nil } // it moves, and drops nothing
	keeper, err := pgstore.NewKeeper(pool, pgstore.KeeperOptions{Archive: true, Hot: r.Hot, Keep: none})
	if err != nil {
		return err
	}
	done, err := keeper.RunOnce(e.ctx)
	switch {
	case err != nil:
		return fmt.Errorf("connection %s: %d records were moved, run it again for the rest: %w", c.Target, done.Moved, err)
	case done.Busy:
		_, err = fmt.Fprintf(e.out, "%s is in %s, a running console is moving records to it\n", pgstore.Archive, c.Target)
	default:
		_, err = fmt.Fprintf(e.out, "%s is in %s, %d records were moved to it\n", pgstore.Archive, c.Target, done.Moved)
	}
	return err
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

func migrateBusiness(ctx context.Context, conf *config.Config, name string) error {
	business := newConnections(conf.Connections)
	defer business.close()
	pool, err := business.writer(ctx, name)
	if err != nil {
		return err
	}
	if err := pgstore.Migrate(ctx, pool); err != nil {
		return fmt.Errorf("connection %s: %w", name, err)
	}
	return nil
}
