package testkit

import (
	"os"
	"os/exec"
	"testing"
)

// Chromium is the path of a browser: ONCEMORE_CHROMIUM, else one of the usual
// names. Without one the test skips, or fails where services are required.
func Chromium(t testing.TB) string {
	t.Helper()
	if path := os.Getenv("ONCEMORE_CHROMIUM"); path != "" {
		return path
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if Required() {
		t.Fatal("ONCEMORE_SERVICES=required, but there is no chromium: install it, or set ONCEMORE_CHROMIUM")
	}
	t.Skip("needs a browser: install chromium, or set ONCEMORE_CHROMIUM")
	return ""
}
