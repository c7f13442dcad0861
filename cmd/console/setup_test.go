package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kgo"

	"oncemore/consumer/pgstore"
	"oncemore/internal/access"
	"oncemore/internal/config"
	"oncemore/internal/testkit"
	"oncemore/migrations/pgtest"
	"oncemore/web"
)

// firstRun is a console on a config without sources, and an admin's browser.
type firstRun struct {
	t       *testing.T
	file    string
	base    string
	browser *http.Client
}

const bareConfig = `# this comment stays
environment: first run
listen: %s
database: {url_file: %q}
`

func startFirstRun(t *testing.T) *firstRun {
	t.Helper()
	dir, db := t.TempDir(), pgtest.URL(t)
	f := &firstRun{t: t, file: filepath.Join(dir, "console.yaml")}
	listen := fmt.Sprintf("127.0.0.1:%d", testkit.FreePort(t))
	f.base = "http://" + listen
	if err := os.WriteFile(f.file, fmt.Appendf(nil, bareConfig, listen, secretFile(t, db)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := web.NewAccounts(pgtest.Open(t, db)).Create(t.Context(), access.Actor{User: "test", Role: access.Admin}, "ada", "a long enough one", access.Admin); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- serveCmd{configFlag: configFlag{f.file}, Roles: []string{"web", "drain", "jobs"}}.Run(&edge{ctx: ctx, out: io.Discard, log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	f.browser = &http.Client{Jar: jar, Timeout: 30 * time.Second}
	f.up()
	f.post("/login", url.Values{"user": {"ada"}, "password": {"a long enough one"}, "return": {"/"}})
	return f
}

// up waits until the console answers.
func (f *firstRun) up() {
	f.t.Helper()
	testkit.Eventually(f.t, 60*time.Second, func() bool {
		r, err := http.Get(f.base + "/healthz")
		if err != nil {
			return false
		}
		r.Body.Close()
		return r.StatusCode == http.StatusOK
	}, "the console answers")
}

func (f *firstRun) get(path string) string {
	f.t.Helper()
	r, err := f.browser.Get(f.base + path)
	return f.body(path, r, err)
}

func (f *firstRun) post(path string, form url.Values) string {
	f.t.Helper()
	r, err := f.browser.PostForm(f.base+path, form)
	return f.body(path, r, err)
}

func (f *firstRun) body(path string, r *http.Response, err error) string {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode >= 500 || r.StatusCode == http.StatusForbidden {
		f.t.Fatalf("%s: %d, %v: %s", path, r.StatusCode, err, b)
	}
	return string(b)
}

func (f *firstRun) says(page string, wants ...string) {
	f.t.Helper()
	for _, want := range wants {
		if !strings.Contains(page, want) {
			f.t.Errorf("the page does not say %q: %s", want, page)
		}
	}
}

// letters waits for the first ones after the restart.
func (f *firstRun) letters(n string) {
	f.t.Helper()
	testkit.Eventually(f.t, 60*time.Second, func() bool {
		r, err := f.browser.Get(f.base + "/setup/first")
		if err != nil {
			return false
		}
		defer r.Body.Close()
		b, err := io.ReadAll(r.Body)
		return err == nil && strings.Contains(string(b), n)
	}, "%s", n)
}

// From a config without sources to the first letters with a verdict, in the
// browser: what is found is chosen, the table is tried, the file is shown before it
// is written, and what stood in it stays.
func TestFirstRunFromKafka(t *testing.T) {
	t.Parallel()
	addr := testkit.FakeKafkaAddr(t)
	testkit.MakeTopic(t, addr, "order.paid", 1)
	testkit.MakeTopic(t, addr, "order.paid.DLT", 1)
	letter := &kgo.Record{Topic: "order.paid.DLT", Value: []byte("{}"), Headers: []kgo.RecordHeader{{Key: "event-id", Value: []byte("e-1")}}}
	if err := testkit.Client(t, addr).ProduceSync(t.Context(), letter).FirstErr(); err != nil {
		t.Fatal(err)
	}
	shopURL := pgtest.Empty(t)
	shop := pgtest.Open(t, shopURL)
	if err := pgstore.Migrate(t.Context(), shop); err != nil {
		t.Fatal(err)
	}
	if _, err := shop.Exec(t.Context(), "INSERT INTO mq_consume_record (event_id, consumer_group, consumed_at) VALUES ('e-0', 'points', now())"); err != nil {
		t.Fatal(err)
	}
	f := startFirstRun(t)
	f.says(f.get("/"), "First run", "Reading only")
	nowhere := fmt.Sprintf("127.0.0.1:%d", testkit.FreePort(t))
	f.says(f.post("/setup/broker", url.Values{"kind": {"kafka"}, "name": {"main"}, "brokers": {nowhere}}), "connection refused", "Nothing listens there", nowhere)
	f.says(f.post("/setup/broker", url.Values{"kind": {"kafka"}, "name": {"main"}, "brokers": {addr}}), "1 place on main looks like dead letters", "order.paid.DLT", `value="order.paid"`)
	f.says(f.post("/setup/sources", url.Values{}), "Choose at least one place")
	f.says(f.post("/setup/sources", url.Values{"source": {"order.paid.DLT", "nobody.DLT"}, "header": {"event-id"}}), "Where consumers record")
	f.says(f.post("/setup/database", url.Values{"kind": {"postgres"}, "name": {"shop"}, "url": {"postgres://nobody:x@" + nowhere + "/shop"}}), "connection refused", "Check the address")
	f.says(f.post("/setup/database", url.Values{"kind": {"postgres"}, "name": {"shop"}, "url": {shopURL}}), "mq_consume_record", `value="points"`)
	table := url.Values{"table": {"0"}, "name0": {"mq_consume_record"}, "event_id0": {"no_such"}, "group_column0": {"consumer_group"}, "consumed_at0": {"consumed_at"}, "since0": {"2026-01-01"}, "groups0": {"points"}}
	f.says(f.post("/setup/evidence", table), "no_such", "cannot be asked like this")
	table.Set("event_id0", "event_id")
	file := f.post("/setup/evidence", table)
	f.says(file, "# this comment stays", "pattern: order.paid.DLT", "complete_since:", "secrets/shop.url", "Save and start")
	if strings.Contains(file, "nobody.DLT") || strings.Contains(file, shopURL) {
		t.Error("a topic that is not there, or a secret, is in the file")
	}
	if b, err := os.ReadFile(f.file); err != nil || strings.Contains(string(b), "order.paid") {
		t.Fatalf("something was written before Save: %s, %v", b, err)
	}
	f.says(f.post("/setup/save", nil), "The console starts again")
	f.letters("1 letter so far")
	conf, err := config.Load(f.file)
	if err != nil || len(conf.Sources) != 1 || conf.Group("points").Evidence.Table != "mq_consume_record" || conf.Environment != "first run" {
		t.Errorf("the file: %+v, %v", conf, err)
	}
	if info, err := os.Stat(filepath.Join(filepath.Dir(f.file), "secrets", "shop.url")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the secret: %v, %v", info, err)
	}
	if page := f.get("/"); strings.Contains(page, "First run") {
		t.Error("the first run is offered again")
	}
}

// RabbitMQ: queues come from the management API, a wrong password says so, and
// evidence may wait.
func TestFirstRunFromRabbit(t *testing.T) {
	t.Parallel()
	server := testkit.Rabbit(t)
	ch := rabbitChannel(t, server.URL)
	home := testkit.Name("order.paid")
	dead := home + ".waiting" // only the other queue's argument says what it is
	for name, args := range map[string]amqp.Table{dead: nil, home: {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}} {
		if _, err := ch.QueueDeclare(name, true, false, false, false, args); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = ch.QueueDelete(name, false, false, false) })
	}
	if err := ch.Publish("", dead, true, false, amqp.Publishing{MessageId: "e-1", Body: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	f := startFirstRun(t)
	broker := url.Values{"kind": {"rabbitmq"}, "name": {"pay"}, "url": {strings.Replace(server.URL, "://", "://nobody:wrong@", 1)}, "management_url": {server.Management}}
	if u, err := url.Parse(server.URL); err == nil {
		u.User = url.UserPassword("nobody", "wrong")
		broker.Set("url", u.String())
	}
	f.says(f.post("/setup/broker", broker), "does not let this user in")
	broker.Set("url", server.URL)
	f.says(f.post("/setup/broker", broker), dead, "checked")
	f.says(f.post("/setup/sources", url.Values{"source": {dead}}), "Where consumers record")
	f.says(f.post("/setup/evidence", url.Values{"do": {"skip"}}), "pattern: "+dead, "pay.amqp", "taken out of the queues", "Without evidence")
	f.refusesToWrite()
	f.says(f.post("/setup/save", nil), "The console starts again")
	f.letters("1 letter so far")
}

// refusesToWrite saves while nothing can be written into the config's folder: a
// file stands in its place.
func (f *firstRun) refusesToWrite() {
	f.t.Helper()
	folder := filepath.Dir(f.file)
	for _, err := range []error{os.Rename(folder, folder+".away"), os.WriteFile(folder, nil, 0o600)} {
		if err != nil {
			f.t.Fatal(err)
		}
	}
	f.says(f.post("/setup/save", nil), "not a directory", "Nothing was changed")
	for _, err := range []error{os.Remove(folder), os.Rename(folder+".away", folder)} {
		if err != nil {
			f.t.Fatal(err)
		}
	}
}

// What a config holds already stays, however it is written; a result that is no
// config is refused before anything is written.
func TestTheFirstRunKeepsWhatTheFileHolds(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "console.yaml")
	s := &setup{app: &app{conf: &config.Config{File: file}}, broker: web.SetupBroker{Kind: "kafka", Name: "main", Brokers: "a:9092, b:9092", TLS: true, Mechanism: "PLAIN", User: "u", Password: "p"}}
	s.draft.Sources = web.SetupSources{Names: []string{"yes", "orders.DLT"}, JSON: "$.id"}
	for name, old := range map[string]string{
		"empty parts": "environment: e\ndatabase: {url_env: DB}\nsources: []\nclusters:\n",
		"other parts": "environment: e # which one\ndatabase: {url_env: DB}\nclusters: {other: {kafka: {brokers: [c:9092]}}}\nretention: {letters: 30d}\n",
	} {
		if err := os.WriteFile(file, []byte(old), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := s.File()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		conf, err := config.Parse(file, []byte(f.Text))
		if err != nil || conf.Cluster("main") == nil || len(conf.Cluster("main").Kafka.Brokers) != 2 || conf.Cluster("main").Kafka.SASL == nil || len(conf.Sources) != 2 || conf.Sources[0].Pattern != "yes" {
			t.Errorf("%s: %+v, %v\n%s", name, conf, err, f.Text)
		}
		if name == "other parts" && (conf.Cluster("other") == nil || !strings.Contains(f.Text, "# which one") || len(f.Secrets) != 2) {
			t.Errorf("something was lost: %s", f.Text)
		}
	}
	if err := os.WriteFile(file, []byte("environment: e\ndatabase: {url_env: DB}\nlisten: nonsense\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.File(); err == nil || !isTrouble(err) || !strings.Contains(err.Error(), "listen") {
		t.Errorf("a file that is no config: %v", err)
	}
}

func isTrouble(err error) bool {
	_, ok := errors.AsType[*web.SetupTrouble](err)
	return ok
}
