package web_test

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"oncemore/internal/testkit"
)

//go:embed testdata/axe/axe.min.js
var axe string

// chrome starts a browser with a profile of its own until the test ends.
// ONCEMORE_CHROMIUM names it, else it is looked for.
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

// tab is one page of a browser, and what it complained about.
type tab struct {
	*testing.T
	ctx  context.Context
	base string

	mu         sync.Mutex
	complaints []string
}

// open opens a tab of the given width on the site at base.
func open(t *testing.T, browser context.Context, base string, width int64) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(browser, chromedp.WithNewBrowserContext()) // cookies of its own
	t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(ctx, 10*time.Minute)
	t.Cleanup(cancel)
	p := &tab{T: t, ctx: ctx, base: base}
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(width, 900)); err != nil { // the tab lives as long as the context of its first action
		t.Fatalf("open a tab: %v", err)
	}
	if err := chromedp.Listen(ctx, p.hear); err != nil {
		t.Fatal(err)
	}
	return p
}

// hear keeps console errors, exceptions and refusals of the content policy. The
// browser's note about the status of a page is none of these.
func (p *tab) hear(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
			p.complaints = append(p.complaints, fmt.Sprintf("console: %v", e.Args))
		}
	case *runtime.EventExceptionThrown:
		p.complaints = append(p.complaints, "exception: "+e.ExceptionDetails.Text)
	case *cdplog.EventEntryAdded:
		if !strings.HasPrefix(e.Entry.Text, "Failed to load resource: the server responded with a status of 4") {
			p.complaints = append(p.complaints, fmt.Sprintf("%s: %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL))
		}
	}
}

// complained returns the complaints since the last call.
func (p *tab) complained() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer func() { p.complaints = nil }()
	return p.complaints
}

func (p *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, 30*time.Second)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		p.Fatalf("in the browser: %v", err)
	}
}

func (p *tab) visit(path string) {
	p.Helper()
	p.do(chromedp.Navigate(p.base + path))
}

// ask evaluates JavaScript in the page.
func ask[T any](p *tab, expression string) T {
	p.Helper()
	v, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		p.Fatalf("evaluate %.80q: %v", expression, err)
	}
	return v
}

func (p *tab) text(selector string) string {
	p.Helper()
	return ask[string](p, fmt.Sprintf(`(document.querySelector(%q) || {innerText: ""}).innerText`, selector))
}

// shows waits until the page says it.
func (p *tab) shows(words string) {
	p.Helper()
	end := time.Now().Add(30 * time.Second)
	for time.Now().Before(end) {
		body, err := chromedp.Run(p.ctx, chromedp.Evaluate[string](`document.body ? document.body.innerText : ""`))
		if err == nil && strings.Contains(body, words) {
			return
		}
		select {
		case <-p.ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
	p.Fatalf("the page does not come to say %q, but %.600q", words, p.text("main"))
}

// signIn fills in the form as a person does.
func (p *tab) signIn(user string) {
	p.Helper()
	p.visit("/login")
	p.do(chromedp.SendKeys("#user", user), chromedp.SendKeys("#password", password), chromedp.Click(`form[action="/login"] button`))
	p.at("/")
}

// at waits until the address has this path.
func (p *tab) at(path string) {
	p.Helper()
	end := time.Now().Add(15 * time.Second)
	for time.Now().Before(end) {
		if here, err := chromedp.Run(p.ctx, chromedp.Evaluate[string](`document.readyState === "complete" ? location.pathname + location.search : ""`)); err == nil && here == path {
			p.do(chromedp.WaitReady("main"))
			return
		}
		select {
		case <-p.ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
	p.Fatalf("not at %s but at %s: %.300q", path, ask[string](p, "location.href"), p.text("main"))
}

func (p *tab) withoutScripts() {
	p.Helper()
	if _, err := chromedp.Call(p.ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}); err != nil {
		p.Fatal(err)
	}
}

// prefer sets language and theme.
func (p *tab) prefer(language, theme string) {
	p.Helper()
	ask[bool](p, fmt.Sprintf(`document.cookie = "lang=%s;path=/", document.cookie = "theme=%s;path=/", true`, language, theme))
}

const axeRun = `axe.run(document, {runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}).then(r => r.violations.map(
	v => v.impact + " " + v.id + ": " + v.nodes.slice(0, 3).map(n => n.target + " (" + n.failureSummary.replace(/\s+/g, " ") + ")").join("; ")))`

const tooWide = `document.documentElement.scrollWidth > innerWidth ? [...document.querySelectorAll("body *")]
	.filter(e => e.getBoundingClientRect().right > innerWidth + 1).slice(0, 4).map(e => e.tagName + "." + e.className) : []`

// inspect is what holds for every page: nothing that axe finds, no scrolling
// sideways, no complaint, no hidden half of a table.
func (p *tab) inspect(name string) {
	p.Helper()
	ask[bool](p, "document.fonts.ready.then(() => true)")
	for _, e := range ask[[]string](p, tooWide) {
		p.Errorf("%s scrolls sideways because of %s", name, e)
	}
	ask[bool](p, axe+"; true")
	for _, v := range ask[[]string](p, axeRun) {
		p.Errorf("%s: %s", name, v)
	}
	for _, c := range p.complained() {
		p.Errorf("%s complains: %s", name, c)
	}
	p.picture(name)
}

var unsafeInName = regexp.MustCompile(`[^a-zA-Z0-9-]+`)

// picture writes a PNG of the whole page into the folder that
// ONCEMORE_SCREENSHOTS names.
func (p *tab) picture(name string) {
	p.Helper()
	dir := os.Getenv("ONCEMORE_SCREENSHOTS")
	if dir == "" {
		return
	}
	png, err := chromedp.Run(p.ctx, chromedp.FullScreenshot(100))
	if err != nil {
		p.Fatalf("picture of %s: %v", name, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		p.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, strings.Trim(unsafeInName.ReplaceAllString(name, "-"), "-")+".png"), png, 0o644); err != nil {
		p.Fatal(err)
	}
}
