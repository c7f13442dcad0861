package views_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/a-h/templ"
	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"oncemore/views"
	"oncemore/views/locale"
	"oncemore/views/ui"
)

func breakTable() views.BreakTable {
	cells := []views.BreakCell{{Amount: "268.00"}, {Amount: "none", None: true}}
	return views.BreakTable{Parties: []string{"Consumed", "Effect"}, Jobs: true, Caption: "Breaks", From: "/breaks", Shown: "2 on this page",
		Actions: views.BreakActions{Assign: true, Explain: true, Propose: true, Owners: []ui.Option{{Value: "ada", Label: "ada"}}, Codes: []ui.Option{{Value: "rounding", Label: "Rounding"}}},
		Rows: []views.BreakRow{
			{ID: 119, Href: "/breaks/119", Key: []string{"payment-success-10466"}, Job: "points", Type: "missing_effect", Sides: cells, Difference: "268.00", Currency: "CNY", Age: "17 min", State: "open", LetterHref: "/letters/a", Verdict: "safe", Pick: true},
			{ID: 97, Href: "/breaks/97", Key: []string{"a", ""}, Job: "points", Type: "duplicate_effect", Sides: cells, Difference: "−1.00", Age: "3 d", Owner: "ada", State: "closed", Detail: "by run 7"},
		}}
}

func ledgerRows() []views.ProofRow {
	cells := []views.ProofCell{{N: "14", Amount: "1,799.12"}, {N: "0", Amount: "0.00"}, {}}
	return []views.ProofRow{{Label: "Consumed", Sub: "shop", Cells: cells}, {Sign: "=", Label: "Explained", Sum: true, Cells: cells}, {Label: "Left", Sum: true, Bad: true, Cells: cells}}
}

func runView() views.Run {
	at := now.Add(-time.Hour)
	return views.Run{
		Frame: frame(), ID: 2841, Job: "points", JobHref: "/reconciliations/points", State: "waiting", Says: "Window.", Banner: &views.RunBanner{Hue: "a", Icon: "history", Text: "Superseded.", Own: "relation", Href: "/runs/2842", Link: "Open"},
		Tiles:  []views.RunTile{{Hue: "go", Icon: "circle-check", Label: "Matched", Value: "99.86%", Sub: "12,828 of 12,846 events"}},
		Proof:  &views.Proof{Currencies: []string{"CNY", "USD", ""}, Rows: ledgerRows(), Foots: true, Hue: "go", Says: "Foots to zero"},
		Roll:   &views.Roll{Since: "Since run 2840", SinceHref: "/runs/2840", Currencies: []string{"CNY", "USD", ""}, Rows: ledgerRows()},
		Aging:  &views.Aging{Heads: []string{"0–1 d"}, Rows: []views.AgingRow{{Currency: "CNY", Cells: []views.AgingCell{{Amount: "21.00", Items: "1 break", Href: "/runs/2841?age=0-1", Heat: 1, Current: true}}}}},
		Hops:   []views.Hop{{Currency: "CNY", Steps: []views.HopStep{{Name: "Consumed", Amount: "1"}, {Name: "Effect", Amount: "0", Lost: "1 wrong", LostAmount: "1"}}}},
		Faults: []views.FaultLink{{Text: "178 of 183", Href: "/faults/28", Link: "Plan replay…"}}, Tabs: []ui.Tab{{Label: "Open", Href: "/runs/2841", Count: "2", Current: true}}, Breaks: breakTable(),
		Sign: &views.SignOff{Action: "/runs/2841/sign-off", May: true, Button: "Sign off 1.00 CNY unexplained…", Confirm: []string{"Run 2841."}, Seal: "9f", Points: []ui.Option{{Value: "totals", Label: "I have compared"}}, Needed: true,
			Facts: []views.Fact{{Label: "Seal", Value: "9f", Code: true}}, History: []views.SignRow{{Icon: "signature", Hue: "go", Text: "Signed by bob", At: at, Reason: "seen"}}},
		Segments: []views.SegmentRow{{No: "1", Window: "13:00–14:00", State: "Compared", Took: "8.2 s", Tries: 1}}, Log: []views.LogRow{{At: at, Text: "the run is complete"}},
		Exports: []views.OutLink{{Label: "CSV", Href: "/runs/2841/export?format=csv"}}, MayRun: true, Again: &views.RunAgain{Action: "/reconciliations/points/runs", From: "a", To: "b"},
	}
}

func financePages() map[string]templ.Component {
	at := now.Add(-time.Hour)
	table := breakTable()
	running := views.Run{Frame: frame(), ID: 7, Job: "points", JobHref: "/reconciliations/points", State: "running", Progress: &views.RunProgress{Path: "/runs/7", State: "running", Done: 3, All: 12, Says: "3 of 12 segments compared.", Plan: "Plan merge.", UpdatedAt: now}}
	one := views.Break{Frame: frame(), Row: table.Rows[0], RunHref: "/runs/7", RunName: "Run 7", Says: "268.00 CNY is missing.", JobHref: "/reconciliations/points", Older: "/breaks/1", Newer: "/breaks/3", Back: "/breaks",
		Closed: "Closed by run 7.", ClosedHref: "/runs/7", ClosedLink: "Open run 7", Explained: "Explained.", Parties: []string{"Consumed", "Effect"}, Compared: []views.ComparedRow{{Label: "Amount", Cells: table.Rows[0].Sides, Differs: true}},
		Live:      []views.LiveSide{{Name: "Consumed", Connection: "shop", Columns: []views.LiveColumn{{Name: "event_id", Compared: true}, {Name: "note"}}, Rows: [][]views.LiveCell{{{Text: strings.Repeat("x", 300), Differs: true}, {Masked: true}}, {{Null: true}, {Text: "a"}}}, More: "more"}, {Name: "Effect", Error: "did not answer"}, {Name: "Outbox"}},
		LiveError: "slow", Masked: "masked", Path: []views.TimelineRow{{Icon: "circle-check", Hue: "go", Text: "Consumed", At: &at}}, Timeline: []views.TimelineRow{{Icon: "info-circle", Text: "ada wrote", Detail: "a\nb", At: &at, Href: "/runs/7"}},
		Letters: []views.BreakLetter{{ID: "l", Href: "/letters/l", State: "open", Verdict: "safe", Group: "points", Place: "Kafka", FailedAt: &at, Record: "No record", Safe: true, Replays: []views.BreakReplay{{Name: "R-1", Href: "/replays/1", Says: "Applied"}}}, {ID: "m", Href: "/letters/m", State: "open", Verdict: "unknown", Group: "points"}},
		Replay:  form(), Comments: true, Files: []views.BreakFile{{Name: "a.pdf", Href: "/breaks/119/files/1", Says: "ada", Hash: "9f"}}, Actions: table.Actions, Pickable: true, Unexplain: true, ProposeHref: "/compensations/new?break=119", Events: "/letters?event_id=e"}
	row := views.JobRow{Name: "points", Href: "/reconciliations/points", Schedule: "15 * * * *", Next: "Overdue by 2 h", NextBad: true, LastHref: "/runs/7", LastWindow: "13:00–14:00", LastState: "failed", LastWhy: "relation", Matched: "Not known", Unknown: true, Spark: []int{1, 2, 3}, AtRisk: []string{"1.00 CNY"}, Open: "2", OpenHref: "/breaks?job=points", Oldest: "oldest 3 d", SignedUntil: "nothing yet"}
	job := func(tab string) views.Job {
		return views.Job{Frame: frame(), Row: row, Path: "/reconciliations/points", Tab: tab, Tabs: []ui.Tab{{Label: tab, Href: "?tab=" + tab, Current: true}}, Facts: []views.Fact{{Label: "Last run", Value: "Run 7", Href: "/runs/7"}}, Change: "/reconciliations/points/change", MayRun: true,
			Run:  views.RunForm{From: "2026-11-30T13:00", To: "2026-11-30T14:00", Zone: "Asia/Shanghai", Plans: []ui.Option{{Label: "Chosen by itself"}}, Key: []string{"event_id", "part"}},
			Runs: []views.RunRow{{ID: 7, Href: "/runs/7", Window: "13:00–14:00", State: "partial", Matched: "Not known", Took: "8.2 s", By: "ada", Why: "time-out", AtRisk: []string{"1.00 CNY"}}}, Filter: views.FilterBar{Action: "/reconciliations/points"},
			Trends:   []views.Trend{{Title: "Matched", Top: "100%", Bottom: "0%", Last: "99.86%", Low: 0, High: 100, Points: []views.TrendPoint{{Value: 50, Text: "50.00%", Run: "6", Href: "/runs/6", Partial: true}, {Unknown: true, Text: "–", Run: "7", Href: "/runs/7"}, {Value: 99, Text: "99.86%", Run: "8", Href: "/runs/8"}}}},
			Versions: []views.VersionRow{{Name: "v2", Hash: "9f", By: "ada", At: "today", Href: "?version=2", Current: true, Shown: true}}, Shown: &views.VersionView{Title: "Definition v2", Lines: []views.CodeLine{{No: "1", Tokens: []views.Token{{Text: "job: points"}}}}, Since: "Changed since v1", Diff: views.DiffView{Hunks: [][]views.DiffLine{{{Op: "ins", New: "1", Text: "a"}}}}},
			Preview: &views.PreviewView{Plan: "Plan merge.", Masked: "masked", Sides: []views.PreviewSide{{Name: "Consumed", Connection: "shop", Warnings: []views.PreviewWarning{{Title: "No rows.", Text: "none"}}, Columns: []string{"event_id"}, Rows: [][]views.LiveCell{{{Masked: true}}}, Explain: []views.CodeLine{{Tokens: []views.Token{{Text: "Seq Scan"}}}}}}}}
	}
	broken := job("preview")
	broken.Preview = &views.PreviewView{Error: "no such table"}
	return map[string]templ.Component{
		"run": views.RunPage(runView()), "running": views.RunPage(running), "empty run": views.RunPage(views.Run{Frame: frame(), Job: "points", JobHref: "/r", State: "complete", Tabs: []ui.Tab{{Label: "Open", Href: "#"}}, Breaks: views.BreakTable{Empty: views.Empty{Text: "None."}}, Aging: &views.Aging{}}),
		"break": views.BreakPage(one), "breaks": views.BreakListPage(views.BreakList{Frame: frame(), Tabs: []ui.Tab{{Label: "All", Href: "/breaks"}}, Filter: views.FilterBar{Action: "/breaks"}, Table: table, Pager: ui.Pages{Next: "?cursor=1", NextLabel: "Next"}}),
		"jobs":    views.JobListPage(views.JobList{Frame: frame(), Headline: "1 job is broken.", Rows: []views.JobRow{row, {Name: "new", Href: "/reconciliations/new-one", OpenHref: "/breaks", Open: "0", Matched: "Not known", Paused: "Paused by ada"}}, New: "/reconciliations/new"}),
		"no jobs": views.JobListPage(views.JobList{Frame: frame(), Empty: "No reconciliations yet.", Templates: []views.OutLink{{Label: "New job…", Href: "/reconciliations/new"}}}),
		"job":     views.JobPage(job("runs")), "trends": views.JobPage(job("trends")), "definition": views.JobPage(job("definition")), "preview": views.JobPage(job("preview")), "broken preview": views.JobPage(broken),
	}
}

func TestFinancePagesInBothLanguages(t *testing.T) {
	t.Parallel()
	for name, component := range financePages() {
		for _, language := range locale.Tags {
			t.Run(name+" "+string(language), func(t *testing.T) {
				t.Parallel()
				doc := page(t, in(language), component)
				checkDocument(t, doc, language)
				checkForms(t, doc)
				checkTables(t, doc)
				checkNames(t, doc)
				checkInline(t, doc)
			})
		}
	}
}

// Two currencies stand beside each other, the third below; on a phone the first
// alone, the others folded. Nothing adds them up.
func TestCurrenciesStandApart(t *testing.T) {
	t.Parallel()
	doc := page(t, in(locale.English), views.RunPage(runView()))
	card := all(doc, class("proof-card"))[0]
	var heads []int
	for _, table := range all(card, tag(atom.Table)) {
		heads = append(heads, len(all(table, func(n *html.Node) bool { return n.DataAtom == atom.Th && attr(n, "scope") == "col" })))
	}
	if !slices.Equal(heads, []int{5, 3, 3, 3, 3}) {
		t.Errorf("tables have %v columns", heads)
	}
	if folded := all(card, class("fold")); len(folded) != 2 {
		t.Errorf("%d currencies are folded on a phone", len(folded))
	}
}

// Signing is asked for twice, and its form says what is signed.
func TestSigningIsConfirmed(t *testing.T) {
	t.Parallel()
	doc := page(t, in(locale.English), views.RunPage(runView()))
	button := one(t, doc, "button that signs", func(n *html.Node) bool { return attr(n, "value") == "sign" })
	inside := false
	for p := button.Parent; p != nil; p = p.Parent {
		inside = inside || p.DataAtom == atom.Details
	}
	if !inside {
		t.Error("one press signs")
	}
	v := runView()
	v.Sign.May, v.Sign.Why = false, "You prepared this run. Someone else must sign."
	doc = page(t, in(locale.English), views.RunPage(v))
	if buttons := all(doc, func(n *html.Node) bool { return attr(n, "value") == "sign" }); len(buttons) != 0 || !strings.Contains(text(doc), v.Sign.Why) {
		t.Error("the preparer finds a button instead of a sentence")
	}
}
