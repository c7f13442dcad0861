package web_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

var metricName = regexp.MustCompile(`\boncemore_[a-z_]+\b`)

// The ready rules parse, are complete, and name only metrics that there are, with
// rules that there are.
func TestPrometheusRulesFitTheMetrics(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../deploy/prometheus-rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	decoder := yaml.NewDecoder(strings.NewReader(string(b)))
	decoder.KnownFields(true)
	if err := decoder.Decode(&file); err != nil || len(file.Groups) != 1 || len(file.Groups[0].Rules) < 10 {
		t.Fatalf("%d groups, %v", len(file.Groups), err)
	}
	known := map[string]bool{}
	for _, name := range sources(t, "metrics*.go", metricName) {
		known[name] = true
	}
	rules := sources(t, "../cmd/console/app_alerts.go", regexp.MustCompile(`Name: "([a-z_]+)", Severity`))
	seen := map[string]bool{}
	for _, r := range file.Groups[0].Rules {
		if !regexp.MustCompile(`^[A-Za-z]+$`).MatchString(r.Alert) || seen[r.Alert] || r.Annotations["summary"] == "" || r.Annotations["description"] == "" ||
			!slices.Contains([]string{"critical", "warning"}, r.Labels["severity"]) || strings.Count(r.Expr, "(") != strings.Count(r.Expr, ")") || strings.Count(r.Expr, "{") != strings.Count(r.Expr, "}") {
			t.Errorf("%q is incomplete: %+v", r.Alert, r)
		}
		seen[r.Alert] = true
		for _, name := range metricName.FindAllString(r.Expr, -1) {
			if !known[name] {
				t.Errorf("%s asks for %s, which there is not", r.Alert, name)
			}
		}
		for _, m := range regexp.MustCompile(`rule="([a-z_]+)"`).FindAllStringSubmatch(r.Expr, -1) {
			if !slices.Contains(rules, m[1]) {
				t.Errorf("%s names rule %s, which there is not", r.Alert, m[1])
			}
		}
	}
}

// sources finds what the expression, or its first group, matches in files.
func sources(t *testing.T, pattern string, find *regexp.Regexp) (found []string) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no %s: %v", pattern, err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range find.FindAllStringSubmatch(string(b), -1) {
			found = append(found, m[len(m)-1])
		}
	}
	return found
}
