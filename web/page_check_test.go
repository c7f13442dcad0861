package web_test

import (
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"oncemore/internal/access"
	"oncemore/internal/check"
	"oncemore/views/locale"
)

func TestEveryCheckIsInBothCatalogs(t *testing.T) {
	t.Parallel()
	english, chinese := locale.Locale{Tag: locale.English}, locale.Locale{Tag: locale.Chinese}
	all := check.Messages()
	for key, text := range all {
		if got := english.Text(key); got != text {
			t.Errorf("%s: en.json has %q, the check says %q", key, got, text)
		}
		if got := chinese.Text(key); got == key || got == text {
			t.Errorf("%s: zh-Hans.json has %q", key, got)
		}
	}
	for _, key := range locale.Keys(locale.English) {
		if _, known := all[key]; !known && strings.HasPrefix(key, "check.") {
			t.Errorf("%s is in the catalog, but no check says it", key)
		}
	}
}

// said is a finding whose texts are those of the catalog.
func said(code string, severity check.Severity, args map[string]string, at time.Time) check.Finding {
	text := func(part string) check.Text {
		key := "check." + code + "." + part
		english, known := check.Messages()[key]
		if !known {
			return check.Text{}
		}
		for name, value := range args {
			english = strings.ReplaceAll(english, "{"+name+"}", value)
		}
		return check.Text{Key: key, Args: args, En: english}
	}
	return check.Finding{Code: code, Area: "topic", Subject: "cluster/main", Severity: severity, Sentence: text("sentence"), Meaning: text("meaning"),
		Mend: text("mend"), Evidence: []string{"min.insync.replicas=1 <order.paid>"}, CheckedAt: at}
}

func TestChecksPage(t *testing.T) {
	t.Parallel()
	s := setupShop(t)
	viewer := s.signIn(t, access.Viewer)
	contains(t, s.get(t, viewer, "/checks"), http.StatusOK, "Nothing was checked yet")
	contains(t, s.get(t, viewer, "/checks?severity=x"), http.StatusBadRequest)

	at, store := time.Now(), check.NewStore(s.pool)
	passed := said("topic.acks.ok", check.Passed, map[string]string{"cluster": "main"}, at)
	weak := said("topic.acks.weak", check.Warning, map[string]string{"cluster": "main"}, at)
	unseen := said("topic.acks.unknown", check.NotChecked, map[string]string{"cluster": "second"}, at)
	note := said("consumer.replay.missing", check.Note, map[string]string{"topic": "points.replay"}, at)
	for name, c := range map[string]struct {
		findings []check.Finding
		words    []string
		all      bool // passed
	}{
		"all passed":  {[]check.Finding{passed, said("cluster.reach.ok", check.Passed, map[string]string{"name": "main"}, at)}, []string{"All 2 checks passed", "Cluster main answers."}, true},
		"a note":      {[]check.Finding{passed, note}, []string{"Nothing is amiss. Passed: 1. To note: 1.", "points.replay does not exist yet."}, false},
		"not checked": {[]check.Finding{passed, unseen}, []string{"1 finding is open. Not checked: 1.", "Not checked", "Mend cluster second, then check again."}, false},
		"a warning": {[]check.Finding{passed, weak, unseen}, []string{"2 findings are open. Not checked: 1.", "Warning", weak.Sentence.En, weak.Meaning.En, weak.Mend.En,
			html.EscapeString(weak.Evidence[0])}, false},
	} {
		at = at.Add(time.Second) // one run after the other
		for i := range c.findings {
			c.findings[i].CheckedAt = at
		}
		if err := store.Save(t.Context(), c.findings); err != nil {
			t.Fatal(err)
		}
		page := s.get(t, viewer, "/checks")
		contains(t, page, http.StatusOK, c.words...)
		if got := strings.Contains(page.body, "checks passed") || strings.Contains(page.body, "check passed"); got != c.all {
			t.Errorf("%s: the page says that all passed: %v", name, got)
		}
		if !c.all && greenNote.MatchString(page.body) {
			t.Errorf("%s: the summary is green", name)
		}
	}
}

var greenNote = regexp.MustCompile(`<div class="note mb-3" role="status"><svg class="i go"`)

func TestOpenFindingsStandInTheNavigation(t *testing.T) {
	t.Parallel()
	s := setupShop(t)
	at := time.Now()
	err := check.NewStore(s.pool).Save(t.Context(), []check.Finding{
		said("topic.acks.ok", check.Passed, map[string]string{"cluster": "main"}, at), said("topic.acks.weak", check.Warning, map[string]string{"cluster": "main"}, at),
		said("topic.acks.unknown", check.NotChecked, map[string]string{"cluster": "second"}, at), said("consumer.replay.missing", check.Note, nil, at),
	})
	if err != nil {
		t.Fatal(err)
	}
	contains(t, s.get(t, s.signIn(t, access.Viewer), "/"), http.StatusOK, `href="/checks"`, "2 open")
	chinese := s.signIn(t, access.Viewer)
	s.post(t, chinese, "/preferences", url.Values{"lang": {"zh-Hans"}, "return": {"/"}})
	contains(t, s.get(t, chinese, "/checks"), http.StatusOK, "2 项未处理", "未检查", "在 main 上，已确认的记录可能只在一个 Broker 上。")
}
