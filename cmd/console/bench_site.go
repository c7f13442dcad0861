package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/bench"
	"oncemore/internal/access"
	"oncemore/internal/config"
	"oncemore/web"
)

const benchConfig = `
environment: bench
database: {url_file: %q}
clusters: {bench: {kafka: {brokers: [%q]}}}
`

// openSite serves the pages of a console as serve does, for whoever measures them.
func openSite(kafka string, log *slog.Logger) bench.Open {
	return func(ctx context.Context, database string) (site bench.Site, stop func(), err error) {
		a, err := benchApp(ctx, database, kafka, log)
		if err != nil {
			return site, nil, err
		}
		site = bench.Site{User: "bench-" + strconv.FormatInt(time.Now().UnixNano(), 36), Password: "correct horse"} // a kept database has those of earlier runs
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err == nil {
			site.URL = "http://" + ln.Addr().String()
			err = benchAccount(ctx, a.pool, site)
		}
		if err != nil {
			a.close()
			return site, nil, err
		}
		running, end := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- a.serve(running, roles{Web: true}, ln, extras{}) }()
		return site, func() {
			end()
			if err := <-ended; err != nil {
				log.Warn("the measured console ended", "error", err)
			}
			a.close()
		}, nil
	}
}

func benchApp(ctx context.Context, database, kafka string, log *slog.Logger) (*app, error) {
	folder, err := os.MkdirTemp("", "oncemore-bench")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder) // read once, when the console opens
	secret := filepath.Join(folder, "database")
	if err := os.WriteFile(secret, []byte(database), 0o600); err != nil {
		return nil, err
	}
	conf, err := config.Parse("bench.yaml", fmt.Appendf(nil, benchConfig, secret, kafka))
	if err != nil {
		return nil, err
	}
	return openApp(ctx, conf, log)
}

func benchAccount(ctx context.Context, pool *pgxpool.Pool, site bench.Site) error {
	_, err := web.NewAccounts(pool).Create(ctx, operator("bench"), site.User, site.Password, access.Operator)
	return err
}
