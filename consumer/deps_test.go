package consumer

import (
	"os/exec"
	"strings"
	"testing"
)

// A service that embeds the library pays for what it uses: the core brings the API
// of OpenTelemetry and a JSON reader, and no broker, database or exporter.
func TestCoreIsLight(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	light := []string{"oncemore/consumer", "github.com/tidwall/", "go.opentelemetry.io/otel", "go.opentelemetry.io/auto/sdk", "github.com/go-logr/", "github.com/cespare/xxhash"}
	for path := range strings.FieldsSeq(string(out)) {
		first, _, _ := strings.Cut(path, "/")
		if strings.Contains(path, "otel/sdk") || strings.Contains(first, ".") && !hasPrefix(path, light) && !hasPrefix(path, []string{"vendor/", "golang.org/x/"}) {
			t.Errorf("importing the core brings %s", path)
		}
	}
}

func hasPrefix(path string, any []string) bool {
	for _, p := range any {
		if strings.HasPrefix(path, p) {
			return true
		}
	}
	return false
}
