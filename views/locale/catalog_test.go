package locale_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"oncemore/views/locale"
)

func TestBothLanguagesSayTheSameThings(t *testing.T) {
	t.Parallel()
	english, chinese := locale.Keys(locale.English), locale.Keys(locale.Chinese)
	for _, key := range english {
		if !slices.Contains(chinese, key) {
			t.Errorf("%s is missing in zh-Hans.json", key)
		}
	}
	for _, key := range chinese {
		if !slices.Contains(english, key) {
			t.Errorf("%s is missing in en.json", key)
		}
	}
}

// placeholders lists the names in braces of every form that a text can take.
func placeholders(tag locale.Tag, key string, n any) []string {
	var names []string
	for _, p := range (locale.Locale{Tag: tag}).Parts(key, n) {
		if p.Name != "" {
			names = append(names, p.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func TestBothLanguagesUseTheSamePlaceholders(t *testing.T) {
	t.Parallel()
	for _, key := range locale.Keys(locale.English) {
		other := placeholders(locale.English, key, 2)
		if got := placeholders(locale.Chinese, key, 2); !slices.Equal(got, other) {
			t.Errorf("%s: zh-Hans has %v, en has %v", key, got, other)
		}
		for _, name := range placeholders(locale.English, key, 1) {
			if !slices.Contains(other, name) {
				t.Errorf("%s: the singular has {%s}, the plural has %v", key, name, other)
			}
		}
	}
}

func TestPlurals(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		tag  locale.Tag
		n    any
		want string
	}{
		{locale.English, 0, "0 letters"}, {locale.English, 1, "1 letter"}, {locale.English, int64(2), "2 letters"},
		{locale.English, 12846, "12,846 letters"}, {locale.English, int64(1 << 40), "1,099,511,627,776 letters"},
		{locale.Chinese, 0, "0 封死信"}, {locale.Chinese, 1, "1 封死信"}, {locale.Chinese, 12846, "12,846 封死信"},
	} {
		if got := (locale.Locale{Tag: c.tag}).Text("count.letters", "n", c.n); got != c.want {
			t.Errorf("%s %v: %q, want %q", c.tag, c.n, got, c.want)
		}
	}
}

func TestAMissingKeyShowsItself(t *testing.T) {
	t.Parallel()
	if got := (locale.Locale{Tag: locale.Chinese}).Text("no.such.key", "n", 1); got != "no.such.key" {
		t.Errorf("missing key reads %q", got)
	}
}

func TestValuesAreNotReadAsPlaceholders(t *testing.T) {
	t.Parallel()
	got := (locale.Locale{Tag: locale.English}).Text("form.conflict", "by", "{id}", "id", "{by}")
	if want := "{id} started replay R-{by} with this letter. Nothing was sent twice."; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// Keys that stand in the sources as words must be in the catalog; those that are
// put together there end with a dot or an underscore and are checked by what
// puts them together.
var usedKey = regexp.MustCompile(`(?:\bT\(ctx, |\.Text\(|ui\.Rich\(|locale\.Has\(|locale\.T\(ctx, )"([a-z_]+(?:\.[a-zA-Z0-9_-]+)+)"(\s*\+)?`)

func TestEveryUsedKeyIsInTheCatalog(t *testing.T) {
	t.Parallel()
	used := 0
	eachSource(t, func(path, text string) {
		for _, m := range usedKey.FindAllStringSubmatch(text, -1) {
			used++
			if m[2] == "" && !locale.Has(m[1]) {
				t.Errorf("%s uses %q, which is not in the catalog", path, m[1])
			}
		}
	})
	if used < 300 {
		t.Errorf("only %d uses were found: the pattern has become blind", used)
	}
}

// assembled are the beginnings of keys that the sources put together.
var assembled = []string{
	"verdict.", "band.", "outcome.", "tile.", "state.", "strategy.", "role.", "act.", "nav.", "theme.", "language.", "error.", "reason.", "timeline.", "fault.help.", "fault.why_",
	"faults.caption.", "faults.tab.", "letter.not_open.", "letter.flag.", "original.", "payload.", "replay.tab.", "replay.says.", "replay.said.", "replay.pause", "replay.resume",
	"audit.action.", "try.", "consumer.", "time.layout.", "select.", "check.", "layers.field.", "alert.", "channel.", "effect.", "order.", "settings.tab.", "checks.area.", "checks.state.", "checks.until.",
	"jobform.template.", "jobform.template_says.", "jobform.group.", "jobform.side.", "jobform.field.", "break.type.", "side.", "reason_code.", "run.kind.", "run.line.", "run.moved.", "run.sign.", "break.note.", "break.said.", "break.path_", "breaks.none_", "jobs.tab_", "run.lost_", "run.none_", "sign.point_", "job.warning.", "job.warning_says.", "plan.kind.", "segment.",
	"compensation.", "compensations.", "saga.", "attempt.", "barrier.", "action.kind.", "approvals.", "break.type.", "side.", "switch.",
	"age.", "command.", "setup.step.", "setup.hint.", "setup.touch.", "edit.class.", "edit.from_", "edit.why.", "export.", "filter.older_", "group.by.", "pace.bad_", "rung.", "triage.field.",
}

func TestEveryKeyIsUsed(t *testing.T) {
	t.Parallel()
	var all strings.Builder
	eachSource(t, func(_, text string) { all.WriteString(text) })
	for _, key := range locale.Keys(locale.English) {
		put := slices.ContainsFunc(assembled, func(start string) bool { return strings.HasPrefix(key, start) })
		if !put && !strings.Contains(all.String(), `"`+key+`"`) {
			t.Errorf("%s is in the catalog, but nothing uses it", key)
		}
	}
}

// eachSource calls f for every page, component and handler.
func eachSource(t *testing.T, f func(path, text string)) {
	t.Helper()
	for _, dir := range []string{"..", "../../web"} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			source := strings.HasSuffix(path, ".templ") || strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_templ.go") && !strings.HasSuffix(path, "_test.go")
			if err != nil || d.IsDir() || !source {
				return err
			}
			b, err := os.ReadFile(path)
			f(path, string(b))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestChineseWording(t *testing.T) {
	t.Parallel()
	here := locale.Locale{Tag: locale.Chinese}
	han := `[\p{Han}]`
	unspaced := regexp.MustCompile(han + `[A-Za-z0-9]|[A-Za-z0-9]` + han)
	for _, key := range locale.Keys(locale.Chinese) {
		text := here.Text(key)
		if strings.HasPrefix(key, "time.layout.") {
			continue // 11月30日 is written without
		}
		if strings.ContainsAny(text, "!！你") {
			t.Errorf("%s: %q: no exclamation marks, and 您", key, text)
		}
		if m := unspaced.FindString(text); m != "" {
			t.Errorf("%s: %q: a space belongs between Han and Latin or digits (%s)", key, text, m)
		}
		if m := regexp.MustCompile(han + `[,;:?]`).FindString(text); m != "" {
			t.Errorf("%s: %q: punctuation is full-width (%s)", key, text, m)
		}
	}
}

func TestEnglishWording(t *testing.T) {
	t.Parallel()
	bad := regexp.MustCompile(`(?i)\b(oops|success\w*|successfully|exactly.once delivery|error group|retry (this|the) letter|we|our)\b|!`)
	here := locale.Locale{Tag: locale.English}
	for _, key := range locale.Keys(locale.English) {
		if m := bad.FindString(here.Text(key)); m != "" && here.Text(key) != "Not ours to know: another program runs this group." {
			t.Errorf("%s: %q holds %q", key, here.Text(key), m)
		}
	}
}
