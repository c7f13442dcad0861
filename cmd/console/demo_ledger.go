package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"oncemore/cmd/console/shop"
	"oncemore/internal/access"
	"oncemore/reconcile"
)

// openLedger gives the console its roles on the points ledger and writes the jobs
// over it. A server that gives no roles shows a demo without reconciliation.
func (d *demo) openLedger() error {
	roles, err := d.shop.Grant(d.edge.ctx)
	if errors.Is(err, shop.ErrNoRoles) {
		d.log.Warn("the demo goes without reconciliation", "error", err)
		fmt.Fprintf(d.edge.out, "\nThe demo goes without reconciliation: %s.\n", shop.ErrNoRoles)
		return d.files.dropLedger()
	}
	if err != nil {
		return err
	}
	return d.files.saveLedger(roles)
}

func (f demoFiles) reader() string    { return filepath.Join(f.dir, "ledger-reader-url") }
func (f demoFiles) writer() string    { return filepath.Join(f.dir, "ledger-writer-url") }
func (f demoFiles) reconcile() string { return filepath.Join(f.dir, "reconcile") }

func (f demoFiles) saveLedger(roles shop.Access) error {
	if err := errors.Join(os.WriteFile(f.reader(), []byte(roles.Reader), 0o600), os.WriteFile(f.writer(), []byte(roles.Writer), 0o600)); err != nil {
		return fmt.Errorf("keep the ledger's addresses: %w", err)
	}
	if err := os.MkdirAll(f.reconcile(), 0o700); err != nil {
		return fmt.Errorf("folder of the demo's jobs: %w", err)
	}
	return fs.WalkDir(shop.Jobs, "reconcile", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := fs.ReadFile(shop.Jobs, path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(f.reconcile(), e.Name()), text, 0o600)
	})
}

// dropLedger leaves nothing of a ledger that cannot be read any more.
func (f demoFiles) dropLedger() error {
	if err := errors.Join(os.RemoveAll(f.reader()), os.RemoveAll(f.writer()), os.RemoveAll(f.reconcile())); err != nil {
		return fmt.Errorf("remove the ledger's files: %w", err)
	}
	return nil
}

// ledgerFile is the file's path where there is a ledger, "" else.
func ledgerFile(path string) string {
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}

// The first run covers the hours before the shop opened. Its preparer is a person,
// so that another one may sign it.
const (
	demoPreparer = "preparer"
	demoHistory  = 6*time.Hour + 15*time.Minute
)

// firstRun asks for the ledger's first run once the orders that a newcomer finds
// were sent. A failure leaves a demo without it, and a line in the log.
func (d *demo) firstRun(ctx context.Context) error {
	if d.app.conf.ReconcileDir == "" {
		return nil
	}
	select {
	case <-ctx.Done():
		return nil
	case <-d.shop.Ordered():
	}
	if err := d.askFirstRun(ctx); err != nil && ctx.Err() == nil {
		d.log.ErrorContext(ctx, "the ledger's first run was not asked for", "error", err)
	}
	return nil
}

func (d *demo) askFirstRun(ctx context.Context) error {
	before, _, err := d.app.reconcile.runs.List(ctx, reconcile.RunFilter{Job: shop.Job, Limit: 1})
	if err != nil || len(before) > 0 {
		return err
	}
	preparer := access.Actor{User: demoPreparer, Role: access.Reviewer, Via: "system"}
	opened := d.shop.Since.Truncate(15 * time.Minute)
	_, err = d.app.reconcile.runs.Ask(ctx, preparer, reconcile.Request{Job: shop.Job, From: opened.Add(-demoHistory), To: opened.Add(-15 * time.Minute)})
	return err
}
