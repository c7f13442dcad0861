package views_test

import (
	"bytes"
	"context"
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

var now = time.Date(2026, 11, 30, 14, 32, 8, 0, time.UTC)

func in(tag locale.Tag) context.Context {
	return locale.With(context.Background(), locale.Locale{Tag: tag, Zone: time.UTC, Now: now})
}

// page renders a component and reads it back as a browser does.
func page(t *testing.T, ctx context.Context, c templ.Component) *html.Node {
	t.Helper()
	var b bytes.Buffer
	if err := c.Render(ctx, &b); err != nil {
		t.Fatal(err)
	}
	doc, err := html.Parse(&b)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// all lists the elements that f accepts, in order.
func all(n *html.Node, f func(*html.Node) bool) []*html.Node {
	var found []*html.Node
	for d := range n.Descendants() {
		if d.Type == html.ElementNode && f(d) {
			found = append(found, d)
		}
	}
	return found
}

func attr(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

func has(n *html.Node, name string) bool {
	return slices.ContainsFunc(n.Attr, func(a html.Attribute) bool { return a.Key == name })
}

func text(n *html.Node) string {
	var b strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			b.WriteString(d.Data)
		}
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

func tag(a atom.Atom) func(*html.Node) bool {
	return func(n *html.Node) bool { return n.DataAtom == a }
}

func class(name string) func(*html.Node) bool {
	return func(n *html.Node) bool { return slices.Contains(strings.Fields(attr(n, "class")), name) }
}

// one finds the only element that f accepts.
func one(t *testing.T, n *html.Node, what string, f func(*html.Node) bool) *html.Node {
	t.Helper()
	found := all(n, f)
	if len(found) != 1 {
		t.Fatalf("%d × %s, want one", len(found), what)
	}
	return found[0]
}

func frame() views.Frame {
	five, none := 5, 0
	return views.Frame{
		Title: "Title", Section: "faults", Path: "/faults?state=open", Theme: "light", Environment: "shop production",
		User: &views.User{Name: "Lin Yue", Role: "operator"}, Nav: views.NavCounts{Faults: &five, Replays: &none},
		Crumbs: []views.Crumb{{Label: "Dead letters", Href: "/faults"}, {Label: "Faults"}},
	}
}

func form() views.ReplayForm {
	return views.ReplayForm{May: true, WhoMay: "Operators can replay.", Reason: "Replay safely from fault F-28", RequestKey: "key-1", From: "/faults/28", Target: "group"}
}

func fault() views.FaultRow {
	return views.FaultRow{ID: 28, Class: "DataIntegrityViolationException", Message: "value too long", Group: "points-consumer-group", Place: "Kafka · order.paid.DLT",
		Open: 188, Since: now.Add(-time.Hour), LastSeen: now.Add(-6 * time.Minute), Verdicts: []ui.Count{{Name: "safe", N: 184}, {Name: "unknown", N: 4}}, Safe: 184, Hours: make([]int, 24)}
}

func letterRow(id string) views.LetterRow {
	return views.LetterRow{ID: id, Href: "/letters/" + id, EventID: "payment-success-10001", State: "open", Group: "points-consumer-group", Place: "Kafka · order.paid.DLT",
		Class: "E", Message: "m", Verdict: "safe", Occurrences: 2, Arrived: now.Add(-time.Minute)}
}

func letter() views.Letter {
	at, attempts := now.Add(-34*time.Minute), 4
	return views.Letter{
		Frame: frame(), ID: "019b", EventID: "payment-success-10001", State: "open", Group: "points-consumer-group", GaveUp: &at, Attempts: &attempts, FaultID: 28, FaultOpen: 188,
		Newer: "/letters/a", Back: "/letters",
		Judgement: views.Judgement{Target: "group", Verdict: "safe", Headline: "Safe: the effect will happen once", Reason: "No record", AskedAt: &at, Again: "/letters/019b",
			Targets: []views.TargetChoice{{Label: "Only points-consumer-group", Topic: "points-consumer-group.replay", Href: "?target=group", Current: true}, {Label: "Origin topic", Href: "?target=origin"}},
			Groups:  []views.GroupRow{{Name: "points-consumer-group", Verdict: "safe", Reached: true}, {Name: "legacy-coupon-group", Verdict: "unprotected"}}},
		Payload:  views.Payload{Title: "Payload", Size: "3 bytes", Lines: []views.CodeLine{{No: "1", Tokens: []views.Token{{Text: "<b>"}, {Class: "s", Text: `"&amp;"`}}}}, Download: "/letters/019b/body"},
		Headers:  views.Headers{Rows: []views.HeaderRow{{Name: "event-id", Value: "payment-success-10001", Type: "text", Kept: true}, {Name: "kafka_dlt-original-topic", Value: "order.paid", Type: "text"}}},
		Original: views.Original{State: "equal", Text: "Equal"}, Class: "E", Message: "m",
		Timeline: []views.TimelineRow{{Icon: "send", Text: "Produced", At: &at}, {Icon: "circle-dashed", Text: "Not replayed yet"}},
		Facts:    []views.Fact{{Label: "Key", Value: "k", Code: true}}, Replay: form(),
	}
}

func progress() views.Progress {
	return views.Progress{ID: 412, State: "running", Live: true, Total: 608, Sent: 347, Whole: 608, Waiting: 261, Says: "347 of 608 sent.", Label: "347 of 608 sent.", UpdatedAt: now, Path: "/replays/412",
		Outcomes: []ui.Count{{Name: "applied", N: 303}, {Name: "failed_again", N: 3}}, Tiles: []views.Tile{{Outcome: "applied", N: 303, Href: "#"}, {Outcome: "pending", N: 0, Href: "#"}}}
}

// pages are all pages, from literals, so that what holds for every page can be checked.
func pages() map[string]templ.Component {
	at := now.Add(-time.Hour)
	five := 5
	rows := []views.FaultRow{fault()}
	replay := views.ReplayRow{ID: 412, Href: "/replays/412", State: "done_unseen", What: "184 letters", Total: 184, Sent: 184, Outcomes: []ui.Count{{Name: "applied", N: 178}, {Name: "not_seen", N: 6}}, Whole: 184, By: "Lin Yue", Created: at, Took: time.Minute, Says: "Done, but 6 not seen."}
	consumer := views.ConsumerRow{Name: "points-consumer-group", Cluster: "shop", Topics: []string{"order.paid"}, Ours: true, Strategy: "consume_record", State: "running", Lag: &five, LagAt: &at, Consumed: &five, LastError: "x", LastErrorAt: &at}
	foreign := views.ConsumerRow{Name: "legacy-coupon-group", Cluster: "shop", State: "unknown", LagError: "broker did not answer"}
	dead := views.OutboxRow{ID: 7, Href: "/outbox/shop/outbox_message/7", Event: "payment-success-10001", Key: "account-7", Target: "orders", State: "dead", Attempts: 10, CreatedAt: at, Error: "too large"}
	held := views.OutboxRow{ID: 8, Href: "/outbox/shop/outbox_message/8", Event: "payment-success-10002", Key: "account-7", Target: "orders", State: "held", CreatedAt: at, HeldBy: "7", HeldRef: "/outbox/shop/outbox_message/7"}
	asked := views.OutboxCommand{ID: 3, Event: dead.Event, Href: dead.Href, By: "Lin Yue", Reason: "obsolete", At: at, Releases: 1}
	return map[string]templ.Component{
		"outbox":     views.OutboxListPage(views.OutboxList{Frame: frame(), Tabs: []ui.Tab{{Label: "shop/outbox_message", Href: "/outbox", Current: true}, {Label: "shop/outbox_mail", Href: "/outbox?outbox=shop/outbox_mail"}}, Name: "shop/outbox_message", Cluster: "shop", Stats: &views.OutboxStats{Oldest: "2 min 10 s", Pending: "2", SentPerMinute: "100,000+", Dead: "1"}, Filter: views.FilterBar{Action: "/outbox"}, Rows: []views.OutboxRow{dead, held}, Commands: []views.OutboxCommand{asked}, May: true}),
		"no outbox":  views.OutboxListPage(views.OutboxList{Frame: frame(), Empty: views.Empty{Text: "No outbox is configured."}}),
		"outbox row": views.OutboxMessagePage(views.OutboxMessage{Frame: frame(), Row: dead, Outbox: "shop/outbox_message", Releases: "1", Behind: 1, Act: dead.Href, Dead: true, May: true, Error: "Enter a reason."}),
		"login":      views.LoginPage(views.Login{Frame: views.Frame{Title: "Sign in", Theme: "auto"}, Name: "ada", Return: "/faults", Error: "The name or the password is wrong.", Accounts: []views.Account{{Name: "admin", Role: "admin", Password: "p"}}}),
		"problem":    views.ProblemPage(views.Problem{Frame: frame(), Status: 500, Headline: "This page could not be loaded", Unchanged: true, RequestID: "r1", Back: "/", BackLabel: "Back", Retry: "/faults"}),
		"checks": views.CheckListPage(views.CheckList{Frame: frame(), Summary: "1 finding is open.", Worst: "warning",
			Filter: views.FilterBar{Action: "/checks"}, May: true, CanRun: true, Said: "The checks were run.", Untils: []ui.Option{{Value: "7d", Label: "In a week"}}, Filtered: true,
			Muted:  []views.CheckRow{{ID: "check-2", Code: "c", Subject: "s", History: "/checks?code=c#check-2", Severity: "warning", Sentence: "Muted.", Muted: "Muted until", CheckedAt: now, Since: at}},
			Open:   []views.CheckRow{{ID: "check-0", Code: "c", Subject: "s", History: "/checks?code=c#check-0", Reason: "typed", Severity: "warning", Sentence: "On main a record may be on one broker only.", Meaning: "It may be lost.", Mend: "Set replication to 3.", Evidence: []string{"order.paid: 1"}, CheckedAt: now, Since: at}},
			Passed: []views.CheckRow{{ID: "check-1", Changes: []views.CheckChange{{Severity: "warning", Sentence: "It was not.", At: at}}, Severity: "passed", Sentence: "Cluster main answers.", CheckedAt: now, Since: at}}}),
		"alerts": views.AlertListPage(views.AlertList{Frame: frame(), Summary: "1 alert", Worst: "critical", Trouble: "1 rule could not look", May: true, Error: "x",
			Lasting: []views.AlertRow{{ID: 7, Severity: "critical", Rule: "Messages lost", Text: "7 messages", Href: "/sources", Since: at}, {ID: 8, Severity: "note", Rule: "r", Text: "t", Since: at, AckedBy: "ada", AckedAt: &at, AckReason: "known"}},
			Over:    []views.AlertRow{{ID: 6, Severity: "warning", Rule: "r", Text: "t", Since: at, Ended: &now}}}),
		"no alerts": views.AlertListPage(views.AlertList{Frame: frame(), Summary: "All rules have looked."}),
		"alert settings": views.SettingsAlertsPage(views.SettingsAlerts{Frame: frame(), Tabs: []ui.Tab{{Label: "Alerts", Href: "/settings/alerts", Current: true}}, May: true, Said: "On its way.",
			Rules:      []views.RuleRow{{Name: "Gap", Severity: "critical", LookedAt: &at}, {Name: "Age", Severity: "warning", Error: "silent", Since: &at}, {Name: "New", Severity: "note"}},
			Channels:   []views.ChannelRow{{Name: "ops", Type: "slack", Language: "en", Least: "warning", Last: &views.DeliveryRow{State: "failed", Error: "403", At: at}}, {Name: "mail", Type: "email", Language: "zh-Hans", Rules: "Gap"}},
			Deliveries: []views.DeliveryRow{{Channel: "ops", Kind: "firing", Alerts: 3, State: "failed", Tries: 15, Error: "403", At: at}, {Channel: "ops", Kind: "test", State: "sent", At: at}}}),
		"evidence settings": views.SettingsEvidencePage(views.SettingsEvidence{Frame: frame(), Tabs: []ui.Tab{{Label: "Evidence", Href: "/settings/evidence", Current: true}},
			Groups: []views.EvidenceRow{{Group: "points", Ours: true, Connection: "shop", Table: "t", Columns: "event_id", Where: "status = 1", Since: &at, Kept: "90 d", Effect: "local", Order: "key"}, {Group: "legacy", Effect: "external", Window: "1 d"}},
			Try:    views.EvidenceTry{Groups: []ui.Option{{Value: "points", Label: "points"}}, Group: "points", Event: "e", Verdict: "noop", Text: "Record", Took: "1 ms"},
			Find:   views.EvidenceFind{May: true, Connections: []ui.Option{{Value: "shop", Label: "shop"}}, Connection: "shop", Proposals: []views.EvidenceProposal{{Table: "t", Facts: []string{"f"}, YAML: "groups:"}}}}),
		"overview":  views.OverviewPage(views.Overview{Frame: frame(), Headline: "All quiet", At: now, Answers: []views.Answer{{Label: "Lost", Hue: "go", Icon: "circle-check", Value: "None", Href: "/sources"}}, Chart: views.Chart{Hours: []views.ChartHour{{At: at, Arrived: 3, Resolved: 1}, {At: now, Arrived: 1}}}, Faults: rows, Waiting: []views.Task{{Title: "Approve replay R-413", Href: "/replays/413/plan", Link: "Review", Icon: "user-check"}}, Ages: []views.AgeRow{{Source: "order.paid.DLT", Broker: "Kafka", Href: "/letters", Cells: []views.AgeCell{{N: "21", Heat: 3}, {N: "0"}, {N: "0"}}}}, Replays: []views.ReplayRow{replay}}),
		"faults":    views.FaultListPage(views.FaultList{Frame: frame(), OpenFaults: 1, OpenLetters: 188, Tabs: []ui.Tab{{Label: "Open", Href: "?state=open", Count: "1", Current: true}}, Filter: views.FilterBar{Action: "/faults", Choices: []ui.Choice{{Name: "source", Label: "Source", Value: "a", Options: []ui.Option{{Value: "a", Label: "a"}}}}, Clear: "/faults"}, Rows: rows, Total: 1, Replay: form(), Caption: "Open faults"}),
		"no faults": views.FaultListPage(views.FaultList{Frame: frame(), Empty: views.Empty{Text: "No open faults.", Href: "/sources", Link: "Sources"}, Replay: form()}),
		"fault":     views.FaultPage(views.Fault{Frame: frame(), Row: fault(), FirstSeen: at, Stays: []ui.Count{{Name: "unknown", N: 4}}, Letters: []views.LetterRow{letterRow("a")}, MoreHref: "/letters?fault_id=28", MoreCount: "188 letters", Replay: form(), Running: &views.RunningReplay{ID: 412, State: "running", Sent: 3, Total: 9}}),
		"letters":   views.LetterListPage(views.LetterList{Frame: frame(), Rows: []views.LetterRow{letterRow("a"), letterRow("b")}, Total: 12480, Query: "?state=open", Open: true, States: true, Replay: form(), Filter: views.FilterBar{Action: "/letters", Search: &views.Search{Name: "event_id", Label: "Event id, whole"}}, Pager: ui.Pages{Next: "?cursor=x", NextLabel: "Older"}}),
		"letter":    views.LetterPage(letter()),
		"replays":   views.ReplayListPage(views.ReplayList{Frame: frame(), Rows: []views.ReplayRow{replay}, Started: 2}),
		"plan":      views.ReplayPlanPage(plan()),
		"replay":    views.ReplayPage(views.Replay{Frame: frame(), ID: 412, State: "running", What: "612 letters", By: "Lin Yue", FrozenAt: at, Targets: []views.PlanTarget{{Topic: "notification.send", Groups: []string{"notification-consumer-group"}}}, Reason: "INC-3391", Progress: progress(), May: true, Tab: "worth", Items: []views.ItemRow{{No: 341, LetterID: "a", EventID: "e", State: "sent", SentAt: &at, Letters: 2, Groups: []views.ItemGroup{{Name: "g", Verdict: "safe", Outcome: "failed_again", Reason: "503"}, {Name: "h", Verdict: "already_applied", Outcome: "duplicate"}}}, {No: 342, State: "waiting"}}}),
		"edit": views.EditLetterPage(views.EditPage{Frame: frame(), LetterID: "a", EventID: "e", Back: "/letters/a", Kind: "text", Value: "{}", Key: "k", May: true, Newest: 1,
			Forms:   []ui.Tab{{Label: "0", Href: "/letters/a/edit?revision=0"}, {Label: "1", Href: "/letters/a/edit?revision=1", Current: true}},
			Headers: []views.EditHeader{{Name: "event-id", Value: "e", Class: "locked", Why: "identity"}, {No: 1, Name: "authorization", Value: "x", Class: "sensitive"}, {No: 2, Name: "shop", Value: "7", Class: "free"}},
			Preview: &views.EditPreview{Verdict: "safe", Reason: "r", Digest: "d", Second: true, Value: views.DiffView{Hunks: [][]views.DiffLine{{{Op: "del", Old: "1", Text: "a"}, {Op: "ins", New: "1", Text: "b"}}}}}}),
		"edit refused": views.EditLetterPage(views.EditPage{Frame: frame(), LetterID: "a", Back: "/letters/a", May: true, Refused: "no"}),
		"edit hex":     views.EditLetterPage(views.EditPage{Frame: frame(), LetterID: "a", Back: "/letters/a", May: true, Kind: "binary", Value: "00ff", KeyHex: true}),
		"revision":     views.ShowRevisionPage(views.RevisionPage{Frame: frame(), Row: views.RevisionRow{No: 1, By: "Lin Yue", At: at, Reason: "r"}, Back: "/letters/a", Diff: views.EditPreview{Key: views.DiffView{Note: "n"}}}),
		"ladder": views.ReplayPage(views.Replay{Frame: frame(), ID: 412, State: "rung", FrozenAt: at, May: true, Arrived: "9 letters", ArrivedHref: "/letters?state=open", PaceForm: views.PaceForm{ID: 412, May: true, Says: []string{"s"}},
			Growing:  &views.Growing{FaultID: "28", LastHour: 3, Group: "g", May: true, Back: "/replays/412"},
			Progress: views.Progress{ID: 412, State: "rung", Live: true, Label: "l", UpdatedAt: now, Path: "/replays/412", Wait: "w", WaitSince: &at, Stop: "s", Pace: "2 per second", Ladder: []views.RungRow{{Name: "1", State: "passed", Says: "passed"}, {Name: "Rest 4", State: "waiting", Says: "waiting"}}}}),
		"planning":         views.ReplayPage(views.Replay{Frame: frame(), ID: 413, State: "planning", FrozenAt: at, May: true, Progress: views.Progress{ID: 413, State: "planning", Live: true, Label: "l", UpdatedAt: now, Path: "/replays/413", Judged: 45000, ToJudge: 100000}}),
		"refused":          views.ReplayPage(views.Replay{Frame: frame(), ID: 412, State: "done", Progress: views.Progress{State: "done", Label: "Done", UpdatedAt: now, Refused: 1, RefusedHref: "?tab=refused"}, RefusedTab: true, Refused: plan().Refused, FrozenAt: at}),
		"consumers":        views.ConsumerListPage(views.ConsumerList{Frame: frame(), Rows: []views.ConsumerRow{consumer, foreign}}),
		"consumer":         views.ConsumerPage(views.Consumer{Frame: frame(), Row: consumer, Replicas: []views.ReplicaRow{{Host: "a", State: "stale", StartedAt: at, ReportedAt: at}}, OpenHref: "/letters", May: true, Paused: &views.Pausing{Paused: true, By: "ada", Reason: "deploy", At: at}, Evidence: "complete"}),
		"foreign consumer": views.ConsumerPage(views.Consumer{Frame: frame(), Row: foreign, OpenHref: "/letters"}),
		"sources":          views.SourceListPage(views.SourceList{Frame: frame(), Rows: []views.SourceRow{{Name: "order.paid.DLT", State: "gap", Gaps: 12, Stored: 3, Href: "/letters"}}, Unattended: []views.UnattendedRow{{Name: "inventory.reserved.DLT", Records: 1204}}, Gaps: []views.GapRow{{Topic: "order.paid.DLT", From: 5, To: 17, At: at}}}),
		"audit":            views.AuditPage(views.Audit{Frame: frame(), Rows: []views.AuditRow{{ID: 1, At: at, Who: "ada", Via: "session", From: "127.0.0.1", Did: "Started a replay", Target: "replay/412", Href: "/replays/412", Why: "INC-3391", Detail: []views.CodeLine{{Tokens: []views.Token{{Text: "{}"}}}}}}}),
		"profile":          views.ProfilePage(views.Profile{Frame: frame(), Acts: []views.ActRow{{Act: "read", Mine: true, Roles: []string{"viewer", "admin"}}, {Act: "manage_users", Roles: []string{"admin"}}}, Tokens: []views.TokenRow{{ID: 1, Name: "ci", Role: "viewer", Created: at, Revoked: &at}, {ID: 2, Name: "cd", Role: "viewer", Created: at}}, Roles: []string{"viewer"}, Fresh: "om_secret", Error: "x"}),
		"try":              views.TryPage(views.Try{Frame: frame(), May: true, Said: "Sent", SaidHref: "/faults", TwiceEvent: "e", TwicePoints: "100", Broken: true, BrokenFault: 3, Held: true, HeldGroup: "g", HeldReplay: 4, Kafka: "127.0.0.1:9092", Accounts: []views.Account{{Name: "admin", Role: "admin", Password: "p"}}}),
	}
}

func plan() views.ReplayPlan {
	at := now.Add(-time.Minute)
	return views.ReplayPlan{
		Frame: frame(), ID: 413, State: "awaiting_approval", By: "Chen Wei", FrozenAt: at, What: "612 letters", Total: 608, Verdicts: []ui.Count{{Name: "safe", N: 608}, {Name: "unprotected", N: 4}},
		Targets: []views.PlanTarget{{Cluster: "shop", Topic: "order.paid", Groups: []string{"a", "b"}}, {Topic: "nobody"}}, RefusedN: 2, RefusedAll: "/replays/413?tab=refused", Target: "origin",
		Refused: []views.RefusedRow{
			{LetterID: "l1", EventID: "e1", Override: "l1|unprotected|legacy", Groups: []views.RefusedGroup{{Name: "legacy", Verdict: "unprotected", Reason: "keeps no records"}}},
			{LetterID: "l2", Groups: []views.RefusedGroup{{Name: "points", Verdict: "unknown", Reason: "did not answer"}}},
		},
		Overrides: []views.OverrideRow{{LetterID: "l3", EventID: "e3", Group: "legacy", Verdict: "unprotected", Reason: "told"}}, Targetless: []string{"l4"},
		Form: form(), Confirm: "Sends 608 letters.", Approval: views.Approval{Needed: true, Because: "Overrides need a second person.", May: true},
	}
}

func TestEveryPageInBothLanguages(t *testing.T) {
	t.Parallel()
	for name, component := range pages() {
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

func checkDocument(t *testing.T, doc *html.Node, language locale.Tag) {
	t.Helper()
	if got := attr(one(t, doc, "html", tag(atom.Html)), "lang"); got != string(language) {
		t.Errorf("lang is %q", got)
	}
	one(t, doc, "main", tag(atom.Main))
	one(t, doc, "h1", tag(atom.H1))
	if title := text(one(t, doc, "title", func(n *html.Node) bool { return n.DataAtom == atom.Title && n.Namespace == "" })); !strings.HasSuffix(title, "· Oncemore") {
		t.Errorf("title %q", title)
	}
	missing := func(s string) bool {
		return strings.Contains(s, "{") && strings.Contains(s, "}") && !strings.HasPrefix(s, "{}")
	}
	for d := range doc.Descendants() {
		if d.Type == html.TextNode && d.Parent.DataAtom != atom.Script && missing(d.Data) {
			t.Errorf("a placeholder is left: %q", d.Data)
		}
		if d.Type == html.TextNode && looksLikeKey(strings.TrimSpace(d.Data)) {
			t.Errorf("a key stands for its text: %q", d.Data)
		}
	}
	ids := map[string]bool{}
	for _, n := range all(doc, func(n *html.Node) bool { return has(n, "id") }) {
		if ids[attr(n, "id")] {
			t.Errorf("id %q is there twice", attr(n, "id"))
		}
		ids[attr(n, "id")] = true
	}
}

// looksLikeKey recognises a catalog key by its first part.
func looksLikeKey(s string) bool {
	first, rest, ok := strings.Cut(s, ".")
	return ok && rest != "" && !strings.ContainsAny(s, " /·") && slices.ContainsFunc(locale.Keys(locale.English), func(k string) bool { return strings.HasPrefix(k, first+".") }) && first != "order"
}

// checkForms: what changes something is a POST, and every field has a name for
// those who do not see it.
func checkForms(t *testing.T, doc *html.Node) {
	t.Helper()
	labels := map[string]bool{}
	for _, l := range all(doc, tag(atom.Label)) {
		labels[attr(l, "for")] = true
	}
	for _, f := range all(doc, tag(atom.Form)) {
		method, action := attr(f, "method"), attr(f, "action")
		get := method == "" || method == "get"
		if get && !slices.Contains([]string{"/search", "/faults", "/letters", "/outbox", "/audit", "/checks", "/settings/evidence", "/breaks", "/reconciliations/points", ""}, action) {
			t.Errorf("form %q changes something by GET", action)
		}
	}
	for _, n := range all(doc, func(n *html.Node) bool { return n.DataAtom == atom.Input || n.DataAtom == atom.Select }) {
		if attr(n, "type") == "hidden" {
			continue
		}
		if attr(n, "aria-label") == "" && !labels[attr(n, "id")] && !insideLabel(n) {
			t.Errorf("field %q has no label", attr(n, "name"))
		}
	}
	for _, b := range all(doc, tag(atom.Button)) {
		if text(b) == "" && attr(b, "aria-label") == "" {
			t.Errorf("a button has no name: %v", b.Attr)
		}
	}
}

func insideLabel(n *html.Node) bool {
	for p := n.Parent; p != nil; p = p.Parent {
		if p.DataAtom == atom.Label {
			return text(p) != ""
		}
	}
	return false
}

func checkTables(t *testing.T, doc *html.Node) {
	t.Helper()
	for _, table := range all(doc, tag(atom.Table)) {
		if text(one(t, table, "caption", tag(atom.Caption))) == "" {
			t.Error("a table has an empty caption")
		}
		head := all(one(t, table, "thead", tag(atom.Thead)), tag(atom.Th))
		for _, th := range head {
			if attr(th, "scope") != "col" {
				t.Errorf("head cell %q has no scope", text(th))
			}
		}
		for _, row := range all(table, func(n *html.Node) bool { return n.DataAtom == atom.Tr && n.Parent.DataAtom == atom.Tbody }) {
			cells := 0
			for c := range row.ChildNodes() {
				switch {
				case c.DataAtom != atom.Td && c.DataAtom != atom.Th:
				case attr(c, "colspan") == "5":
					cells += 5
				default:
					cells++
				}
			}
			if cells != len(head) {
				t.Errorf("a row of %q has %d cells under %d heads", text(all(table, tag(atom.Caption))[0]), cells, len(head))
			}
		}
	}
}

// checkNames: no link is empty or dead, and state is never its hue alone.
func checkNames(t *testing.T, doc *html.Node) {
	t.Helper()
	for _, a := range all(doc, tag(atom.A)) {
		if href := attr(a, "href"); href == "" || href == "about:invalid#TemplFailedSanitizationURL" {
			t.Errorf("link %q leads nowhere", text(a))
		}
		if text(a) == "" && attr(a, "aria-label") == "" {
			t.Errorf("link to %s has no name", attr(a, "href"))
		}
	}
	for _, v := range all(doc, class("v")) {
		if text(v) == "" {
			t.Error("a state has no word")
		}
		if len(all(v, tag(atom.Svg))) == 0 && len(all(v, func(n *html.Node) bool { return n.Data == "svg" })) == 0 {
			t.Errorf("state %q has no icon", text(v))
		}
	}
	for _, svg := range all(doc, func(n *html.Node) bool { return n.Data == "svg" }) {
		if attr(svg, "aria-hidden") != "true" && (attr(svg, "role") != "img" || attr(svg, "aria-label") == "") {
			t.Errorf("a picture is neither a decoration nor described: %v", svg.Attr)
		}
	}
}

func checkInline(t *testing.T, doc *html.Node) {
	t.Helper()
	for _, n := range all(doc, func(*html.Node) bool { return true }) {
		for _, a := range n.Attr {
			if a.Key == "style" || strings.HasPrefix(a.Key, "on") {
				t.Errorf("<%s %s>: the policy forbids it", n.Data, a.Key)
			}
		}
		if n.DataAtom == atom.Style || n.DataAtom == atom.Script && !strings.HasPrefix(attr(n, "src"), "/static/") {
			t.Errorf("inline <%s>", n.Data)
		}
	}
}

func TestReplaySafelyIsOneFormWithCountReasonAndKey(t *testing.T) {
	t.Parallel()
	doc := page(t, in(locale.English), pages()["fault"])
	button := one(t, doc, "primary button", func(n *html.Node) bool { return n.DataAtom == atom.Button && class("btn-primary")(n) })
	if text(button) != "Replay 184 safely" || attr(button, "value") != "safe" {
		t.Errorf("the button reads %q and sends %q", text(button), attr(button, "value"))
	}
	f := button
	for f.DataAtom != atom.Form {
		f = f.Parent
	}
	if attr(f, "method") != "post" || attr(f, "action") != "/replays" {
		t.Errorf("form %v", f.Attr)
	}
	sent := map[string]string{}
	for _, n := range all(f, tag(atom.Input)) {
		sent[attr(n, "name")] = attr(n, "value")
	}
	for name, want := range map[string]string{"fault_id": "28", "request_key": "key-1", "reason": "Replay safely from fault F-28", "from": "/faults/28"} {
		if sent[name] != want {
			t.Errorf("%s is %q, want %q", name, sent[name], want)
		}
	}
	if !strings.Contains(text(doc), "4 stay: unknown.") {
		t.Error("the page does not say what stays, and why")
	}
}

func TestAButtonThatARoleMayNotUseIsASentence(t *testing.T) {
	t.Parallel()
	v := letter()
	v.Replay.May = false
	doc := page(t, in(locale.English), views.LetterPage(v))
	if !strings.Contains(text(doc), "Operators can replay.") {
		t.Error("nothing says who can replay")
	}
	if found := all(doc, func(n *html.Node) bool { return attr(n, "name") == "action" }); len(found) != 0 {
		t.Errorf("%d buttons are still there", len(found))
	}
}

func TestALetterThatMayNotGoOffersAPlanOnly(t *testing.T) {
	t.Parallel()
	for _, verdict := range []string{"unprotected", "expired", "no_event_id", "out_of_order", "in_flight", "unknown", ""} {
		v := letter()
		v.Judgement.Verdict = verdict
		for _, b := range all(page(t, in(locale.English), views.LetterPage(v)), func(n *html.Node) bool { return attr(n, "name") == "action" }) {
			if attr(b, "value") != "plan" {
				t.Errorf("%q: a button sends %q", verdict, attr(b, "value"))
			}
		}
	}
}

func TestUnknownIsNeverGreen(t *testing.T) {
	t.Parallel()
	for _, name := range append(ui.Verdicts(), "nonsense") {
		hue := ui.VerdictHue(name)
		if (hue == "go") != (name == "safe") {
			t.Errorf("verdict %q has hue %q", name, hue)
		}
	}
	doc := page(t, in(locale.English), ui.Split([]ui.Count{{Name: "", N: 3}, {Name: "unknown", N: 2}}))
	bars := all(doc, func(n *html.Node) bool { return n.Data == "rect" })
	if len(bars) != 1 || attr(bars[0], "class") != "fhold" {
		t.Errorf("what is not judged has bars %d, %v", len(bars), bars)
	}
	if got := text(doc); got != "3 Looking up…2 Unknown" {
		t.Errorf("the split reads %q", got)
	}
}

func TestABarIsFullOnlyWhenEveryOutcomeIsKnown(t *testing.T) {
	t.Parallel()
	doc := page(t, in(locale.English), ui.OutcomeBar([]ui.Count{{Name: "applied", N: 3}, {Name: "waiting", N: 1}}, 4, "3 of 4", true))
	bars := all(doc, func(n *html.Node) bool { return n.Data == "rect" })
	if len(bars) != 1 || attr(bars[0], "width") != "75.00%" {
		t.Errorf("bars %v", bars)
	}
}

func TestLooksHaveWords(t *testing.T) {
	t.Parallel()
	for _, key := range slices.Concat(prefixed("verdict.", ui.Verdicts()), prefixed("outcome.", ui.Outcomes()), prefixed("state.", ui.States()), prefixed("tile.", ui.OutcomeOrder)) {
		if key == "verdict." {
			key = "verdict.none"
		}
		if !locale.Has(key) {
			t.Errorf("%s has a look but no word", key)
		}
	}
}

func prefixed(start string, names []string) []string {
	var keys []string
	for _, n := range names {
		keys = append(keys, start+n)
	}
	return keys
}

func TestForeignCountersAreNotZero(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"consumers", "foreign consumer"} {
		doc := page(t, in(locale.English), pages()[name])
		if !strings.Contains(text(doc), "Not ours to know") {
			t.Errorf("%s: foreign numbers are not said to be unknown", name)
		}
	}
}

func TestSomebodyElsesTextIsText(t *testing.T) {
	t.Parallel()
	v := letter()
	v.EventID, v.Class, v.Message = "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "\"><svg onload=alert(1)>"
	v.Headers.Rows[0].Value, v.Timeline[0].Text, v.Newer = "</code><script>", "<b>", "javascript:alert(1)"
	v.Payload.Lines = []views.CodeLine{{Tokens: []views.Token{{Class: "s", Text: "</pre><script>alert(1)</script>"}}}}
	doc := page(t, in(locale.English), views.LetterPage(v))
	checkInline(t, doc)
	for _, a := range all(doc, tag(atom.A)) {
		if strings.HasPrefix(attr(a, "href"), "javascript:") {
			t.Errorf("a link runs a script: %s", attr(a, "href"))
		}
	}
	if !strings.Contains(text(doc), "</pre><script>alert(1)</script>") {
		t.Error("the payload is not shown as it is")
	}
}

func TestPayloadTextIsShownByteForByte(t *testing.T) {
	t.Parallel()
	v := letter()
	v.Payload.Lines = []views.CodeLine{{No: "1", Tokens: []views.Token{{Text: "  {"}}}, {No: "2", Tokens: []views.Token{{Class: "k", Text: `"a"`}, {Text: ":  "}, {Class: "n", Text: "7308412990155264513"}}}}
	doc := page(t, in(locale.English), views.LetterPage(v))
	pre := all(doc, func(n *html.Node) bool { return n.DataAtom == atom.Pre })[0]
	var got []string
	for line := range pre.ChildNodes() {
		var b strings.Builder
		for d := range line.Descendants() {
			if d.Type == html.TextNode {
				b.WriteString(d.Data)
			}
		}
		got = append(got, b.String())
	}
	if want := []string{"  {", `"a":  7308412990155264513`}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestProgressIsAnnouncedAndWorksWithoutScript(t *testing.T) {
	t.Parallel()
	doc := page(t, in(locale.English), pages()["replay"])
	live := one(t, doc, "live region", func(n *html.Node) bool { return attr(n, "aria-live") == "polite" })
	if !has(live, "data-announce") {
		t.Error("nothing is announced")
	}
	if len(all(doc, func(n *html.Node) bool {
		return n.DataAtom == atom.A && attr(n, "href") == "/replays/412" && text(n) == "Refresh"
	})) == 0 {
		t.Error("there is no Refresh for those without JavaScript")
	}
	stream := one(t, doc, "stream", func(n *html.Node) bool { return has(n, "sse-connect") })
	if attr(stream, "sse-connect") != "/replays/412/events" {
		t.Errorf("stream %q", attr(stream, "sse-connect"))
	}
}

func TestOverridesAreTickedOneByOneAndNeverPreset(t *testing.T) {
	t.Parallel()
	doc := page(t, in(locale.English), pages()["plan"])
	boxes := all(doc, func(n *html.Node) bool { return attr(n, "name") == "override" })
	if len(boxes) != 1 || attr(boxes[0], "value") != "l1|unprotected|legacy" || has(boxes[0], "checked") {
		t.Errorf("boxes %v", boxes)
	}
}

func TestTheMenuHasNoDeadEnds(t *testing.T) {
	t.Parallel()
	doc := page(t, in(locale.English), pages()["faults"])
	for _, n := range all(doc, class("side-nav")) {
		var got []string
		for _, a := range all(n, tag(atom.A)) {
			got = append(got, attr(a, "href"))
		}
		if want := []string{"/", "/faults", "/letters", "/replays", "/consumers", "/outbox", "/reconciliations", "/compensations", "/checks", "/audit", "/settings"}; !slices.Equal(got, want) {
			t.Errorf("the menu leads to %v", got)
		}
	}
}
