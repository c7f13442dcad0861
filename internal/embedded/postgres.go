// Package embedded brings up PostgreSQL and Kafka beside or inside this process,
// for the demo and for tests. Neither is meant for production.
package embedded

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// ErrNoPostgres means that there is no way to get a server on this machine.
var ErrNoPostgres = errors.New("no way to get PostgreSQL: set DATABASE_URL to a server, install PostgreSQL 14 or newer, or allow its download")

// PostgresOptions say where and how a server runs.
type PostgresOptions struct {
	Dir       string // cluster, log and, for root, fetched binaries live here
	Port      int    // preferred; another one is taken when it is in use or 0
	Volatile  bool   // for tests: no fsync, and Dir is deleted when the server ends
	BinaryDir string // folder with initdb and postgres; "": found, else fetched
}

// Postgres is a server that ends with this process, however this process ends.
type Postgres struct {
	URL string // of the administrator, database postgres

	opts  PostgresOptions
	bin   string
	owner owner
	guard *exec.Cmd
	alive io.Closer     // the guard stops the server once this is closed
	ended chan struct{} // closed when the guard has ended
}

// StartPostgres makes a cluster in opts.Dir where there is none, starts its
// server on the loopback address and waits until it answers. As root the server
// runs as user postgres, else nobody. Errors: ErrNoPostgres, or a sentence that
// names the folder or the log.
func StartPostgres(ctx context.Context, opts PostgresOptions) (*Postgres, error) {
	own, err := serverOwner()
	if err != nil {
		return nil, err
	}
	if err := prepareDir(opts.Dir, own); err != nil {
		return nil, err
	}
	p := &Postgres{opts: opts, owner: own}
	if p.bin, err = findBinaries(ctx, opts, own); err != nil {
		return nil, err
	}
	if err := p.endOrphan(ctx); err != nil {
		return nil, err
	}
	if err := p.initCluster(ctx); err != nil {
		return nil, err
	}
	return p, p.start(ctx)
}

// Stop ends the server: open sessions are cut, nothing is lost.
func (p *Postgres) Stop() error {
	p.alive.Close()
	select {
	case <-p.ended:
		return nil
	case <-time.After(20 * time.Second):
		return fmt.Errorf("PostgreSQL in %s has not ended within 20 s", p.opts.Dir)
	}
}

// Ended is closed when the server has ended, by Stop or by itself.
func (p *Postgres) Ended() <-chan struct{} { return p.ended }

func (p *Postgres) cluster() string      { return filepath.Join(p.opts.Dir, "cluster") }
func (p *Postgres) halfMade() string     { return filepath.Join(p.opts.Dir, "cluster.new") }
func (p *Postgres) logFile() string      { return filepath.Join(p.opts.Dir, "postgres.log") }
func (p *Postgres) passwordFile() string { return filepath.Join(p.opts.Dir, "password") }

// initCluster makes the cluster beside its place and moves it there when it is
// whole: an initdb that is cut off has written PG_VERSION long before.
func (p *Postgres) initCluster(ctx context.Context) error {
	if _, err := os.Stat(p.cluster()); err == nil {
		return nil
	}
	if err := os.RemoveAll(p.halfMade()); err != nil {
		return fmt.Errorf("remove half-made cluster: %w", err)
	}
	if err := os.WriteFile(p.passwordFile(), []byte(rand.Text()), 0o600); err != nil {
		return fmt.Errorf("write password of the cluster: %w", err)
	}
	if err := p.owner.take(p.passwordFile()); err != nil {
		return err
	}
	cmd := p.command(ctx, "initdb", "-D", p.halfMade(), "-U", "postgres", "--pwfile="+p.passwordFile(),
		"--auth=scram-sha-256", "--encoding=UTF8", "--no-locale", "--no-sync")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb in %s: %w: %s", p.halfMade(), err, lastLine(out))
	}
	if err := os.Rename(p.halfMade(), p.cluster()); err != nil {
		return fmt.Errorf("move the new cluster: %w", err)
	}
	return nil
}

// start tries a few ports, since another process may take a free one meanwhile.
func (p *Postgres) start(ctx context.Context) error {
	var err error
	for range 3 {
		var port int
		if port, err = usablePort(p.opts.Port); err != nil {
			return err
		}
		if err = p.launch(port); err != nil {
			return err
		}
		if err = p.waitReady(ctx, port); err == nil || ctx.Err() != nil {
			return err
		}
		p.opts.Port = 0
	}
	return err
}

// guardScript starts the server and ends it when standard input closes: this
// process holds the other end, so the server never outlives it.
const guardScript = `rubbish=$1; shift
"$@" & pid=$!
(cat >/dev/null; kill -INT $pid 2>/dev/null) <&3 &
wait $pid
[ -z "$rubbish" ] || rm -rf "$rubbish"`

func (p *Postgres) launch(port int) error {
	log, err := os.OpenFile(p.logFile(), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("open log of PostgreSQL: %w", err)
	}
	defer log.Close()
	rubbish := ""
	if p.opts.Volatile {
		rubbish = p.opts.Dir
	}
	args := append([]string{"-c", guardScript, "guard", rubbish, filepath.Join(p.bin, "postgres")}, p.settings(port)...)
	hold, alive, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("pipe to PostgreSQL: %w", err)
	}
	defer hold.Close()
	cmd := exec.Command("/bin/sh", args...)
	cmd.Dir = p.opts.Dir
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{hold}
	cmd.SysProcAttr = p.owner.attributes()
	if err := cmd.Start(); err != nil {
		alive.Close()
		return fmt.Errorf("start PostgreSQL: %w", err)
	}
	p.guard, p.alive, p.ended = cmd, alive, make(chan struct{})
	go func(ended chan struct{}) {
		_ = cmd.Wait() // the guard's exit status says nothing: the log does
		close(ended)
	}(p.ended)
	return nil
}

// settings are the server's arguments. There is no Unix socket: the length of
// its path is limited, and a data folder's is not.
func (p *Postgres) settings(port int) []string {
	s := []string{"-D", p.cluster(), "-p", strconv.Itoa(port),
		"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "max_connections=200"}
	if p.opts.Volatile {
		s = append(s, "-c", "fsync=off", "-c", "full_page_writes=off", "-c", "synchronous_commit=off")
	}
	return s
}

func (p *Postgres) waitReady(ctx context.Context, port int) error {
	secret, err := os.ReadFile(p.passwordFile())
	if err != nil {
		return fmt.Errorf("read password of the cluster: %w", err)
	}
	u := url.URL{Scheme: "postgres", User: url.UserPassword("postgres", string(secret)),
		Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), Path: "/postgres", RawQuery: "sslmode=disable"}
	p.URL = u.String()
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	for {
		if conn, err := pgx.Connect(ctx, p.URL); err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-p.ended:
			log, _ := os.ReadFile(p.logFile()) // an unreadable log leaves the sentence without its last line
			return fmt.Errorf("PostgreSQL ended while starting: %s", lastLine(log))
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("PostgreSQL does not answer, see %s", p.logFile()), p.Stop())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (p *Postgres) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(p.bin, name), args...)
	cmd.Dir = p.opts.Dir
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.SysProcAttr = p.owner.attributes()
	return cmd
}

// TestPostgres starts a server for this test process, once, and returns its
// address. The server and its files go when the process ends.
var TestPostgres = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "oncemore-test-")
	if err != nil {
		return "", fmt.Errorf("folder for test PostgreSQL: %w", err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return "", fmt.Errorf("folder for test PostgreSQL: %w", err)
	}
	testServer, err = StartPostgres(context.Background(), PostgresOptions{Dir: dir, Volatile: true})
	if err != nil {
		return "", err
	}
	return testServer.URL, nil
})

// testServer is kept for the life of the process: a collected pipe would close,
// and the guard end the server in the middle of a test.
var testServer *Postgres

// usablePort returns want where nobody listens on it, else a free port.
func usablePort(want int) (int, error) {
	for _, port := range []int{want, 0} {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		defer l.Close()
		return l.Addr().(*net.TCPAddr).Port, nil
	}
	return 0, errors.New("no free port on 127.0.0.1")
}

func lastLine(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}

// RemoveCluster ends a server that an earlier run left in dir and deletes its
// data. Fetched binaries stay.
func RemoveCluster(ctx context.Context, dir string) error {
	p := &Postgres{opts: PostgresOptions{Dir: dir}}
	if err := p.endOrphan(ctx); err != nil {
		return err
	}
	for _, path := range []string{p.cluster(), p.halfMade(), p.passwordFile(), p.logFile()} {
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("remove data of PostgreSQL: %w", err)
		}
	}
	return nil
}
