package draft_test

import (
	"strings"
	"testing"

	"oncemore/reconcile"
	"oncemore/reconcile/draft"
)

const job = `# by ada
job: points
schedule: "*/15 * * * *"   # often
window: {size: 1h, grace: 15m}
consumed:
  connection: shop
  query: >
    select event_id, at from consumed
    where at >= :from and at < :to
  lookup: select event_id, at from consumed where event_id in (:keys)
effect: {connection: shop, query: "select event_id, at from effect where at >= :from and at < :to", lookup: "select event_id, at from effect where event_id in (:keys)"}
key: [event_id]
match: {mode: one_to_one, amount: none, currency: none, consumed_time: at, effect_time: at}
sign_off: {auto_below: "0"}
`

func apply(t *testing.T, text string, values map[string]string) string {
	t.Helper()
	out, err := draft.Apply(text, values)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// A form sends all of its fields back: what nobody changed stays byte for byte.
func TestUnchangedValuesChangeNothing(t *testing.T) {
	t.Parallel()
	texts := map[string]string{"own": job}
	for _, name := range draft.Templates {
		text, err := draft.Template(name)
		if err != nil {
			t.Fatal(err)
		}
		texts[name] = text
	}
	for name, text := range texts {
		values, err := draft.Read(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range draft.Fields { // empty fields come back too
			if _, there := values[f.Path]; !there {
				values[f.Path] = ""
			}
			values[f.Path] = strings.ReplaceAll(values[f.Path], "\n", "\r\n") // as browsers send it
		}
		if out := apply(t, text, values); out != text {
			t.Errorf("%s became\n%s", name, out)
		}
	}
}

func TestTemplatesAreValid(t *testing.T) {
	t.Parallel()
	for _, name := range draft.Templates {
		text, err := draft.Template(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := reconcile.ParseJob(name+".yaml", []byte(text)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := draft.Template("../draft"); err == nil {
		t.Error("a template of another folder")
	}
}

// What is changed is read back by the reader of jobs, and the rest stays: order,
// comments, what somebody added.
func TestChangedValues(t *testing.T) {
	t.Parallel()
	out := apply(t, job, map[string]string{
		"schedule": "*/5 * * * *", "window.size": "2h", "window.overlap": "5m", "timezone": "Asia/Shanghai", "key": "event_id , part",
		"consumed.query": "select event_id, part, at\r\nfrom consumed where at >= :from and at < :to -- ünï: 'x' # y", "effect.timezone": "Asia/Tokyo",
		"tolerance.time": "10m", "sign_off.auto_below": "", "sign_off.required": "false", "limits.breaks": "500", "recheck": "1d,7d",
	})
	j, err := reconcile.ParseJob("job.yaml", []byte(out))
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if j.Schedule != "*/5 * * * *" || j.Zone.String() != "Asia/Shanghai" || len(j.Key) != 2 || j.Consumed.Query != "select event_id, part, at\nfrom consumed where at >= :from and at < :to -- ünï: 'x' # y" ||
		j.Effect.Zone.String() != "Asia/Tokyo" || j.SignOff.AutoBelow != nil || j.SignOff.Required || j.Limits.Breaks != 500 || len(j.Recheck) != 2 || j.Window.Size.Hours() != 2 {
		t.Errorf("%+v\n%s", j, out)
	}
	for _, kept := range []string{"# by ada", "# often", "job: points"} {
		if !strings.Contains(out, kept) {
			t.Errorf("%q is gone:\n%s", kept, out)
		}
	}
	if strings.Index(out, "consumed:") > strings.Index(out, "effect:") || strings.Index(out, "window:") > strings.Index(out, "consumed:") {
		t.Errorf("another order:\n%s", out)
	}
}

// Decimals stay text and values that look like YAML stay values.
func TestValuesStayWhatWasTyped(t *testing.T) {
	t.Parallel()
	for path, value := range map[string]string{
		"tolerance.amount": "0.10", "consumed.connection": "yes", "match.amount": "null", "schedule": "0 3 * * 1", "consumed.lookup": "select 1 -- : { [ & * # %",
		"job": "a: b", "match.currency": "'x", "timezone": "~",
	} {
		values, err := draft.Read(apply(t, job, map[string]string{path: value}))
		if err != nil || values[path] != value {
			t.Errorf("%s: %q became %q, %v", path, value, values[path], err)
		}
	}
}

// A side whose values are all taken out is gone; one that is filled in is there.
func TestSidesComeAndGo(t *testing.T) {
	t.Parallel()
	three := apply(t, job, map[string]string{"outbox.connection": "shop", "outbox.query": "select 1", "outbox.lookup": "select 2"})
	if values, err := draft.Read(three); err != nil || values["outbox.lookup"] != "select 2" {
		t.Errorf("%v %v", values, err)
	}
	if two := apply(t, three, map[string]string{"outbox.connection": "", "outbox.query": "", "outbox.lookup": ""}); strings.Contains(two, "outbox") {
		t.Errorf("the outbox stays:\n%s", two)
	}
	for _, bad := range []string{"", "- a", "job: [", "text"} {
		if _, err := draft.Apply(bad, map[string]string{"job": "x"}); err == nil {
			t.Errorf("%q was changed", bad)
		}
	}
}
