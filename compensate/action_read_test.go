package compensate

import (
	"strings"
	"testing"
)

// What an action's file may not say, each with the sentence that says what to do.
func TestActionsThatAreRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ from, to, want string }{
		"ddl":                   {"insert into effect", "truncate effect --", "cannot be rolled back"},
		"ddl behind a comment":  {"insert into effect", "/* insert */ drop table effect; --", "cannot be rolled back"},
		"two statements":        {"now())", "now()); delete from effect", "one statement each"},
		"a guard that changes":  {"kind: sql", "kind: sql\nguard: delete from effect", "guard has to be a query"},
		"a probe that changes":  {"kind: sql", "kind: sql\nprobe: {connection: pg, sql: 'update effect set amount = 0'}", "one query"},
		"an unknown key":        {"kind: sql", "kind: sql\nretries: 3", "retries"},
		"an unknown type":       {"missing_effect", "missing_money", "missing_effect"},
		"an amount as a number": {"kind: sql", "kind: sql\nlimits: {amount_per_day: 250}", "in quotes"},
		"a rate without a unit": {"kind: sql", "kind: sql\nlimits: {rate: 5}", "5/s"},
		"no connection":         {"connection: pg\n", "", "connection"},
	} {
		text := strings.Replace(sqlCredit, c.from, c.to, 1)
		if text == sqlCredit {
			t.Fatalf("%s changes nothing", name)
		}
		if _, err := ParseAction("action.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "action.yaml:") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, c := range map[string]struct{ add, want string }{
		"a secret header":    {"headers: {authorization: Bearer abc}", "belongs under urls"},
		"our header":         {"headers: {Idempotency-Key: mine}", "for every retry"},
		"a float in a body":  {"probe: {url: \"{{points-api}}/x\", body: {amount: 1.5}}", "has to be text"},
		"a status":           {"success: [ok]", "409 or 5xx"},
		"a time-out":         {"timeout: 26s", "at most 25s"},
		"replay without one": {"", ""},
	} {
		_, err := ParseAction("action.yaml", []byte(httpCredit+c.add+"\n"))
		if c.want == "" {
			if err != nil {
				t.Errorf("what is right: %v", err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := ParseAction("action.yaml", []byte("action: again\nkind: replay_event\n")); err == nil || !strings.Contains(err.Error(), "needs group") {
		t.Errorf("replay_event without a group: %v", err)
	}
	a, err := ParseAction("action.yaml", []byte(strings.Replace(sqlCredit, "sql: insert", "sql: |\n  -- books; it\n  insert", 1)))
	if err == nil {
		err = Check([]*Action{a}, nil, map[string]bool{"pg": true})
	}
	if err != nil {
		t.Errorf("a comment in front: %v", err)
	}
}

// What a file names has to be in the config.
func TestCheckNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	var actions []*Action
	for _, text := range []string{sqlCredit, httpCredit} {
		a, err := ParseAction("action.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		actions = append(actions, a)
	}
	err := Check(actions, nil, nil)
	for _, want := range []string{"compensation_url_env", "there is no points-api under urls"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
	if err := Check(actions, map[string]bool{"points-api": true}, map[string]bool{"pg": true}); err != nil {
		t.Errorf("with both: %v", err)
	}
}
