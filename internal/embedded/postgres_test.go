package embedded

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"oncemore/internal/testkit"
)

// enterableDir is a folder that the user who runs the server can enter: Go's
// own temporary folders of tests are closed to others.
func enterableDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "oncemore-embedded-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "postgres")
}

func startPostgres(t *testing.T, dir string) *Postgres {
	t.Helper()
	p, err := StartPostgres(t.Context(), PostgresOptions{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.alive.Close() })
	return p
}

func execSQL(t *testing.T, url, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

func serverPID(t *testing.T, p *Postgres) int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(p.cluster(), "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Sscan(string(b), &pid); err != nil {
		t.Fatal(err)
	}
	return pid
}

func TestPostgresKeepsDataAcrossStarts(t *testing.T) {
	t.Parallel()
	dir := enterableDir(t)
	p := startPostgres(t, dir)
	execSQL(t, p.URL, "create table kept (n int)")
	pid := serverPID(t, p)
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	if runs(pid, p.cluster()) {
		t.Error("the server runs on after Stop")
	}
	again := startPostgres(t, dir)
	execSQL(t, again.URL, "insert into kept values (1)")
	if err := again.Stop(); err != nil {
		t.Fatal(err)
	}
}

func TestPostgresEndsAnOrphan(t *testing.T) {
	t.Parallel()
	dir := enterableDir(t)
	p := startPostgres(t, dir)
	execSQL(t, p.URL, "create table kept (n int)")
	pid := serverPID(t, p)
	// Only the guard dies, as when somebody kills it: nobody ends the server.
	if err := syscall.Kill(-p.guard.Process.Pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(p.guard.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	<-p.Ended()
	if !runs(pid, p.cluster()) {
		t.Fatal("no orphan to try this with")
	}
	again := startPostgres(t, dir)
	execSQL(t, again.URL, "insert into kept values (1)")
	if runs(pid, p.cluster()) {
		t.Error("the orphan runs on")
	}
	if err := again.Stop(); err != nil {
		t.Fatal(err)
	}
	_ = syscall.Kill(-p.guard.Process.Pid, syscall.SIGKILL) // the stopped helper of the first guard
}

func TestPostgresIgnoresAPidOfSomebodyElse(t *testing.T) {
	t.Parallel()
	dir := enterableDir(t)
	p := startPostgres(t, dir)
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	stale := fmt.Sprintf("%d\n%s\n", os.Getppid(), p.cluster())
	file := filepath.Join(p.cluster(), "postmaster.pid")
	if err := os.WriteFile(file, []byte(stale), 0o600); err != nil {
		t.Fatal(err)
	}
	again := startPostgres(t, dir)
	execSQL(t, again.URL, "select 1")
	if err := again.Stop(); err != nil {
		t.Fatal(err)
	}
}

func TestPostgresSaysWhenNothingFits(t *testing.T) {
	t.Parallel()
	dir := enterableDir(t)
	if err := os.MkdirAll(filepath.Join(dir, "cluster"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "cluster", "PG_VERSION"), []byte("9\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := StartPostgres(t.Context(), PostgresOptions{Dir: dir})
	if err == nil || !strings.Contains(err.Error(), "made by PostgreSQL 9") || !strings.Contains(err.Error(), "--reset") {
		t.Errorf("error %v", err)
	}
}

// TestSoakFetchedServerRuns downloads 15 MB.
func TestSoakFetchedServerRuns(t *testing.T) {
	testkit.Soak(t)
	dir := enterableDir(t)
	own, err := serverOwner()
	if err != nil {
		t.Fatal(err)
	}
	if err := prepareDir(dir, own); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_CACHE_HOME", dir)
	bin, err := fetch(dir, own)
	if err != nil {
		t.Fatal(err)
	}
	p, err := StartPostgres(t.Context(), PostgresOptions{Dir: dir, BinaryDir: bin})
	if err != nil {
		t.Fatal(err)
	}
	execSQL(t, p.URL, "select 1")
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
}

// TestNoWayToGetPostgres runs itself with a proxy that is not there: Go reads
// that variable once per process.
func TestNoWayToGetPostgres(t *testing.T) {
	if os.Getenv("ONCEMORE_TEST_FETCH") != "" {
		_, err := fetch(os.Getenv("ONCEMORE_TEST_FETCH"), owner{name: "nobody"})
		fmt.Println(err)
		return
	}
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run", "^TestNoWayToGetPostgres$")
	cmd.Env = append(os.Environ(), "HTTPS_PROXY=http://127.0.0.1:1", "https_proxy=http://127.0.0.1:1", "ONCEMORE_TEST_FETCH="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), ErrNoPostgres.Error()+" (") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestTestPostgresOutlivesTheCollector(t *testing.T) {
	t.Parallel()
	url, err := TestPostgres()
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		runtime.GC() // finalizers run after it
		execSQL(t, url, "select pg_sleep(0.05)")
	}
}

func TestDatabasesAreMadeAndDropped(t *testing.T) {
	t.Parallel()
	server, err := TestPostgres()
	if err != nil {
		t.Fatal(err)
	}
	name := `shop "of" ` + testkit.Name("demo")
	for range 2 {
		url, err := EnsureDatabase(t.Context(), server, name)
		if err != nil {
			t.Fatal(err)
		}
		execSQL(t, url, "select 1")
	}
	for range 2 {
		if err := DropDatabase(t.Context(), server, name); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLockFolderHasOneHolder(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	first, err := LockFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := LockFolder(dir); err == nil || !strings.Contains(err.Error(), "in use by another demo") {
		t.Errorf("second lock: %v", err)
	}
	if err := first.Unlock(); err != nil {
		t.Fatal(err)
	}
	again, err := LockFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, time.Second, func() bool { return again.Unlock() == nil }, "the lock is given back")
}
