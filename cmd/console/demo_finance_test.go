package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"oncemore/cmd/console/shop"
	"oncemore/internal/testkit"
)

// desk is somebody at the demo with a browser of their own.
type desk struct {
	*running
	ctx context.Context
}

// chrome starts a browser for the test.
func chrome(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(testkit.Chromium(t)), chromedp.NoSandbox, chromedp.UserDataDir(t.TempDir()),
		chromedp.Flag("disable-gpu", true), chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
	)...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	if err := chromedp.Do(ctx, chromedp.Navigate("about:blank")); err != nil {
		t.Fatalf("start the browser: %v", err)
	}
	return ctx
}

// at signs somebody in.
func (r *running) at(browser context.Context, user string) *desk {
	r.Helper()
	ctx, cancel := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	r.Cleanup(cancel)
	d := &desk{r, ctx}
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(1440, 1000)); err != nil { // the tab lives as long as the context of its first action
		r.Fatal(err)
	}
	d.visit("/login")
	d.do(chromedp.SendKeys("#user", user), chromedp.SendKeys("#password", r.info.account(user).Password), chromedp.Click(`form[action="/login"] button`))
	d.shows("Overview")
	return d
}

func (d *desk) do(actions ...chromedp.Action[chromedp.Void]) {
	d.Helper()
	ctx, cancel := context.WithTimeout(d.ctx, 30*time.Second)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		d.Fatalf("in the browser: %v; the page says %.400q", err, d.text())
	}
}

// lastSaid is what a page says at last, when a test fails for it.
type lastSaid struct{ d *desk }

func (s lastSaid) String() string { return s.d.text() }

func (d *desk) visit(path string) {
	d.Helper()
	d.do(chromedp.Navigate(d.info.URL + path))
}

func (d *desk) text() string {
	body, err := chromedp.Run(d.ctx, chromedp.Evaluate[string](`document.body ? document.body.innerText : ""`))
	if err != nil {
		return ""
	}
	return body
}

// shows waits until the page says all of it.
func (d *desk) shows(words ...string) {
	d.Helper()
	for _, w := range words {
		testkit.Eventually(d, 60*time.Second, func() bool { return strings.Contains(d.text(), w) }, "the page says %q, not only %.600q", w, lastSaid{d})
	}
}

// press opens the menu that the button is in, if any, and presses it.
func (d *desk) press(button string) {
	d.Helper()
	d.run(fmt.Sprintf(`(() => { const menu = document.querySelector(%q).closest("details"); if (menu) menu.open = true; return true })()`, button))
	d.do(chromedp.Click(button))
}

func (d *desk) run(expression string) string {
	d.Helper()
	v, err := chromedp.Run(d.ctx, chromedp.Evaluate[any](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		d.Fatalf("evaluate %.80q: %v", expression, err)
	}
	return fmt.Sprint(v)
}

// leaves waits for another page, and returns its path.
func (d *desk) leaves(before string) (path string) {
	d.Helper()
	testkit.Eventually(d, 30*time.Second, func() bool {
		at, err := chromedp.Run(d.ctx, chromedp.Evaluate[string](`document.readyState === "complete" ? location.pathname : ""`))
		path = at
		return err == nil && path != "" && path != before // an error: the page is just being left
	}, "the page is left: %s", before)
	return path
}

// replayable is a break whose event has a letter that may go, and its id.
func (r *running) replayable() (id int64) {
	r.Helper()
	testkit.Eventually(r, 60*time.Second, func() bool {
		safe := map[string]bool{}
		for _, l := range r.letters("&state=open&consumer_group=" + shop.PointsGroup) {
			if l.EventID != nil && l.Verdict == "safe" {
				safe[*l.EventID] = true
			}
		}
		for _, b := range r.breaks("&type=published_not_consumed") {
			if id == 0 && safe[b.EventID] {
				id = b.ID // the newest: the oldest ones are delivered again
			}
		}
		return id != 0
	}, "a break with a letter that is safe")
	return id
}

// under gives the demo to a subtest: what fails there fails there, and its tabs end with it.
func (r *running) under(t *testing.T) *running {
	of := *r
	of.T = t
	return &of
}

// People's walks through one demo, one after the other.
func TestDemoWalks(t *testing.T) {
	browser := chrome(t)
	r := startDemo(t, dataDir(t))
	t.Run("finance", func(t *testing.T) { r.under(t).financeWalk(browser) })
	t.Run("repairs", func(t *testing.T) { r.under(t).repairWalk(browser) })
	r.end()
}

// Finance: read the run, explain a break, replay another, see the next run close
// it by itself, sign off as another person, export.
func (r *running) financeWalk(browser context.Context) {
	r.Helper()
	var first struct {
		Items []struct {
			ID    int64
			State string
		}
	}
	testkit.Eventually(r, 60*time.Second, func() bool {
		r.get("/api/v1/reconciliations/"+shop.Job+"/runs", &first)
		return len(first.Items) > 0 && first.Items[len(first.Items)-1].State == "complete"
	}, "the first run")
	run := fmt.Sprintf("/runs/%d", first.Items[len(first.Items)-1].ID)
	mended := fmt.Sprintf("/breaks/%d", r.replayable())

	preparer := r.at(browser, demoPreparer)
	preparer.visit(run)
	preparer.shows("Foots to zero in both currencies", "payment-success-9030", "Duplicate effect", "You prepared this run. Someone else must sign.")
	explained := fmt.Sprintf("/breaks/%d", r.breaks("&event_id=payment-success-9091")[0].ID)
	preparer.visit(explained)
	preparer.shows("Amount mismatch")
	preparer.run(`document.querySelector("select[name=code]").value = "known_defect"`)
	preparer.run(`document.querySelector("select[name=code]").closest("details").open = true`)
	preparer.do(chromedp.SendKeys(`.pop textarea[name="reason"]`, "two digits the wrong way round, corrected by hand"))
	preparer.press(`button[value="explain"]`)
	preparer.shows("Explained", "two digits the wrong way round")

	operator := r.at(browser, "operator")
	operator.visit(mended)
	operator.shows("Published, not consumed")
	operator.press(`form[action="/replays"] button[value="safe"]`)
	if at := operator.leaves(mended); !strings.HasPrefix(at, "/replays/") {
		r.Fatalf("the replay is at %s", at)
	}
	operator.shows("Done: 1 applied")
	operator.visit(run)
	operator.press(`form[action$="/runs"] button`)
	second := operator.leaves(run)
	operator.shows("Closed by this run", "awaiting sign-off")
	operator.visit(mended)
	operator.shows("Closed by run " + strings.TrimPrefix(second, "/runs/"))

	reviewer := r.at(browser, "reviewer")
	reviewer.shows("Sign off run " + strings.TrimPrefix(second, "/runs/"))
	reviewer.visit(second)
	reviewer.run(`document.querySelectorAll("input[name=checklist]").forEach(box => { box.checked = true })`)
	reviewer.do(chromedp.SendKeys(`form[action$="/sign-off"] textarea[name="reason"]`, "what is open is known"))
	reviewer.press(`button[value="sign"]`)
	reviewer.shows("Signed")
	csv := reviewer.run(`fetch("` + second + `/export?format=csv").then(r => r.text())`)
	if !strings.Contains(csv, "payment-success-9030") || !strings.Contains(csv, "505.7") {
		r.Errorf("the export is %.300q", csv)
	}
	if kind := reviewer.run(`fetch("` + second + `/export?format=xlsx").then(r => r.arrayBuffer()).then(b => new Uint8Array(b).slice(0, 2).join())`); kind != "80,75" { // PK: a ZIP
		r.Errorf("the workbook begins with %s", kind)
	}
}
