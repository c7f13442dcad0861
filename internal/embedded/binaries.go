package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
)

// oldest is the oldest major version that the tables work on.
const oldest = 14

// fetched is the version that is downloaded where the machine has none.
const fetched = embeddedpostgres.V18

// binaries are a folder with initdb and postgres of one major version.
type binaries struct {
	dir   string
	major int
}

// findBinaries returns a folder with a server that fits the cluster in
// opts.Dir: the newest on the machine, else a fetched one.
func findBinaries(ctx context.Context, opts PostgresOptions, own owner) (string, error) {
	if opts.BinaryDir != "" {
		return opts.BinaryDir, nil
	}
	need := clusterVersion(opts.Dir)
	for _, b := range installed(ctx) {
		if (need == 0 || need == b.major) && own.canEnter(b.dir) {
			return b.dir, nil
		}
	}
	major, _, _ := strings.Cut(string(fetched), ".")
	if need != 0 && strconv.Itoa(need) != major {
		return "", fmt.Errorf("the data in %s were made by PostgreSQL %d, which is no longer here: install it, or start anew with --reset", opts.Dir, need)
	}
	return fetch(opts.Dir, own)
}

// clusterVersion is the major version of the cluster in dir, 0 without one.
func clusterVersion(dir string) int {
	b, err := os.ReadFile(filepath.Join(dir, "cluster", "PG_VERSION"))
	if err != nil {
		return 0
	}
	major, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0
	}
	return major
}

// installed lists the usable servers of the machine, newest first.
func installed(ctx context.Context) []binaries {
	dirs, _ := filepath.Glob("/usr/lib/postgresql/*/bin") // the pattern is valid
	for _, pattern := range []string{"/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql@*/bin", "/usr/local/opt/postgresql@*/bin"} {
		more, _ := filepath.Glob(pattern) // the pattern is valid
		dirs = append(dirs, more...)
	}
	if path, err := exec.LookPath("pg_ctl"); err == nil {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			dirs = append(dirs, filepath.Dir(real))
		}
	}
	var found []binaries
	for _, dir := range dirs {
		if major := majorOf(ctx, dir); major >= oldest {
			found = append(found, binaries{dir, major})
		}
	}
	slices.SortStableFunc(found, func(a, b binaries) int { return cmp.Compare(b.major, a.major) })
	return found
}

var versionPattern = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

// majorOf asks the server in dir for its version; 0 when it is not whole.
func majorOf(ctx context.Context, dir string) int {
	if _, err := os.Stat(filepath.Join(dir, "initdb")); err != nil {
		return 0
	}
	out, err := exec.CommandContext(ctx, filepath.Join(dir, "postgres"), "--version").Output()
	if err != nil {
		return 0
	}
	m := versionPattern.FindSubmatch(out)
	if m == nil {
		return 0
	}
	major, _ := strconv.Atoi(string(m[1])) // digits by the pattern
	return major
}

// fetch downloads a server, once, and returns its folder: under the user's
// cache, or for root in dir, where the user who runs it can enter.
func fetch(dir string, own owner) (string, error) {
	base := dir
	if own.name == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("%w (%w)", ErrNoPostgres, err)
		}
		base = filepath.Join(cache, "oncemore")
	}
	home := filepath.Join(base, fmt.Sprintf("postgres-%s-%s-%s", fetched, runtime.GOOS, runtime.GOARCH))
	bin := filepath.Join(home, "bin")
	if _, err := os.Stat(filepath.Join(bin, "postgres")); err == nil {
		return bin, nil
	}
	if err := os.MkdirAll(base, 0o755); err != nil {
		return "", fmt.Errorf("folder for PostgreSQL: %w", err)
	}
	if err := fetchInto(home, base); err != nil {
		return "", err
	}
	return bin, nil
}

// fetchInto uses the library's download. It has no call that only fetches; but
// given a folder that looks like a cluster and is none, Start fetches, extracts
// and then fails, and the files are what is wanted.
func fetchInto(home, base string) error {
	tmp, err := os.MkdirTemp(base, "fetch-")
	if err != nil {
		return fmt.Errorf("folder for PostgreSQL: %w", err)
	}
	defer os.RemoveAll(tmp)
	decoy := filepath.Join(tmp, "decoy")
	major, _, _ := strings.Cut(string(fetched), ".")
	port, err := usablePort(0)
	if err := errors.Join(err, os.Mkdir(decoy, 0o700), os.WriteFile(filepath.Join(decoy, "PG_VERSION"), []byte(major), 0o600)); err != nil {
		return fmt.Errorf("prepare the download of PostgreSQL: %w", err)
	}
	server := filepath.Join(tmp, "server")
	err = embeddedpostgres.NewDatabase(embeddedpostgres.DefaultConfig().Version(fetched).Port(uint32(port)).Logger(io.Discard).
		CachePath(tmp).RuntimePath(filepath.Join(tmp, "run")).DataPath(decoy).BinariesPath(server)).Start()
	if _, statErr := os.Stat(filepath.Join(server, "bin", "postgres")); statErr != nil {
		return fmt.Errorf("%w (%w)", ErrNoPostgres, err)
	}
	if err := os.Chmod(server, 0o755); err != nil {
		return fmt.Errorf("open the folder of PostgreSQL: %w", err)
	}
	if err := os.Rename(server, home); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("put PostgreSQL into %s: %w", home, err)
	}
	return nil
}
