package dlq

import (
	"context"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"oncemore/internal/embedded"
	"oncemore/internal/testkit"
	"oncemore/migrations/pgtest"
)

// standby makes a replica of its own, following a primary of its own.
func standby(t *testing.T) (primary, replica string) {
	t.Helper()
	start := func(dir string) *embedded.Postgres {
		p, err := embedded.StartPostgres(t.Context(), embedded.PostgresOptions{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Stop() })
		return p
	}
	root, err := os.MkdirTemp("/var/tmp", "replica") // where the server's user may enter
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	first := start(filepath.Join(root, "primary"))
	second := filepath.Join(root, "replica")
	owner, err := os.Stat(filepath.Join(root, "primary", "cluster"))
	if err != nil {
		t.Fatal(err)
	}
	by := owner.Sys().(*syscall.Stat_t)
	if err := os.Mkdir(second, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(second, int(by.Uid), int(by.Gid)); err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(first.URL)
	if err != nil {
		t.Fatal(err)
	}
	password, _ := u.User.Password()
	copied := exec.CommandContext(t.Context(), baseBackup(t, root), "-R", "-c", "fast", "-D", filepath.Join(second, "cluster"), "-h", u.Hostname(), "-p", u.Port(), "-U", "postgres")
	copied.Env = append(os.Environ(), "PGPASSWORD="+password)
	copied.Dir = second
	copied.SysProcAttr = &syscall.SysProcAttr{}
	if os.Getuid() == 0 {
		copied.SysProcAttr.Credential = &syscall.Credential{Uid: by.Uid, Gid: by.Gid}
	}
	if out, err := copied.CombinedOutput(); err != nil {
		t.Fatalf("pg_basebackup: %v: %s", err, out)
	}
	keep, err := os.ReadFile(filepath.Join(root, "primary", "password"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(second, "password"), keep, 0o600); err != nil {
		t.Fatal(err)
	}
	return first.URL, start(second).URL
}

// baseBackup is the program that fits the primary's version.
func baseBackup(t *testing.T, root string) string {
	t.Helper()
	version, err := os.ReadFile(filepath.Join(root, "primary", "cluster", "PG_VERSION"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("/usr/lib/postgresql", strings.TrimSpace(string(version)), "bin", "pg_basebackup")
	if _, err := os.Stat(path); err == nil {
		return path
	}
	if path, err = exec.LookPath("pg_basebackup"); err != nil {
		t.Fatalf("needs pg_basebackup of PostgreSQL %s", version)
	}
	return path
}

// A replica counts only once it has replayed what was committed after the
// question. One that stands still, or whose primary is idle, is unknown: its
// missing record proves nothing.
func TestSoakReplicaCountsOnceItHasCaughtUp(t *testing.T) {
	testkit.Soak(t)
	at, behind := standby(t)
	primary, replica := pgtest.Open(t, at), pgtest.Open(t, behind)
	run(t, primary, `CREATE TABLE mq_consume_record (event_id text, consumer_group text, consumed_at timestamptz DEFAULT now(), UNIQUE (event_id, consumer_group))`)
	run(t, primary, "CREATE TABLE heartbeat (at timestamptz)")
	run(t, primary, "INSERT INTO mq_consume_record VALUES ('before', 'points')")
	testkit.Eventually(t, 30*time.Second, func() bool {
		var n int
		return replica.QueryRow(context.Background(), "SELECT count(*) FROM mq_consume_record").Scan(&n) == nil && n == 1
	}, "the replica follows")

	beating, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for beating.Err() == nil {
			if _, err := primary.Exec(beating, "INSERT INTO heartbeat VALUES (now())"); err != nil {
				return
			}
			wait(beating, 100*time.Millisecond)
		}
	}()
	e := shopEvidence(replica)
	if r, ok, failed := askOne(t, e, "before", "points"); !ok || failed != nil || !r.exact {
		t.Errorf("a replica that follows: %+v %v %v", r, ok, failed)
	}
	run(t, primary, "INSERT INTO mq_consume_record VALUES ('just now', 'points')")
	if _, ok, failed := askOne(t, e, "just now", "points"); !ok || failed != nil {
		t.Errorf("a record of a moment before the question: %v %v", ok, failed)
	}
	run(t, replica, "SELECT pg_wal_replay_pause()")
	run(t, primary, "INSERT INTO mq_consume_record VALUES ('unseen', 'points')")
	if _, ok, failed := askOne(t, e, "unseen", "points"); ok || failed == nil || failed.Key != "reason.unknown.evidence_replica" {
		t.Errorf("a replica that stands still: %v %v", ok, failed)
	}
	run(t, replica, "SELECT pg_wal_replay_resume()")
	if _, ok, failed := askOne(t, e, "unseen", "points"); !ok || failed != nil {
		t.Errorf("after it goes on: %v %v", ok, failed)
	}
	stop()
	<-ended
	if _, ok, failed := askOne(t, e, "before", "points"); ok || failed == nil || failed.Key != "reason.unknown.evidence_replica" {
		t.Errorf("an idle primary: %v %v", ok, failed)
	}
}
