package main

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"oncemore/internal/testkit"
	"oncemore/migrations/pgtest"
)

// TestMain lets the test binary stand in for the console where a test needs a
// process of its own.
func TestMain(m *testing.M) {
	if os.Getenv("ONCEMORE_TEST_CONSOLE") != "" {
		main()
	}
	os.Exit(m.Run())
}

// console is the command as a process.
func console(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), "ONCEMORE_TEST_CONSOLE=1")
	t.Cleanup(func() {
		if cmd.Process != nil && cmd.ProcessState == nil {
			cmd.Process.Kill()
			cmd.Wait() //nolint:errcheck // it was killed
		}
	})
	return cmd
}

// startedProcess runs the demo as a process until its folder has demo.json.
func startedProcess(t *testing.T, data string) *exec.Cmd {
	t.Helper()
	cmd := console(t, "demo", "--listen", fmt.Sprintf("127.0.0.1:%d", testkit.FreePort(t)), "--data", data)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 60*time.Second, func() bool {
		_, err := os.Stat(demoFiles{data}.info())
		return err == nil
	}, "demo.json is written")
	return cmd
}

func TestCtrlCEndsInAnOrderlyWay(t *testing.T) {
	cmd := startedProcess(t, dataDir(t))
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after Ctrl-C: %v", err)
	}
}

// A demo that is killed leaves nothing running and loses nothing.
func TestKilledDemoStartsAgain(t *testing.T) {
	data := dataDir(t)
	cmd := startedProcess(t, data)
	first := waitLetters(t, data)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait() //nolint:errcheck // it was killed
	again := startDemo(t, data)
	have := map[string]bool{}
	for _, l := range again.letters("") {
		have[l.ID] = true
	}
	for _, l := range first {
		if !have[l.ID] {
			t.Errorf("letter %s is gone", l.ID)
		}
	}
	again.end()
}

// waitLetters asks a demo of another process for its letters.
func waitLetters(t *testing.T, data string) (letters []letterItem) {
	t.Helper()
	info, err := demoFiles{data}.lastInfo()
	if err != nil {
		t.Fatal(err)
	}
	r := &running{T: t, info: info, client: &http.Client{Timeout: 20 * time.Second}}
	testkit.Eventually(t, 10*time.Second, func() bool {
		resp, err := r.client.Get(info.URL + "/readyz")
		if err == nil {
			resp.Body.Close()
		}
		return err == nil
	}, "the demo answers")
	testkit.Eventually(t, 30*time.Second, func() bool {
		letters = r.letters("")
		return len(letters) >= 5
	}, "letters")
	return letters
}

func TestSecondCtrlCEndsAtOnce(t *testing.T) {
	cmd := startedProcess(t, dataDir(t))
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	cmd.Wait() //nolint:errcheck // which of the two ended it is a race; that it ended is not
	if took := time.Since(began); took > stopTimeout {
		t.Errorf("two signals took %s", took)
	}
}

func TestServeEndsOnSIGTERM(t *testing.T) {
	address := fmt.Sprintf("127.0.0.1:%d", testkit.FreePort(t))
	text := fmt.Sprintf("environment: test\nlisten: %s\ndatabase: {url_file: %q}\n", address, secretFile(t, pgtest.URL(t)))
	file := filepath.Join(t.TempDir(), "console.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := console(t, "serve", "--config", file)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 30*time.Second, func() bool {
		resp, err := http.Get("http://" + address + "/readyz")
		if err == nil {
			resp.Body.Close()
		}
		return err == nil && resp.StatusCode == http.StatusOK
	}, "the console is ready")
	wantSentence(t, "change listen in "+file, "serve", "--config", file) // the port is taken
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
}

func TestCommandsSayWhatToDo(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "console.yaml")
	for _, c := range []struct {
		want string
		args []string
	}{
		{"unexpected argument nonsense; console --help lists the commands", []string{"nonsense"}},
		{"there is no config file " + missing + ": name one with --config", []string{"serve", "--config", missing}},
		{"there is no role \"sweep\": choose of web, drain, consume, jobs", []string{"serve", "--roles", "sweep"}},
		{"name the letters in one way", []string{"replay", "plan", "--reason", "x"}},
	} {
		var out, stderr bytes.Buffer
		if code := run(t.Context(), c.args, &out, &stderr); code != 1 || !strings.Contains(stderr.String(), c.want) {
			t.Errorf("%v: exit %d, %q", c.args, code, stderr.String())
		}
	}
}

func TestVersionAndHelp(t *testing.T) {
	t.Parallel()
	out := runs(t, 0, "version")
	if !strings.HasPrefix(out, "console ") {
		t.Errorf("version: %q", out)
	}
	help := runs(t, 0, "--help")
	for _, command := range []string{"serve", "demo", "migrate", "check", "user", "token", "replay", "bench", "version"} {
		if !strings.Contains(help, command) {
			t.Errorf("--help does not name %s", command)
		}
	}
}

// runs runs a command and returns what it prints.
func runs(t *testing.T, want int, args ...string) string {
	t.Helper()
	var out, stderr bytes.Buffer
	if code := run(t.Context(), args, &out, &stderr); code != want {
		t.Fatalf("%v: exit %d, want %d: %s", args, code, want, stderr.String())
	}
	return out.String()
}

// configFile is a console.yaml on databases of the test.
func configFile(t *testing.T, console string) string {
	t.Helper()
	text := fmt.Sprintf(`environment: test
database: {url_file: %q}
connections: {shop: {kind: postgres, url_file: %q}}
`, secretFile(t, console), secretFile(t, pgtest.Empty(t)))
	file := filepath.Join(t.TempDir(), "console.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestMigrateThenAccountsAndTokens(t *testing.T) {
	conf := configFile(t, pgtest.Empty(t))
	var out, stderr bytes.Buffer
	if code := run(t.Context(), []string{"user", "list", "--config", conf}, &out, &stderr); code != 1 || !strings.Contains(stderr.String(), "run console migrate first") {
		t.Errorf("before migrate: %d %s", code, stderr.String())
	}
	runs(t, 0, "migrate", "--config", conf)
	if again := runs(t, 0, "migrate", "--config", conf); !strings.Contains(again, "0 migrations were missing") {
		t.Errorf("second migrate: %q", again)
	}
	if made := runs(t, 0, "migrate", "--config", conf, "--target", "shop"); made != "mq_consume_record is in shop\noncemore_barrier is in shop\n" {
		t.Errorf("migrate --target: %q", made)
	}
	withInput(t, "correct horse\n", func() { runs(t, 0, "user", "add", "ada", "--role", "operator", "--config", conf) })
	if list := runs(t, 0, "user", "list", "--config", conf); !regexp.MustCompile(`ada\s+operator\s+active`).MatchString(list) {
		t.Errorf("user list: %s", list)
	}
	secret := strings.TrimSpace(runs(t, 0, "token", "create", "ada", "ci", "--role", "viewer", "--for", "90d", "--config", conf))
	if !strings.HasPrefix(secret, "om_") {
		t.Errorf("token: %q", secret)
	}
	list := runs(t, 0, "token", "list", "ada", "--config", conf)
	if !regexp.MustCompile(`1\s+"ci"\s+viewer`).MatchString(list) || strings.Contains(list, secret) {
		t.Errorf("token list: %s", list)
	}
	runs(t, 0, "token", "revoke", "1", "--config", conf)
	runs(t, 0, "user", "disable", "ada", "--config", conf)
	if list := runs(t, 0, "user", "list", "--config", conf); !regexp.MustCompile(`ada\s+operator\s+disabled`).MatchString(list) {
		t.Errorf("user list: %s", list)
	}
}

// withInput lets do read text from standard input.
func withInput(t *testing.T, text string, do func()) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.WriteString(text); err != nil {
		t.Fatal(err)
	}
	w.Close()
	was := os.Stdin
	os.Stdin = r
	defer func() { os.Stdin = was; r.Close() }()
	do()
}

func TestCheckSaysWhatIsWrongAndWhatToDo(t *testing.T) {
	conf := configFile(t, pgtest.Empty(t)) // not migrated
	out := runs(t, 1, "check", "--config", conf)
	if !strings.Contains(out, "critical") || !strings.Contains(out, "do:") {
		t.Errorf("check: %s", out)
	}
	good := configFile(t, pgtest.URL(t))
	if out := runs(t, 0, "check", "--config", good, "--all"); !strings.Contains(out, "passed") {
		t.Errorf("check: %s", out)
	}
}
