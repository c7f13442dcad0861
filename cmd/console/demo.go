package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"oncemore/cmd/console/shop"
	"oncemore/internal/config"
	"oncemore/internal/embedded"
	"oncemore/views"
)

type demoCmd struct {
	Listen string `help:"Address of the pages." default:"127.0.0.1:8080" placeholder:"HOST:PORT"`
	Data   string `help:"Folder that keeps everything." placeholder:"FOLDER"`
	Reset  bool   `help:"Clear the data first."`
}

// demo is everything that one run of the demo holds, in the order it was taken.
type demo struct {
	cmd   demoCmd
	edge  *edge
	files demoFiles
	last  demoInfo     // of the run before; empty the first time
	now   demoInfo     // of this run
	log   *slog.Logger // into the data folder: a terminal keeps the link in sight

	ln       net.Listener
	lock     *embedded.Lock
	postgres *embedded.Postgres // nil: DATABASE_URL
	kafka    *embedded.Kafka
	shop     *shop.Shop
	app      *app
	closers  []func() error
}

// Run shows the demo until a signal ends it.
func (c demoCmd) Run(e *edge) (err error) {
	if c.Data == "" {
		c.Data = defaultData()
	}
	if c.Data, err = filepath.Abs(c.Data); err != nil {
		return fmt.Errorf("--data: %w", err)
	}
	d := &demo{cmd: c, edge: e, files: demoFiles{c.Data}}
	defer func() { err = errors.Join(err, d.close()) }()
	for _, step := range []func() error{d.takePlace, d.startPostgres, d.startKafka, d.openShop, d.openLedger, d.openConsole, d.announce} {
		if err := step(); err != nil {
			if e.ctx.Err() != nil {
				return nil // Ctrl-C while starting
			}
			return err
		}
	}
	return d.serve()
}

// defaultData is a folder that survives; root's is one that the user who runs
// PostgreSQL can enter.
func defaultData() string {
	if os.Geteuid() == 0 {
		return "/var/lib/oncemore-demo"
	}
	if dir := os.Getenv("XDG_DATA_HOME"); dir != "" {
		return filepath.Join(dir, "oncemore-demo")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		home = os.TempDir()
	}
	return filepath.Join(home, ".local", "share", "oncemore-demo")
}

// takePlace takes the port and the folder before anything is started.
func (d *demo) takePlace() (err error) {
	if d.ln, err = listen(d.cmd.Listen, "choose another address with --listen"); err != nil {
		return err
	}
	d.closing(func() error { d.ln.Close(); return nil }) // the server has closed it, or nobody has
	if d.lock, err = embedded.LockFolder(d.cmd.Data); err != nil {
		return fmt.Errorf("%w; choose another one with --data", err)
	}
	d.closing(d.lock.Unlock)
	if d.cmd.Reset {
		if err := d.reset(); err != nil {
			return err
		}
	}
	if err := d.openLog(); err != nil {
		return err
	}
	d.last, err = d.files.lastInfo()
	return err
}

// openLog starts a new log: failures are the demo's daily bread, and their lines
// would bury what matters.
func (d *demo) openLog() error {
	file, err := os.OpenFile(d.files.log(), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("log of the demo: %w", err)
	}
	d.closing(file.Close)
	d.log = newLog(file, d.edge.level)
	return nil
}

func (d *demo) startKafka() (err error) {
	if d.kafka, err = embedded.StartKafka(d.files.kafka(), portOf(d.last.Kafka), d.log); err != nil {
		return err
	}
	d.closing(func() error { d.kafka.Stop(); return nil })
	for topic, partitions := range map[string]int32{shop.Topic: shop.Partitions, shop.DeadLetters: shop.Partitions, shop.LegacyTopic: 1} {
		if err := d.kafka.CreateTopic(topic, partitions); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) openShop() (err error) {
	url, err := d.files.databaseURL()
	if err != nil {
		return err
	}
	if d.shop, err = shop.Open(d.edge.ctx, url, d.kafka.Addr, d.log); err != nil {
		return err
	}
	d.closing(func() error { d.shop.Close(); return nil })
	return nil
}

// openConsole writes a console.yaml and opens it like anybody's.
func (d *demo) openConsole() error {
	text, err := shop.Config(shop.ConfigValues{
		Listen: d.ln.Addr().String(), ConsoleURLFile: d.files.database(), BusinessURLFile: d.files.database(),
		ReaderURLFile: ledgerFile(d.files.reader()), WriterURLFile: ledgerFile(d.files.writer()),
		Kafka: d.kafka.Addr, Gateway: d.shop.GatewayURL(), Since: d.shop.Since,
	})
	if err != nil {
		return fmt.Errorf("config of the demo: %w", err)
	}
	if err := os.WriteFile(d.files.config(), text, 0o600); err != nil {
		return fmt.Errorf("config of the demo: %w", err)
	}
	conf, err := config.Load(d.files.config())
	if err != nil {
		return err
	}
	if err := migrateConsole(d.edge.ctx, conf); err != nil {
		return err
	}
	if d.app, err = openApp(d.edge.ctx, conf, d.log); err != nil {
		return err
	}
	d.app.judgeStale = demoJudgeStale
	d.closing(func() error { d.app.close(); return nil })
	return nil
}

// demoJudgeStale lets a newcomer see a verdict change while they look.
const demoJudgeStale = 5 * time.Second

// announce makes the accounts and says where everything is.
func (d *demo) announce() (err error) {
	if d.now, err = d.info(); err != nil {
		return err
	}
	if err := d.files.saveInfo(d.now); err != nil {
		return err
	}
	fmt.Fprintf(d.edge.out, "\nOncemore demo: %s\n  sign in as %s with %s; the other accounts are in %s\n  Kafka at %s, log in %s\n  Not for production. Ctrl-C ends it and keeps the data\n\n",
		d.now.URL, d.now.User, d.now.Password, d.files.info(), d.now.Kafka, d.files.log())
	return nil
}

// serve runs the console and the shop.
func (d *demo) serve() error {
	g, ctx := errgroup.WithContext(d.edge.ctx)
	g.Go(func() error { return d.shop.Run(ctx) })
	g.Go(func() error { return d.firstRun(ctx) })
	g.Go(func() error { return d.app.serve(ctx, allRoles, d.ln, extras{try: d.try(d.now)}) })
	if d.postgres != nil {
		g.Go(func() error { return d.watchPostgres(ctx) })
	}
	return waitBounded(ctx, g)
}

func (d *demo) watchPostgres(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-d.postgres.Ended():
		return fmt.Errorf("PostgreSQL ended; its log is in %s", d.files.postgres())
	}
}

func (d *demo) try(info demoInfo) *shop.Try {
	var accounts []views.Account
	for _, a := range info.Accounts {
		accounts = append(accounts, views.Account{Name: a.User, Role: string(a.Role), Password: a.Password})
	}
	return d.shop.NewTry(shop.Console{
		Pool: d.app.pool, Letters: d.app.letters, Faults: d.app.faults, Replays: d.app.replays,
		Pause: d.app.pause, Paused: d.app.paused,
		Paths: shop.Paths{Kafka: info.Kafka, Accounts: accounts},
	})
}

func (d *demo) closing(f func() error) { d.closers = append(d.closers, f) }

// close gives everything back, the last taken first.
func (d *demo) close() (err error) {
	for i := len(d.closers) - 1; i >= 0; i-- {
		err = errors.Join(err, d.closers[i]())
	}
	return err
}
