package web_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"oncemore/dlq"
)

// press clicks what a person would click.
func (p *tab) press(selector string) {
	p.Helper()
	p.do(chromedp.Click(selector))
}

func (p *tab) keys(keys string) {
	p.Helper()
	p.do(chromedp.KeyEvent(keys))
}

// From signing in to the proof: the product's one click, watched live.
func TestBrowserReplaySafely(t *testing.T) {
	t.Parallel()
	browser := chrome(t)
	s := setupPageShop(t)
	s.seed()
	fault := s.faultOf(points, "DataIntegrityViolationException")
	p := open(t, browser, s.http.URL, 1440)
	p.visit(fmt.Sprintf("/faults/%d", fault.ID))
	p.do(chromedp.SendKeys("#user", "operator"), chromedp.SendKeys("#password", password), chromedp.Click(`form[action="/login"] button`))
	p.at(fmt.Sprintf("/faults/%d", fault.ID)) // where it was going
	p.shows("Replay 7 safely")
	p.press(`button[value="safe"]`)
	p.shows("of 7 sent")
	if strings.Contains(p.text("#progress"), "Done") {
		t.Error("it is done before anybody took it up")
	}
	ask[bool](p, `window.stayed = true`)
	s.consume()
	p.shows("Done: 5 applied, 2 duplicates.")
	p.shows("payment-success-10007")
	for _, c := range p.complained() {
		t.Errorf("the page complains: %s", c)
	}
	p.visit("/letters?state=resolved")
	p.shows("payment-success-10001")
}

func TestBrowserKeys(t *testing.T) {
	t.Parallel()
	browser := chrome(t)
	s := setupPageShop(t)
	s.seed()
	p := open(t, browser, s.http.URL, 1440)
	p.signIn("operator")
	p.keys("?")
	if !ask[bool](p, `document.getElementById("shortcuts").open`) {
		t.Error("? opens nothing")
	}
	p.press("#shortcuts button")
	p.do(chromedp.WaitNotVisible("#shortcuts"))
	p.sequence("gl", "/letters")
	p.visit("/letters?state=open")
	if !ask[bool](p, `document.querySelector(".selbar").hidden`) {
		t.Error("the selection bar is there before anything is selected")
	}
	p.keys("j")
	p.keys("j")
	p.keys("x")
	p.shows("1 letter ·")
	if got := ask[int](p, `[...document.querySelectorAll("[data-row]")].findIndex(r => r.classList.contains("at"))`); got != 1 {
		t.Errorf("j j stands on row %d", got)
	}
	p.keys("\r")
	p.do(chromedp.WaitVisible("[data-detail]"))
	first := p.text("h1")
	p.keys("j")
	p.shows("Open")
	testAway(p, first)
	p.keys("\u001b")
	p.at("/letters?state=open")
	p.keys("/")
	if got := ask[string](p, "document.activeElement.name"); got != "q" {
		t.Errorf("/ focuses %q", got)
	}
	ask[string](p, `document.activeElement.value = ""`) // the driver also types what a person's / would not
	p.do(chromedp.SendKeys(".top > .find input", fmt.Sprintf("F-%d\r", s.faultOf(points, "DataIntegrityViolationException").ID)))
	p.at(fmt.Sprintf("/faults/%d", s.faultOf(points, "DataIntegrityViolationException").ID))
	if n, _, err := s.letters.Count(t.Context(), dlq.LetterFilter{State: dlq.Open}); err != nil || n != 15 {
		t.Errorf("keys changed something: %d open letters, %v", n, err)
	}
	page, err := s.replays.List(t.Context(), dlq.ReplayFilter{}, dlq.Page{})
	if err != nil || len(page.Items) != 0 {
		t.Errorf("keys made %d replays, %v", len(page.Items), err)
	}
	for _, c := range p.complained() {
		t.Errorf("the page complains: %s", c)
	}
}

// sequence presses keys that belong together until they have led to path: on a
// busy machine the second may come too late for the first.
func (p *tab) sequence(keys, path string) {
	p.Helper()
	for range 5 {
		p.keys(keys)
		for range 20 {
			if ask[string](p, "location.pathname") == path {
				p.at(path)
				return
			}
			p.do(chromedp.Sleep(50e6))
		}
	}
	p.at(path)
}

// testAway waits until another letter is shown.
func testAway(p *tab, from string) {
	p.Helper()
	p.do(chromedp.WaitVisible("[data-detail]"))
	for range 100 {
		if p.text("h1") != from {
			return
		}
		p.do(chromedp.Sleep(50e6))
	}
	p.Errorf("j stays on %s", from)
}

// The same without JavaScript: forms, links and a Refresh.
func TestBrowserWithoutJavaScript(t *testing.T) {
	t.Parallel()
	browser := chrome(t)
	s := setupPageShop(t)
	s.seed()
	p := open(t, browser, s.http.URL, 390)
	p.withoutScripts()
	p.signIn("operator")
	p.press("details.menu.only-s > summary")
	p.press(`.pop.wide a[href="/letters"]`)
	p.at("/letters")
	for _, theme := range []string{"light", "dark"} { // it begins as the system has it
		p.press(fmt.Sprintf(`.switches button[value=%q]`, theme))
		p.do(chromedp.WaitVisible(fmt.Sprintf(`html[data-theme=%q] main`, theme)))
	}
	p.at("/letters")
	if got := ask[string](p, "document.documentElement.dataset.bsTheme"); got != "dark" {
		t.Errorf("the theme is %s", got)
	}
	p.visit("/letters?state=open&consumer_group=" + points)
	for _, event := range []string{"payment-success-10001", "payment-success-10006"} {
		p.press(fmt.Sprintf(`input[value="%s"]`, s.letterOf(event).ID))
	}
	p.press(`.selbar button[value="safe"]`)
	p.shows("of 2 sent")
	s.consume()
	for range 200 {
		if strings.Contains(p.text("#progress"), "Done: 1 applied, 1 duplicate.") {
			break
		}
		if ask[bool](p, `document.querySelector("#progress .sent a") !== null`) {
			p.press("#progress .sent a")
		}
		p.do(chromedp.WaitVisible("#progress"))
	}
	p.shows("Done: 1 applied, 1 duplicate.")
}
