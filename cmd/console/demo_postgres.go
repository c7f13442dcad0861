package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"oncemore/cmd/console/shop"
	"oncemore/internal/embedded"
)

// startPostgres makes the demo's database on the server of DATABASE_URL, else
// on one of its own, and leaves its address where the config looks.
func (d *demo) startPostgres() error {
	server := os.Getenv("DATABASE_URL")
	if server == "" {
		p, err := embedded.StartPostgres(d.edge.ctx, embedded.PostgresOptions{Dir: d.files.postgres(), Port: portOf(hostOf(d.last.Database))})
		if err != nil {
			return err
		}
		d.postgres, server = p, p.URL
		d.closing(p.Stop)
	}
	address, err := embedded.EnsureDatabase(d.edge.ctx, server, databaseName(d.cmd.Data))
	if err != nil && d.postgres == nil {
		return fmt.Errorf("the server of DATABASE_URL cannot be used: %w; start it, or unset DATABASE_URL for one of the demo's own", cause(err))
	}
	if err != nil {
		return err
	}
	return d.files.saveDatabaseURL(address)
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// databaseName is the same for the same data folder, and another for another:
// demos that share a server do not meet.
func databaseName(data string) string {
	base := strings.Trim(notInNames.ReplaceAllString(strings.ToLower(filepath.Base(data)), "_"), "_")
	sum := sha256.Sum256([]byte(data))
	return fmt.Sprintf("oncemore_demo_%.30s_%s", base, hex.EncodeToString(sum[:4]))
}

// reset clears what a demo left: its own files in the folder and nothing else,
// whatever folder that is, and its database on DATABASE_URL's server.
func (d *demo) reset() error {
	if err := embedded.RemoveCluster(d.edge.ctx, d.files.postgres()); err != nil {
		return err
	}
	for _, path := range []string{d.files.kafka(), d.files.info(), d.files.config(), d.files.database(), d.files.log(),
		d.files.reader(), d.files.writer(), d.files.reconcile()} {
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("clear the demo's data: %w", err)
		}
	}
	if server := os.Getenv("DATABASE_URL"); server != "" {
		if err := embedded.DropDatabase(d.edge.ctx, server, databaseName(d.cmd.Data)); err != nil {
			return fmt.Errorf("the server of DATABASE_URL cannot be used: %w", cause(err))
		}
		reader, writer := shop.RoleNames(databaseName(d.cmd.Data))
		if err := embedded.DropRoles(d.edge.ctx, server, reader, writer); err != nil {
			return err
		}
	}
	return nil
}

// hostOf is host:port of an address; "" where there is none.
func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Host
}

// portOf is the port of host:port, 0 where there is none.
func portOf(addr string) int {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return 0
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		return 0
	}
	return n
}
