package main

import (
	"context"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"oncemore/cmd/console/shop"
	"oncemore/internal/testkit"
)

// visitor is somebody with a browser on the demo.
type visitor struct {
	*running
	http *http.Client
	db   *pgx.Conn
}

func (r *running) visit(user string) *visitor {
	r.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		r.Fatal(err)
	}
	v := &visitor{running: r, http: &http.Client{Jar: jar, Timeout: 20 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	status, _ := v.post("/login", url.Values{"user": {user}, "password": {r.info.account(user).Password}})
	if status != http.StatusSeeOther {
		r.Fatalf("sign in as %s: %d", user, status)
	}
	if v.db, err = pgx.Connect(r.Context(), r.info.Database); err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { v.db.Close(context.Background()) })
	return v
}

func (v *visitor) post(path string, form url.Values) (int, *url.URL) {
	v.Helper()
	resp, err := v.http.PostForm(v.info.URL+path, form)
	if err != nil {
		v.Fatal(err)
	}
	defer resp.Body.Close()
	to, err := resp.Location()
	if err != nil {
		to = &url.URL{}
	}
	return resp.StatusCode, to
}

// press presses a button and returns the event that was sent.
func (v *visitor) press(button string) string {
	v.Helper()
	status, to := v.post("/try", url.Values{"do": {button}})
	if status != http.StatusSeeOther || to.Query().Get("done") != button {
		v.Fatalf("%s: %d %s", button, status, to)
	}
	resp, err := v.http.Get(v.info.URL + "/try?" + to.RawQuery)
	if err != nil {
		v.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		v.Fatalf("page after %s: %s", button, resp.Status)
	}
	return to.Query().Get("event")
}

func (v *visitor) count(sql string, args ...any) (n int) {
	v.Helper()
	if err := v.db.QueryRow(v.Context(), sql, args...).Scan(&n); err != nil {
		v.Fatal(err)
	}
	return n
}

func (v *visitor) eventually(what string, ok func() bool) {
	v.Helper()
	testkit.Eventually(v, 30*time.Second, ok, "%s", what)
}

// verdictOf is the cached verdict of the points group's letter of the event.
func (v *visitor) verdictOf(event string) string {
	v.Helper()
	for _, l := range v.letters("&event_id=" + event + "&consumer_group=" + shop.PointsGroup) {
		return l.Verdict
	}
	return ""
}

// judged is the verdict in the points group that the letter's page shows.
func (v *visitor) judged(letter string) string {
	v.Helper()
	var one struct {
		Verdicts []struct {
			ConsumerGroup string `json:"consumer_group"`
			Verdict       string
		}
	}
	v.get("/api/v1/letters/"+letter, &one)
	for _, in := range one.Verdicts {
		if in.ConsumerGroup == shop.PointsGroup {
			return in.Verdict
		}
	}
	return ""
}

func (v *visitor) openPoints() int {
	v.Helper()
	return len(v.letters("&state=open&consumer_group=" + shop.PointsGroup))
}

func TestTryIt(t *testing.T) {
	d := startDemo(t, dataDir(t))
	v := d.visit("operator")
	v.eventually("the first letters are safe", func() bool {
		for _, l := range d.letters("&consumer_group=" + shop.PointsGroup) {
			if l.Verdict == "already_applied" {
				return true // seeded last
			}
		}
		return false
	})
	tryTwice(v)
	tryLegacy(v)
	tryBreak(v)
	tryExpire(v)
	tryHold(v)
	tryRefused(d, v)
	before := v.openPoints()
	v.press("over")
	v.eventually("fresh failures", func() bool { return v.openPoints() > before })
	d.end()
}

func tryTwice(v *visitor) {
	v.Helper()
	event := v.press("twice")
	order := event[len("payment-success-"):]
	v.eventually("both deliveries are in the topic and the points are there", func() bool {
		return v.count("select coalesce(sum(points), 0) from user_points where order_id = $1", order) == 100
	})
	lag := func() int { return v.count("select count(*) from coupon_grant where event_id = $1", event) }
	v.eventually("the group without records saw both", func() bool { return lag() == 2 })
	if got := v.count("select count(*) from mq_consume_record where event_id = $1 and consumer_group = $2", event, shop.PointsGroup); got != 1 {
		v.Errorf("%d records of %s", got, event)
	}
	if got := v.count("select points from user_points where order_id = $1", order); got != 100 {
		v.Errorf("%d points after two deliveries", got)
	}
	first := v.count("select last_value from order_number")
	nonce := url.Values{"do": {"twice"}, "nonce": {"n-1"}}
	v.post("/try", nonce)
	v.post("/try", nonce)
	if got := v.count("select last_value from order_number"); got > first+2 { // the trickle may add one
		v.Errorf("a double click made %d orders", got-first)
	}
}

func tryLegacy(v *visitor) {
	v.Helper()
	event := v.press("legacy")
	v.eventually("two coupons for one event", func() bool {
		return v.count("select count(*) from coupon_grant where event_id = $1", event) == 2
	})
	v.eventually("its letters are unprotected", func() bool {
		letters := v.letters("&event_id=" + event + "&consumer_group=" + shop.LegacyGroup)
		return len(letters) == 2 && letters[0].Verdict == "unprotected"
	})
}

func tryBreak(v *visitor) {
	v.Helper()
	before := v.openPoints()
	v.press("break")
	v.eventually("letters of the broken handler", func() bool { return v.openPoints() >= before+shop.Partitions })
	v.press("repair")
	if v.count("select count(*) from broken_handler") != 0 {
		v.Error("the handler is still broken")
	}
}

func tryExpire(v *visitor) {
	v.Helper()
	event := v.press("expire")
	v.eventually("the letter's evidence is expired", func() bool { return v.verdictOf(event) == "expired" })
}

func tryHold(v *visitor) {
	v.Helper()
	v.press("hold")
	var held struct {
		Items []struct {
			ID       int64
			State    string
			Outcomes map[string]int
		}
	}
	v.eventually("a replay stays in flight", func() bool {
		v.get("/api/v1/replays", &held)
		return len(held.Items) > 0 && held.Items[0].Outcomes["pending"] == 1
	})
	v.eventually("its letter is in flight", func() bool {
		replaying := v.letters("&state=replaying&consumer_group=" + shop.PointsGroup)
		return len(replaying) == 1 && v.judged(replaying[0].ID) == "in_flight"
	})
	v.press("release")
	v.eventually("the replay is done", func() bool {
		v.get("/api/v1/replays", &held)
		return held.Items[0].State == "done" && held.Items[0].Outcomes["applied"] == 1
	})
}

func tryRefused(d *running, v *visitor) {
	v.Helper()
	if status, _ := v.post("/try", url.Values{"do": {"nonsense"}}); status != http.StatusBadRequest {
		v.Errorf("an unknown button: %d", status)
	}
	if status, _ := d.visit("viewer").post("/try", url.Values{"do": {"break"}}); status != http.StatusForbidden {
		v.Errorf("a viewer breaks the handler: %d", status)
	}
}
