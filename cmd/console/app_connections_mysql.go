package main

import (
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"oncemore/consumer/mysqlstore"
	"oncemore/internal/config"
)

// isMySQL reports whether the connection is to MySQL or MariaDB.
func (c *connections) isMySQL(name string) bool { return c.conf[name].Kind == "mysql" }

// needKind refuses a pool of the other kind. key is the name, and what it is for.
func (c *connections) needKind(key, kind string) error {
	name, _, _ := strings.Cut(key, " ")
	if conn, ok := c.conf[name]; ok && conn.Kind != kind {
		return fmt.Errorf("%s: this needs a %s connection, and %s is %s", conn.Pos, kind, name, conn.Kind)
	}
	return nil
}

// mysqlReader is a pool whose sessions refuse to write, whatever the credential may do.
func (c *connections) mysqlReader(name string) (*sql.DB, error) {
	return c.openMySQL(name+" read", c.conf[name].URL, mysqlstore.PoolOptions{ReadOnly: true, StatementTimeout: 5 * time.Second, MaxConns: 8})
}

// mysqlWriter is the pool of keepers, relays and migrate --target. Consumers have
// their store's own.
func (c *connections) mysqlWriter(name string) (*sql.DB, error) {
	return c.openMySQL(name+" write", c.conf[name].Writer, mysqlstore.PoolOptions{MaxConns: 8})
}

// mysqlStore is what consumers keep their records in, by the writer's credential.
func (c *connections) mysqlStore(name string, o mysqlstore.Options) (*mysqlstore.Store, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if store := c.store[name]; store != nil {
		return store, nil
	}
	secret := c.conf[name].Writer
	cfg, err := mysqlConfig(secret)
	if err != nil {
		return nil, err
	}
	store, err := mysqlstore.Open(cfg, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", secret.Pos, err)
	}
	c.store[name] = store
	return store, nil
}

func (c *connections) openMySQL(key string, secret config.Secret, o mysqlstore.PoolOptions) (*sql.DB, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if pool := c.mysql[key]; pool != nil {
		return pool, nil
	}
	if err := c.needKind(key, "mysql"); err != nil {
		return nil, err
	}
	cfg, err := mysqlConfig(secret)
	if err != nil {
		return nil, err
	}
	pool, err := mysqlstore.OpenPool(cfg, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", secret.Pos, err)
	}
	c.mysql[key] = pool
	return pool, nil
}

func mysqlConfig(secret config.Secret) (*mysql.Config, error) {
	url, err := secret.Value()
	if err != nil {
		return nil, err
	}
	cfg, err := mysqlstore.ParseURL(url)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", secret.Pos, err)
	}
	cfg.ConnectionAttributes = "program_name:oncemore"
	return cfg, nil
}
