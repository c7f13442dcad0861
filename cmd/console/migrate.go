package main

import (
	"context"
	"fmt"

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
	_, err := fmt.Fprintf(e.out, "%s is in %s\n", pgstore.Table, c.Target)
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
