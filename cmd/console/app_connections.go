package main

import (
	"context"
	"database/sql"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/consumer/mysqlstore"
	"oncemore/internal/config"
)

// connections are the pools on the business databases, made on demand: one that
// only reads, and one for consumers by the writer's credential. Those in MySQL
// are in app_connections_mysql.go.
type connections struct {
	conf map[string]config.Connection

	mu    sync.Mutex
	pools map[string]*pgxpool.Pool     // by name and access
	mysql map[string]*sql.DB           // the same
	store map[string]*mysqlstore.Store // of consumers, by name
}

func newConnections(all []config.Connection) *connections {
	c := &connections{conf: map[string]config.Connection{}, pools: map[string]*pgxpool.Pool{}, mysql: map[string]*sql.DB{}, store: map[string]*mysqlstore.Store{}}
	for _, conn := range all {
		c.conf[conn.Name] = conn
	}
	return c
}

// reader is a pool whose sessions refuse to write, whatever the credential may do.
func (c *connections) reader(ctx context.Context, name string) (*pgxpool.Pool, error) {
	return c.open(ctx, name+" read", c.conf[name].URL, func(p *pgxpool.Config) {
		p.ConnConfig.RuntimeParams["default_transaction_read_only"] = "on"
		p.ConnConfig.RuntimeParams["statement_timeout"] = "5000"
		p.MaxConns = 8
	})
}

// writer is the pool that consumers and migrate --target use.
func (c *connections) writer(ctx context.Context, name string) (*pgxpool.Pool, error) {
	return c.open(ctx, name+" write", c.conf[name].Writer, func(p *pgxpool.Config) { p.MaxConns = 16 })
}

func (c *connections) open(ctx context.Context, key string, secret config.Secret, set func(*pgxpool.Config)) (*pgxpool.Pool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if pool := c.pools[key]; pool != nil {
		return pool, nil
	}
	if err := c.needKind(key, "postgres"); err != nil {
		return nil, err
	}
	url, err := secret.Value()
	if err != nil {
		return nil, err
	}
	conf, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", secret.Pos, err)
	}
	conf.ConnConfig.RuntimeParams["application_name"] = "oncemore"
	set(conf)
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(ctx), conf)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", secret.Pos, err)
	}
	c.pools[key] = pool
	return pool, nil
}

func (c *connections) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, pool := range c.pools {
		pool.Close()
	}
	for _, pool := range c.mysql {
		pool.Close() //nolint:errcheck // it is being given up
	}
	for _, store := range c.store {
		store.Close() //nolint:errcheck // the same
	}
}
