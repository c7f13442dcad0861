package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"oncemore/cmd/console/shop"
	"oncemore/internal/testkit"
	"oncemore/migrations/pgtest"
)

// running is a demo inside this process.
type running struct {
	*testing.T
	info   demoInfo
	out    *lockedBuffer
	stop   context.CancelFunc
	ended  chan int
	client *http.Client
}

// startDemo runs console demo until it answers.
func startDemo(t *testing.T, data string, flags ...string) *running {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	r := &running{T: t, out: &lockedBuffer{}, stop: stop, ended: make(chan int, 1), client: &http.Client{Timeout: 20 * time.Second}}
	listen := fmt.Sprintf("127.0.0.1:%d", testkit.FreePort(t))
	go func() {
		r.ended <- run(ctx, append([]string{"demo", "--listen", listen, "--data", data}, flags...), r.out, r.out)
	}()
	t.Cleanup(stop)
	testkit.Eventually(t, 90*time.Second, func() bool {
		select {
		case code := <-r.ended:
			t.Fatalf("demo ended with %d: %s", code, r.out)
		default:
		}
		resp, err := r.client.Get("http://" + listen + "/readyz")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	}, "demo is ready: %s", r.out)
	var err error
	if r.info, err = (demoFiles{data}).lastInfo(); err != nil {
		t.Fatal(err)
	}
	return r
}

// end is Ctrl-C.
func (r *running) end() {
	r.Helper()
	r.stop()
	select {
	case code := <-r.ended:
		if code != 0 {
			r.Errorf("demo ended with %d: %s", code, r.out)
		}
	case <-time.After(stopTimeout + 20*time.Second):
		r.Fatal("demo does not end")
	}
}

func (r *running) get(path string, into any) {
	r.Helper()
	req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, r.info.URL+path, nil)
	if err != nil {
		r.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+r.info.Token)
	resp, err := r.client.Do(req)
	if err != nil {
		r.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		r.Fatalf("GET %s: %s", path, resp.Status)
	}
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		r.Fatal(err)
	}
}

type letterItem struct {
	ID, Source, Verdict string
	EventID             *string `json:"event_id"`
	ConsumerGroup       *string `json:"consumer_group"`
}

func (r *running) letters(query string) []letterItem {
	r.Helper()
	var page struct{ Items []letterItem }
	r.get("/api/v1/letters?limit=200"+query, &page)
	return page.Items
}

// lockedBuffer may be written and read at once.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// dataDir is a folder that the user who runs PostgreSQL for root can enter.
func dataDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "oncemore-demo-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return filepath.Join(dir, "data")
}

func TestDemoShowsTheProduct(t *testing.T) {
	data := dataDir(t)
	began := time.Now()
	d := startDemo(t, data)
	wantVerdicts(d, began, 20*time.Second, "safe", "already_applied", "unprotected", "no_event_id")
	wantInfo(d, data)
	wantLedger(d, data)
	wantOwnTopicsDrained(d)
	wantChecks(d)
	wantFigures(d)
	before := d.letters("&state=open")
	d.end()

	again := startDemo(t, data)
	if again.info.Token != d.info.Token || again.info.Password != d.info.Password || again.info.Kafka != d.info.Kafka {
		t.Errorf("the second start changed %+v to %+v", d.info, again.info)
	}
	have := map[string]bool{}
	for _, l := range again.letters("") {
		have[l.ID] = true
	}
	for _, l := range before {
		if !have[l.ID] {
			t.Errorf("the second start lost letter %s", l.ID)
		}
	}
	wantLocked(t, data)
	again.end()

	fresh := startDemo(t, data, "--reset")
	for _, l := range fresh.letters("") {
		if have[l.ID] {
			t.Errorf("letter %s survived --reset", l.ID)
		}
	}
	fresh.end()
}

// Whatever was under way, an end that was asked for is no error, and the next
// start takes the folder as it finds it.
func TestCtrlCWhileStartingIsNoError(t *testing.T) {
	data := dataDir(t)
	for _, after := range []time.Duration{100 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 3 * time.Second} {
		ctx, cancel := context.WithTimeout(context.Background(), after)
		out := &lockedBuffer{}
		code := run(ctx, []string{"demo", "--listen", fmt.Sprintf("127.0.0.1:%d", testkit.FreePort(t)), "--data", data}, out, out)
		cancel()
		if code != 0 || strings.Contains(out.String(), "console:") {
			t.Errorf("ended after %s with %d: %s", after, code, out)
		}
	}
	startDemo(t, data).end()
}

// wantVerdicts waits for letters of each verdict, counted from the demo's start.
func wantVerdicts(d *running, began time.Time, most time.Duration, want ...string) {
	d.Helper()
	testkit.Eventually(d, most-time.Since(began), func() bool {
		seen := map[string]bool{}
		for _, l := range d.letters("&state=open") {
			seen[l.Verdict] = true
		}
		for _, w := range want {
			if !seen[w] {
				return false
			}
		}
		return true
	}, "letters of the verdicts %s", strings.Join(want, ", "))
}

// wantChecks waits for the first checks: nothing of the demo's own is critical.
func wantChecks(d *running) {
	d.Helper()
	var page struct {
		Items []struct{ Code, Subject, Severity, Sentence string }
	}
	testkit.Eventually(d, 3*checkFirst, func() bool { d.get("/api/v1/checks", &page); return len(page.Items) > 0 }, "the first checks")
	for _, f := range page.Items {
		if f.Severity == "critical" || f.Severity == "not_checked" {
			d.Errorf("%s of %s is %s: %s", f.Code, f.Subject, f.Severity, f.Sentence)
		}
	}
}

func wantInfo(d *running, data string) {
	d.Helper()
	stat, err := os.Stat(demoFiles{data}.info())
	if err != nil {
		d.Fatal(err)
	}
	if stat.Mode().Perm() != 0o600 {
		d.Errorf("demo.json has mode %o", stat.Mode().Perm())
	}
	b, err := os.ReadFile(demoFiles{data}.info())
	if err != nil {
		d.Fatal(err)
	}
	var keys map[string]any
	if err := json.Unmarshal(b, &keys); err != nil || len(keys) != 7 || len(d.info.Accounts) != len(demoUsers()) {
		d.Errorf("demo.json: %v %s", err, b)
	}
	conn, err := pgx.Connect(d.Context(), d.info.Database)
	if err != nil {
		d.Fatal(err)
	}
	defer conn.Close(context.Background())
	var points int64
	if err := conn.QueryRow(d.Context(), "select count(*) from user_points where points = 100").Scan(&points); err != nil || points == 0 {
		d.Errorf("points in the demo's database: %d, %v", points, err)
	}
	if !strings.Contains(d.out.String(), d.info.URL) || !strings.Contains(d.out.String(), d.info.Password) {
		d.Errorf("the terminal shows neither link nor password: %s", d.out)
	}
}

// wantOwnTopicsDrained throws a message at topics of each of the names that are
// drained, as a newcomer would.
func wantOwnTopicsDrained(d *running) {
	d.Helper()
	client := testkit.Client(d, d.info.Kafka, kgo.AllowAutoTopicCreation())
	topics := []string{"mine.DLT", "mine-dlt", "mine.dlq"}
	for _, topic := range topics {
		if err := client.ProduceSync(d.Context(), &kgo.Record{Topic: topic, Value: []byte(`{"eventId":"mine-1"}`)}).FirstErr(); err != nil {
			d.Fatal(err)
		}
	}
	for _, topic := range topics {
		testkit.Eventually(d, 10*time.Second, func() bool { return len(d.letters("&source="+topic)) == 1 }, "%s is drained", topic)
	}
}

func wantLocked(t *testing.T, data string) {
	t.Helper()
	wantSentence(t, "in use by another demo; choose another one with --data", "demo", "--listen", "127.0.0.1:0", "--data", data)
}

// wantSentence runs a command that has to fail with one line on stderr.
func wantSentence(t *testing.T, want string, args ...string) {
	t.Helper()
	var out, stderr bytes.Buffer
	code := run(t.Context(), args, &out, &stderr)
	if code != 1 || !strings.Contains(stderr.String(), want) || strings.Count(stderr.String(), "\n") != 1 {
		t.Errorf("%v: exit %d, stderr %q, want one line with %q", args, code, stderr.String(), want)
	}
}

func TestDemoSaysWhatIsInTheWay(t *testing.T) {
	d := dataDir(t)
	port := testkit.FreePort(t)
	taken, err := listen(fmt.Sprintf("127.0.0.1:%d", port), "")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	wantSentence(t, "address already in use; choose another address with --listen", "demo", "--listen", taken.Addr().String(), "--data", d)

	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wantSentence(t, "cannot be made", "demo", "--listen", "127.0.0.1:0", "--data", filepath.Join(file, "data"))

	t.Setenv("DATABASE_URL", "postgres://nobody:x@127.0.0.1:1/none?connect_timeout=2")
	wantSentence(t, "the server of DATABASE_URL cannot be used", "demo", "--listen", "127.0.0.1:0", "--data", d)
	t.Setenv("DATABASE_URL", "nonsense")
	wantSentence(t, "DATABASE_URL", "demo", "--listen", "127.0.0.1:0", "--data", d)
}

func TestDemoOnAServerOfYourOwn(t *testing.T) {
	server := pgtest.Empty(t)
	t.Setenv("DATABASE_URL", server)
	data := dataDir(t)
	t.Cleanup(func() { dropDemo(t, server, data) })
	d := startDemo(t, data)
	if !strings.Contains(d.info.Database, databaseName(data)) {
		t.Errorf("database %s", d.info.Database)
	}
	testkit.Eventually(d, 30*time.Second, func() bool { return len(d.letters("")) > 0 }, "letters")
	d.end()
	if _, err := os.Stat(filepath.Join(data, "postgres")); !os.IsNotExist(err) {
		t.Errorf("a cluster was made all the same: %v", err)
	}
	wantNewDatabase(t, data)
}

// wantNewDatabase looks that --reset takes the database along: only its own
// accounts were ever made in it.
func wantNewDatabase(t *testing.T, data string) {
	t.Helper()
	d := startDemo(t, data, "--reset")
	conn, err := pgx.Connect(t.Context(), d.info.Database)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	var users int
	if err := conn.QueryRow(t.Context(), "select count(*) from audit_log where action = 'user.created'").Scan(&users); err != nil || users != len(demoUsers()) {
		t.Errorf("accounts made after --reset: %d, %v", users, err)
	}
	d.end()
}

func dropDemo(t *testing.T, server, data string) {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), server)
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close(context.Background())
	reader, writer := shop.RoleNames(databaseName(data))
	for _, drop := range []string{"database if exists " + databaseName(data) + " with (force)", "role if exists " + reader, "role if exists " + writer} {
		if _, err := conn.Exec(context.Background(), "drop "+drop); err != nil {
			t.Error(err)
		}
	}
}

func TestDatabaseNameFollowsTheFolder(t *testing.T) {
	t.Parallel()
	a, b := databaseName("/home/ada/My Demo!"), databaseName("/home/bob/My Demo!")
	if a == b || a != databaseName("/home/ada/My Demo!") {
		t.Errorf("names %s and %s", a, b)
	}
	if long := databaseName("/x/" + strings.Repeat("é", 300)); len(long) > 63 {
		t.Errorf("%s is longer than PostgreSQL keeps", long)
	}
}
