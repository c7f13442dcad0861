package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// endOrphan ends a server that a killed process left on this cluster, and
// removes a postmaster.pid whose number now belongs to somebody else: the server
// would take that process for its elder and refuse to start.
func (p *Postgres) endOrphan(ctx context.Context) error {
	file := filepath.Join(p.cluster(), "postmaster.pid")
	b, err := os.ReadFile(file)
	if err != nil {
		return nil // none: the last end was clean, or this is the first start
	}
	first, _, _ := strings.Cut(string(b), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(first))
	if err != nil || !runs(pid, p.cluster()) {
		if err := os.Remove(file); err != nil {
			return fmt.Errorf("remove stale postmaster.pid: %w", err)
		}
		return nil
	}
	if err := syscall.Kill(pid, syscall.SIGINT); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("end the server that an earlier run left: %w", err)
	}
	return waitGone(ctx, pid, p.cluster())
}

func waitGone(ctx context.Context, pid int, cluster string) error {
	deadline := time.After(20 * time.Second)
	for runs(pid, cluster) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline:
			return fmt.Errorf("PostgreSQL process %d, left by an earlier run in %s, does not end: stop it, then start again", pid, cluster)
		case <-time.After(50 * time.Millisecond):
		}
	}
	return nil
}

// runs reports whether pid is a server on this cluster.
func runs(pid int, cluster string) bool {
	if syscall.Kill(pid, 0) == syscall.ESRCH {
		return false
	}
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		if line, err = exec.Command("ps", "-o", "command=", "-p", strconv.Itoa(pid)).Output(); err != nil {
			return false
		}
	}
	return strings.Contains(string(line), cluster)
}
