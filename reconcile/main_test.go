package reconcile

import (
	"os"
	"testing"
)

// TestMain lets the crash test run this binary as a console of its own.
func TestMain(m *testing.M) {
	if spec := os.Getenv(childEnv); spec != "" {
		runChild(spec)
		return
	}
	os.Exit(m.Run())
}
