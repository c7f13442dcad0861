package web_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"oncemore/consumer/mysqlstore"
	"oncemore/consumer/outbox"
	"oncemore/internal/access"
	"oncemore/internal/outboxes"
	"oncemore/internal/testkit"
	"oncemore/migrations/pgtest"
	"oncemore/web"
)

// outboxKinds are the databases that an outbox may be in.
var outboxKinds = map[string]func(*testing.T) *outbox.Box{"postgres": postgresOutbox, "mariadb": mysqlOutbox}

var outboxMessages = []outbox.Message{
	{EventID: "evt-dead", Target: "orders", AggregateKey: "account-7"},
	{EventID: "evt-behind", Target: "orders", AggregateKey: "account-7"},
	{EventID: "evt-free", Target: "mails", Key: []byte{0, 1}},
}

const sqlDead = `UPDATE outbox_message SET state = 4, attempts = 10, last_error = 'too <large>' WHERE id = 1`

// postgresOutbox has a dead row 1 and one row behind it.
func postgresOutbox(t *testing.T) *outbox.Box {
	t.Helper()
	business := pgtest.Open(t, pgtest.Empty(t))
	must := musts(t)
	must(outbox.DefaultTable.Migrate(t.Context(), business))
	tx, err := business.Begin(t.Context())
	must(err)
	must(outbox.Add(t.Context(), tx, outboxMessages...))
	must(tx.Commit(t.Context()))
	_, err = business.Exec(t.Context(), sqlDead)
	must(err)
	box, err := outbox.Postgres(business, outbox.DefaultTable)
	must(err)
	return box
}

// mysqlOutbox is the same in MySQL.
func mysqlOutbox(t *testing.T) *outbox.Box {
	t.Helper()
	must := musts(t)
	business, err := mysqlstore.OpenPool(testkit.MySQL(t), mysqlstore.PoolOptions{})
	must(err)
	t.Cleanup(func() { business.Close() })
	must(outbox.DefaultTable.MigrateMySQL(t.Context(), business))
	tx, err := business.BeginTx(t.Context(), nil)
	must(err)
	must(outbox.AddSQL(t.Context(), tx, outbox.MySQL, outboxMessages...))
	must(tx.Commit())
	_, err = business.ExecContext(t.Context(), sqlDead)
	must(err)
	box, err := outbox.MySQLBox(business, outbox.DefaultTable)
	must(err)
	return box
}

func musts(t *testing.T) func(error) {
	return func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
}

// withOutbox makes the box the only outbox of a site.
func withOutbox(box *outbox.Box) func(*web.Deps) {
	return func(d *web.Deps) {
		d.Outboxes = outboxes.New(d.Pool, []outboxes.Outbox{{Connection: "shop", Cluster: "shop-kafka", Read: box, Write: box}}, slog.New(slog.DiscardHandler))
	}
}

// eachOutbox runs a test on a site with an outbox of every kind.
func eachOutbox(t *testing.T, run func(*testing.T, *shop)) {
	for kind, box := range outboxKinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			run(t, setupShop(t, withOutbox(box(t))))
		})
	}
}

func TestOutboxOverTheAPI(t *testing.T) {
	t.Parallel()
	eachOutbox(t, outboxOverTheAPI)
}

func outboxOverTheAPI(t *testing.T, s *shop) {
	viewer, operator, approver := s.token(t, access.Viewer), s.token(t, access.Operator), s.token(t, access.Approver)
	get := func(path, want string) {
		t.Helper()
		if got := s.checked(t, viewer, http.MethodGet, "/api/v1"+path, ""); got.status != 200 || !strings.Contains(got.body, want) {
			t.Errorf("%s: %d %s, want %s", path, got.status, got.body, want)
		}
	}
	get("/outbox", `"pending":2`)
	get("/outbox/shop/outbox_message/rows", `"held_by":1`)
	get("/outbox/shop/outbox_message/rows?state=dead&target=orders&key=account-7&older_than=0s&limit=1", `"event_id":"evt-dead"`)
	get("/outbox/shop/outbox_message/rows?after=2", `"key":"0001"`)
	for path, status := range map[string]int{
		"/outbox/shop/outbox_message/rows?state=sent":     400,
		"/outbox/shop/outbox_message/rows?older_than=old": 400,
		"/outbox/shop/outbox_message/rows?limit=1000":     400,
		"/outbox/shop/other/rows":                         404,
	} {
		if got := s.checked(t, viewer, http.MethodGet, "/api/v1"+path, ""); got.status != status {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	post := func(token, path, body string, status int) reply {
		t.Helper()
		got := s.checked(t, token, http.MethodPost, "/api/v1/outbox"+path, body)
		if got.status != status {
			t.Errorf("%s: %d %s, want %d", path, got.status, got.body, status)
		}
		return got
	}
	row := "/shop/outbox_message/rows/1"
	post(viewer, row+"/retry", `{"reason":"r"}`, 403)
	post(operator, row+"/retry", `{}`, 422)
	post(operator, "/shop/outbox_message/rows/2/retry", `{"reason":"r"}`, 409)
	post(operator, "/shop/outbox_message/rows/9/skip", `{"reason":"r"}`, 404)
	post(operator, row+"/skip", `{"reason":"it is obsolete"}`, 200)
	post(operator, row+"/skip", `{"reason":"again"}`, 409)
	get("/outbox/shop/outbox_message/commands", `"releases":1`)
	post(operator, "/commands/1/approve", `{"reason":"r"}`, 403)
	post(approver, "/commands/7/approve", `{"reason":"r"}`, 404)
	if got := post(approver, "/commands/1/approve", `{"reason":"agreed"}`, 200); !strings.Contains(got.body, `"state":"done"`) {
		t.Errorf("approved: %s", got.body)
	}
	get("/outbox", `"dead":0`)
}

func TestOutboxPages(t *testing.T) {
	t.Parallel()
	eachOutbox(t, outboxPages)
}

func outboxPages(t *testing.T, s *shop) {
	operator := s.signIn(t, access.Operator)
	page := func(path string, status int, wants ...string) {
		t.Helper()
		got := s.get(t, operator, path)
		for _, want := range wants {
			if !strings.Contains(got.body, want) {
				t.Errorf("%s does not say %q:\n%s", path, want, got.body)
			}
		}
		if got.status != status {
			t.Errorf("%s: %d", path, got.status)
		}
	}
	page("/outbox", 200, "evt-dead", "evt-behind", "Held back", "too &lt;large&gt;", "/outbox/shop/outbox_message/1", "1 dead")
	page("/metrics", 200, `oncemore_outbox_pending_rows{outbox="shop/outbox_message"} 2`, `oncemore_outbox_dead_rows{outbox="shop/outbox_message"} 1`, "oncemore_outbox_oldest_pending_seconds")
	page("/outbox?state=dead&key=account-8", 200, "No rows match.")
	page("/outbox?state=gone", 400)
	page("/outbox?outbox=shop/other", 404)
	page("/outbox/shop/outbox_message/1", 200, "Retry…", "Skip with reason…", "the 1 later row of its key goes on")
	page("/outbox/shop/outbox_message/2", 200, "Held back")
	page("/outbox/shop/outbox_message/99", 404)

	act := func(client *http.Client, path string, status int, values url.Values) {
		t.Helper()
		if got := s.post(t, client, path, values); got.status != status {
			t.Errorf("%s: %d, want %d\n%s", path, got.status, status, got.body)
		}
	}
	why := url.Values{"reason": {"obsolete since Monday"}}
	act(operator, "/outbox/shop/outbox_message/1/skip", 422, nil)
	act(operator, "/outbox/shop/outbox_message/1/skip", 303, why)
	page("/outbox", 200, "operator", "obsolete since Monday", "Someone else must approve", "releases 1 later row")
	page("/outbox/shop/outbox_message/1", 200, "obsolete since Monday")
	act(operator, "/outbox/shop/outbox_message/1/retry", 409, why)
	act(s.signIn(t, access.Viewer), "/outbox/commands/1/reject", 403, why)
	approver := s.signIn(t, access.Approver)
	if got := s.get(t, approver, "/outbox"); !strings.Contains(got.body, "/outbox/commands/1/approve") {
		t.Errorf("no button for the approver:\n%s", got.body)
	}
	act(approver, "/outbox/commands/1/approve", 303, why)
	page("/outbox/shop/outbox_message/1", 200, "Skipped")
	page("/outbox?state=dead", 200, "No rows match.")
}

func TestOutboxPageWithoutAny(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	got := s.call(t, s.token(t, access.Viewer), http.MethodGet, "/api/v1/outbox", "")
	if got.status != 200 || !strings.Contains(got.body, `"items":[]`) {
		t.Errorf("%d %s", got.status, got.body)
	}
	for _, path := range []string{"/outbox/a/b/rows", "/outbox/a/b/commands"} {
		if got := s.call(t, s.token(t, access.Viewer), http.MethodGet, "/api/v1"+path, ""); got.status != 404 {
			t.Errorf("%s: %s", path, fmt.Sprint(got.status, got.body))
		}
	}
}
