// Command console is Oncemore's console: it drains dead letters, says what a
// replay of each would do, replays them and proves what that did. It also runs
// consumers that a config file declares.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
)

// version is set by the build; else it is what Go knows of the checkout.
var version = ""

// commands is the command line.
type commands struct {
	Serve      serveCmd      `cmd:"" help:"Run the console: pages and API, drain, consumers, replays."`
	Demo       demoCmd       `cmd:"" help:"Show it all on this machine, with a shop whose consumers fail. Nothing needs to be installed."`
	Migrate    migrateCmd    `cmd:"" help:"Bring the console's tables up to date, or make the consume records' table in a business database."`
	Check      checkCmd      `cmd:"" help:"Look for what is wrong: config, connections, tables, topics, retention."`
	User       userCmd       `cmd:"" help:"Local accounts."`
	Token      tokenCmd      `cmd:"" help:"API tokens."`
	Replay     replayCmd     `cmd:"" help:"Plan, start and follow replays."`
	Reconcile  reconcileCmd  `cmd:"" help:"Compare what was consumed with what took effect."`
	Compensate compensateCmd `cmd:"" help:"Propose, approve and follow repairs of what reconciliation found."`
	Dialect    dialectCmd    `cmd:"" help:"How frameworks mark dead letters: list them, try a file of one's own."`
	Bench      benchCmd      `cmd:"" help:"Measure consuming and draining against what the database can do."`
	Version    versionCmd    `cmd:"" help:"Print the version."`

	Log slog.Level `help:"Least level that is logged: debug, info, warn, error." default:"info" env:"ONCEMORE_LOG"`

	Records recordsCmd `cmd:"" name:"evidence" help:"Where consume records are: find them, ask them."`
}

// edge is what commands get from the outside.
type edge struct {
	ctx   context.Context
	out   io.Writer
	log   *slog.Logger
	level slog.Level // of log
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal ends in an orderly way; the default handling comes back, so
	// that a second one ends at once.
	context.AfterFunc(ctx, stop)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is main without the process around it. Errors are sentences on stderr.
func run(ctx context.Context, args []string, out, stderr io.Writer) int {
	var cmds commands
	exited := -1
	parser, err := kong.New(&cmds,
		kong.Name("console"), kong.Description("Replays dead letters without doing anything twice."),
		kong.UsageOnError(), kong.Writers(out, stderr), kong.Exit(func(code int) { exited = code }))
	if err != nil {
		fmt.Fprintln(stderr, "console:", err)
		return 1
	}
	chosen, err := parser.Parse(args)
	if exited >= 0 {
		return exited // --help
	}
	if err != nil {
		fmt.Fprintf(stderr, "console: %v; console --help lists the commands\n", err)
		return 1
	}
	if err := chosen.Run(&edge{ctx: ctx, out: out, log: newLog(stderr, cmds.Log), level: cmds.Log}); err != nil {
		var silent exitCode
		if errors.As(err, &silent) {
			return int(silent)
		}
		fmt.Fprintln(stderr, "console:", strings.TrimSpace(err.Error()))
		var told failure
		if errors.As(err, &told) {
			return int(told.code)
		}
		return 1
	}
	return 0
}

func newLog(to io.Writer, level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(to, &slog.HandlerOptions{Level: level}))
}

// exitCode ends the process without a sentence of its own: all has been said.
type exitCode int

// Error is never shown.
func (e exitCode) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// failure is an error that ends the process with another code than 1.
type failure struct {
	error
	code exitCode
}

// Unwrap gives the error.
func (f failure) Unwrap() error { return f.error }

type versionCmd struct{}

// Run prints one line.
func (versionCmd) Run(e *edge) error {
	_, err := fmt.Fprintln(e.out, "console", versionText())
	return err
}

func versionText() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "unknown"
	}
	return info.Main.Version
}
