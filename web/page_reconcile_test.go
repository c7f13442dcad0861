package web_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/internal/access"
	"oncemore/internal/schedule"
	"oncemore/internal/testkit"
	"oncemore/migrations/pgtest"
	"oncemore/reconcile"
	"oncemore/web"
)

// counting is a shop whose ledger is reconciled: three sides in one business
// database, by a job in Shanghai's zone.
type counting struct {
	*shop
	*testing.T
	runs  *reconcile.Runs
	jobs  *reconcile.Jobs
	books *pgxpool.Pool
	role  string
}

const ledgerJob = `
job: ledger
timezone: Asia/Shanghai
schedule: "15 * * * *"
window: {size: 1h, overlap: 10m, grace: 5m}
outbox: {connection: books, query: 'select event_id, amount, currency, at from published where at >= :from and at < :to', lookup: 'select event_id, amount, currency, at from published where event_id in (:keys)'}
consumed: {connection: books, query: 'select event_id, amount, currency, at from consumed where at >= :from and at < :to', lookup: 'select event_id, amount, currency, at from consumed where event_id in (:keys)'}
effect: {connection: books, query: 'select event_id, amount, currency, at from effect where at >= :from and at < :to', lookup: 'select event_id, amount, currency, at, payee from effect where event_id in (:keys)'}
key: [event_id]
match: {mode: one_to_one, amount: amount, currency: currency, outbox_time: at, consumed_time: at, effect_time: at}
`

// countsAt is the time by which runs are asked for.
var countsAt = time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)

func setupCounting(t *testing.T) *counting {
	t.Helper()
	k := &counting{T: t, books: pgtest.Open(t, pgtest.Empty(t))}
	k.role = "r_" + k.books.Config().ConnConfig.Database
	for _, table := range []string{"published", "consumed", "effect", "pairs_a", "pairs_b"} {
		k.exec("CREATE TABLE " + table + " (event_id text, part int, amount numeric, currency text, at timestamptz, payee text default '6222 0812 3456')")
	}
	k.exec("CREATE ROLE " + k.role + " LOGIN PASSWORD 'reader'")
	k.exec("GRANT SELECT ON ALL TABLES IN SCHEMA public TO " + k.role)
	conf := k.books.Config().Copy()
	conf.ConnConfig.User, conf.ConnConfig.Password = k.role, "reader"
	reader, err := pgxpool.NewWithConfig(t.Context(), conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		reader.Close()
		for _, drop := range []string{"DROP OWNED BY ", "DROP ROLE "} {
			if _, err := k.books.Exec(context.Background(), drop+k.role); err != nil {
				t.Errorf("%s: %v", drop, err)
			}
		}
	})
	k.shop = setupShop(t, func(d *web.Deps) { k.wire(d, reader) })
	return k
}

func (k *counting) exec(sql string, args ...any) {
	k.Helper()
	if _, err := k.books.Exec(k.Context(), sql, args...); err != nil {
		k.Fatalf("%s: %v", sql, err)
	}
}

func (k *counting) wire(d *web.Deps, reader *pgxpool.Pool) {
	k.Helper()
	k.jobs = reconcile.NewJobs(d.Pool)
	var err error
	k.runs, err = reconcile.NewRuns(d.Pool, k.jobs, map[string]reconcile.Database{"books": {Name: "books", Postgres: reader}},
		reconcile.Options{Clock: func() time.Time { return countsAt }, Log: d.Logger})
	if err != nil {
		k.Fatal(err)
	}
	d.Reconcile = web.Reconciliation{Jobs: k.jobs, Runs: k.runs, Breaks: reconcile.NewBreaks(d.Pool)}
	k.define(d.Pool, ledgerJob)
}

func (k *counting) define(pool *pgxpool.Pool, text string) {
	k.Helper()
	job, err := reconcile.ParseJob("job.yaml", []byte(text))
	if err != nil {
		k.Fatal(err)
	}
	err = pgx.BeginFunc(k.Context(), pool, func(tx pgx.Tx) error {
		_, err := k.jobs.Keep(k.Context(), tx, job, text, "ada")
		return err
	})
	if err != nil {
		k.Fatal(err)
	}
}

// add writes a row of a side, minutes after noon UTC; amount nil is NULL.
func (k *counting) add(side, event string, amount any, currency string, minutes int) {
	k.Helper()
	k.exec("INSERT INTO "+side+" (event_id, amount, currency, at) VALUES ($1, $2::numeric, $3, $4)", event, amount, currency, time.Date(2026, 11, 30, 12, minutes, 0, 0, time.UTC))
}

func (k *counting) everywhere(event, amount, currency string) {
	for _, side := range []string{"published", "consumed", "effect"} {
		k.add(side, event, amount, currency, 1)
	}
}

// run asks for the hour after noon as ada, and carries it out.
func (k *counting) run(job string) *reconcile.Run {
	k.Helper()
	actor := access.Actor{User: "operator", Role: access.Operator, Via: "test"}
	from := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	id, err := k.runs.Ask(k.Context(), actor, reconcile.Request{Job: job, From: from, To: from.Add(time.Hour)})
	if err != nil {
		k.Fatal(err)
	}
	return k.do(id)
}

func (k *counting) do(id int64) *reconcile.Run {
	k.Helper()
	run, err := k.runs.Do(k.Context(), id)
	if err != nil {
		k.Fatal(err)
	}
	return run
}

// breakOf is the id of the newest break of an event.
func (k *counting) breakOf(event string) int64 {
	k.Helper()
	var id int64
	if err := k.pool.QueryRow(k.Context(), "select max(id) from reconcile_break where key_text[1] = $1", event).Scan(&id); err != nil {
		k.Fatal(err)
	}
	return id
}

// usual has a break of each type, in two currencies.
func (k *counting) usual() {
	k.everywhere("ok-1", "100.00", "CNY")
	k.everywhere("ok-2", "8.50", "USD")
	k.add("published", "lost", "264.00", "CNY", 2)
	for _, side := range []string{"published", "consumed"} {
		k.add(side, "missing", "1268.00", "CNY", 3)
		k.add(side, "twice", "128.00", "CNY", 4)
		k.add(side, "differs", "99.00", "USD", 5)
		k.add(side, "null", "7.00", "CNY", 6)
	}
	k.add("effect", "twice", "128.00", "CNY", 4)
	k.add("effect", "twice", "128.00", "CNY", 5)
	k.add("effect", "differs", "99.90", "USD", 5)
	k.add("effect", "stray", "45.00", "CNY", 7)
	k.add("effect", "null", nil, "CNY", 6)
}

func lacks(t *testing.T, r reply, words ...string) {
	t.Helper()
	for _, w := range words {
		if strings.Contains(r.body, w) {
			t.Errorf("the page says %q", w)
		}
	}
}

// plainText is the page without its tags.
func plainText(r reply) string {
	text := html.UnescapeString(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(r.body, " "))
	return strings.Join(strings.Fields(text), " ")
}

func says(t *testing.T, r reply, words ...string) {
	t.Helper()
	if r.status != http.StatusOK {
		t.Errorf("status %d", r.status)
	}
	text := plainText(r)
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("the page does not say %q", w)
		}
	}
	if t.Failed() && testing.Verbose() {
		t.Log(text)
	}
}

func TestRunPageProvesEachCurrency(t *testing.T) {
	t.Parallel()
	k := setupCounting(t)
	k.usual()
	run := k.run("ledger")
	reviewer, viewer := k.signIn(t, access.Reviewer), k.signIn(t, access.Viewer)
	path := fmt.Sprintf("/runs/%d", run.ID)
	page := k.get(t, reviewer, path)
	says(t, page, "Complete, awaiting sign-off", "Window 30 Nov 2026 20:00–21:00, Asia/Shanghai.", "25.00%", "2 of 8 events",
		"Foots to zero in both currencies", "1,268.00", "Roll-forward", "Since the beginning", "Closing", "Duplicate effect", "Published, not consumed", "Effect without record",
		"none", "NULL", "Sign off 1,712.00 CNY, 0.90 USD unexplained…", "Reviewer and Admin can sign, except operator", "0–1 d")
	lacks(t, page, "You prepared this run", " style=", "<script>")
	lacks(t, k.get(t, viewer, path), `value="sign"`, `name="break"`)
	says(t, k.get(t, viewer, path), "Reviewer and Admin can sign.")
	says(t, k.get(t, k.signIn(t, access.Admin), path), "Sign off 1,712.00 CNY")
	for query, want := range map[string]int{"": 6, "?type=missing_effect": 1, "?what=new": 6, "?what=closed": 0, "?age=0-1": 6, "?age=30-": 0, "?owner=none": 6, "?owner=me": 0, "?state=open&what=open": 6} {
		if got := strings.Count(k.get(t, reviewer, path+query).body, "data-row"); got != want {
			t.Errorf("%s lists %d breaks, want %d", query, got, want)
		}
	}
	sorted := k.get(t, reviewer, path+"?sort=-amount")
	if rows := regexp.MustCompile(`class="id">([a-z]+)<`).FindAllStringSubmatch(sorted.body, -1); len(rows) != 6 || rows[0][1] != "missing" || rows[5][1] != "differs" {
		t.Errorf("largest first: %v", rows)
	}
	for _, query := range []string{"?type=x", "?sort=amount", "?what=x", "?age=1", "?state=x", "?cursor=x", "?x=1"} {
		if r := k.get(t, reviewer, path+query); r.status != http.StatusBadRequest {
			t.Errorf("%s answers %d", query, r.status)
		}
	}
	zh := k.request(t, http.MethodGet, path, "")
	zh.AddCookie(&http.Cookie{Name: "lang", Value: "zh-Hans"})
	says(t, k.do2(reviewer, zh), "两个币种均勾稽为零", "差异变动", "缺少入账", "签字：未解释 1,712.00 CNY", "除外")
}

func (k *counting) do2(client *http.Client, r *http.Request) reply { return k.shop.do(k.T, client, r) }

// A finished run stays what it was; the next one closes what was mended.
func TestASealedRunDoesNotChange(t *testing.T) {
	t.Parallel()
	k := setupCounting(t)
	k.everywhere("ok", "1.00", "CNY")
	k.add("published", "late", "50.00", "CNY", 1)
	k.add("consumed", "late", "50.00", "CNY", 1)
	first := k.run("ledger")
	k.add("effect", "late", "50.00", "CNY", 30)
	second := k.run("ledger")
	viewer := k.signIn(t, access.Viewer)
	says(t, k.get(t, viewer, fmt.Sprintf("/runs/%d", first.ID)), "Open 1", "late", "50.00", "by run "+fmt.Sprint(second.ID), "50.00%")
	page := k.get(t, viewer, fmt.Sprintf("/runs/%d?what=closed", second.ID))
	says(t, page, "Open 0", "Closed by this run 1", "100%", "Since run "+fmt.Sprint(first.ID)+", complete, awaiting sign-off", "Auto-closed 1 50.00", "No breaks were open when the run ended.")
	k.add("published", "known", "3.00", "CNY", 1)
	k.run("ledger")
	contains(t, k.post(t, k.signIn(t, access.Reviewer), "/breaks/act", url.Values{"do": {"explain"}, "code": {"test_data"}, "reason": {"a test"}, "break": {fmt.Sprint(k.breakOf("known"))}, "from": {"/breaks"}}), http.StatusSeeOther)
	third := k.run("ledger")
	says(t, k.get(t, viewer, fmt.Sprintf("/runs/%d?what=explained", third.ID)), "Open 0", "Explained 1", "known", "Test data, a test")
	says(t, k.get(t, viewer, fmt.Sprintf("/breaks/%d", k.breakOf("late"))), "Closed by run "+fmt.Sprint(second.ID)+", which covered this key and found its sides equal.", "What runs said", "whole")
}

func TestPartialAndFailedRunsSaySo(t *testing.T) {
	t.Parallel()
	k := setupCounting(t)
	k.usual()
	k.run("ledger")
	k.add("effect", "stray-2", "1.00", "CNY", 8)
	k.define(k.pool, strings.Replace(ledgerJob, "key: [event_id]", "key: [event_id]\nlimits: {breaks: 1}", 1))
	partial := k.run("ledger")
	reviewer := k.signIn(t, access.Reviewer)
	page := k.get(t, reviewer, fmt.Sprintf("/runs/%d", partial.ID))
	says(t, page, "Partial", "1 segment has more than 1 differences.", "events so far", "A partial run can't be signed.")
	lacks(t, page, `value="sign"`, `class="v go"`, `ok-line go`)
	says(t, k.get(t, reviewer, "/reconciliations/ledger"), "Not known", "Partial")
	broken := fmt.Sprintf("/breaks/%d", k.breakOf("missing"))
	k.exec("REVOKE SELECT ON effect FROM " + k.role)
	missing := k.run("ledger")
	says(t, k.get(t, reviewer, fmt.Sprintf("/runs/%d", missing.ID)), "Partial", "1 of 1 segment is missing.", "permission denied for table effect", "1 segment is missing.", "Given up")
	says(t, k.get(t, reviewer, broken), "The rows could not be read", "permission denied")
	viewers := k.get(t, k.signIn(t, access.Viewer), broken)
	says(t, viewers, "The rows could not be read.", "none")
	lacks(t, viewers, "SQLSTATE")
	k.exec("DROP TABLE effect")
	failed := k.run("ledger")
	page = k.get(t, reviewer, fmt.Sprintf("/runs/%d", failed.ID))
	says(t, page, "Failed", "The run failed. Nothing of it is counted.", `relation "effect" does not exist`, "A failed run can't be signed.", "Run again")
	lacks(t, page, "Foots", `value="sign"`)
	says(t, k.get(t, reviewer, "/reconciliations"), "1 job is broken or incomplete.", "does not exist")
}

func TestSigningFromThePage(t *testing.T) {
	t.Parallel()
	k := setupCounting(t)
	k.usual()
	run := k.run("ledger")
	path := fmt.Sprintf("/runs/%d", run.ID)
	operator, reviewer, admin := k.signIn(t, access.Operator), k.signIn(t, access.Reviewer), k.signIn(t, access.Admin)
	page := k.get(t, reviewer, path)
	seal := regexp.MustCompile(`name="seal" value="([0-9a-f]{64})"`).FindStringSubmatch(page.body)
	if seal == nil {
		t.Fatal("no seal in the form")
	}
	form := func(act, reason string, points ...string) url.Values {
		return url.Values{"act": {act}, "seal": {seal[1]}, "reason": {reason}, "checklist": points}
	}
	all := []string{"totals", "breaks", "explanations"}
	contains(t, k.post(t, operator, path+"/sign-off", form("sign", "x", all...)), http.StatusForbidden)
	contains(t, k.post(t, reviewer, path+"/sign-off", form("sign", "", all...)), http.StatusUnprocessableEntity, "Enter a reason")
	contains(t, k.post(t, reviewer, path+"/sign-off", form("sign", "typed text", "totals")), http.StatusUnprocessableEntity, "checklist", "typed text", `value="totals" checked`)
	other := form("sign", "x", all...)
	other.Set("seal", strings.Repeat("0", 64))
	contains(t, k.post(t, reviewer, path+"/sign-off", other), http.StatusConflict)
	contains(t, k.post(t, reviewer, path+"/sign-off", form("send_back", "explain the stray one first")), http.StatusSeeOther)
	says(t, k.get(t, reviewer, path), "Sent back by reviewer", "explain the stray one first")
	contains(t, k.post(t, reviewer, path+"/sign-off", form("sign", "seen", all...)), http.StatusSeeOther)
	page = k.get(t, reviewer, path)
	says(t, page, "Signed", "Signed by reviewer, seal", "This run is signed.", "Reopen…")
	lacks(t, page, `value="sign"`, "Run again")
	contains(t, k.post(t, admin, path+"/sign-off", form("reopen", "")), http.StatusUnprocessableEntity, "Enter a reason")
	window := url.Values{"from": {"2026-11-30T20:00"}, "to": {"2026-11-30T21:00"}}
	contains(t, k.post(t, operator, "/reconciliations/ledger/runs", window), http.StatusUnprocessableEntity, "is signed; reopen it first")
	contains(t, k.post(t, admin, path+"/sign-off", form("reopen", "a wrong row")), http.StatusSeeOther)
	says(t, k.get(t, reviewer, path), "Reopened, awaiting sign-off", "a wrong row")
	own := k.post(t, reviewer, "/reconciliations/ledger/runs", window)
	contains(t, own, http.StatusSeeOther)
	k.do(idOf(t, own))
	says(t, k.get(t, reviewer, own.header.Get("Location")), "You prepared this run. Someone else must sign.")
}

// A signed window is read again a day later: what it no longer says is shown on
// the run that was signed, which stays what it was and is signed by nobody again.
func TestASupersededRunSaysSo(t *testing.T) {
	t.Parallel()
	k := setupCounting(t)
	k.define(k.pool, strings.Replace(ledgerJob, "schedule: \"15 * * * *\"", "recheck: [1d]", 1))
	k.everywhere("ok", "1.00", "CNY")
	signed := k.run("ledger")
	reviewer := access.Actor{User: "reviewer", Role: access.Reviewer, Via: "test"}
	if err := k.runs.Sign(t.Context(), reviewer, signed.ID, signed.Seal, reconcile.Checklist); err != nil {
		t.Fatal(err)
	}
	k.add("effect", "ok", "1.00", "CNY", 30)
	later := k.do(k.recheck())
	path := fmt.Sprintf("/runs/%d", signed.ID)
	client := k.signIn(t, access.Reviewer)
	page := k.get(t, client, path)
	says(t, page, "Superseded", fmt.Sprintf("Superseded by run %d, which read the same window later: ", later.ID), "+1.00 CNY",
		fmt.Sprintf("Open run %d", later.ID), "A superseded run can't be signed. Sign the window's next run instead.", "Foots to zero")
	contains(t, page, http.StatusOK, fmt.Sprintf(`href="/runs/%d"`, later.ID))
	lacks(t, page, `value="sign"`, `value="send_back"`, `value="reopen"`, `name="seal"`)
	form := url.Values{"act": {"sign"}, "seal": {hex.EncodeToString(signed.Seal)}, "reason": {"x"}, "checklist": reconcile.Checklist}
	contains(t, k.post(t, client, path+"/sign-off", form), http.StatusConflict)
	contains(t, k.get(t, client, path+"/export?format=csv"), http.StatusOK, "event_id")
	contains(t, k.get(t, client, "/reconciliations/ledger/export?format=csv"), http.StatusOK, "superseded")
	says(t, k.get(t, client, fmt.Sprintf("/runs/%d", later.ID)), "Duplicate effect", "ok")
}

// recheck lets the day pass after which a signed window is read again, and gives
// the run that was asked for.
func (k *counting) recheck() (id int64) {
	k.Helper()
	s := schedule.New(k.pool, quiet, func() time.Time { return countsAt.Add(25 * time.Hour) })
	k.runs.Schedule(s)
	if n, err := s.Tick(k.Context()); n != 1 || err != nil {
		k.Fatalf("%d entries done, %v", n, err)
	}
	if err := k.pool.QueryRow(k.Context(), "select max(id) from reconcile_run").Scan(&id); err != nil {
		k.Fatal(err)
	}
	return id
}

// idOf is the number at the end of where a reply leads.
func idOf(t *testing.T, r reply) int64 {
	t.Helper()
	var id int64
	if _, err := fmt.Sscanf(r.header.Get("Location"), "/runs/%d", &id); err != nil {
		t.Fatalf("%d to %q: %.300s", r.status, r.header.Get("Location"), r.body)
	}
	return id
}

func TestBreaksAreWorkedThrough(t *testing.T) {
	t.Parallel()
	k := setupCounting(t)
	k.usual()
	k.run("ledger")
	operator, reviewer := k.signIn(t, access.Operator), k.signIn(t, access.Reviewer)
	missing, twice := k.breakOf("missing"), k.breakOf("twice")
	both := []string{fmt.Sprint(missing), fmt.Sprint(twice)}
	act := func(client *http.Client, form url.Values) reply {
		form.Set("from", "/breaks?job=ledger")
		return k.post(t, client, "/breaks/act", form)
	}
	contains(t, act(operator, url.Values{"do": {"assign"}, "owner": {"reviewer"}, "break": both}), http.StatusSeeOther)
	contains(t, act(operator, url.Values{"do": {"assign"}, "owner": {"reviewer"}}), http.StatusUnprocessableEntity, "Select at least one row", "Outstanding")
	contains(t, act(operator, url.Values{"do": {"assign"}, "owner": {"stranger"}, "break": both}), http.StatusUnprocessableEntity, "is no account")
	contains(t, act(operator, url.Values{"do": {"explain"}, "code": {"rounding"}, "reason": {"x"}, "break": both}), http.StatusForbidden)
	contains(t, act(reviewer, url.Values{"do": {"explain"}, "code": {"rounding"}, "break": both}), http.StatusUnprocessableEntity, "Enter a reason")
	contains(t, act(reviewer, url.Values{"do": {"sing"}, "break": both}), http.StatusUnprocessableEntity)
	contains(t, act(reviewer, url.Values{"do": {"explain"}, "code": {"manual_booking"}, "reason": {"paid by hand, <b>receipt 7</b>"}, "break": both}), http.StatusSeeOther)
	contains(t, act(reviewer, url.Values{"do": {"explain"}, "code": {"manual_booking"}, "reason": {"again"}, "break": both}), http.StatusConflict, "is explained")
	if to := act(reviewer, url.Values{"do": {"propose"}, "break": both}).header.Get("Location"); to != "/compensations/new?break="+both[0]+"&break="+both[1] {
		t.Errorf("propose leads to %s", to)
	}
	one := fmt.Sprintf("/breaks/%d", missing)
	page := k.get(t, reviewer, one)
	says(t, page, "Explained by reviewer, Booked by hand: paid by hand, <b>receipt 7</b>", "1,268.00 CNY is missing in effect.", "No effect", "Owner: reviewer.", "Take explanation back…", "No dead letter is stored for this event")
	lacks(t, page, `value="explain"`)
	contains(t, act(reviewer, url.Values{"do": {"unexplain"}, "reason": {"it was another one"}, "break": both[:1]}), http.StatusSeeOther)
	contains(t, act(operator, url.Values{"do": {"comment"}, "comment": {"asked the bank"}, "break": both[:1]}), http.StatusSeeOther)
	says(t, k.get(t, reviewer, one), "Reopened", "asked the bank", "It came back once.", "Explanation taken back by reviewer")
	k.add("effect", "missing", "1268.00", "CNY", 40)
	again := act(operator, url.Values{"do": {"recheck"}, "break": both[:1]})
	k.do(idOf(t, again))
	says(t, k.get(t, operator, again.header.Get("Location")), "1 key read again: missing.", "Closed by this run 1")
	says(t, k.get(t, operator, one), "Closed by run", "Found whole")
	for query, want := range map[string]int{"": 4, "?state=explained": 1, "?state=all": 6, "?owner=reviewer&state=all": 2, "?type=amount_mismatch": 2, "?key=stray": 1, "?amount_min=100": 1, "?job=none": 0, "?currency=USD": 1, "?sort=-amount": 4} {
		if got := strings.Count(k.get(t, operator, "/breaks"+query).body, "data-row"); got != want {
			t.Errorf("/breaks%s lists %d, want %d", query, got, want)
		}
	}
}

func TestBreakShowsRowsSideBySide(t *testing.T) {
	t.Parallel()
	k := setupCounting(t)
	k.usual()
	long := "evt-" + strings.Repeat("长x", 300)
	k.add("effect", long, "123456789012345678901234567890.123456789", "CNY", 9)
	k.run("ledger")
	operator, viewer := k.signIn(t, access.Operator), k.signIn(t, access.Viewer)
	twice := fmt.Sprintf("/breaks/%d", k.breakOf("twice"))
	says(t, k.get(t, operator, twice), "128.00 CNY too much took effect.", "2026-11-30 20:04:00.000 +08:00", "6222 0812 3456", "Rows differs 1 1 2", "Amount differs 128.00 128.00 256.00")
	page := k.get(t, viewer, twice)
	says(t, page, "masked", "sees the columns that are compared", "128.00")
	lacks(t, page, "6222 0812 3456", `name="comment"`, `value="recheck"`)
	says(t, k.get(t, operator, fmt.Sprintf("/breaks/%d", k.breakOf("null"))), "NULL")
	says(t, k.get(t, operator, fmt.Sprintf("/breaks/%d", k.breakOf(long))), long, "123,456,789,012,345,678,901,234,567,890.123456789 CNY too much took effect.", "none")
	for _, path := range []string{"/breaks/99999", "/breaks/x", "/runs/99999", "/runs/x", "/reconciliations/none", twice + "/files/7", twice + "/files/x", "/reconciliations/ledger?tab=definition&version=9"} {
		if r := k.get(t, operator, path); r.status != http.StatusNotFound {
			t.Errorf("%s answers %d", path, r.status)
		}
	}
}

func TestEvidenceFiles(t *testing.T) {
	t.Parallel()
	k := setupCounting(t)
	k.usual()
	k.run("ledger")
	operator := k.signIn(t, access.Operator)
	path := fmt.Sprintf("/breaks/%d", k.breakOf("stray"))
	contains(t, k.upload(operator, path+"/files", "入账 单.txt", "paid 45.00"), http.StatusSeeOther)
	page := k.get(t, operator, path)
	says(t, page, "入账 单.txt", "operator", "File added by operator")
	href := regexp.MustCompile(`href="(/breaks/\d+/files/\d+)"`).FindStringSubmatch(page.body)
	if href == nil {
		t.Fatal("no link to the file")
	}
	file := k.get(t, operator, href[1])
	if file.body != "paid 45.00" || !strings.HasPrefix(file.header.Get("Content-Disposition"), "attachment; filename*=UTF-8''%E5%85%A5") {
		t.Errorf("%q, %v", file.body, file.header)
	}
	contains(t, k.upload(operator, path+"/files", "page.html", "<!doctype html><script>alert(1)</script>"), http.StatusUnprocessableEntity, "text/html")
	contains(t, k.upload(operator, path+"/files", "big.txt", strings.Repeat("a", reconcile.MostFile+1)), http.StatusUnprocessableEntity, "The file cannot be kept")
	contains(t, k.upload(k.signIn(t, access.Viewer), path+"/files", "a.txt", "a"), http.StatusForbidden)
}

// upload sends a file as a form of the page does.
func (k *counting) upload(client *http.Client, path, name, content string) reply {
	k.Helper()
	body := "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"" + name + "\"\r\nContent-Type: application/octet-stream\r\n\r\n" + content + "\r\n--b--\r\n"
	r := k.request(k.T, http.MethodPost, path, body)
	r.Header.Set("Content-Type", "multipart/form-data; boundary=b")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	return k.shop.do(k.T, client, r)
}

func TestJobPages(t *testing.T) {
	t.Parallel()
	k := setupCounting(t)
	operator, viewer, admin := k.signIn(t, access.Operator), k.signIn(t, access.Viewer), k.signIn(t, access.Admin)
	says(t, k.get(t, viewer, "/reconciliations"), "ledger", "Never run", "Not known", "1 job was never run: nothing is known of it.", "15 * * * *, Asia/Shanghai")
	k.usual()
	run := k.run("ledger")
	k.define(k.pool, ledgerJob+"tolerance: {amount: \"0.01\"}\n")
	says(t, k.get(t, viewer, "/reconciliations"), "25.00%", "1,712.00 CNY", "0.90 USD", "1 run waits for a signature.")
	says(t, k.get(t, operator, "/reconciliations/ledger"), fmt.Sprint(run.ID), "Run now…", "by hand", "1,712.00 CNY", "v2")
	lacks(t, k.get(t, viewer, "/reconciliations/ledger"), "Run now…", "/change")
	contains(t, k.get(t, admin, "/reconciliations/ledger"), http.StatusOK, `href="/reconciliations/ledger/change"`)
	says(t, k.get(t, viewer, "/reconciliations/ledger?tab=trends"), "Matched", "At risk CNY", "Duration", "25.00%")
	says(t, k.get(t, viewer, "/reconciliations/ledger?tab=definition"), "Definition v2", "Changed since v1", "tolerance: {amount:", "v1", "ada")
	says(t, k.get(t, viewer, "/reconciliations/ledger?tab=definition&version=1"), "Definition v1")
	page := k.get(t, operator, "/reconciliations/ledger?tab=preview")
	says(t, page, "Plan merge: there are three sides", "Reads a whole table.", "an index on at, as the query compares it", "Seq Scan", "Published")
	zh := k.request(t, http.MethodGet, "/reconciliations/ledger?tab=preview", "")
	zh.AddCookie(&http.Cookie{Name: "lang", Value: "zh-Hans"})
	chinese := k.do2(operator, zh)
	says(t, chinese, "读取整张表。", "在 at 上建索引")
	lacks(t, chinese, "the database reads")
	says(t, k.get(t, viewer, "/reconciliations/ledger?state=complete&sign_off=waiting"), "30 Nov 2026 20:00–21:00")
	says(t, k.get(t, viewer, "/reconciliations/ledger?state=failed"), "No runs match.")
	pause := func(act, reason string) reply {
		return k.post(t, operator, "/reconciliations/ledger/"+act, url.Values{"reason": {reason}})
	}
	contains(t, pause("pause", ""), http.StatusUnprocessableEntity, "Enter a reason")
	contains(t, pause("pause", "migration"), http.StatusSeeOther)
	says(t, k.get(t, operator, "/reconciliations/ledger"), "Paused by operator", "Resume…")
	contains(t, pause("resume", "done"), http.StatusSeeOther)
	contains(t, k.post(t, viewer, "/reconciliations/ledger/pause", url.Values{"reason": {"x"}}), http.StatusForbidden)
	key := k.post(t, operator, "/reconciliations/ledger/runs", url.Values{"key": {"stray"}})
	k.do(idOf(t, key))
	says(t, k.get(t, operator, key.header.Get("Location")), "1 key read again: stray.")
	for _, form := range []url.Values{{"key": {"a", "b"}}, {"key": {""}}, {"from": {"soon"}, "to": {"later"}}, {"from": {"2026-11-30T21:00"}, "to": {"2026-11-30T20:00"}}, {"from": {"2026-11-30T20:00"}, "to": {"2026-12-01T08:00"}}, {"key": {"stray"}, "plan": {"guess"}}} {
		contains(t, k.post(t, operator, "/reconciliations/ledger/runs", form), http.StatusUnprocessableEntity, "Run now")
	}
}

func TestCompositeKeysWithoutAmounts(t *testing.T) {
	t.Parallel()
	k := setupCounting(t)
	side := func(table string) string {
		return fmt.Sprintf("{connection: books, query: 'select event_id, part, at from %[1]s where at >= :from and at < :to', lookup: 'select event_id, part, at from %[1]s where (event_id, part) in (:keys)'}", table)
	}
	k.define(k.pool, "job: pairs\nwindow: {size: 1h, grace: 5m}\nconsumed: "+side("pairs_a")+"\neffect: "+side("pairs_b")+
		"\nkey: [event_id, part]\nmatch: {mode: one_to_one, amount: none, currency: none, consumed_time: at, effect_time: at}\n")
	k.exec("INSERT INTO pairs_a (event_id, part, at) VALUES ('a', 11, '2026-11-30 12:01Z'), ('a', 1, '2026-11-30 12:01Z')")
	k.exec("INSERT INTO pairs_b (event_id, part, at) VALUES ('a', 1, '2026-11-30 12:01Z')")
	run := k.run("pairs")
	viewer := k.signIn(t, access.Viewer)
	says(t, k.get(t, viewer, fmt.Sprintf("/runs/%d", run.ID)), "a · 11", "1 row none", "50.00%", "Foots to zero")
	says(t, k.get(t, viewer, fmt.Sprintf("/breaks/%d", k.breakOf("a"))), "a · 11", "The amounts are equal; rows or currencies differ.", "event_id part at")
	says(t, k.get(t, viewer, "/breaks"), "a · 11")
	token := k.token(t, access.Viewer)
	if r := k.call(t, token, "GET", fmt.Sprintf("/api/v1/runs/%d", run.ID), ""); !strings.Contains(r.body, `"at_risk":[{"currency":"","breaks":1,"amount":"0"}]`) {
		t.Errorf("a job without currency loses its open breaks: %s", r.body)
	}
}

// The original event is replayed from its break by one press; the next run finds
// the key whole.
func TestReplayFromABreak(t *testing.T) {
	t.Parallel()
	k := setupCounting(t)
	operator := k.signIn(t, access.Operator)
	k.fail(t, "missing", points)
	k.usual()
	run := k.run("ledger")
	path := fmt.Sprintf("/breaks/%d", k.breakOf("missing"))
	var page reply
	testkit.Eventually(t, 30*time.Second, func() bool {
		page = k.get(t, operator, path)
		return strings.Contains(page.body, `name="letter_id"`)
	}, "the replay is offered")
	says(t, page, "Replay the original event", "Safe", points)
	says(t, k.get(t, operator, fmt.Sprintf("/runs/%d", run.ID)), "1 of the 6 open breaks with an event comes from fault F-1, 1,268.00 CNY.")
	field := func(name string) string {
		return regexp.MustCompile(`name="` + name + `" value="([^"]+)"`).FindStringSubmatch(page.body)[1]
	}
	form := url.Values{"action": {"safe"}, "letter_id": {field("letter_id")}, "request_key": {field("request_key")}, "reason": {"Replay from break"}, "from": {path}}
	replayAt(t, k.post(t, operator, "/replays", form))
	testkit.Eventually(t, 30*time.Second, func() bool {
		return strings.Contains(k.get(t, operator, path).body, ">R-1<")
	}, "the replay is shown")
}

func TestRunAtWorkIsLive(t *testing.T) {
	t.Parallel()
	k := setupCounting(t)
	operator := k.signIn(t, access.Operator)
	asked := k.post(t, operator, "/reconciliations/ledger/runs", url.Values{"from": {"2026-11-30T18:00"}, "to": {"2026-11-30T21:00"}})
	id, path := idOf(t, asked), asked.header.Get("Location")
	page := k.get(t, operator, path)
	says(t, page, "Queued", "0 of 3 segments compared", "The run waits for its turn.")
	contains(t, page, http.StatusOK, `sse-connect="`+path+`/events"`)
	lacks(t, page, "Foots", "Matched", `class="v go"`)
	stream := make(chan reply, 1)
	go func() { stream <- k.get(t, operator, path+"/events") }()
	k.do(id)
	select {
	case r := <-stream:
		contains(t, r, http.StatusOK, "event: done")
	case <-time.After(30 * time.Second):
		t.Fatal("the stream does not end with the run")
	}
	page = k.get(t, operator, path)
	says(t, page, "No breaks were open when this run ended.", "no events in this window", "Foots to zero")
	lacks(t, page, "100%")
}

func TestExportsAreExact(t *testing.T) {
	t.Parallel()
	k := setupCounting(t)
	k.usual()
	k.add("effect", "=1+1", "0.10", "CNY", 9)
	run := k.run("ledger")
	viewer := k.signIn(t, access.Viewer)
	csv := k.get(t, viewer, fmt.Sprintf("/runs/%d/export?format=csv", run.ID))
	contains(t, csv, http.StatusOK, "published_amount", "missing,missing,missing_effect,open,CNY,1268", "'=1+1", "-0.1")
	if n := strings.Count(csv.body, "\n"); n != 8 {
		t.Errorf("%d lines: %s", n, csv.body)
	}
	contains(t, k.get(t, viewer, "/breaks/export?format=jsonl&type=duplicate_effect"), http.StatusOK, `"twice"`, `"effect_amount":"256"`)
	contains(t, k.get(t, viewer, "/reconciliations/ledger/export?format=csv"), http.StatusOK, "by_hand", "CNY", "USD", "waiting")
	if r := k.get(t, viewer, "/breaks/export?format=xlsx"); r.status != http.StatusOK || !strings.HasPrefix(r.body, "PK") {
		t.Errorf("xlsx: %d", r.status)
	}
	contains(t, k.get(t, viewer, "/breaks/export?format=pdf"), http.StatusBadRequest)
	if got := k.audited(t, "breaks.exported"); len(got) != 3 {
		t.Errorf("audit %v", got)
	}
}

// What the pages of finance can do, the API can.
func TestReconciliationAPIHasWhatThePagesHave(t *testing.T) {
	t.Parallel()
	k := setupCounting(t)
	k.usual()
	run := k.run("ledger")
	operator, viewer := k.token(t, access.Operator), k.token(t, access.Viewer)
	one := fmt.Sprintf("/api/v1/breaks/%d", k.breakOf("twice"))
	rows := k.checked(t, operator, "GET", one+"/rows", "")
	contains(t, rows, http.StatusOK, `"side":"outbox"`, `"6222 0812 3456"`, `"masked":[]`)
	masked := k.checked(t, viewer, "GET", one+"/rows", "")
	contains(t, masked, http.StatusOK, `"masked":["payee"]`)
	lacks(t, masked, "6222 0812 3456")
	contains(t, k.checked(t, viewer, "GET", "/api/v1/reconciliations/ledger/versions", ""), http.StatusOK, `"version":1`, "timezone: Asia/Shanghai")
	contains(t, k.checked(t, operator, "GET", "/api/v1/reconciliations/ledger/preview", ""), http.StatusOK, `"full_scan"`, "Seq Scan")
	for _, path := range []string{"/api/v1/breaks/export?format=csv&state=all", fmt.Sprintf("/api/v1/runs/%d/export?format=csv", run.ID), "/api/v1/reconciliations/ledger/export?format=jsonl"} {
		contains(t, k.call(t, viewer, "GET", path, ""), http.StatusOK, "ledger")
	}
	attach := func(token, path, body string) reply {
		r := k.request(t, http.MethodPost, path, body)
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Content-Type", "application/octet-stream")
		return k.shop.do(t, http.DefaultClient, r)
	}
	contains(t, attach(operator, one+"/files?name=receipt.txt", "paid twice"), http.StatusOK, `"receipt.txt"`)
	contains(t, attach(viewer, one+"/files?name=receipt.txt", "paid twice"), http.StatusForbidden)
	contains(t, attach(operator, one+"/files?name=page.html", "<html>"), http.StatusUnprocessableEntity, "urn:oncemore:problem:file")
	contains(t, k.call(t, viewer, "GET", one+"/files/1", ""), http.StatusOK, "paid twice")
	k.exec("DROP TABLE effect")
	contains(t, k.checked(t, operator, "GET", "/api/v1/reconciliations/ledger/preview", ""), http.StatusUnprocessableEntity, "does not exist")
	contains(t, k.checked(t, viewer, "GET", "/api/v1/reconciliations/none/versions", ""), http.StatusNotFound)
}
